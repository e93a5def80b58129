#define _GNU_SOURCE
#include "cprofiling/devices/cupti_threads.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BACKWARD_NAME "pt_autograd"

enum { NAME_SIZE = 16 }; /* of a thread, with the NUL */

static _Thread_local cprof_cupti_thread own;

static struct {
    cprof_lock lock; /* guards the list; held while a node of it is in use by another thread */
    cprof_cupti_thread *first;
    pthread_once_t key_once;
    pthread_key_t key; /* its destructor notices the end of threads that are in the list */
    bool key_made;
} threads = {.key_once = PTHREAD_ONCE_INIT};

static void leave(void *thread)
{
    cprof_cupti_thread *self = thread;
    cprof_lock_acquire(&threads.lock);
    if (self->is_listed) {
        *(self->previous != NULL ? &self->previous->next : &threads.first) = self->next;
        if (self->next != NULL) {
            self->next->previous = self->previous;
        }
        self->is_listed = false;
    }
    cprof_lock_release(&threads.lock);
    self->is_ending = true; /* destructors run a few times over, but nobody says which time is the last */
}

static void make_key(void)
{
    threads.key_made = pthread_key_create(&threads.key, leave) == 0;
}

/* A thread whose end cannot be noticed stays out: nobody borrows from it. */
static void join_list(cprof_cupti_thread *self)
{
    (void)pthread_once(&threads.key_once, make_key);
    if (self->is_ending || !threads.key_made || pthread_setspecific(threads.key, self) != 0) {
        return;
    }
    cprof_lock_acquire(&threads.lock);
    self->next = threads.first;
    self->previous = NULL;
    if (threads.first != NULL) {
        threads.first->previous = self;
    }
    threads.first = self;
    self->is_listed = true;
    cprof_lock_release(&threads.lock);
}

cprof_cupti_thread *cprof_cupti_thread_get(void)
{
    return &own;
}

void cprof_cupti_set_node(cprof_cupti_node node, cprof_cupti_node *before)
{
    cprof_cupti_thread *self = &own;
    before->accum = atomic_load_explicit(&self->accum, memory_order_relaxed);
    before->generation = atomic_load_explicit(&self->generation, memory_order_relaxed);
    uint64_t changes = atomic_load_explicit(&self->changes, memory_order_relaxed);
    atomic_store_explicit(&self->changes, changes + 1, memory_order_relaxed);
    atomic_store_explicit(&self->generation, node.generation, memory_order_release);
    atomic_store_explicit(&self->accum, node.accum, memory_order_release);
    atomic_store_explicit(&self->changes, changes + 2, memory_order_release);
    if (!self->is_listed && node.accum != NULL) {
        join_list(self);
    }
}

bool cprof_cupti_thread_is_backward(cprof_cupti_thread *self)
{
    if (self->kind == CPROF_CUPTI_THREAD_NEW) {
        char name[NAME_SIZE] = "";
        (void)pthread_getname_np(pthread_self(), name, sizeof name);
        bool is_backward = strncmp(name, BACKWARD_NAME, sizeof BACKWARD_NAME - 1) == 0;
        self->kind = is_backward ? CPROF_CUPTI_THREAD_BACKWARD : CPROF_CUPTI_THREAD_OWN;
    }
    return self->kind == CPROF_CUPTI_THREAD_BACKWARD;
}

pid_t cprof_cupti_thread_id(cprof_cupti_thread *self)
{
    if (self->id == 0) {
        self->id = (pid_t)syscall(SYS_gettid);
    }
    return self->id;
}

/* A thread's node, as it is seen from another one; false while it is changing. */
static bool node_of(cprof_cupti_thread *thread, cprof_cupti_node *node)
{
    uint64_t changes = atomic_load_explicit(&thread->changes, memory_order_acquire);
    node->accum = atomic_load_explicit(&thread->accum, memory_order_acquire);
    node->generation = atomic_load_explicit(&thread->generation, memory_order_acquire);
    return changes % 2 == 0 && changes == atomic_load_explicit(&thread->changes, memory_order_relaxed);
}

bool cprof_cupti_thread_borrow(void (*user)(void *context, cprof_cupti_node node), void *context)
{
    unsigned count = 0;
    bool is_known = true;
    cprof_cupti_node only = {.accum = NULL};
    cprof_lock_acquire(&threads.lock);
    for (cprof_cupti_thread *thread = threads.first; thread != NULL; thread = thread->next) {
        cprof_cupti_node node;
        is_known = node_of(thread, &node) && is_known;
        if (node.accum != NULL) {
            only = node;
            count++;
        }
    }
    is_known = is_known && count == 1;
    if (is_known) {
        user(context, only);
    }
    cprof_lock_release(&threads.lock);
    return is_known;
}

void cprof_cupti_thread_forget(const cprof_registry *registry)
{
    cprof_lock_acquire(&threads.lock);
    for (cprof_cupti_thread *thread = threads.first; thread != NULL; thread = thread->next) {
        cprof_accum *accum = atomic_load_explicit(&thread->accum, memory_order_relaxed);
        if (accum != NULL && accum->registry == registry) {
            (void)atomic_compare_exchange_strong(&thread->accum, &accum, NULL);
        }
    }
    cprof_lock_release(&threads.lock);
}

void cprof_cupti_thread_after_fork_in_child(void)
{
    threads.first = NULL;
    own.is_listed = false;
    own.next = own.previous = NULL;
    own.id = 0;
}
