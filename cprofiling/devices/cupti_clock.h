/* CUPTI's clock by ours: the time of day in most processes, but what some profiler has made it for the rest of the process
 * where that set a clock of its own. Known are moments on both; in between time runs evenly, and beyond them as well as
 * crystals do. That the time of day is set breaks the line. Nothing here locks.
 */
#ifndef CPROF_CUPTI_CLOCK_H
#define CPROF_CUPTI_CLOCK_H

#include "cprofiling/base/clock.h"

/* One moment on both clocks. */
typedef struct {
    cprof_ticks ours;
    uint64_t theirs;
} cprof_cupti_moment;

typedef struct {
    cprof_clock_pair origin; /* what our times are counted from */
    cprof_cupti_moment first;
    cprof_cupti_moment last;
} cprof_cupti_clock;

/* Goes on to a moment. False: one of the clocks was set, or changed, since the last one; the line has only this moment then,
 * and stamps from before have their place on the line as it was. */
bool cprof_cupti_clock_continue(cprof_cupti_clock *line, cprof_cupti_moment now);

/* Ours of a moment on our clock: as CLOCK_MONOTONIC has it. */
cprof_ns cprof_cupti_clock_ours(const cprof_cupti_clock *line, cprof_ticks ticks);

/* Ours of one of CUPTI's stamps, within 2^61 ns; of damaged ones anything. */
cprof_ns cprof_cupti_clock_theirs(const cprof_cupti_clock *line, uint64_t stamp);

/* The time from stamp to stamp, 0 or more for start <= end: as it is where both clocks run at the same rate. */
cprof_ns cprof_cupti_clock_between(const cprof_cupti_clock *line, uint64_t start, uint64_t end);

/* Whether work can have started at a stamp: not before `from`, or after `to`, on our clock, by more than a millisecond and what
 * the clocks may have drifted apart by between the stamp and the nearest known moment. */
bool cprof_cupti_clock_is_credible(const cprof_cupti_clock *line, uint64_t stamp, cprof_ticks from, cprof_ticks to);

/* Whether work that was given to the device at `from` and had ended by `to` can have lasted from stamp to stamp, wherever in
 * time these seem to be: not so far away, though, that they must be of another clock. */
bool cprof_cupti_clock_is_possible(const cprof_cupti_clock *line, uint64_t start, uint64_t end, cprof_ticks from,
                                   cprof_ticks to);

#endif
