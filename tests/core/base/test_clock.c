/* clock.h. Linked with --wrap for what the clock asks the system. */
#define _GNU_SOURCE
#include "cprofiling/base/clock.h"

#include "cprofiling/process.h"
#include "tests/core/check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { THREADS = 8, ROUNDS = 200, MILLISECOND = 1000 * 1000 };

/* What the reference, CLOCK_MONOTONIC, is: the system's, or so and so many ns to each tick of the counter. */
static struct {
    _Atomic int ns_per_tick; /* 0: the system's */
    _Atomic cprof_ns offset_ns;
    _Atomic cprof_ns suspended_ns; /* what CLOCK_BOOTTIME is ahead */
    _Atomic uint64_t reads;
    _Atomic int other_clocks; /* how often another clock was asked for */
    _Atomic int gate;         /* 1: reads wait, 2: one does, 0: open */
} reference;

static const char *clock_source = "tsc\n"; /* what the kernel says; NULL: the file is missing */
static int clock_source_fd = -1;

WRAP_REAL(int, clock_gettime, clockid_t id, struct timespec *now)
{
    (void)atomic_fetch_add(&reference.reads, 1);
    (void)atomic_fetch_add(&reference.other_clocks, id != CLOCK_MONOTONIC && id != CLOCK_BOOTTIME);
    int closed = 1;
    (void)atomic_compare_exchange_strong(&reference.gate, &closed, 2);
    while (atomic_load(&reference.gate) != 0) {
        (void)sched_yield();
    }
    int ns_per_tick = atomic_load(&reference.ns_per_tick);
    if (ns_per_tick == 0) {
        return real_clock_gettime(id, now);
    }
    cprof_ns ns = (cprof_ns)cprof_clock_counter() * ns_per_tick + atomic_load(&reference.offset_ns);
    ns += id == CLOCK_BOOTTIME ? atomic_load(&reference.suspended_ns) : 0;
    now->tv_sec = ns / 1000000000;
    now->tv_nsec = ns % 1000000000;
    return 0;
}

WRAP_REAL(int, open, const char *path, int flags, int mode)
{
    if (strstr(path, "clocksource") == NULL) {
        return real_open(path, flags, mode); /* of a library that the program is linked with */
    }
    errno = ENOENT;
    clock_source_fd = clock_source != NULL ? dup(STDERR_FILENO) : -1;
    return clock_source_fd;
}

WRAP_REAL(ssize_t, read, int fd, void *buffer, size_t size)
{
    if (fd != clock_source_fd) {
        return real_read(fd, buffer, size);
    }
    size_t length = strlen(clock_source);
    CHECK(length <= size);
    memcpy(buffer, clock_source, length);
    clock_source_fd = -1;
    return (ssize_t)length;
}

/* Back to the state before cprof_clock_start(), with a reference of `ns_per_tick`. */
static void forget_choice(int ns_per_tick)
{
    atomic_store(&reference.ns_per_tick, ns_per_tick);
    atomic_store(&reference.offset_ns, 0);
    atomic_store(&reference.suspended_ns, 0);
    cprof_clock_set_test(NULL);
}

static bool is_counter_used(void)
{
    return atomic_load(&cprof_clock.source) == CPROF_CLOCK_COUNTER;
}

/* Whether the processor has an invariant counter, by its own bits. */
static bool has_counter(void)
{
#if defined(__x86_64__)
    unsigned eax, ebx, ecx, edx = 0;
    if (__get_cpuid_max(0x80000000, NULL) >= 0x80000007) {
        __cpuid(0x80000007, eax, ebx, ecx, edx);
    }
    return (edx & 0x100) != 0;
#else
    return true;
#endif
}

/* Has the clock use the counter. False where there is none, so that what needs one cannot be tested. */
static bool start_counter(int ns_per_tick)
{
    clock_source = "tsc\n";
    forget_choice(ns_per_tick);
    cprof_clock_start();
    CHECK(is_counter_used() == has_counter());
    CHECK((cprof_clock_reason() == NULL) == has_counter());
    return has_counter();
}

TEST(before_the_start)
{
    CHECK(strcmp(cprof_clock_name(), "CLOCK_MONOTONIC") == 0);
    CHECK(cprof_clock_reason() == NULL);
    cprof_ns before = cprof_clock_monotonic_ns();
    cprof_ticks ticks = cprof_clock_read();
    cprof_ns after = cprof_clock_monotonic_ns();
    CHECK(before <= (cprof_ns)ticks && (cprof_ns)ticks <= after);
    CHECK_EQUAL(cprof_clock_between(ticks, ticks + 12345), 12345);
}

