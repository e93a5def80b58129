/* thread.h. Argument: by how much to divide the numbers of short threads and of calls, for slow machines. Linked with
 * --wrap for what a record needs of the threads library. */
#define _GNU_SOURCE
#include "cprofiling/nodes/thread.h"

#include "cprofiling/calls/call.h"
#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"

#include <alloca.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    KIB = 1024,
    STEP = 512,
    SHORT_THREADS = 10000,
    TOGETHER = 8,
    PAIRS = 500,
    CALLS = 20000,
    DEPTH = 100,
    SPANS_OF_A_BATCH = 32,
    LEAST_LEFT = 64 * KIB, /* of stack, when no call may begin any more, at least */
};

static int divisor = 1;
static bool key_fails;
static _Atomic bool binding_fails; /* of a record to its thread */
static _Atomic bool bounds_fail;

WRAP_REAL(int, pthread_key_create, pthread_key_t *key, void (*destroy)(void *))
{
    return key_fails ? EAGAIN : real_pthread_key_create(key, destroy);
}

WRAP_REAL(int, pthread_setspecific, pthread_key_t key, const void *value)
{
    return atomic_load(&binding_fails) ? ENOMEM : real_pthread_setspecific(key, value);
}

WRAP_REAL(int, pthread_getattr_np, pthread_t thread, pthread_attr_t *attributes)
{
    return atomic_load(&bounds_fail) ? ENOMEM : real_pthread_getattr_np(thread, attributes);
}

static pthread_t start_guarded(void *(*run)(void *), void *argument, size_t stack_size, size_t guard_size)
{
    pthread_t thread;
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(stack_size == 0 || pthread_attr_setstacksize(&attributes, stack_size) == 0);
    CHECK(guard_size == 0 || pthread_attr_setguardsize(&attributes, guard_size) == 0);
    CHECK(pthread_create(&thread, &attributes, run, argument) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0);
    return thread;
}

static pthread_t start(void *(*run)(void *), void *argument, size_t stack_size)
{
    return start_guarded(run, argument, stack_size, 0);
}

static void *result_of(pthread_t thread)
{
    void *result;
    CHECK(pthread_join(thread, &result) == 0);
    return result;
}

static void *run(void *(*function)(void *), void *argument, size_t stack_size)
{
    return result_of(start(function, argument, stack_size));
}

/* In a child, as the process has one key, made once. */
TEST(without_a_key)
{
    IN_CHILD
    {
        key_fails = true;
        CHECK(cprof_thread_get() == NULL);
        key_fails = false;
        CHECK(cprof_thread_get() == NULL);
        CHECK(cprof_thread_self == NULL);
    }
}

static void *get_record(void *unused)
{
    (void)unused;
    CHECK(cprof_thread_self == NULL);
    cprof_thread *thread = cprof_thread_get();
    CHECK(thread != NULL && thread == cprof_thread_self && thread == cprof_thread_get());
    CHECK(thread->binding == NULL);
    thread->binding = thread;
    return thread;
}

TEST(one_record_per_thread)
{
    cprof_thread *own = cprof_thread_get();
    CHECK(own != NULL && own == cprof_thread_self);
    const cprof_thread *other = run(get_record, NULL, 0);
    CHECK(other != own && other->ordinal != own->ordinal);
    CHECK(cprof_thread_get() == own);
    CHECK(run(get_record, NULL, 0) == other); /* recycled, and nothing is bound to it any more */
}

static void *get_record_at_the_second_try(void *unused)
{
    (void)unused;
    CHECK(cprof_thread_get() == NULL);
    CHECK(cprof_thread_self == NULL);
    atomic_store(&binding_fails, false);
    return cprof_thread_get();
}

TEST(record_cannot_be_bound)
{
    void *known = run(get_record, NULL, 0);
    uint64_t made = fake_alloc_made();
    atomic_store(&binding_fails, true);
    CHECK(run(get_record_at_the_second_try, NULL, 0) == known);
    CHECK_EQUAL(fake_alloc_made(), made);
}

static pthread_barrier_t barrier;

static void *fail_to_get_a_record(void *unused)
{
    (void)unused;
    fake_alloc_fail(1);
    CHECK(cprof_thread_get() == NULL);
    CHECK(fake_alloc_has_failed());
    CHECK(cprof_thread_self == NULL);
    CHECK(cprof_thread_get() != NULL);
    return NULL;
}

static void *hold_a_record(void *unused)
{
    CHECK(cprof_thread_get() != NULL);
    (void)pthread_barrier_wait(&barrier);
    (void)pthread_barrier_wait(&barrier);
    return unused;
}

