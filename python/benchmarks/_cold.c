/* What it costs to open and close a call whose data and code are no longer in the second-level cache: prints the ns with all
   in caches, and those without. Linked with a whole core: today's, or that of the commit in cold.py. */
#define _GNU_SOURCE
#include "cprofiling/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#if __has_include("cprofiling/calls/call.h")
#include "cprofiling/calls/call.h"
#else
#include "cprofiling/span.h"
#define cprof_call_open cprof_span_open
#define cprof_call_close cprof_span_close
#endif

enum { SAMPLES = 500, QUARTER = SAMPLES / 4, LINE = 64, USUAL_SIZE = 2 << 20, TIMES_ITS_SIZE = 4 };

static double now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* The processor's counter, after what came before and before what comes after. */
static inline uint64_t read_counter(void)
{
#if defined(__x86_64__)
    __builtin_ia32_lfence();
    uint64_t ticks = __builtin_ia32_rdtsc();
    __builtin_ia32_lfence();
#else
    uint64_t ticks;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks)::"memory");
#endif
    return ticks;
}

static int by_value(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Reads memory until nothing else is left in the second-level cache. */
static void evict(const volatile char *memory, size_t size)
{
    for (size_t i = 0; i < size; i += LINE) {
        (void)memory[i];
    }
}

/* The ticks of a call, or, without an accumulator, of measuring nothing, after memory of this size was read: the mean of the
   middle half of many, as a counter may go in steps of some ns. */
static double mean_ticks(cprof_registry *registry, cprof_accum *accum, const char *memory, size_t size)
{
    static cprof_chain chain;
    uint64_t ticks[SAMPLES];
    cprof_thread *thread = cprof_thread_get();
    for (int i = 0; i < SAMPLES; i++) {
        evict(memory, size);
        uint64_t start = read_counter();
        if (accum != NULL) {
            cprof_span *span = cprof_call_open(thread, &chain, accum, cprof_registry_state(registry), registry, accum);
            cprof_call_close(thread, &chain, span, CPROF_OUTCOME_SUCCESS, false);
        }
        ticks[i] = read_counter() - start;
    }
    qsort(ticks, SAMPLES, sizeof ticks[0], by_value);
    uint64_t sum = 0;
    for (int i = QUARTER; i < SAMPLES - QUARTER; i++) {
        sum += ticks[i];
    }
    return (double)sum / (SAMPLES - 2 * QUARTER);
}

int main(void)
{
    long size_l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    size_t size = (size_l2 > 0 ? (size_t)size_l2 : USUAL_SIZE) * TIMES_ITS_SIZE;
    cprof_process_start();
    cprof_registry *registry = cprof_registry_create(1);
    if (registry == NULL || cprof_thread_get() == NULL) {
        return EXIT_FAILURE;
    }
    cprof_registry_configure(registry, CPROF_FLAG_STATS, 0, false);
    cprof_accum *accum = cprof_registry_accum(registry, (cprof_names){cprof_name_of("inference"), cprof_name_of("node")});
    char *memory = malloc(size);
    if (accum == NULL || memory == NULL) {
        free(memory);
        return EXIT_FAILURE;
    }
    for (size_t i = 0; i < size; i++) {
        memory[i] = (char)i;
    }
    double start_ns = now_ns();
    uint64_t start = read_counter();
    double hot = mean_ticks(registry, accum, memory, 0) - mean_ticks(registry, NULL, memory, 0);
    double cold = mean_ticks(registry, accum, memory, size) - mean_ticks(registry, NULL, memory, size);
    double ns_per_tick = (now_ns() - start_ns) / (double)(read_counter() - start);
    (void)printf("%.2f %.2f\n", hot * ns_per_tick, cold * ns_per_tick);
    free(memory);
    return EXIT_SUCCESS;
}
