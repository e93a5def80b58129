#include "cprofiling/stats/resources.h"

#include "cprofiling/base/alloc.h"

#define UNKNOWN (-1)

void cprof_resources_begin(cprof_resources *extra, uint64_t generation)
{
    cprof_histogram_clear(&extra->gpu_histogram);
    extra->figures = (cprof_resources_figures){.gpu_min_ns = UINT64_MAX};
    extra->figures.device_memory.peak = extra->figures.host_memory.peak = UNKNOWN;
    extra->generation = generation;
}

void cprof_resources_add_gpu(cprof_resources *extra, cprof_ns gpu_ns, cprof_ns queue_ns, bool multi_stream)
{
    cprof_resources_figures *figures = &extra->figures;
    uint64_t ns = (uint64_t)gpu_ns;
    figures->asked |= CPROF_RESOURCES_GPU;
    figures->gpu_count++;
    figures->gpu_ns += ns;
    figures->gpu_min_ns = ns < figures->gpu_min_ns ? ns : figures->gpu_min_ns;
    figures->gpu_max_ns = ns > figures->gpu_max_ns ? ns : figures->gpu_max_ns;
    figures->multi_stream += multi_stream;
    if (queue_ns >= 0) {
        figures->queue_count++;
        figures->queue_ns += (uint64_t)queue_ns;
    }
    cprof_histogram_add(&extra->gpu_histogram, cprof_histogram_index_ns(gpu_ns), &figures->gpu_lost);
}

static void add_below_end(uint64_t *sum, uint64_t more)
{
    const uint64_t end = INT64_MAX;
    *sum = more > end - *sum ? end : *sum + more;
}

static void sum_launches(cprof_launch_counts *all, const cprof_launch_counts *more)
{
#define ADD(name) add_below_end(&all->name, more->name);
    CPROF_LAUNCH_COUNTS(ADD)
#undef ADD
}

void cprof_resources_add_launches(cprof_resources_figures *figures, const cprof_launch_counts *more)
{
    figures->asked |= CPROF_RESOURCES_LAUNCHES;
    sum_launches(&figures->launched, more);
}

static int64_t add_within_range(int64_t a, int64_t b)
{
    int64_t sum;
    if (!__builtin_add_overflow(a, b, &sum)) {
        return sum;
    }
    return b > 0 ? INT64_MAX : INT64_MIN;
}

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void add_memory(cprof_resources_memory *memory, const cprof_resources_memory_sample *sample)
{
    if (!sample->known || sample->entry < 0 || sample->exit < 0) {
        return;
    }
    memory->calls++;
    memory->entry = sample->entry;
    memory->exit = sample->exit;
    memory->change = add_within_range(memory->change, sample->exit - sample->entry);
    if (sample->peak >= 0) { /* which may lag: the kernel keeps its counts for each processor, and sums them now and then */
        memory->peak = largest(memory->peak, largest(sample->peak, largest(sample->entry, sample->exit)));
    }
}

void cprof_resources_add_sample(cprof_resources_figures *figures, const cprof_resources_sample *sample)
{
    figures->asked |= sample->asked;
    for (unsigned i = 0; i < CPROF_COUNTER_COUNT; i++) {
        if ((sample->counters.known & CPROF_COUNTER_BIT(i)) != 0) {
            figures->counted[i]++;
            figures->counters[i] += sample->counters.values[i];
        }
    }
    figures->estimated += sample->counters.estimated;
    add_memory(&figures->device_memory, &sample->device_memory);
    add_memory(&figures->host_memory, &sample->host_memory);
    figures->waits += sample->waits;
    figures->wait_ns += (uint64_t)sample->wait_ns;
}

static void merge_memory(cprof_resources_memory *memory, const cprof_resources_memory *other, bool is_later)
{
    if (other->calls == 0) {
        return;
    }
    if (memory->calls == 0 || is_later) {
        memory->entry = other->entry;
        memory->exit = other->exit;
    }
    memory->calls += other->calls;
    memory->change = add_within_range(memory->change, other->change);
    memory->peak = other->peak > memory->peak ? other->peak : memory->peak;
}

void cprof_resources_merge(cprof_resources_figures *figures, const cprof_resources_figures *other, bool is_later)
{
    figures->asked |= other->asked;
    figures->gpu_count += other->gpu_count;
    figures->gpu_ns += other->gpu_ns;
    figures->gpu_min_ns = other->gpu_min_ns < figures->gpu_min_ns ? other->gpu_min_ns : figures->gpu_min_ns;
    figures->gpu_max_ns = other->gpu_max_ns > figures->gpu_max_ns ? other->gpu_max_ns : figures->gpu_max_ns;
    figures->gpu_lost += other->gpu_lost;
    figures->gpu_rows |= other->gpu_rows;
    figures->queue_count += other->queue_count;
    figures->queue_ns += other->queue_ns;
    figures->multi_stream += other->multi_stream;
    for (unsigned i = 0; i < CPROF_GPU_CAUSES; i++) {
        figures->missed[i] += other->missed[i];
    }
    sum_launches(&figures->launched, &other->launched);
    for (unsigned i = 0; i < CPROF_COUNTER_COUNT; i++) {
        figures->counted[i] += other->counted[i];
        figures->counters[i] += other->counters[i];
    }
    figures->estimated += other->estimated;
    merge_memory(&figures->device_memory, &other->device_memory, is_later);
    merge_memory(&figures->host_memory, &other->host_memory, is_later);
    figures->waits += other->waits;
    figures->wait_ns += other->wait_ns;
}

void cprof_resources_gpu_quantiles_ms(const cprof_resources_copy *extra, const double *fractions, size_t count,
                                      double *quantiles_ms)
{
    const cprof_resources_figures *f = &extra->figures;
    uint64_t counted = f->gpu_count - f->gpu_lost;
    cprof_histogram_dense dense = {extra->gpu_counts, counted != 0 ? f->gpu_rows : 0};
    cprof_histogram_quantiles_ms(dense, counted, (double)f->gpu_min_ns / 1e6, (double)f->gpu_max_ns / 1e6, UNKNOWN, fractions,
                                 count, quantiles_ms);
}

double cprof_resources_mean_ms(cprof_u128 total_ns, uint64_t count)
{
    return count > 0 ? cprof_moments_ns_to_ms(total_ns) / (double)count : UNKNOWN;
}

void cprof_resources_destroy(cprof_resources *extra)
{
    if (extra != NULL) {
        cprof_histogram_dispose(&extra->gpu_histogram);
        cprof_alloc_release(extra);
    }
}
