#include "cprofiling/stats/p2.h"

#include <string.h>

#define NS_PER_MS 1e6

enum { MARKERS = 5 };

static void sort(double *values, int64_t count)
{
    for (int64_t i = 1; i < count; i++) {
        double value = values[i];
        int64_t k = i;
        for (; k > 0 && values[k - 1] > value; k--) {
            values[k] = values[k - 1];
        }
        values[k] = value;
    }
}

/* The height of a marker that is moved by d (1 or -1), `left` and `right` of its neighbours at `below` and `above`: by the
 * parabola through the three, or linearly where that would disorder them. */
static inline double moved(double below, double q, double above, double left, double right, int d)
{
    double height = q + d / (left + right) * ((left + d) * (above - q) / right + (right - d) * (q - below) / left);
    if (!(below < height && height < above)) {
        height = q + d * ((d > 0 ? above : below) - q) / (d > 0 ? right : -left);
    }
    return height;
}

/* Which way the marker at a position has to move, between those of its neighbours: 1, -1 or 0. `excess` is four times the
 * distance to the desired position: an integer, so that nothing is lost to rounding. */
static inline int direction(int64_t before, int64_t at, int64_t behind, int64_t excess)
{
    return excess >= 4 && behind - at > 1 ? 1 : excess <= -4 && before - at < -1 ? -1 : 0;
}

static void add_first(cprof_p2 *e, double sample)
{
    e->height[e->count++] = sample;
    if (e->count == MARKERS) {
        sort(e->height, MARKERS);
        for (int i = 0; i < MARKERS; i++) {
            e->position[i] = i + 1;
        }
    }
}

/* The markers are scalars here: they stay in registers from sample to sample. */
static void add(cprof_p2 *e, const double *samples, unsigned count)
{
    for (; count > 0 && e->count < MARKERS; count--) {
        add_first(e, *samples++);
    }
    if (count == 0) {
        return;
    }
    double q0 = e->height[0], q1 = e->height[1], q2 = e->height[2], q3 = e->height[3], q4 = e->height[4];
    int64_t n1 = e->position[1], n2 = e->position[2], n3 = e->position[3], last = e->count;
    for (unsigned i = 0; i < count; i++) {
        double sample = samples[i];
        q0 = sample < q0 ? sample : q0;
        q4 = sample > q4 ? sample : q4;
        n1 += sample < q1;
        n2 += sample < q2;
        n3 += sample < q3;
        int d = direction(1, n1, n2, 4 + last - 4 * n1);
        if (d != 0) {
            q1 = moved(q0, q1, q2, (double)(n1 - 1), (double)(n2 - n1), d);
            n1 += d;
        }
        d = direction(n1, n2, n3, 4 + 2 * last - 4 * n2);
        if (d != 0) {
            q2 = moved(q1, q2, q3, (double)(n2 - n1), (double)(n3 - n2), d);
            n2 += d;
        }
        d = direction(n2, n3, last + 1, 4 + 3 * last - 4 * n3);
        if (d != 0) {
            q3 = moved(q2, q3, q4, (double)(n3 - n2), (double)(last + 1 - n3), d);
            n3 += d;
        }
        last++;
    }
    const double height[MARKERS] = {q0, q1, q2, q3, q4};
    const int64_t position[MARKERS] = {1, n1, n2, n3, last};
    memcpy(e->height, height, sizeof height);
    memcpy(e->position, position, sizeof position);
    e->count = last;
}

void cprof_p2_settle(cprof_p2 *e)
{
    double samples[CPROF_P2_WAITING];
    for (unsigned i = 0; i < e->waiting; i++) {
        samples[i] = (double)e->waiting_ns[i] / NS_PER_MS;
    }
    add(e, samples, e->waiting);
    e->waiting = 0;
}

void cprof_p2_add(cprof_p2 *e, double sample_ms)
{
    cprof_p2_settle(e);
    add(e, &sample_ms, 1);
}

double cprof_p2_median(cprof_p2 *e)
{
    cprof_p2_settle(e);
    if (e->count >= MARKERS) {
        return e->height[2];
    }
    if (e->count <= 0) {
        return 0.0;
    }
    double sorted[MARKERS];
    memcpy(sorted, e->height, sizeof sorted);
    sort(sorted, e->count);
    int64_t middle = e->count / 2;
    return e->count % 2 != 0 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0;
}
