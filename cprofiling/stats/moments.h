/* Total, mean and population standard deviation of a stream, exact to rounding.
 *
 * Spans are summed as integers: ns in 128 bits, ns² in 192. Fractional milliseconds (of record()) are summed as pairs of
 * doubles ("double-double"): T. J. Dekker, "A floating-point technique for extending the available precision", Numerische
 * Mathematik 18, 1971. No function here locks.
 */
#ifndef CPROF_MOMENTS_H
#define CPROF_MOMENTS_H

#include "cprofiling/base/clock.h"

typedef unsigned __int128 cprof_u128;

/* The unevaluated sum high + low, |low| at most half a unit in the last place of high. */
typedef struct {
    double high;
    double low;
} cprof_pair;

/* All zero: nothing summed. */
typedef struct {
    cprof_u128 total_ns;    /* of spans */
    cprof_u128 squares_ns2; /* of spans: the low 128 bits, */
    uint64_t squares_top;   /* and the 64 above */
    cprof_pair total_ms;    /* of fractional samples */
    cprof_pair squares_ms2;
} cprof_moments;

/* Adds one span, 0 to 2^63-1 ns. */
static inline void cprof_moments_add_ns(cprof_moments *moments, cprof_ns elapsed_ns)
{
    cprof_u128 square = (cprof_u128)(uint64_t)elapsed_ns * (uint64_t)elapsed_ns;
    moments->total_ns += (uint64_t)elapsed_ns;
    moments->squares_ns2 += square;
    if (__builtin_expect(moments->squares_ns2 < square, 0)) {
        moments->squares_top++;
    }
}

/* Adds one sample of 0 to 1e12 ms. */
void cprof_moments_add_ms(cprof_moments *moments, double elapsed_ms);

/* Adds what `other`, another object, summed. */
void cprof_moments_merge(cprof_moments *moments, const cprof_moments *other);

/* The sum of all samples in ms. */
double cprof_moments_total_ms(const cprof_moments *moments);

/* The mean of `count` samples in ms; 0 for none. */
double cprof_moments_mean_ms(const cprof_moments *moments, uint64_t count);

/* The population standard deviation of `count` samples in ms; 0 for none or one. Of spans exact to rounding; of fractional
 * samples within 1e-12 as long as their mean is below 10^8 times the deviation, as the sums have 106 bits. */
double cprof_moments_std_ms(const cprof_moments *moments, uint64_t count);

/* Whether `count` samples from `least_ms` to `most_ms`, both included, can have these sums. Sums of spans
 * alone are held to n Σx² >= (Σx)² exactly; all else to a part in 2^40, as the ends of the range, and fractional sums, are
 * rounded. */
bool cprof_moments_are_possible(const cprof_moments *moments, uint64_t count, double least_ms, double most_ms);

/* A 128-bit count of ns in ms, rounded to a double. */
double cprof_moments_ns_to_ms(cprof_u128 ns);

#endif
