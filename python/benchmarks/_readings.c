/* What one reading of a thread's counters costs, for each kind of counter: prints a line for each, its name, a tab, and the
   median ns per reading, or after an "x" why there is none. Linked with the core's perf*.c. */
#define _GNU_SOURCE
#include "cprofiling/devices/counters.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 25, READINGS = 2000 };

static const struct {
    const char *name;
    unsigned counters;
    cprof_counter first;
} kinds[] = {
    {"cpu_time", CPROF_COUNTER_BIT(CPROF_COUNTER_CPU_TIME), CPROF_COUNTER_CPU_TIME},
    {"context_switches and page_faults",
     CPROF_COUNTER_BIT(CPROF_COUNTER_CONTEXT_SWITCHES) | CPROF_COUNTER_BIT(CPROF_COUNTER_PAGE_FAULTS),
     CPROF_COUNTER_CONTEXT_SWITCHES},
    {"one hardware counter", CPROF_COUNTER_BIT(CPROF_COUNTER_CYCLES), CPROF_COUNTER_CYCLES},
    {"all hardware counters", CPROF_COUNTER_HARDWARE, CPROF_COUNTER_CYCLES},
};

static double now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static double reading_ns(unsigned counters)
{
    double rounds[ROUNDS];
    cprof_counter_reading reading;
    for (int i = 0; i < ROUNDS; i++) {
        double start = now_ns();
        for (int j = 0; j < READINGS; j++) {
            cprof_counters_read(counters, &reading);
        }
        rounds[i] = (now_ns() - start) / READINGS;
    }
    qsort(rounds, ROUNDS, sizeof rounds[0], by_value);
    return rounds[ROUNDS / 2];
}

int main(void)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char reason[256];
        if (cprof_counters_reason(kinds[i].first, reason, sizeof reason)) {
            (void)printf("%s\tx%s\n", kinds[i].name, reason);
        } else {
            (void)printf("%s\t%.1f\n", kinds[i].name, reading_ns(kinds[i].counters));
        }
    }
    return EXIT_SUCCESS;
}
