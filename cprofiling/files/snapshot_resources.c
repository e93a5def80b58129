#include "cprofiling/files/snapshot_resources.h"

#include "cprofiling/files/snapshot_key.h"

#define LONGEST_NS ((uint64_t)INT64_MAX)
#define PEAK_UNKNOWN (-1)

void cprof_snapshot_resources_clear(cprof_snapshot_resources *extra)
{
    extra->figures = (cprof_resources_figures){.gpu_min_ns = UINT64_MAX};
    extra->figures.device_memory.peak = extra->figures.host_memory.peak = PEAK_UNKNOWN;
    extra->device_memory = extra->host_memory = (cprof_snapshot_memory){.taken_ns = 0};
}

static uint64_t any_launch(const cprof_launch_counts *launched)
{
    uint64_t any = 0;
#define INCLUDE(name) any |= launched->name;
    CPROF_LAUNCH_COUNTS(INCLUDE)
#undef INCLUDE
    return any;
}

static uint64_t any_miss(const cprof_resources_figures *f)
{
    uint64_t any = 0;
    for (int i = 0; i < CPROF_GPU_CAUSES; i++) {
        any |= f->missed[i];
    }
    return any;
}

static uint64_t any_counter(const cprof_resources_figures *f)
{
    uint64_t any = f->estimated;
    for (int i = 0; i < CPROF_COUNTER_COUNT; i++) {
        any |= f->counted[i];
    }
    return any;
}

/* What there are figures of: CPROF_RESOURCES_ bits. */
static unsigned known_of(const cprof_resources_figures *f)
{
    unsigned known = 0;
    known |= f->gpu_count != 0 || any_miss(f) != 0 ? CPROF_RESOURCES_GPU : 0;
    known |= any_launch(&f->launched) != 0 ? CPROF_RESOURCES_LAUNCHES : 0;
    known |= any_counter(f) != 0 ? CPROF_RESOURCES_COUNTERS : 0;
    known |= f->device_memory.calls != 0 || f->host_memory.calls != 0 ? CPROF_RESOURCES_MEMORY : 0;
    return known | (f->waits != 0 ? CPROF_RESOURCES_WAITS : 0);
}

bool cprof_snapshot_resources_is_worth(const cprof_resources_figures *figures)
{
    return (figures->asked | known_of(figures)) != 0;
}

/* Whether all counts are below 2^63, but for those that are parts of gpu_count. */
static bool counts_fit(const cprof_resources_figures *f)
{
    uint64_t any = f->gpu_count | any_miss(f) | any_launch(&f->launched) | any_counter(f) | f->device_memory.calls |
                   f->host_memory.calls | f->waits;
    return any < CPROF_SNAPSHOT_KEY_COUNT_LIMIT;
}

static void set_memory(cprof_resources_memory *figures, cprof_snapshot_memory *memory, uint64_t taken_ns)
{
    if (figures->calls == 0) {
        *figures = (cprof_resources_memory){.peak = PEAK_UNKNOWN};
        return;
    }
    memory->taken_ns = taken_ns;
    memory->change = figures->change;
}

void cprof_snapshot_resources_set(cprof_snapshot_resources *extra, const cprof_resources_figures *figures, uint64_t taken_ns)
{
    cprof_snapshot_resources_clear(extra);
    extra->figures = *figures;
    extra->figures.missed[CPROF_GPU_KNOWN] = 0;
    extra->figures.asked |= known_of(&extra->figures);
    set_memory(&extra->figures.device_memory, &extra->device_memory, taken_ns);
    set_memory(&extra->figures.host_memory, &extra->host_memory, taken_ns);
}

/* Of equal times, the larger bytes. */
static bool is_later(const cprof_resources_memory *figures, uint64_t taken_ns, const cprof_resources_memory *other,
                     uint64_t other_ns)
{
    if (taken_ns != other_ns) {
        return taken_ns > other_ns;
    }
    return figures->exit != other->exit ? figures->exit > other->exit : figures->entry > other->entry;
}

/* To be called before the figures are merged: sets the bytes at entry and exit to the later ones. Without a call they are of
 * the time 0. */
static void merge_memory(cprof_resources_memory *figures, cprof_snapshot_memory *memory,
                         const cprof_resources_memory *part_figures, const cprof_snapshot_memory *part)
{
    if (part_figures->calls == 0) {
        return;
    }
    if (is_later(part_figures, part->taken_ns, figures, memory->taken_ns)) {
        figures->entry = part_figures->entry;
        figures->exit = part_figures->exit;
        memory->taken_ns = part->taken_ns;
    }
    memory->change += part->change;
}

