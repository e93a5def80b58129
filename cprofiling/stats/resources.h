/* Figures of a key's calls beyond their times: GPU time, launches, counters, memory, waits for a device.
 *
 * Made for an accumulator when the first such figure comes, guarded by its lock, of a generation of its own: launches come
 * before the call that makes them has finished, GPU times after. Calls that begin while their key still skips, or that are no
 * samples, give none, but say which counters were asked for.
 */
#ifndef CPROF_RESOURCES_H
#define CPROF_RESOURCES_H

#include "cprofiling/stats/histogram.h"
#include "cprofiling/stats/moments.h"
#include "cprofiling/stats/counter.h"

/* Why a call has no GPU time. */
typedef enum {
    CPROF_GPU_KNOWN,        /* it has, or will have */
    CPROF_GPU_NO_CUDA,      /* no driver in the process, or not initialised */
    CPROF_GPU_NO_CONTEXT,   /* the thread has no context, the device no active one */
    CPROF_GPU_CAPTURED,     /* the stream was being captured, at its start or its end */
    CPROF_GPU_OTHER_DEVICE, /* it ended on another device, or in another context, than it began on */
    CPROF_GPU_LOST,         /* the context was destroyed meanwhile */
    CPROF_GPU_FAILED,       /* the driver refused; cprof_event_reason() says how */
    CPROF_GPU_FULL,         /* too many pairs were waiting */
    CPROF_GPU_UNSUPPORTED,  /* the device cannot tell */
    CPROF_GPU_SUSPENDED,    /* it gave way to its consumer, which uses the same stream; or was given up */
    CPROF_GPU_UNTOLD,       /* the caller or the framework did not tell the stream */
    CPROF_GPU_CAUSES,
} cprof_gpu_cause;

/* The counts of what a node gave to the devices, in the order in which they are stored and told: calls that launch (kernels,
 * graphs), kernels that have run, their time, copies, the bytes of these by direction (host to device, device to host, device
 * to device), fills (memset). X(name) */
#define CPROF_LAUNCH_COUNTS(X) \
    X(launches)                \
    X(kernels)                 \
    X(kernel_ns)               \
    X(copies)                  \
    X(bytes_to_device)         \
    X(bytes_to_host)           \
    X(bytes_on_device)         \
    X(fills)

/* A sum that would reach 2^63 stays below it. */
typedef struct {
#define CPROF_LAUNCH_COUNT(name) uint64_t name;
    CPROF_LAUNCH_COUNTS(CPROF_LAUNCH_COUNT)
#undef CPROF_LAUNCH_COUNT
} cprof_launch_counts;

/* Requested figures, and the unavailable ones among them: bits of cprof_resources_figures.asked. */
enum {
    CPROF_RESOURCES_GPU = 1,
    CPROF_RESOURCES_LAUNCHES = 2,
    CPROF_RESOURCES_COUNTERS = 4,
    CPROF_RESOURCES_MEMORY = 8,
    CPROF_RESOURCES_WAITS = 16,
    CPROF_RESOURCES_LAUNCHES_UNKNOWN = 32, /* launches could not be counted in some call */
    CPROF_RESOURCES_PEAK_UNKNOWN = 64,     /* nobody kept the most device memory in use, or it could not be counted anew */
    CPROF_RESOURCES_COUNTER_SHIFT = 8,     /* of the CPROF_COUNTER_BITs of the counters that were asked for */
    CPROF_RESOURCES_ALL = 127 | CPROF_COUNTER_ALL << CPROF_RESOURCES_COUNTER_SHIFT,
};

/* Bytes of one kind of memory around the calls of a key. Those at the entry and exit are of the last call. */
typedef struct {
    uint64_t calls; /* with known figures; else the rest means nothing */
    int64_t entry;
    int64_t exit;
    int64_t change; /* of all calls; a sum that would leave 64 bits stays at its end */
    int64_t peak;   /* the highest inside the calls in which that is known; negative: in none */
} cprof_resources_memory;