/* G7 */
TEST(record_without_memory)
{
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    pthread_t holder = start(hold_a_record, NULL, 0); /* so that there is no record to be used again */
    (void)pthread_barrier_wait(&barrier);
    (void)run(fail_to_get_a_record, NULL, 0);
    (void)pthread_barrier_wait(&barrier);
    (void)result_of(holder);
    CHECK(pthread_barrier_destroy(&barrier) == 0);
}

static __attribute__((noinline)) bool is_near(const cprof_thread *thread)
{
    return cprof_thread_stack_near(thread);
}

/* Uses up stack until no call may begin any more; returns how many bytes are left above `low` then. */
static __attribute__((noinline)) size_t descend(const cprof_thread *thread, uintptr_t low)
{
    uintptr_t reached = 0;
    while (cprof_thread_stack_ok(thread)) {
        volatile char *room = alloca(STEP);
        room[0] = 0;
        reached = (uintptr_t)room;
    }
    CHECK(!is_near(thread));
    return reached - low;
}

static void *measure_stack(void *unused)
{
    pthread_attr_t attributes;
    void *low;
    size_t size;
    (void)unused;
    cprof_thread *thread = cprof_thread_get();
    CHECK(cprof_thread_stack_near(thread) && cprof_thread_stack_ok(thread));
    CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
    CHECK(pthread_attr_getstack(&attributes, &low, &size) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0);
    *(volatile char *)low = 0; /* it is not in the guard */
    CHECK(thread->stack_low == (uintptr_t)low && thread->stack_floor + thread->stack_room == (uintptr_t)low + size);
    CHECK_EQUAL(thread->stack_floor - thread->stack_low, size / 2 < CPROF_THREAD_RESERVE ? size / 2 : CPROF_THREAD_RESERVE);
    return (void *)descend(thread, (uintptr_t)low);
}

static void *take_part(void *unused)
{
    static cprof_probe probe;
    (void)unused;
    cprof_thread *thread = cprof_thread_get();
    thread->trace.serial = 1;
    thread->binding = &probe;
    atomic_store(&thread->running, &probe);
    return thread;
}

/* A record that is used again is in no recording, whatever the thread before took part in, and nobody's. */
TEST(records_begin_anew)
{
    cprof_thread *record = run(take_part, NULL, 0);
    CHECK_EQUAL(record->trace.serial, 0);
    CHECK(record->binding == NULL && atomic_load(&record->running) == NULL);
}

/* B1: at least 64 KiB are left; of a stack that is too small for that, about a half. */
TEST(stack_is_kept_free)
{
    static const size_t sizes[] = {512 * KIB, 2048 * KIB};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        CHECK((size_t)run(measure_stack, NULL, sizes[i]) >= LEAST_LEFT);
    }
#ifndef __SANITIZE_THREAD__                          /* which needs more */
    static _Alignas(4 * KIB) char memory[256 * KIB]; /* a stack that the library makes may be larger */
    for (size_t size = 128 * KIB; size <= sizeof memory; size *= 2) {
        pthread_t thread;
        pthread_attr_t attributes;
        CHECK(pthread_attr_init(&attributes) == 0);
        CHECK(pthread_attr_setstack(&attributes, memory, size) == 0);
        CHECK(pthread_create(&thread, &attributes, measure_stack, NULL) == 0);
        CHECK(pthread_attr_destroy(&attributes) == 0);
        CHECK((size_t)result_of(thread) >= size / 3);
    }
#endif
}

/* The guard lies beside the stack, however large it is. */
TEST(large_guard)
{
    for (size_t size = 64 * KIB; size <= 4096 * KIB; size *= 2) {
        pthread_t thread = start_guarded(measure_stack, NULL, 2048 * KIB, size);
        CHECK((size_t)result_of(thread) >= LEAST_LEFT);
    }
}

TEST(main_stack)
{
    CHECK(cprof_thread_stack_near(cprof_thread_get()));
    CHECK(cprof_thread_stack_ok(cprof_thread_get()));
}

static void *check_unknown_bounds(void *unused)
{
    cprof_thread *thread = cprof_thread_get();
    CHECK(thread != NULL);
    CHECK(cprof_thread_stack_near(thread) && cprof_thread_stack_ok(thread));
    CHECK(thread->stack_room == SIZE_MAX && thread->stack_floor == 0);
    return unused;
}

TEST(bounds_cannot_be_had)
{
    atomic_store(&bounds_fail, true);
    (void)run(check_unknown_bounds, NULL, 0);
    atomic_store(&bounds_fail, false);
    CHECK((size_t)run(measure_stack, NULL, 512 * KIB) >= LEAST_LEFT); /* asked anew for each thread */
}

