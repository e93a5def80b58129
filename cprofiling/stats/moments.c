#include "cprofiling/stats/moments.h"

#include <math.h>

#define NS_PER_MS 1e6

static cprof_pair two_sum(double a, double b)
{
    double sum = a + b;
    double part = sum - a;
    return (cprof_pair){sum, (a - (sum - part)) + (b - part)};
}

static cprof_pair two_product(double a, double b)
{
    const double splitter = 134217729.0; /* 2^27 + 1 */
    double ta = splitter * a;
    double tb = splitter * b;
    double ah = ta - (ta - a);
    double bh = tb - (tb - b);
    double al = a - ah;
    double bl = b - bh;
    double product = a * b;
    return (cprof_pair){product, ((ah * bh - product) + ah * bl + al * bh) + al * bl};
}

static cprof_pair pair_add(cprof_pair a, cprof_pair b)
{
    cprof_pair sum = two_sum(a.high, b.high);
    cprof_pair rest = two_sum(a.low, b.low);
    cprof_pair first = two_sum(sum.high, sum.low + rest.high);
    return two_sum(first.high, first.low + rest.low);
}

static cprof_pair pair_multiply(cprof_pair a, cprof_pair b)
{
    cprof_pair product = two_product(a.high, b.high);
    return two_sum(product.high, product.low + (a.high * b.low + a.low * b.high));
}

static cprof_pair pair_divide(cprof_pair a, double divisor)
{
    double quotient = a.high / divisor;
    cprof_pair product = two_product(quotient, divisor);
    double rest = ((a.high - product.high) - product.low) + a.low;
    return two_sum(quotient, rest / divisor);
}

static cprof_pair pair_of_u128(cprof_u128 value)
{
    double high = (double)value;
    if (high >= 0x1p128) { /* rounded up beyond the type */
        return (cprof_pair){high, -(double)(-value)};
    }
    cprof_u128 back = (cprof_u128)high;
    return (cprof_pair){high, back > value ? -(double)(back - value) : (double)(value - back)};
}

/* The sums of spans and of fractional samples together, in ms and ms². */
static cprof_pair whole_total_ms(const cprof_moments *m)
{
    return pair_add(pair_divide(pair_of_u128(m->total_ns), NS_PER_MS), m->total_ms);
}

static cprof_pair whole_squares_ms2(const cprof_moments *m)
{
    cprof_pair top = {(double)m->squares_top * 0x1p128, 0.0};
    cprof_pair squares = pair_add(top, pair_of_u128(m->squares_ns2));
    return pair_add(pair_divide(pair_divide(squares, NS_PER_MS), NS_PER_MS), m->squares_ms2);
}

void cprof_moments_add_ms(cprof_moments *m, double elapsed_ms)
{
    m->total_ms = pair_add(m->total_ms, (cprof_pair){elapsed_ms, 0.0});
    m->squares_ms2 = pair_add(m->squares_ms2, two_product(elapsed_ms, elapsed_ms));
}

void cprof_moments_merge(cprof_moments *m, const cprof_moments *other)
{
    m->total_ns += other->total_ns;
    m->squares_ns2 += other->squares_ns2;
    m->squares_top += other->squares_top + (m->squares_ns2 < other->squares_ns2);
    m->total_ms = pair_add(m->total_ms, other->total_ms);
    m->squares_ms2 = pair_add(m->squares_ms2, other->squares_ms2);
}

double cprof_moments_ns_to_ms(cprof_u128 ns)
{
    return (double)ns / NS_PER_MS;
}

static bool only_spans(const cprof_moments *m)
{
    return m->total_ms.high == 0.0 && m->squares_ms2.high == 0.0;
}

double cprof_moments_total_ms(const cprof_moments *m)
{
    return only_spans(m) ? cprof_moments_ns_to_ms(m->total_ns) : whole_total_ms(m).high;
}

