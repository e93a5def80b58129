#include "cprofiling/stats/counter.h"

static const struct {
    const char *name;
    const char *unit;
} counters[CPROF_COUNTER_COUNT] = {
#define PERF_WORDS(constant, name, unit) {name, unit},
    CPROF_COUNTER_MAP(PERF_WORDS)
#undef PERF_WORDS
};

const char *cprof_counter_name(cprof_counter counter)
{
    return counters[counter].name;
}

const char *cprof_counter_unit(cprof_counter counter)
{
    return counters[counter].unit;
}

/* What steps backwards has not moved. */
static uint64_t advance(uint64_t before, uint64_t after)
{
    return after > before ? after - before : 0;
}

static void scale_hardware(cprof_counter_reading *difference)
{
    if ((difference->known & CPROF_COUNTER_HARDWARE) == 0 || difference->running_ns >= difference->enabled_ns) {
        return;
    }
    if (difference->running_ns == 0) {
        difference->known &= ~CPROF_COUNTER_HARDWARE;
        return;
    }
    difference->estimated = true;
    for (unsigned i = CPROF_COUNTER_CYCLES; i < CPROF_COUNTER_COUNT; i++) {
        /* A value that was counted for a part of the time, as if it had been for all of it. */
        unsigned __int128 whole = (unsigned __int128)difference->values[i] * difference->enabled_ns / difference->running_ns;
        difference->values[i] = whole < UINT64_MAX ? (uint64_t)whole : UINT64_MAX;
    }
}

static void clear_unknown(cprof_counter_reading *reading)
{
    for (unsigned i = 0; i < CPROF_COUNTER_COUNT; i++) {
        if ((reading->known & CPROF_COUNTER_BIT(i)) == 0) {
            reading->values[i] = 0;
        }
    }
}

void cprof_counter_between(const cprof_counter_reading *before, const cprof_counter_reading *after,
                           cprof_counter_reading *difference)
{
    cprof_counter_reading counted = {
        .enabled_ns = advance(before->enabled_ns, after->enabled_ns),
        .running_ns = advance(before->running_ns, after->running_ns),
        .known = before->known & after->known,
    };
    for (unsigned i = 0; i < CPROF_COUNTER_COUNT; i++) {
        counted.values[i] = advance(before->values[i], after->values[i]);
    }
    scale_hardware(&counted);
    clear_unknown(&counted);
    *difference = counted;
}

void cprof_counter_add(cprof_counter_reading *sum, const cprof_counter_reading *difference)
{
    for (unsigned i = 0; i < CPROF_COUNTER_COUNT; i++) {
        sum->values[i] += difference->values[i];
    }
    sum->enabled_ns += difference->enabled_ns;
    sum->running_ns += difference->running_ns;
    sum->known &= difference->known;
    sum->estimated |= difference->estimated;
    clear_unknown(sum);
}