static volatile sig_atomic_t foreign_near;
static volatile sig_atomic_t foreign_ok;

static void look_at_foreign_stack(int number)
{
    (void)number;
    foreign_near = cprof_thread_stack_near(cprof_thread_self);
    foreign_ok = cprof_thread_stack_ok(cprof_thread_self);
}

static void *use_foreign_stack(void *memory)
{
    stack_t stack = {.ss_sp = memory, .ss_size = (size_t)64 * KIB};
    stack_t none = {.ss_flags = SS_DISABLE};
    CHECK(cprof_thread_get() != NULL);
    CHECK(sigaltstack(&stack, NULL) == 0);
    foreign_near = foreign_ok = -1;
    CHECK(raise(SIGUSR1) == 0);
    CHECK(foreign_near == false && foreign_ok == true);
    CHECK(sigaltstack(&none, NULL) == 0);
    return NULL;
}

/* C8: a stack that is not the thread's own, below it or above it, is not judged. */
TEST(foreign_stack)
{
    static char below[64 * KIB];
    char above[64 * KIB];
    struct sigaction action = {.sa_handler = look_at_foreign_stack, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    (void)use_foreign_stack(below);
    (void)run(use_foreign_stack, above, 0);
}

/* Opens and closes `depth` spans that belong to no node. */
static void open_and_close(int depth)
{
    cprof_chain chain = {.top = NULL};
    cprof_thread *thread = cprof_thread_get();
    for (int i = 0; i < depth; i++) {
        CHECK(cprof_call_open(thread, &chain, NULL, 0, NULL, NULL) != NULL);
    }
    for (int i = 0; i < depth; i++) {
        cprof_call_close(thread, &chain, chain.top, CPROF_OUTCOME_SUCCESS, false);
    }
}

static void *live_shortly(void *depth)
{
    open_and_close(*(const int *)depth);
    return cprof_thread_self;
}

/* C4: a hundredth of the short threads of the soak; memory is flat from the first on. */
TEST(short_threads)
{
    int depth = DEPTH;
    void *record = run(live_shortly, &depth, 0);
    uint64_t made = fake_alloc_made();
    for (int i = 0; i < SHORT_THREADS / divisor; i++) {
        CHECK(run(live_shortly, &depth, 128 * KIB) == record);
    }
    CHECK_EQUAL(fake_alloc_made(), made);
}

static void *live_together(void *unused)
{
    open_and_close(1);
    (void)pthread_barrier_wait(&barrier);
    open_and_close(2);
    return unused;
}

/* C4: threads that overlap share what earlier ones left. */
TEST(overlapping_threads)
{
    uint64_t made = 0;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    for (int i = 0; i < PAIRS / divisor; i++) {
        pthread_t first = start(live_together, NULL, 128 * KIB);
        pthread_t second = start(live_together, NULL, 128 * KIB);
        (void)result_of(first);
        (void)result_of(second);
        made = i < 2 ? fake_alloc_made() : made;
    }
    CHECK_EQUAL(fake_alloc_made(), made);
    CHECK(pthread_barrier_destroy(&barrier) == 0);
}

static void *live_in_a_crowd(void *unused)
{
    uint64_t random = (uintptr_t)&random;
    for (int i = 0; i < 200; i++) {
        open_and_close((int)(check_random(&random) % (2 * SPANS_OF_A_BATCH)));
    }
    return unused;
}

TEST(crowds)
{
    uint64_t made = fake_alloc_made();
    for (int round = 0; round < 50; round++) {
        pthread_t threads[TOGETHER];
        for (int i = 0; i < TOGETHER; i++) {
            threads[i] = start(live_in_a_crowd, NULL, 0);
        }
        for (int i = 0; i < TOGETHER; i++) {
            (void)result_of(threads[i]);
        }
    }
    CHECK(fake_alloc_made() - made <= TOGETHER * 4); /* a record and some batches of spans for each that lived at once */
}

static void count_span(void *count, cprof_span *span)
{
    (void)span;
    ++*(size_t *)count;
}

static void *pass_spans_on(void *unused)
{
    cprof_thread *thread = cprof_thread_get();
    open_and_close(10 * DEPTH);
    for (int i = 0; i < 500 * SPANS_OF_A_BATCH; i++) {
        if (thread->free_spans == NULL) {
            size_t all = 0;
            CHECK(cprof_span_refill(thread));
            cprof_span_visit_all(count_span, &all);
            CHECK(all >= SPANS_OF_A_BATCH);
        }
        cprof_span *span = thread->free_spans;
        thread->free_spans = span->parent;
        cprof_span_give_to_all(span);
    }
    return unused;
}

/* C4: each span is afterwards in one place, and in one only. */
TEST(spans_that_change_hands)
{
    cprof_thread *thread = cprof_thread_get();
    size_t all = 0;
    size_t found = 0;
    size_t others = 0;
    check_threads(TOGETHER, pass_spans_on, NULL, 0);
    cprof_span_visit_all(count_span, &all);
    do {
        size_t taken = 0;
        for (; thread->free_spans != NULL && found <= all; found++) {
            thread->free_spans = thread->free_spans->parent;
            taken++;
        }
        others += taken != SPANS_OF_A_BATCH;
        fake_alloc_fail(1);
    } while (cprof_span_refill(thread) && found <= all);
    fake_alloc_fail(0);
    CHECK_EQUAL(found, all);
    CHECK(others <= 2); /* what this thread had, and what was left at last */
}

static cprof_chain left_open;

static void *die_in_calls(void *unused)
{
    for (int i = 0; i < 3; i++) {
        CHECK(cprof_call_open(cprof_thread_get(), &left_open, NULL, 0, NULL, NULL) != NULL);
    }
    return unused;
}

/* C4: what is open in a thread that ends goes to other threads once somebody has taken it off its chain. */
TEST(threads_that_end_in_open_calls)
{
    uint64_t made = 0;
    for (int i = 0; i < PAIRS / divisor; i++) {
        (void)run(die_in_calls, NULL, 128 * KIB);
        while (left_open.top != NULL) {
            cprof_span *span = left_open.top;
            left_open.top = span->parent;
            cprof_call_discard(span);
        }
        made = i < 2 ? fake_alloc_made() : made;
    }
    CHECK_EQUAL(fake_alloc_made(), made);
}

static pthread_key_t late_key;

/* Runs after the core's own, as its key was made later. */
static void use_the_core_late(void *unused)
{
    (void)unused;
    CHECK(cprof_thread_self == NULL); /* it may be another thread's by now */
    open_and_close(1);
}

static void *die_late(void *value)
{
    open_and_close(1);
    CHECK(real_pthread_setspecific(late_key, value) == 0);
    return NULL;
}

/* C7, G5: a destructor of the thread that uses the core when it has already let the thread go. */
TEST(use_after_the_end)
{
    uint64_t made = 0;
    CHECK(real_pthread_key_create(&late_key, use_the_core_late) == 0);
    for (int i = 0; i < PAIRS / divisor; i++) {
        (void)run(die_late, &made, 128 * KIB);
        made = i == 0 ? fake_alloc_made() : made;
    }
    CHECK_EQUAL(fake_alloc_made(), made);
    CHECK(pthread_key_delete(late_key) == 0);
}

static cprof_resumable calls[CALLS];

static void *end_calls(void *unused)
{
    cprof_chain chain = {.top = NULL};
    cprof_thread *thread = cprof_thread_get();
    for (int i = 0; i < CALLS / divisor; i++) {
        (void)pthread_barrier_wait(&barrier); /* a call was begun */
        if (i % 2 == 0) {
            cprof_call_resumable_continue(&calls[i], &chain);
            cprof_call_resumable_end(&calls[i], thread, &chain, CPROF_OUTCOME_SUCCESS);
        } else {
            cprof_call_resumable_abandon(&calls[i], thread, CPROF_OUTCOME_CANCELLED);
        }
        (void)pthread_barrier_wait(&barrier); /* it has ended */
    }
    return unused;
}

/* C4: generators that one thread begins and another ends. */
TEST(calls_that_end_in_another_thread)
{
    cprof_chain chain = {.top = NULL};
    cprof_thread *thread = cprof_thread_get();
    uint64_t made = 0;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    pthread_t other = start(end_calls, NULL, 0);
    for (int i = 0; i < CALLS / divisor; i++) {
        CHECK(cprof_call_resumable_begin(&calls[i], thread, &chain, NULL, 0, NULL));
        cprof_call_resumable_suspend(&calls[i], &chain, true);
        (void)pthread_barrier_wait(&barrier);
        (void)pthread_barrier_wait(&barrier);
        made = i == SPANS_OF_A_BATCH ? fake_alloc_made() : made;
    }
    (void)result_of(other);
    CHECK(fake_alloc_made() - made <= 2);
    CHECK(pthread_barrier_destroy(&barrier) == 0);
}

int main(int count, char **arguments)
{
    divisor = (int)check_argument(count, arguments, 1);
    fake_alloc_install();
    check_run(NULL, NULL);
    return EXIT_SUCCESS;
}
