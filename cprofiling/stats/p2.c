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

/* Moves the marker at `q` by d (1 or -1), `left` and `right` of its neighbours: by the parabola through the three, or linearly
 * where that would disorder them. */
static void move_marker(double *q, double left, double right, int d)
{
    double moved = q[0] + d / (left + right) * ((left + d) * (q[1] - q[0]) / right + (right - d) * (q[0] - q[-1]) / left);
    if (!(q[-1] < moved && moved < q[1])) {
        moved = q[0] + d * (q[d] - q[0]) / (d > 0 ? right : -left);
    }
    q[0] = moved;
}

/* Adjusts the marker at `q`, of position `at` between those of its neighbours; returns its new position. `excess` is four times
 * the distance to the desired one: an integer, so that nothing is lost to rounding. */
static int64_t adjust_marker(double *q, int64_t before, int64_t at, int64_t behind, int64_t excess)
{
    int d = excess >= 4 && behind - at > 1 ? 1 : excess <= -4 && before - at < -1 ? -1 : 0;
    if (d != 0) {
        move_marker(q, (double)(at - before), (double)(behind - at), d);
    }
    return at + d;
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
    /* Scalars: vectors that GCC makes of the array are loaded across stores that are still on their way. */
    int64_t first = e->position[1] + (sample < q[1]);
    int64_t second = e->position[2] + (sample < q[2]);
    int64_t third = e->position[3] + (sample < q[3]);
    int64_t last = e->count++;
    first = adjust_marker(q + 1, e->position[0], first, second, 4 + last - 4 * first);
    second = adjust_marker(q + 2, first, second, third, 4 + 2 * last - 4 * second);
    third = adjust_marker(q + 3, second, third, last + 1, 4 + 3 * last - 4 * third);
    e->position[1] = first;
    e->position[2] = second;
    e->position[3] = third;
    e->position[4] = last + 1;
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
