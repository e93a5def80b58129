#define _GNU_SOURCE
#include "cprofiling/base/clock.h"

#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

cprof_clock_state cprof_clock = {.source = CPROF_CLOCK_MONOTONIC, .multiplier = CPROF_CLOCK_UNIT};

enum {
    CALIBRATION_NS = 4 * 1000 * 1000, /* long enough for 10 ppm when a pair is good to 20 ns twice */
    REFINE_AFTER_NS = 20 * 1000 * 1000,
    PAIR_TRIES = 24,
    MOST_CHANGE_PPM = 100,    /* by which a rate differs from the one measured first: crystals drift by less */
    SUSPENSION_NS = 2 * 1000, /* BOOTTIME and MONOTONIC are read together so well, at worst */
    LOOK_AFTER_NS = 1000 * 1000 * 1000,
    MEASURED_BATCHES = 8,
    MEASURED_READS = 500,
};

static cprof_ns read_clock(clockid_t id)
{
    struct timespec now;
    (void)clock_gettime(id, &now);
    return (cprof_ns)now.tv_sec * 1000000000 + now.tv_nsec;
}

cprof_ns cprof_clock_monotonic_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

cprof_ticks cprof_clock_read_other(int source)
{
    switch (source) {
    case CPROF_CLOCK_TEST:
        return atomic_load(&cprof_clock.test_read)();
    case CPROF_CLOCK_FOLLOWER:
        /* CLOCK_MONOTONIC in the ticks of the counter that it took over from, so that calls open then keep their time. */
        (void)atomic_load_explicit(&cprof_clock.source, memory_order_acquire); /* before which the pair was written */
        cprof_ns elapsed = cprof_clock_monotonic_ns() - cprof_clock.first_pair.ns;
        unsigned __int128 scaled = (unsigned __int128)(uint64_t)(elapsed < 0 ? 0 : elapsed) << 32;
        return cprof_clock.first_pair.ticks + (cprof_ticks)(scaled / atomic_load(&cprof_clock.multiplier));
    default:
        return (cprof_ticks)cprof_clock_monotonic_ns();
    }
}

cprof_ns cprof_clock_time_of_day(void)
{
    return read_clock(CLOCK_REALTIME);
}

static cprof_ticks time_of_day(void)
{
    return (cprof_ticks)read_clock(CLOCK_REALTIME);
}

static cprof_ticks time_since_boot(void)
{
    return (cprof_ticks)read_clock(CLOCK_BOOTTIME);
}

/* A clock read between two reads of the reference; the closest pair of several, as an interrupt may fall in between. */
static cprof_clock_pair pair_with(cprof_ticks (*read)(void))
{
    cprof_clock_pair best = {0, 0};
    cprof_ns narrowest = INT64_MAX;
    for (int i = 0; i < PAIR_TRIES; i++) {
        cprof_ns before = cprof_clock_monotonic_ns();
        cprof_ticks ticks = read();
        cprof_ns width = cprof_clock_monotonic_ns() - before;
        if (width < narrowest) {
            narrowest = width;
            best.ns = before + width / 2;
            best.ticks = ticks;
        }
    }
    return best;
}

/* How long the machine has been suspended since it was started, in which CLOCK_MONOTONIC stands still. */
static cprof_ns suspended_ns(void)
{
    cprof_clock_pair now = pair_with(time_since_boot);
    return (cprof_ns)now.ticks - now.ns;
}

#if defined(__x86_64__)
static const char counter_name[] = "TSC";

static bool kernel_keeps_time_by_tsc(bool when_unknown)
{
    char source[32];
    int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return when_unknown;
    }
    ssize_t length = read(fd, source, sizeof source - 1);
    (void)close(fd);
    if (length <= 0) {
        return when_unknown;
    }
    source[length] = '\0';
    return strcmp(source, "tsc\n") == 0;
}

/* NULL when the counter may be used. The kernel's own choice stands for the check that all processors agree. */
static const char *counter_refusal(void)
{
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) || (edx & (1u << 8)) == 0) {
        return "the processor has no invariant TSC";
    }
    return kernel_keeps_time_by_tsc(false) ? NULL : "the kernel does not keep time by the TSC";
}

/* Nanoseconds per tick between two pairs, times 2^32; 0 when they do not make sense. */
static uint64_t slope(cprof_clock_pair from, cprof_clock_pair to)
{
    if (to.ns <= from.ns || to.ticks <= from.ticks) {
        return 0;
    }
    unsigned __int128 scaled = (unsigned __int128)(uint64_t)(to.ns - from.ns) << 32;
    return (uint64_t)(scaled / (to.ticks - from.ticks));
}

static bool differs(int64_t one, int64_t other, int64_t most)
{
    return one - other > most || other - one > most;
}

static uint64_t measure_multiplier(void)
{
    cprof_clock_pair later;
    do {
        later = pair_with(cprof_clock_counter);
    } while (later.ns - cprof_clock.first_pair.ns < CALIBRATION_NS);
    return slope(cprof_clock.first_pair, later);
}
#elif defined(__aarch64__)
static const char counter_name[] = "CNTVCT";

static const char *counter_refusal(void)
{
    return NULL;
}

/* The architecture tells the rate. */
static uint64_t measure_multiplier(void)
{
    uint64_t hertz;
    __asm__("mrs %0, cntfrq_el0" : "=r"(hertz));
    return hertz == 0 ? 0 : (uint64_t)(((unsigned __int128)1000000000 << 32) / hertz);
}
#else
static const char counter_name[] = "counter";

static const char *counter_refusal(void)
{
    return "no counter is known for this architecture";
}

static uint64_t measure_multiplier(void)
{
    return 0;
}
#endif

