/* The accumulator of one key: everything known about the calls of one node in one stage, in constant memory.
 *
 * An accumulator belongs to a registry and to a generation of it. A reset only raises the registry's generation; figures of
 * an older generation count as absent and are cleared by the next call that finishes.
 * Thread rule: finishing, recording and copying take the accumulator's own lock: for a few dozen instructions, and for one
 * allocation where a duration is of a new magnitude; a copy holds it for the rows of two histograms. Functions of copied
 * figures lock nothing, and dispose needs an accumulator that nobody uses any more.
 *
 * Stripes: where threads have met at the lock several times, the key gets CPROF_STRIPES accumulators more, each for some of the
 * threads. They count plain samples of the present generation only. All else (skips, the first samples, errors, P², calls
 * told apart by their arguments, figures beyond times) is the main accumulator's, and copies add all up.
 */
#ifndef CPROF_ACCUM_H
#define CPROF_ACCUM_H

#include "cprofiling/base/lock.h"
#include "cprofiling/base/status.h"
#include "cprofiling/nodes/epoch.h"
#include "cprofiling/stats/figures.h"

/* How many parts a key may have that threads count in at the same time; 1: none. More than one is for builds in which threads
 * are not kept apart by a GIL. */
#ifndef CPROF_STRIPES
#define CPROF_STRIPES 1
#endif

typedef struct cprof_registry cprof_registry;

/* How a call ended. */
typedef enum {
    CPROF_OUTCOME_SUCCESS,
    CPROF_OUTCOME_ERROR,     /* an exception left it */
    CPROF_OUTCOME_CANCELLED, /* an asynchronous task was cancelled in it */
} cprof_outcome;

/* The figures of one finished call. */
typedef struct {
    cprof_ns elapsed_ns;
    cprof_ns nested_ns;    /* spent in child nodes, 0 to elapsed_ns; negative: not known */
    cprof_ns suspended_ns; /* spent suspended, 0 to elapsed_ns; negative: not known */
#if CPROF_STRIPES > 1
    cprof_ticks stop; /* when it ended */
#endif
} cprof_sample;

/* Zeroed memory plus the registry and its epoch is a valid accumulator that has seen nothing. It has cache lines of its own.
 * The usual call touches the first two of them alone, and one of the histogram's rows. */
typedef struct cprof_accum {
    _Alignas(64) cprof_u128 nested_ns; /* spent in child nodes, all samples */
    cprof_lock lock;
    uint32_t index;     /* of its key in the registry */
    uint64_t ready;     /* the generation in which samples may be added without a further look; 0: none */
    cprof_epoch *epoch; /* of its registry */
    cprof_histogram histogram;
    uint64_t count;      /* samples */
    cprof_ns least_ns;   /* of the spans among them: INT64_MAX without any, */
    cprof_ns most_ns;    /* and here -1 */
    cprof_ns last_ns;    /* negative: the last sample is figures.last_ms */
    struct cprof_p2 *p2; /* owned; NULL unless the median is to be estimated, of all samples */
    cprof_moments moments;
    cprof_registry *registry; /* borrowed; outlives the accumulator */
    uint64_t generation;      /* of the figures; 0: none */
    uint64_t skips_left;
    uint64_t order;          /* place in the summary */
    _Atomic uint64_t label;  /* of the recording that runs: its serial << 32 | the key's number there; or an older one */
    _Atomic(void *) range;   /* the key's name as a registered string of NVTX; NULL: not yet */
    _Atomic uint64_t ranges; /* that were opened */
    cprof_figures figures;   /* what a copy adds is missing: all above, the median, what follows, and ends of spans */
    cprof_resources *extra;  /* owned; NULL until something is asked for beyond times */
    cprof_shapes *shapes;    /* owned; NULL until calls are told apart by their signatures */
#if CPROF_STRIPES > 1
    _Atomic(struct cprof_accum *) stripes; /* owned; NULL until threads have met here */
    cprof_ticks last_stop;                 /* when the last sample ended */
    uint32_t met;                          /* how often threads met */
#endif
} cprof_accum;

_Static_assert(offsetof(cprof_accum, moments.squares_top) == 128, "the usual call touches two cache lines");

/* Counts a finished call of `generation` (the registry's when the call started): as a sample (then true), as a skip, as an
 * error or cancellation, or as dropped when the statistics were discarded meanwhile. */
bool cprof_accum_finish(cprof_accum *accum, uint64_t generation, cprof_outcome outcome, const cprof_sample *sample);

/* As cprof_accum_finish(); what counts, counts at the same moment for the call's signature, too. */
bool cprof_accum_finish_shaped(cprof_accum *accum, uint64_t generation, cprof_outcome outcome, const cprof_sample *sample,
                               cprof_name signature);

/* Whether a call of `generation` that begins now would be skipped if it were the next to finish. */
bool cprof_accum_is_skipping(cprof_accum *accum, uint64_t generation);

/* Add figures beyond times to those of `generation`; nothing once that is over, or without memory. They are made
 * for samples of cprof_accum_finish(), but the launches, which come whenever a node makes them. */
void cprof_accum_add_gpu(cprof_accum *accum, uint64_t generation, cprof_ns gpu_ns, cprof_ns queue_ns, bool multi_stream);
void cprof_accum_miss_gpu(cprof_accum *accum, uint64_t generation, cprof_gpu_cause cause);
void cprof_accum_add_launches(cprof_accum *accum, uint64_t generation, const cprof_launch_counts *more);
void cprof_accum_add_sample(cprof_accum *accum, uint64_t generation, const cprof_resources_sample *sample);

/* Counts one successful call of `elapsed_ms`, 0 to 1e12, known from elsewhere; the value is taken unchanged. */
void cprof_accum_record_ms(cprof_accum *accum, double elapsed_ms);

/* Copies the figures of a generation out, and the histogram's rows into `counts` (a dense table of
 * CPROF_HISTOGRAM_BUCKETS; see cprof_histogram_copy()); medians of P² only where the generation has them. *order receives the
 * key's place in the summary, *extra (NULL: not wanted) what is known beyond times: figures->extra points to it then, and
 * figures->shapes to its room for shapes, if it has one, and calls were told apart. CPROF_ABSENT: the key has no figures of
 * that generation. CPROF_BUSY: the lock was not to be had before CLOCK_MONOTONIC had passed `deadline_ns`. */
cprof_status cprof_accum_copy(cprof_accum *accum, const cprof_generation *of, int64_t deadline_ns, cprof_figures *figures,
                              uint64_t *counts, uint64_t *order, cprof_resources_copy *extra);

/* Sets *changes to a number that grows with each change of the figures of `generation`; 0: there are none. CPROF_BUSY as
 * above. */
cprof_status cprof_accum_changes(cprof_accum *accum, uint64_t generation, int64_t deadline_ns, uint64_t *changes);

/* Gives back what the accumulator owns, not the accumulator itself. */
void cprof_accum_dispose(cprof_accum *accum);

#endif