double cprof_moments_mean_ms(const cprof_moments *m, uint64_t count)
{
    if (count == 0) {
        return 0.0;
    }
    if (only_spans(m)) {
        return (double)m->total_ns / ((double)count * NS_PER_MS);
    }
    return pair_divide(whole_total_ms(m), (double)count).high;
}

/* A whole number below 2^256. */
typedef struct {
    cprof_u128 low;
    cprof_u128 high;
} whole;

static whole whole_product(cprof_u128 a, cprof_u128 b)
{
    const cprof_u128 mask = UINT64_MAX;
    cprof_u128 low = (a & mask) * (b & mask);
    cprof_u128 left = (a >> 64) * (b & mask);
    cprof_u128 right = (a & mask) * (b >> 64);
    cprof_u128 middle = (low >> 64) + (left & mask) + (right & mask);
    cprof_u128 high = (a >> 64) * (b >> 64) + (left >> 64) + (right >> 64) + (middle >> 64);
    return (whole){middle << 64 | (low & mask), high};
}

/* n Σx², which fits, as n is below 2^64 and each x below 2^63. */
static whole n_squares_ns2(const cprof_moments *m, uint64_t count)
{
    whole squares = whole_product(m->squares_ns2, count);
    squares.high += (cprof_u128)m->squares_top * count;
    return squares;
}

/* n Σx² - (Σx)² in ns²: exact until it is rounded. */
static double spread_ns2(const cprof_moments *m, uint64_t count)
{
    whole squares = n_squares_ns2(m, count);
    whole square = whole_product(m->total_ns, m->total_ns);
    cprof_u128 borrow = squares.low < square.low;
    return (double)(squares.high - square.high - borrow) * 0x1p128 + (double)(squares.low - square.low);
}

static bool spread_is_possible(const cprof_moments *m, uint64_t count)
{
    whole squares = n_squares_ns2(m, count);
    whole square = whole_product(m->total_ns, m->total_ns);
    return squares.high != square.high ? squares.high > square.high : squares.low >= square.low;
}

/* Σ(x - mean)², which rounding may make a little less than 0. */
static cprof_pair deviations_ms2(const cprof_moments *m, double n)
{
    cprof_pair total = whole_total_ms(m);
    cprof_pair mean_square = pair_divide(pair_multiply(total, total), n);
    return pair_add(whole_squares_ms2(m), (cprof_pair){-mean_square.high, -mean_square.low});
}

bool cprof_moments_are_possible(const cprof_moments *m, uint64_t count, double least_ms, double most_ms)
{
    if (count == 0) {
        return cprof_moments_total_ms(m) == 0.0;
    }
    if (only_spans(m) && !spread_is_possible(m, count)) {
        return false;
    }
    double n = (double)count;
    double total = cprof_moments_total_ms(m);
    double most_total = (n - 1.0) * most_ms + least_ms;
    double slack = most_total * 0x1p-40;
    if (total < (n - 1.0) * least_ms + most_ms - slack || total > most_total + slack) {
        return false;
    }
    double range = most_ms - least_ms;
    double deviations = deviations_ms2(m, n).high;
    double most_deviations = (n * most_ms - total) / n * (total - n * least_ms); /* R. Bhatia and C. Davis, 2000 */
    slack = slack * most_ms + 0x1p-1000; /* squares of the smallest doubles are rounded to nothing */
    return deviations >= (count > 1 ? range * range / 2.0 : 0.0) - slack && deviations <= most_deviations + slack;
}

double cprof_moments_std_ms(const cprof_moments *m, uint64_t count)
{
    if (count < 2) {
        return 0.0;
    }
    double n = (double)count;
    if (only_spans(m)) {
        return sqrt(spread_ns2(m, count)) / n / NS_PER_MS;
    }
    double variance = pair_divide(deviations_ms2(m, n), n).high;
    return variance > 0.0 ? sqrt(variance) : 0.0;
}
