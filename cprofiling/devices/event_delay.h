/* How long work waits in a device's queue, estimated from times of two clocks that nobody compares.
 *
 * For an event the host knows when it gave it to the queue, and the device, on its own clock, when it passed it. What the
 * device's clock is behind the host's is not known; but no event is passed before it was given, so that each one says how much
 * it is at least: host time less device time. The largest of the last 10 to 20 s is taken for the truth, and a delay is what an
 * event was passed later than that. So a delay is 0 or more, relative to the least delay that was seen in that time (the first
 * one is 0, and a stream that always has to wait looks quicker than it is), and it is wrong by what the clocks drift apart in
 * that time: some 10 to 100 us.
 *
 * Pure arithmetic. Thread rule: one thread at a time for one estimate.
 */
#ifndef CPROF_EVENT_DELAY_H
#define CPROF_EVENT_DELAY_H

#include "cprofiling/base/clock.h"

#define CPROF_EVENT_DELAY_WINDOW_NS INT64_C(10000000000)

/* Zeroed memory has seen nothing. */
typedef struct {
    bool is_begun;
    cprof_ns window_ns; /* host time at which the present window began */
    cprof_ns offset_ns; /* the largest of the present window */
    cprof_ns previous_offset_ns;
} cprof_event_delay;

/* The delay of an event that was given at `host_ns` and passed at `device_ns`. Events may come in any order. */
cprof_ns cprof_event_delay_of(cprof_event_delay *delay, cprof_ns host_ns, cprof_ns device_ns);

/* Converts the driver's times, to the nearest nanosecond: the one place where that is done. They are milliseconds with 24 bits,
 * of a clock that counts half microseconds: nanoseconds are exact below 8.3 ms (2^23 ns), the clock's own resolution is kept
 * up to 4 s. False when it is no time that 64 bits can hold. */
bool cprof_event_delay_ns_of_ms(float ms, cprof_ns *ns);

#endif
