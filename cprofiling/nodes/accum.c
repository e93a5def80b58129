#include "cprofiling/nodes/accum.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/nodes/thread.h"
#include "cprofiling/stats/p2.h"

#include <math.h>

#define NS_PER_MS 1e6

/* Adds the samples that wait to the markers, or gives these back: once they lack a sample they are of no use. */
static __attribute__((noinline)) void settle_p2_lock_held(cprof_accum *accum)
{
    if (atomic_load_explicit(&accum->epoch->has_p2, memory_order_relaxed)) {
        cprof_p2_settle(accum->p2);
    } else {
        cprof_alloc_release(accum->p2);
        accum->p2 = NULL;
    }
}

static __attribute__((noinline)) void add_suspended_lock_held(cprof_figures *figures, cprof_ns suspended_ns)
{
    if (suspended_ns < 0) {
        figures->active_unknown++;
    } else {
        figures->suspended_ns += (uint64_t)suspended_ns;
    }
}

static inline void set_stop_lock_held(cprof_accum *accum, const cprof_sample *sample)
{
#if CPROF_STRIPES > 1
    accum->last_stop = sample != NULL ? sample->stop : cprof_clock_read();
#else
    (void)accum;
    (void)sample;
#endif
}

static inline void add_span_lock_held(cprof_accum *accum, const cprof_sample *sample)
{
    cprof_ns elapsed_ns = sample->elapsed_ns;
    set_stop_lock_held(accum, sample);
    if (sample->nested_ns > 0) {
        accum->nested_ns += (uint64_t)sample->nested_ns;
    } else if (__builtin_expect(sample->nested_ns < 0, 0)) {
        accum->figures.self_unknown++;
    }
    if (__builtin_expect(sample->suspended_ns != 0, 0)) {
        add_suspended_lock_held(&accum->figures, sample->suspended_ns);
    }
    cprof_moments_add_ns(&accum->moments, elapsed_ns);
    accum->count++;
    accum->last_ns = elapsed_ns;
    accum->least_ns = elapsed_ns < accum->least_ns ? elapsed_ns : accum->least_ns;
    accum->most_ns = elapsed_ns > accum->most_ns ? elapsed_ns : accum->most_ns;
    cprof_histogram_add(&accum->histogram, cprof_histogram_index_ns(elapsed_ns), &accum->figures.histogram_lost);
    if (__builtin_expect(accum->p2 != NULL, 0) && cprof_p2_put(accum->p2, elapsed_ns)) {
        settle_p2_lock_held(accum);
    }
}

static void clear_lock_held(cprof_accum *accum)
{
    cprof_histogram_clear(&accum->histogram);
    accum->figures = (cprof_figures){.min_ms = INFINITY, .max_ms = -INFINITY, .first_ms = -1.0};
    accum->moments = (cprof_moments){0};
    accum->nested_ns = accum->count = 0;
    accum->least_ns = INT64_MAX;
    accum->most_ns = accum->last_ns = -1;
}

/* The key's first call of a new generation discards older figures. */
static void begin_generation_lock_held(cprof_accum *accum, const cprof_generation *now)
{
    clear_lock_held(accum);
    cprof_alloc_release(accum->p2);
    accum->p2 = now->has_p2 ? cprof_alloc_zeroed(sizeof *accum->p2) : NULL; /* without memory: the histogram's median */
    accum->ready = 0;
    accum->generation = now->generation;
    accum->skips_left = now->skip_first_n;
    accum->order = cprof_epoch_next_order(accum->epoch);
}

/* Whether a successful call is to be skipped; keeps the first call's duration, and the first samples. */
static bool skip_lock_held(cprof_accum *accum, double elapsed_ms)
{
    if (accum->figures.first_ms < 0.0) {
        accum->figures.first_ms = elapsed_ms;
    }
    if (accum->skips_left > 0) {
        accum->skips_left--;
        accum->figures.skipped_count++;
        return true;
    }
    if (accum->count < CPROF_FIGURES_EXACT) {
        accum->figures.exact_ms[accum->count] = elapsed_ms;
    }
    if (accum->count + 1 >= CPROF_FIGURES_EXACT) {
        accum->ready = accum->generation;
    }
    return false;
}