TEST(start_chooses_once)
{
    cprof_clock_start();
    CHECK(is_counter_used() == (cprof_clock_reason() == NULL));
    CHECK(is_counter_used() == (strcmp(cprof_clock_name(), "CLOCK_MONOTONIC") != 0));
    uint64_t reads = atomic_load(&reference.reads);
    uint64_t multiplier = atomic_load(&cprof_clock.multiplier);
    cprof_clock_start();
    CHECK_EQUAL(atomic_load(&reference.reads), reads);
    CHECK_EQUAL(atomic_load(&cprof_clock.multiplier), multiplier);
}

TEST(never_goes_back)
{
    cprof_ticks last = cprof_clock_read();
    uint64_t backward = atomic_load(&cprof_clock.backward);
    for (int i = 0; i < 100000; i++) {
        cprof_ticks now = cprof_clock_read();
        CHECK(cprof_clock_between(last, now) >= 0);
        last = now;
    }
    CHECK_EQUAL(atomic_load(&cprof_clock.backward), backward);
}

#if defined(__x86_64__)
/* E2: when the kernel does not trust the TSC, neither do we. */
TEST(refusal_by_the_kernel)
{
    static const char *const sources[] = {"hpet\n", "kvm-clock\n", "tsc", "", NULL};
    if (!start_counter(0)) {
        return;
    }
    for (size_t i = 0; i < COUNT_OF(sources); i++) {
        forget_choice(0);
        clock_source = sources[i];
        cprof_clock_start();
        CHECK(strcmp(cprof_clock_name(), "CLOCK_MONOTONIC") == 0);
        CHECK(strcmp(cprof_clock_reason(), "the kernel does not keep time by the TSC") == 0);
        CHECK_EQUAL(cprof_clock_between(0, 1000), 1000);
        cprof_clock_refine();
        CHECK_EQUAL(cprof_clock_between(0, 1000), 1000);
    }
}

/* The rate is the reference's, whatever the processor's real frequency. */
TEST(rate_is_measured)
{
    static const int rates[] = {1, 3};
    for (size_t i = 0; i < COUNT_OF(rates); i++) {
        if (!start_counter(rates[i])) {
            return;
        }
        CHECK(strcmp(cprof_clock_name(), "TSC") == 0);
        CHECK(cprof_clock_reason() == NULL);
        CHECK_NEAR((double)cprof_clock_between(0, 1000000000), 1e9 * rates[i], 0.01);
    }
}

/* Until the counter has gone on by so many ticks, which here are the reference's ns. */
static void let_pass(cprof_ticks ticks)
{
    cprof_ticks start = cprof_clock_counter();
    while (cprof_clock_counter() - start < ticks) {
    }
}

TEST(rate_is_refined)
{
    if (!start_counter(1)) {
        return;
    }
    uint64_t multiplier = atomic_load(&cprof_clock.multiplier);
    cprof_clock_refine();
    bool is_early = cprof_clock_monotonic_ns() - cprof_clock.first_pair.ns < 20 * MILLISECOND;
    CHECK(!is_early || atomic_load(&cprof_clock.multiplier) == multiplier);
    let_pass(25 * MILLISECOND);
    atomic_store(&cprof_clock.multiplier, multiplier + multiplier / 2000); /* as if badly measured */
    cprof_clock_refine();
    CHECK_NEAR((double)atomic_load(&cprof_clock.multiplier), 0x1p32, 0.0001);
    multiplier = atomic_load(&cprof_clock.multiplier);
    atomic_store(&reference.offset_ns, -5000 * (cprof_ns)MILLISECOND); /* the reference went back */
    cprof_clock_refine();
    CHECK_EQUAL(atomic_load(&cprof_clock.multiplier), multiplier);
}

/* E3: while the machine is suspended, the counter may go on, and the reference does not. */
TEST(suspension_is_no_change_of_rate)
{
    if (!start_counter(1)) {
        return;
    }
    let_pass(100 * MILLISECOND);
    atomic_store(&reference.offset_ns, -50 * MILLISECOND); /* of these 100 ms it was suspended for 50 */
    cprof_clock_refine();
    CHECK_NEAR((double)atomic_load(&cprof_clock.multiplier), 0x1p32, 0.001);
    let_pass(50 * MILLISECOND);
    cprof_clock_refine();
    CHECK_NEAR((double)atomic_load(&cprof_clock.multiplier), 0x1p32, 0.001);
}