typedef struct {
    unsigned asked;
    uint64_t gpu_count; /* samples with a GPU time; of these: */
    cprof_u128 gpu_ns;
    uint64_t gpu_min_ns;
    uint64_t gpu_max_ns;
    uint64_t gpu_lost;    /* not in the histogram, for want of memory */
    uint64_t gpu_rows;    /* of a copy: bit r: row r of the histogram holds something */
    uint64_t queue_count; /* with a known delay in the queue: */
    cprof_u128 queue_ns;
    uint64_t multi_stream;             /* that began on one stream and ended on another */
    uint64_t missed[CPROF_GPU_CAUSES]; /* samples without a GPU time, by cause */
    cprof_launch_counts launched;
    uint64_t counted[CPROF_COUNTER_COUNT]; /* samples with a value of the counter, */
    cprof_u128 counters[CPROF_COUNTER_COUNT];
    uint64_t estimated; /* samples with scaled hardware counters */
    cprof_resources_memory device_memory;
    cprof_resources_memory host_memory;
    uint64_t waits; /* for a device, before or after a call */
    cprof_u128 wait_ns;
} cprof_resources_figures;

/* Of an accumulator. */
typedef struct cprof_resources {
    uint64_t generation;
    uint64_t changes; /* raised with each of the figures */
    cprof_resources_figures figures;
    cprof_histogram gpu_histogram;
} cprof_resources;

/* A copy, as it was at one moment. `gpu_counts` is dense (CPROF_HISTOGRAM_BUCKETS); only the rows named in figures.gpu_rows,
 * and those between them, are set. */
typedef struct cprof_resources_copy {
    cprof_resources_figures figures;
    uint64_t *gpu_counts;
    struct cprof_shapes_room *shapes; /* room for figures by signature; NULL: not wanted */
} cprof_resources_copy;

/* One call's memory of one kind: not known either when an entry or exit is negative. */
typedef struct {
    bool known;
    int64_t entry;
    int64_t exit;
    int64_t peak; /* negative: not known */
} cprof_resources_memory_sample;

/* What one finished call adds, GPU time and launches apart. */
typedef struct {
    unsigned asked; /* CPROF_RESOURCES_ bits: requested, or unavailable */
    cprof_counter_reading counters;
    cprof_resources_memory_sample device_memory;
    cprof_resources_memory_sample host_memory;
    uint64_t waits;
    cprof_ns wait_ns;
} cprof_resources_sample;

/* Milliseconds, 0 to 1e12, in ns, to the nearest. */
static inline cprof_ns cprof_resources_ns_of_ms(double milliseconds)
{
    return (cprof_ns)(milliseconds * 1e6 + 0.5);
}

/* Add to figures. Times are 0 to 2^63-1; a negative queue_ns is not known. */
void cprof_resources_add_gpu(cprof_resources *extra, cprof_ns gpu_ns, cprof_ns queue_ns, bool multi_stream);
void cprof_resources_add_launches(cprof_resources_figures *figures, const cprof_launch_counts *more);
void cprof_resources_add_sample(cprof_resources_figures *figures, const cprof_resources_sample *sample);

/* Empties it, for another generation. */
void cprof_resources_begin(cprof_resources *extra, uint64_t generation);

/* Merges what another key's figures hold (not its histogram); `is_later`: the other was taken last. */
void cprof_resources_merge(cprof_resources_figures *figures, const cprof_resources_figures *other, bool is_later);

/* Of copied figures: quantiles of the GPU times in ms, as cprof_figures_quantiles_ms(); negative: none. */
void cprof_resources_gpu_quantiles_ms(const cprof_resources_copy *extra, const double *fractions, size_t count,
                                      double *quantiles_ms);

/* The mean in ms of `count` times of this sum; negative for none. */
double cprof_resources_mean_ms(cprof_u128 total_ns, uint64_t count);

/* Gives back what it owns, and itself. NULL is ignored. */
void cprof_resources_destroy(cprof_resources *extra);

#endif