/* Errors, skips, drops, and the first call of a key: everything but the plain next sample. Whether it is a sample. */
static __attribute__((noinline)) bool finish_slow_lock_held(cprof_accum *accum, uint64_t generation, cprof_outcome outcome,
                                                            const cprof_sample *sample)
{
    cprof_generation now = cprof_epoch_present(accum->epoch);
    if (accum->generation != now.generation) {
        begin_generation_lock_held(accum, &now);
    }
    if (generation != now.generation) {
        accum->figures.dropped_count++;
    } else if (outcome == CPROF_OUTCOME_ERROR) {
        accum->figures.error_count++;
    } else if (outcome == CPROF_OUTCOME_CANCELLED) {
        accum->figures.cancelled_count++;
    } else if (!skip_lock_held(accum, (double)sample->elapsed_ns / NS_PER_MS)) {
        add_span_lock_held(accum, sample);
        return true;
    }
    return false;
}

static inline bool finish_lock_held(cprof_accum *accum, uint64_t generation, cprof_outcome outcome, const cprof_sample *sample)
{
    uint64_t present = cprof_epoch_state(accum->epoch) >> CPROF_STATE_GENERATION_SHIFT;
    if (__builtin_expect(outcome == CPROF_OUTCOME_SUCCESS && accum->ready == generation && present == generation, 1)) {
        add_span_lock_held(accum, sample);
        return true;
    }
    return finish_slow_lock_held(accum, generation, outcome, sample);
}

/* ---- Stripes. Of two locks, the main accumulator's is taken first */

#if CPROF_STRIPES > 1

enum { MEETINGS = 16, PAGE = 4096 };

#define STRIPES_BYTES ((CPROF_STRIPES * sizeof(cprof_accum) + PAGE - 1) / PAGE * PAGE)

/* The one in which the calling thread counts; NULL: there is none. */
static inline cprof_accum *stripe_of(const cprof_accum *accum)
{
    cprof_accum *stripes = atomic_load_explicit(&accum->stripes, memory_order_acquire);
    const cprof_thread *thread = cprof_thread_self;
    return stripes != NULL && thread != NULL ? &stripes[thread->ordinal % CPROF_STRIPES] : NULL;
}

/* Whether the call was a plain sample of the generation that the stripe is open for, and is counted. */
static inline bool finish_in_stripe(cprof_accum *stripe, uint64_t generation, cprof_outcome outcome, const cprof_sample *sample)
{
    cprof_lock_acquire(&stripe->lock);
    uint64_t present = cprof_epoch_state(stripe->epoch) >> CPROF_STATE_GENERATION_SHIFT;
    bool counts = outcome == CPROF_OUTCOME_SUCCESS && stripe->ready == generation && present == generation;
    if (counts) {
        add_span_lock_held(stripe, sample);
    }
    cprof_lock_release(&stripe->lock);
    return counts;
}

/* Makes stripes once threads have met often enough; without memory they may meet as often again. */
static __attribute__((noinline)) void meet_lock_held(cprof_accum *accum)
{
    if (++accum->met < MEETINGS || atomic_load_explicit(&accum->stripes, memory_order_relaxed) != NULL) {
        return;
    }
    accum->met = 0;
    cprof_accum *stripes = cprof_alloc_map_pages(STRIPES_BYTES);
    for (size_t i = 0; stripes != NULL && i < CPROF_STRIPES; i++) {
        stripes[i].epoch = accum->epoch;
    }
    atomic_store_explicit(&accum->stripes, stripes, memory_order_release);
}

static inline void acquire_main(cprof_accum *accum)
{
    if (!cprof_lock_try(&accum->lock)) {
        cprof_lock_acquire(&accum->lock);
        meet_lock_held(accum);
    }
}

/* From the sample on with which the main accumulator is ready, the stripe takes the next ones. */
static void open_stripe_main_lock_held(const cprof_accum *accum, cprof_accum *stripe)
{
    if (accum->ready != accum->generation || accum->p2 != NULL) {
        return;
    }
    cprof_lock_acquire(&stripe->lock);
    if (stripe->ready != accum->generation) {
        clear_lock_held(stripe);
        stripe->ready = accum->generation;
    }
    cprof_lock_release(&stripe->lock);
}