/* E3: so short that each alone changes the rate by less than anything that could be refused: s2idle, a paused machine. */
TEST(short_suspensions_do_not_add_up)
{
    for (int is_told = 0; is_told < 2; is_told++) {
        if (!start_counter(1)) {
            return;
        }
        for (int pause = 0; pause < 6; pause++) {
            let_pass(30 * MILLISECOND);
            cprof_ns paused_ns = 30 * MILLISECOND / 1000; /* 0.1 % of the time */
            (void)atomic_fetch_sub(&reference.offset_ns, paused_ns);
            (void)atomic_fetch_add(&reference.suspended_ns, is_told ? paused_ns : 0);
            cprof_clock_refine();
        }
        CHECK_NEAR((double)atomic_load(&cprof_clock.multiplier), 0x1p32, 0.0001);
        let_pass(25 * MILLISECOND);
        uint64_t multiplier = atomic_load(&cprof_clock.multiplier);
        atomic_store(&cprof_clock.multiplier, multiplier + multiplier / 2000); /* as if badly measured */
        cprof_clock_refine();                                                  /* goes on after them */
        CHECK_NEAR((double)atomic_load(&cprof_clock.multiplier), 0x1p32, 0.0001);
    }
}

/* E2: the kernel finds later that the TSC is not to be trusted. What was open then has its time nevertheless. */
TEST(the_kernel_drops_the_counter)
{
    if (!start_counter(1)) {
        return;
    }
    cprof_ticks start = cprof_clock_read();
    clock_source = "hpet\n";
    cprof_clock_refine(); /* too early to look again */
    CHECK(is_counter_used());
    atomic_store(&reference.offset_ns, 1000 * (cprof_ns)MILLISECOND);
    clock_source = NULL; /* it cannot be told */
    cprof_clock_refine();
    CHECK(is_counter_used());
    atomic_store(&reference.offset_ns, 3000 * (cprof_ns)MILLISECOND);
    clock_source = "hpet\n";
    cprof_clock_refine();
    CHECK(strcmp(cprof_clock_name(), "CLOCK_MONOTONIC") == 0);
    CHECK(strcmp(cprof_clock_reason(), "the kernel has stopped keeping time by the TSC") == 0);
    CHECK(cprof_clock_between(start, cprof_clock_read()) < 1000 * (cprof_ns)MILLISECOND);
    cprof_ns start_ns = cprof_clock_monotonic_ns();
    start = cprof_clock_read();
    let_pass(5 * MILLISECOND);
    cprof_ns elapsed = cprof_clock_between(start, cprof_clock_read());
    CHECK(elapsed >= 5 * MILLISECOND && elapsed <= cprof_clock_monotonic_ns() - start_ns);
    clock_source = "tsc\n";
    cprof_clock_refine(); /* a second change of mind is none */
    CHECK(!is_counter_used());
    atomic_store(&reference.offset_ns, 0); /* the reference went back */
    CHECK_EQUAL(cprof_clock_read(), cprof_clock.first_pair.ticks);
    forget_choice(0);
}
#else
/* The architecture tells the rate. */
TEST(refusal_by_the_kernel)
{
    clock_source = NULL;
    forget_choice(0);
    cprof_clock_start();
    CHECK(cprof_clock_reason() == NULL);
}

TEST(rate_is_measured)
{
    CHECK(start_counter(0));
    CHECK(strcmp(cprof_clock_name(), "CNTVCT") == 0);
    cprof_ns start_ns = cprof_clock_monotonic_ns();
    cprof_ticks start = cprof_clock_read();
    while (cprof_clock_monotonic_ns() - start_ns < 20 * MILLISECOND) {
    }
    CHECK(cprof_clock_between(start, cprof_clock_read()) >= 19 * MILLISECOND);
}

TEST(rate_is_refined)
{
    uint64_t multiplier = atomic_load(&cprof_clock.multiplier);
    cprof_clock_refine();
    CHECK_EQUAL(atomic_load(&cprof_clock.multiplier), multiplier);
}
#endif

static cprof_ticks test_time;

static cprof_ticks read_test_time(void)
{
    return test_time;
}

TEST(test_clock)
{
    forget_choice(0);
    cprof_clock_set_test(read_test_time);
    CHECK(strcmp(cprof_clock_name(), "test") == 0);
    cprof_clock_start(); /* leaves it alone */
    cprof_clock_refine();
    test_time = 77;
    CHECK_EQUAL(cprof_clock_read(), 77);
    CHECK_EQUAL(cprof_clock_between(77, 99), 22);
    cprof_clock_set_test(NULL);
    CHECK(strcmp(cprof_clock_name(), "CLOCK_MONOTONIC") == 0);
}

