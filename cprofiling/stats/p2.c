#include "cprofiling/stats/p2.h"

#include <string.h>

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

/* Moves marker i by d (1 or -1): by the parabola through it and its neighbours, or linearly where that would disorder them. */
static void move_marker(cprof_p2 *e, int i, int d)
{
    const double *q = e->height;
    double left = (double)(e->position[i] - e->position[i - 1]);
    double right = (double)(e->position[i + 1] - e->position[i]);
    double moved =
        q[i] + d / (left + right) * ((left + d) * (q[i + 1] - q[i]) / right + (right - d) * (q[i] - q[i - 1]) / left);
    if (!(q[i - 1] < moved && moved < q[i + 1])) {
        moved = q[i] + d * (q[i + d] - q[i]) / (double)(e->position[i + d] - e->position[i]);
    }
    e->height[i] = moved;
    e->position[i] += d;
}

/* `excess` is four times the distance to the desired position: an integer, so that nothing is lost to rounding. */
static void adjust_marker(cprof_p2 *e, int i, int64_t excess)
{
    if (excess >= 4 && e->position[i + 1] - e->position[i] > 1) {
        move_marker(e, i, 1);
    } else if (excess <= -4 && e->position[i - 1] - e->position[i] < -1) {
        move_marker(e, i, -1);
    }
}

void cprof_p2_add(cprof_p2 *e, double sample)
{
    if (__builtin_expect(e->count < MARKERS, 0)) {
        e->height[e->count++] = sample;
        if (e->count == MARKERS) {
            sort(e->height, MARKERS);
            for (int i = 0; i < MARKERS; i++) {
                e->position[i] = i + 1;
            }
        }
        return;
    }
    double *q = e->height;
    if (sample < q[0]) {
        q[0] = sample;
    } else if (sample > q[4]) {
        q[4] = sample;
    }
    e->position[1] += sample < q[1];
    e->position[2] += sample < q[2];
    e->position[3] += sample < q[3];
    e->position[4]++;
    int64_t last = e->count++;
    for (int i = 1; i <= 3; i++) {
        adjust_marker(e, i, 4 + i * last - 4 * e->position[i]);
    }
}

double cprof_p2_median(const cprof_p2 *e)
{
    if (e->count >= MARKERS) {
        return e->height[2];
    }
    if (e->count == 0) {
        return 0.0;
    }
    double sorted[MARKERS];
    memcpy(sorted, e->height, sizeof sorted);
    sort(sorted, e->count);
    int64_t middle = e->count / 2;
    return e->count % 2 != 0 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0;
}