/* Adds what the stripe has to a copy of the main figures. *last_stop: when the last sample so far ended. */
static void fold_lock_held(const cprof_accum *stripe, cprof_figures *figures, uint64_t *counts, cprof_ticks *last_stop)
{
    figures->count += stripe->count;
    figures->self_unknown += stripe->figures.self_unknown;
    figures->active_unknown += stripe->figures.active_unknown;
    figures->histogram_lost += stripe->figures.histogram_lost;
    figures->suspended_ns += stripe->figures.suspended_ns;
    figures->nested_ns += stripe->nested_ns;
    cprof_moments_merge(&figures->moments, &stripe->moments);
    figures->rows = cprof_histogram_add_copy(&stripe->histogram, counts, figures->rows);
    if (stripe->count == 0) {
        return;
    }
    figures->min_ms = fmin(figures->min_ms, (double)stripe->least_ns / NS_PER_MS);
    figures->max_ms = fmax(figures->max_ms, (double)stripe->most_ns / NS_PER_MS);
    if ((int64_t)(stripe->last_stop - *last_stop) > 0) {
        figures->last_ms = (double)stripe->last_ns / NS_PER_MS;
        *last_stop = stripe->last_stop;
    }
}

/* Adds what the stripes have of a generation to a copy of the figures, or only to *changes (figures: NULL). False: a lock was
 * not to be had in time. */
static bool fold_main_lock_held(cprof_accum *accum, uint64_t generation, int64_t deadline_ns, cprof_figures *figures,
                                uint64_t *counts, uint64_t *changes)
{
    cprof_accum *stripes = atomic_load_explicit(&accum->stripes, memory_order_relaxed);
    cprof_ticks last_stop = accum->last_stop;
    for (size_t i = 0; stripes != NULL && i < CPROF_STRIPES; i++) {
        if (!cprof_lock_acquire_before(&stripes[i].lock, deadline_ns)) {
            return false;
        }
        if (stripes[i].ready == generation && figures != NULL) {
            fold_lock_held(&stripes[i], figures, counts, &last_stop);
        } else if (stripes[i].ready == generation) {
            *changes += stripes[i].count;
        }
        cprof_lock_release(&stripes[i].lock);
    }
    return true;
}

static void dispose_stripes(cprof_accum *accum)
{
    cprof_accum *stripes = atomic_exchange_explicit(&accum->stripes, NULL, memory_order_relaxed);
    for (size_t i = 0; stripes != NULL && i < CPROF_STRIPES; i++) {
        cprof_histogram_dispose(&stripes[i].histogram);
    }
    cprof_alloc_unmap_pages(stripes, STRIPES_BYTES);
}

#else

#define stripe_of(accum) NULL
#define finish_in_stripe(stripe, generation, outcome, sample) ((void)(stripe), false)
#define acquire_main(accum) cprof_lock_acquire(&(accum)->lock)
#define open_stripe_main_lock_held(accum, stripe) ((void)(stripe))
#define fold_main_lock_held(accum, generation, deadline_ns, figures, counts, changes) true
#define dispose_stripes(accum) ((void)(accum))

#endif

/* ---- */

bool cprof_accum_finish(cprof_accum *accum, uint64_t generation, cprof_outcome outcome, const cprof_sample *sample)
{
    cprof_accum *stripe = stripe_of(accum);
    if (stripe != NULL && finish_in_stripe(stripe, generation, outcome, sample)) {
        return true;
    }
    acquire_main(accum);
    bool is_sample = finish_lock_held(accum, generation, outcome, sample);
    if (stripe != NULL && is_sample) {
        open_stripe_main_lock_held(accum, stripe);
    }
    cprof_lock_release(&accum->lock);
    return is_sample;
}

/* Where a signature is counted; NULL without memory. */
static cprof_shape *shape_lock_held(cprof_accum *accum, cprof_name signature)
{
    if (accum->shapes == NULL) {
        accum->shapes = cprof_alloc_zeroed(sizeof *accum->shapes);
    }
    if (accum->shapes != NULL && accum->shapes->generation != accum->generation) {
        cprof_shapes_begin(accum->shapes, accum->generation);
    }
    return accum->shapes != NULL ? cprof_shapes_find(accum->shapes, signature) : NULL;
}