bool cprof_snapshot_resources_merge(cprof_snapshot_resources *extra, const cprof_snapshot_resources *part)
{
    cprof_resources_figures *figures = &extra->figures;
    const cprof_resources_figures *more = &part->figures;
    merge_memory(&figures->device_memory, &extra->device_memory, &more->device_memory, &part->device_memory);
    merge_memory(&figures->host_memory, &extra->host_memory, &more->host_memory, &part->host_memory);
    cprof_resources_merge(figures, more, false); /* the two kinds may be of different times */
    return counts_fit(figures);
}

static int64_t within_64_bits(cprof_i128 sum)
{
    return sum > INT64_MAX ? INT64_MAX : sum < INT64_MIN ? INT64_MIN : (int64_t)sum;
}

void cprof_snapshot_resources_complete(cprof_snapshot_resources *extra)
{
    extra->figures.gpu_rows = cprof_buckets_rows(&extra->gpu_buckets);
    extra->figures.device_memory.change = within_64_bits(extra->device_memory.change);
    extra->figures.host_memory.change = within_64_bits(extra->host_memory.change);
}

static const char *counts_fault(const cprof_resources_figures *f)
{
    if (!counts_fit(f)) {
        return "a count of 2^63 or more";
    }
    if (f->asked == 0 || (f->asked & ~(unsigned)CPROF_RESOURCES_ALL) != 0 || (known_of(f) & ~f->asked) != 0) {
        return "figures that were not asked for";
    }
    if (f->missed[CPROF_GPU_KNOWN] != 0) {
        return "GPU times that are known and missed";
    }
    bool is_part = f->gpu_lost <= f->gpu_count && f->queue_count <= f->gpu_count && f->multi_stream <= f->gpu_count;
    return is_part ? NULL : "more samples in part than in all";
}

static const char *gpu_fault(const cprof_snapshot_resources *extra)
{
    const cprof_resources_figures *f = &extra->figures;
    if (!cprof_buckets_sum_is_of(f->gpu_ns, f->gpu_count, f->gpu_min_ns, f->gpu_max_ns)) {
        return "an impossible GPU time";
    }
    const char *reason = cprof_buckets_fault(&extra->gpu_buckets, f->gpu_count - f->gpu_lost);
    if (reason == NULL && !cprof_buckets_are_of(&extra->gpu_buckets, f->gpu_min_ns, f->gpu_max_ns, f->gpu_lost)) {
        reason = "a histogram of other GPU times";
    }
    return reason;
}

static const char *sums_fault(const cprof_resources_figures *f)
{
    bool fits = f->queue_ns <= (cprof_u128)f->queue_count * LONGEST_NS && f->wait_ns <= (cprof_u128)f->waits * LONGEST_NS;
    for (int i = 0; i < CPROF_COUNTER_COUNT; i++) {
        fits = fits && f->counters[i] <= (cprof_u128)f->counted[i] * UINT64_MAX;
    }
    return fits ? NULL : "an impossible sum";
}

static bool memory_is_possible(const cprof_resources_memory *f, const cprof_snapshot_memory *memory, bool is_merged)
{
    if (f->entry < 0 || f->exit < 0 || f->peak < PEAK_UNKNOWN || memory->taken_ns >= CPROF_SNAPSHOT_KEY_COUNT_LIMIT) {
        return false;
    }
    if (f->calls == 0) {
        return f->entry == 0 && f->exit == 0 && f->peak == PEAK_UNKNOWN && memory->taken_ns == 0 && memory->change == 0;
    }
    if (f->calls == 1) {
        return memory->change == f->exit - f->entry;
    }
    cprof_i128 most = (cprof_i128)f->calls * INT64_MAX;
    bool fits = is_merged || memory->change == within_64_bits(memory->change); /* an accumulator's has 64 bits */
    return fits && memory->change <= most && memory->change >= -most;
}

const char *cprof_snapshot_resources_fault(const cprof_snapshot_resources *extra, bool is_merged)
{
    const cprof_resources_figures *f = &extra->figures;
    const char *reason = counts_fault(f);
    reason = reason == NULL ? gpu_fault(extra) : reason;
    reason = reason == NULL ? sums_fault(f) : reason;
    if (reason == NULL && (!memory_is_possible(&f->device_memory, &extra->device_memory, is_merged) ||
                           !memory_is_possible(&f->host_memory, &extra->host_memory, is_merged))) {
        reason = "impossible bytes of memory";
    }
    return reason;
}