static cprof_ticks read_slowly(void)
{
    cprof_ticks start = (cprof_ticks)cprof_clock_monotonic_ns();
    while ((cprof_ticks)cprof_clock_monotonic_ns() - start < 300) {
        /* what this takes is known */
    }
    return start;
}

static cprof_ticks read_in_steps(void)
{
    static cprof_ticks reads;
    return ++reads / 8 * 26; /* a counter of which a tick is 1/2.6 ns, and which goes on every 10 ns */
}

static cprof_ticks read_nothing(void)
{
    return 7;
}

TEST(figures_are_of_the_clock_in_use)
{
    uint64_t step_ps, read_ps;
    cprof_clock_set_test(read_slowly);
    cprof_clock_measure(&step_ps, &read_ps);
    CHECK(step_ps >= 300 * 1000);
    CHECK(read_ps >= 300 * 1000);
    cprof_clock_set_test(read_in_steps);
    atomic_store(&cprof_clock.multiplier, CPROF_CLOCK_UNIT * 10 / 26);
    cprof_clock_measure(&step_ps, &read_ps);
    CHECK_NEAR((double)step_ps, 10000, 0.0001);
    cprof_clock_set_test(read_nothing);
    cprof_clock_measure(&step_ps, &read_ps);
    CHECK(step_ps > read_ps * 400);
    cprof_clock_set_test(NULL);
    cprof_clock_measure(&step_ps, &read_ps);
    CHECK(step_ps >= 1000);
    CHECK(read_ps > 0);
}

/* E1: a step backwards is 0, and counted. */
TEST(backward_steps_are_counted)
{
    forget_choice(0);
    uint64_t backward = atomic_load(&cprof_clock.backward);
    CHECK_EQUAL(cprof_clock_between(1000, 999), 0);
    CHECK_EQUAL(cprof_clock_between(INT64_MAX, 0), 0);
    CHECK_EQUAL(atomic_load(&cprof_clock.backward), backward + 2);
    CHECK_EQUAL(cprof_clock_between(1000, 1000), 0);          /* E4: no step */
    CHECK_EQUAL(cprof_clock_between(UINT64_MAX - 9, 10), 20); /* the counter began anew */
    CHECK_EQUAL(cprof_clock_between(0, INT64_MAX), INT64_MAX);
    CHECK_EQUAL(atomic_load(&cprof_clock.backward), backward + 2);
}

TEST(rounded_down)
{
    forget_choice(0);
    atomic_store(&cprof_clock.multiplier, (UINT64_C(1) << 32) / 3);
    CHECK_EQUAL(cprof_clock_between(0, 1), 0);
    CHECK_EQUAL(cprof_clock_between(0, 4), 1);
    CHECK_EQUAL(cprof_clock_between(0, INT64_MAX), (unsigned __int128)INT64_MAX * ((UINT64_C(1) << 32) / 3) >> 32);
    forget_choice(0);
}

static void *use_clock(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        cprof_clock_start();
        cprof_ticks start = cprof_clock_read();
        cprof_clock_refine();
        CHECK(cprof_clock_between(start, cprof_clock_read()) >= 0);
        CHECK(cprof_clock_name() != NULL);
        CHECK(cprof_clock_reason() == NULL || !is_counter_used());
    }
    return unused;
}

/* G4 */
TEST(threads_start_it_together)
{
    forget_choice(0);
    check_threads(THREADS, use_clock, NULL, 0);
}

static void *start_clock(void *unused)
{
    cprof_clock_start();
    return unused;
}

/* D1: the thread that calibrates does not exist in the child, which calibrates for itself. */
TEST(fork_during_the_calibration)
{
    if (!start_counter(0)) {
        return;
    }
    cprof_process_start();
    forget_choice(0);
    atomic_store(&reference.gate, 1);
    pthread_t thread = check_thread(start_clock, NULL);
    while (atomic_load(&reference.gate) != 2) {
        (void)sched_yield();
    }
    IN_CHILD
    {
        atomic_store(&reference.gate, 0);
        cprof_clock_start();
        _exit(is_counter_used() ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    atomic_store(&reference.gate, 0);
    check_join(thread);
    CHECK(is_counter_used());
}

/* E3: time in which the machine was suspended is not counted, as CLOCK_MONOTONIC does not count it. */
TEST(no_other_clock_is_asked)
{
    CHECK(atomic_load(&reference.reads) > 0);
    CHECK_EQUAL(atomic_load(&reference.other_clocks), 0);
}

TEST_MAIN(NULL, NULL)
