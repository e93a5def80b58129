#include "cprofiling/devices/cupti_clock.h"

#define UNIT ((int64_t)CPROF_CLOCK_UNIT)

enum {
    LEAST_SPAN_NS = 50 * 1000, /* between two moments that tell a rate */
    NEAR_RATE = 5, /* rates that differ by less than one part in so many are the same, badly measured: other clocks tick in
                    * other units */
    STEADY_NS = 2000,
    PATIENCE_NS = 1000 * 1000,
    UNCERTAINTY = 1024, /* one part in so many is what a rate that was measured may be wrong by, */
    DRIFT = 5000,       /* and one in so many what clocks of one rate drift apart by */
};

static const int64_t farthest_ns = INT64_C(1) << 61;
static const cprof_ns farthest_step_ns = INT64_C(366) * 86400 * 1000000000; /* by which somebody sets the time of day */

cprof_ns cprof_cupti_clock_ours(const cprof_cupti_clock *line, cprof_ticks ticks)
{
    if ((int64_t)(ticks - line->origin.ticks) < 0) {
        return line->origin.ns - cprof_clock_between(ticks, line->origin.ticks);
    }
    return line->origin.ns + cprof_clock_between(line->origin.ticks, ticks);
}

/* Nanoseconds of ours in one of CUPTI's ticks, times 2^32; 0: the moments do not tell. */
static int64_t measured_rate(const cprof_cupti_clock *line)
{
    cprof_ns ours = cprof_cupti_clock_ours(line, line->last.ours) - cprof_cupti_clock_ours(line, line->first.ours);
    int64_t theirs = (int64_t)(line->last.theirs - line->first.theirs);
    if (ours < LEAST_SPAN_NS || theirs <= 0) {
        return 0;
    }
    __int128 rate = ((__int128)ours << 32) / theirs;
    return rate < INT64_MAX ? (int64_t)rate : 0;
}

static int64_t rate_of(const cprof_cupti_clock *line)
{
    int64_t rate = measured_rate(line);
    return rate != 0 ? rate : UNIT;
}

static bool is_near(int64_t rate)
{
    return rate > UNIT - UNIT / NEAR_RATE && rate < UNIT + UNIT / NEAR_RATE;
}

static cprof_ns scaled(int64_t ticks, int64_t rate)
{
    __int128 ns = ((__int128)ticks * rate + UNIT / 2) >> 32;
    return (cprof_ns)(ns > farthest_ns ? farthest_ns : ns < -farthest_ns ? -farthest_ns : ns);
}

/* What ours has gained on theirs, of equal rates, from the first moment to the last. */
static int64_t gained(const cprof_cupti_clock *line)
{
    cprof_ns ours = cprof_cupti_clock_ours(line, line->last.ours) - cprof_cupti_clock_ours(line, line->first.ours);
    return (int64_t)((uint64_t)ours - (line->last.theirs - line->first.theirs));
}

/* Clocks that have not drifted apart, but by what readings differ by, keep all durations. */
static cprof_ns on_steady_clocks(const cprof_cupti_clock *line, uint64_t stamp)
{
    cprof_ns distance = scaled((int64_t)(stamp - line->first.theirs), UNIT);
    return cprof_cupti_clock_ours(line, line->first.ours) + gained(line) / 2 + distance;
}

cprof_ns cprof_cupti_clock_theirs(const cprof_cupti_clock *line, uint64_t stamp)
{
    int64_t rate = rate_of(line);
    if (is_near(rate) && gained(line) >= -STEADY_NS && gained(line) <= STEADY_NS) {
        return on_steady_clocks(line, stamp);
    }
    bool is_after = (int64_t)(stamp - line->last.theirs) >= 0;
    bool is_within = !is_after && (int64_t)(stamp - line->first.theirs) >= 0;
    const cprof_cupti_moment *base = is_after ? &line->last : &line->first;
    /* Outside of the known span, the nominal rate is better than a measured one. */
    int64_t rate_here = is_near(rate) && !is_within ? UNIT : rate;
    cprof_ns distance = scaled((int64_t)(stamp - base->theirs), rate_here);
    return cprof_cupti_clock_ours(line, base->ours) + distance;
}

cprof_ns cprof_cupti_clock_between(const cprof_cupti_clock *line, uint64_t start, uint64_t end)
{
    int64_t rate = rate_of(line);
    return scaled((int64_t)(end - start), is_near(rate) ? UNIT : rate);
}

static cprof_ns distance_of(cprof_ns one, cprof_ns other)
{
    return one > other ? one - other : other - one;
}

/* A rate of ticks that are no nanoseconds may at first be a bad guess. */
bool cprof_cupti_clock_continue(cprof_cupti_clock *line, cprof_cupti_moment now)
{
    int64_t rate = measured_rate(line);
    cprof_ns ours = cprof_cupti_clock_ours(line, now.ours);
    cprof_ns passed = distance_of(ours, cprof_cupti_clock_ours(line, line->last.ours));
    cprof_ns fault = distance_of(ours, cprof_cupti_clock_theirs(line, now.theirs));
    bool goes_on = rate == 0 || fault <= PATIENCE_NS + passed / (is_near(rate) ? UNCERTAINTY : NEAR_RATE);
    line->last = now;
    if (!goes_on) {
        line->first = now;
    }
    return goes_on;
}

static bool is_between(const cprof_cupti_clock *line, cprof_ns at, cprof_ticks from, cprof_ticks to, cprof_ns tolerance)
{
    return at >= cprof_cupti_clock_ours(line, from) - tolerance && at <= cprof_cupti_clock_ours(line, to) + tolerance;
}

bool cprof_cupti_clock_is_credible(const cprof_cupti_clock *line, uint64_t stamp, cprof_ticks from, cprof_ticks to)
{
    cprof_ns at = cprof_cupti_clock_theirs(line, stamp);
    cprof_ns first = distance_of(at, cprof_cupti_clock_ours(line, line->first.ours));
    cprof_ns last = distance_of(at, cprof_cupti_clock_ours(line, line->last.ours));
    cprof_ns tolerance = PATIENCE_NS + (first < last ? first : last) / (is_near(rate_of(line)) ? DRIFT : UNCERTAINTY);
    return is_between(line, at, from, to, tolerance);
}

bool cprof_cupti_clock_is_possible(const cprof_cupti_clock *line, uint64_t start, uint64_t end, cprof_ticks from,
                                   cprof_ticks to)
{
    cprof_ns most = cprof_cupti_clock_ours(line, to) - cprof_cupti_clock_ours(line, from);
    cprof_ns duration = cprof_cupti_clock_between(line, start, end);
    return duration >= 0 && duration <= most + PATIENCE_NS + most / UNCERTAINTY &&
           is_between(line, cprof_cupti_clock_theirs(line, start), from, to, farthest_step_ns);
}