bool cprof_accum_finish_shaped(cprof_accum *accum, uint64_t generation, cprof_outcome outcome, const cprof_sample *sample,
                               cprof_name signature)
{
    cprof_lock_acquire(&accum->lock);
    bool is_sample = finish_lock_held(accum, generation, outcome, sample);
    bool counts = is_sample || (outcome != CPROF_OUTCOME_SUCCESS && accum->generation == generation);
    cprof_shape *shape = counts ? shape_lock_held(accum, signature) : NULL;
    if (shape != NULL && is_sample) {
        cprof_shape_add(shape, sample->elapsed_ns);
    } else if (shape != NULL) {
        shape->figures.error_count += outcome == CPROF_OUTCOME_ERROR;
        shape->figures.cancelled_count += outcome == CPROF_OUTCOME_CANCELLED;
    }
    cprof_lock_release(&accum->lock);
    return is_sample;
}

bool cprof_accum_is_skipping(cprof_accum *accum, uint64_t generation)
{
    cprof_lock_acquire(&accum->lock);
    bool is_skipping = accum->generation == generation && accum->skips_left > 0;
    if (accum->generation != generation) {
        cprof_generation now = cprof_epoch_present(accum->epoch);
        is_skipping = now.generation == generation && now.skip_first_n > 0;
    }
    cprof_lock_release(&accum->lock);
    return is_skipping;
}

/* Where figures of `generation` beyond times go; NULL once it is over, or without memory. */
static cprof_resources *extra_lock_held(cprof_accum *accum, uint64_t generation)
{
    if (cprof_epoch_state(accum->epoch) >> CPROF_STATE_GENERATION_SHIFT != generation) {
        return NULL;
    }
    if (accum->extra == NULL) {
        accum->extra = cprof_alloc_zeroed(sizeof *accum->extra);
    }
    if (accum->extra != NULL && accum->extra->generation != generation) {
        cprof_resources_begin(accum->extra, generation);
    }
    if (accum->extra != NULL) {
        accum->extra->changes++;
    }
    return accum->extra;
}

void cprof_accum_add_gpu(cprof_accum *accum, uint64_t generation, cprof_ns gpu_ns, cprof_ns queue_ns, bool multi_stream)
{
    cprof_lock_acquire(&accum->lock);
    cprof_resources *extra = extra_lock_held(accum, generation);
    if (extra != NULL) {
        cprof_resources_add_gpu(extra, gpu_ns, queue_ns, multi_stream);
    }
    cprof_lock_release(&accum->lock);
}

void cprof_accum_miss_gpu(cprof_accum *accum, uint64_t generation, cprof_gpu_cause cause)
{
    cprof_lock_acquire(&accum->lock);
    cprof_resources *extra = extra_lock_held(accum, generation);
    if (extra != NULL) {
        extra->figures.asked |= CPROF_RESOURCES_GPU;
        extra->figures.missed[cause]++;
    }
    cprof_lock_release(&accum->lock);
}

void cprof_accum_add_launches(cprof_accum *accum, uint64_t generation, const cprof_launch_counts *more)
{
    cprof_lock_acquire(&accum->lock);
    cprof_resources *extra = extra_lock_held(accum, generation);
    if (extra != NULL) {
        cprof_resources_add_launches(&extra->figures, more);
    }
    cprof_lock_release(&accum->lock);
}

void cprof_accum_add_sample(cprof_accum *accum, uint64_t generation, const cprof_resources_sample *sample)
{
    cprof_lock_acquire(&accum->lock);
    cprof_resources *extra = extra_lock_held(accum, generation);
    if (extra != NULL) {
        cprof_resources_add_sample(&extra->figures, sample);
    }
    cprof_lock_release(&accum->lock);
}

void cprof_accum_record_ms(cprof_accum *accum, double elapsed_ms)
{
    cprof_lock_acquire(&accum->lock);
    cprof_generation now = cprof_epoch_present(accum->epoch);
    if (accum->generation != now.generation) {
        begin_generation_lock_held(accum, &now);
    }
    if (!skip_lock_held(accum, elapsed_ms)) {
        cprof_figures *figures = &accum->figures;
        cprof_moments_add_ms(&accum->moments, elapsed_ms);
        figures->self_unknown++;
        figures->active_unknown++;
        accum->count++;
        accum->last_ns = -1;
        set_stop_lock_held(accum, NULL);
        figures->last_ms = elapsed_ms;
        figures->min_ms = elapsed_ms < figures->min_ms ? elapsed_ms : figures->min_ms;
        figures->max_ms = elapsed_ms > figures->max_ms ? elapsed_ms : figures->max_ms;
        cprof_histogram_add(&accum->histogram, cprof_histogram_index_ms(elapsed_ms), &figures->histogram_lost);
        if (accum->p2 != NULL) {
            settle_p2_lock_held(accum);
        }
        if (accum->p2 != NULL) {
            cprof_p2_add(accum->p2, elapsed_ms);
        }
    }
    cprof_lock_release(&accum->lock);
}