static void begin_measurement(cprof_clock_pair pair)
{
    cprof_clock.first_pair = pair;
    cprof_clock.suspended_ns = suspended_ns();
}

static void start_lock_held(void)
{
    cprof_clock.refusal = counter_refusal();
    if (cprof_clock.refusal != NULL) {
        return;
    }
    begin_measurement(pair_with(cprof_clock_counter));
    uint64_t multiplier = measure_multiplier();
    if (multiplier == 0) {
        cprof_clock.refusal = "the counter does not advance";
        return;
    }
    cprof_clock.first_multiplier = multiplier;
    cprof_clock.looked_ns = cprof_clock.first_pair.ns;
    atomic_store(&cprof_clock.multiplier, multiplier);
    atomic_store(&cprof_clock.source, CPROF_CLOCK_COUNTER);
}

void cprof_clock_start(void)
{
    cprof_lock_acquire(&cprof_clock.calibration);
    if (!cprof_clock.started && atomic_load(&cprof_clock.source) != CPROF_CLOCK_TEST) {
        start_lock_held();
        cprof_clock.started = true; /* last: a child that is forked meanwhile begins anew */
    }
    cprof_lock_release(&cprof_clock.calibration);
}

#if defined(__x86_64__)
/* The counter goes on while the machine is suspended, or its virtual machine paused, and the reference may not: a slope over
 * that means nothing, and the measurement begins anew. */
static void refine_lock_held(void)
{
    cprof_clock_pair now = pair_with(cprof_clock_counter);
    if (now.ns - cprof_clock.looked_ns >= LOOK_AFTER_NS) {
        cprof_clock.looked_ns = now.ns;
        if (!kernel_keeps_time_by_tsc(true)) {
            cprof_clock.refusal = "the kernel has stopped keeping time by the TSC";
            cprof_clock.first_pair = now;
            atomic_store(&cprof_clock.source, CPROF_CLOCK_FOLLOWER);
            return;
        }
    }
    if (differs(suspended_ns(), cprof_clock.suspended_ns, SUSPENSION_NS)) {
        begin_measurement(now);
        return;
    }
    if (now.ns - cprof_clock.first_pair.ns < REFINE_AFTER_NS) {
        return;
    }
    uint64_t multiplier = slope(cprof_clock.first_pair, now);
    int64_t most = (int64_t)(cprof_clock.first_multiplier / 1000000 * MOST_CHANGE_PPM);
    if (differs((int64_t)multiplier, (int64_t)cprof_clock.first_multiplier, most)) {
        begin_measurement(now);
    } else {
        atomic_store(&cprof_clock.multiplier, multiplier);
    }
}
#else
/* The rate was not measured. */
static void refine_lock_held(void)
{
}
#endif

void cprof_clock_refine(void)
{
    cprof_lock_acquire(&cprof_clock.calibration);
    if (atomic_load(&cprof_clock.source) == CPROF_CLOCK_COUNTER) {
        refine_lock_held();
    }
    cprof_lock_release(&cprof_clock.calibration);
}

const char *cprof_clock_name(void)
{
    switch (atomic_load(&cprof_clock.source)) {
    case CPROF_CLOCK_COUNTER:
        return counter_name;
    case CPROF_CLOCK_TEST:
        return "test";
    default:
        return "CLOCK_MONOTONIC";
    }
}

const char *cprof_clock_reason(void)
{
    cprof_lock_acquire(&cprof_clock.calibration);
    const char *reason = cprof_clock.refusal;
    cprof_lock_release(&cprof_clock.calibration);
    return reason;
}

cprof_clock_pair cprof_clock_pair_now(void)
{
    return pair_with(cprof_clock_read);
}

void cprof_clock_measure(uint64_t *step_ps, uint64_t *read_ps)
{
    cprof_ticks step = UINT64_MAX;
    cprof_ns least = INT64_MAX;
    for (int batch = 0; batch < MEASURED_BATCHES; batch++) {
        cprof_ns before = cprof_clock_monotonic_ns();
        cprof_ticks first = cprof_clock_read(), last = first, steps = 0;
        for (int i = 1; i < MEASURED_READS; i++) {
            cprof_ticks ticks = cprof_clock_read();
            steps += ticks != last;
            last = ticks;
        }
        cprof_ns elapsed = cprof_clock_monotonic_ns() - before;
        least = elapsed < least ? elapsed : least;
        step = steps > 0 && (last - first) / steps < step ? (last - first) / steps : step;
    }
    *read_ps = (uint64_t)least * 1000 / MEASURED_READS;
    if (step == UINT64_MAX) { /* it stood still in all of them */
        *step_ps = (uint64_t)least * 1000;
        return;
    }
    unsigned __int128 scaled = (unsigned __int128)step * atomic_load(&cprof_clock.multiplier) * 1000;
    *step_ps = (uint64_t)((scaled + CPROF_CLOCK_UNIT / 2) >> 32);
}

cprof_ns cprof_clock_since_epoch(void)
{
    cprof_clock_pair now = pair_with(time_of_day);
    return (cprof_ns)now.ticks - now.ns;
}

void cprof_clock_set_test(cprof_ticks (*read)(void))
{
    atomic_store(&cprof_clock.test_read, read);
    atomic_store(&cprof_clock.multiplier, CPROF_CLOCK_UNIT);
    atomic_store(&cprof_clock.source, read != NULL ? CPROF_CLOCK_TEST : CPROF_CLOCK_MONOTONIC);
    cprof_lock_acquire(&cprof_clock.calibration);
    cprof_clock.started = false;
    cprof_lock_release(&cprof_clock.calibration);
}