static const cprof_resources_copy *copy_extra_lock_held(const cprof_resources *extra, uint64_t generation,
                                                        cprof_resources_copy *copy)
{
    if (extra == NULL || copy == NULL || extra->generation != generation) {
        return NULL;
    }
    copy->figures = extra->figures;
    copy->figures.gpu_rows = cprof_histogram_copy(&extra->gpu_histogram, copy->gpu_counts);
    return copy;
}

static const cprof_shapes_view *copy_shapes_lock_held(const cprof_shapes *shapes, uint64_t generation,
                                                      const cprof_resources_copy *copy)
{
    if (shapes == NULL || copy == NULL || copy->shapes == NULL || shapes->generation != generation) {
        return NULL;
    }
    cprof_shapes_copy(shapes, copy->shapes);
    return &copy->shapes->view;
}

/* The figures of times, with spans in ms. */
static void copy_figures_lock_held(const cprof_accum *accum, cprof_figures *figures)
{
    *figures = accum->figures;
    figures->count = accum->count;
    figures->moments = accum->moments;
    figures->nested_ns = accum->nested_ns;
    if (accum->most_ns >= 0) {
        figures->min_ms = fmin(figures->min_ms, (double)accum->least_ns / NS_PER_MS);
        figures->max_ms = fmax(figures->max_ms, (double)accum->most_ns / NS_PER_MS);
    }
    if (accum->last_ns >= 0) {
        figures->last_ms = (double)accum->last_ns / NS_PER_MS;
    }
}

cprof_status cprof_accum_copy(cprof_accum *accum, const cprof_generation *of, int64_t deadline_ns, cprof_figures *figures,
                              uint64_t *counts, uint64_t *order, cprof_resources_copy *extra)
{
    uint64_t generation = of->generation;
    if (!cprof_lock_acquire_before(&accum->lock, deadline_ns)) {
        return CPROF_BUSY;
    }
    bool present = accum->generation == generation;
    bool in_time = true;
    if (present) {
        copy_figures_lock_held(accum, figures);
        figures->rows = cprof_histogram_copy(&accum->histogram, counts);
        in_time = fold_main_lock_held(accum, generation, deadline_ns, figures, counts, NULL);
        *order = accum->order;
        cprof_figures_set_exact(figures);
        if (figures->median_ms == CPROF_FIGURES_NO_MEDIAN && accum->p2 != NULL && of->has_p2) {
            figures->median_ms = cprof_p2_median(accum->p2);
        }
        figures->extra = copy_extra_lock_held(accum->extra, generation, extra);
        figures->shapes = copy_shapes_lock_held(accum->shapes, generation, extra);
    }
    cprof_lock_release(&accum->lock);
    if (!in_time) {
        return CPROF_BUSY;
    }
    return present ? CPROF_OK : CPROF_ABSENT;
}

cprof_status cprof_accum_changes(cprof_accum *accum, uint64_t generation, int64_t deadline_ns, uint64_t *changes)
{
    if (!cprof_lock_acquire_before(&accum->lock, deadline_ns)) {
        return CPROF_BUSY;
    }
    const cprof_figures *figures = &accum->figures;
    const cprof_resources *extra = accum->extra;
    bool in_time = true;
    *changes = 0;
    if (accum->generation == generation) {
        *changes = accum->count + figures->error_count + figures->cancelled_count + figures->skipped_count +
                   figures->dropped_count + (extra != NULL && extra->generation == generation ? extra->changes : 0);
        in_time = fold_main_lock_held(accum, generation, deadline_ns, NULL, NULL, changes);
    }
    cprof_lock_release(&accum->lock);
    return in_time ? CPROF_OK : CPROF_BUSY;
}

void cprof_accum_dispose(cprof_accum *accum)
{
    dispose_stripes(accum);
    cprof_histogram_dispose(&accum->histogram);
    cprof_alloc_release(accum->p2);
    cprof_resources_destroy(accum->extra);
    cprof_shapes_destroy(accum->shapes);
}
