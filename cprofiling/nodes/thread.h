/* What a thread needs at hand: the bounds of its C stack, spans to open without allocating (span.h), and what runs in it.
 *
 * A thread's record is made at its first use and recycled, never freed, when the thread ends; so a pointer to one stays
 * readable. All functions work on the calling thread only, except where they say otherwise.
 */
#ifndef CPROF_THREAD_H
#define CPROF_THREAD_H

#include "cprofiling/base/lock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cprof_span cprof_span;
typedef struct cprof_probe cprof_probe;

enum { CPROF_THREAD_NOTES = 16 };

/* What a thread keeps of the recording that it takes part in; worked by recording.c. */
typedef struct {
    struct cprof_ring *ring; /* borrowed; meaningful while the recording of this serial goes on: */
    uint32_t serial;         /* 0: of none */
    uint32_t number;         /* of the thread in it */
    uint64_t last_span;      /* the last number that it gave to a span */
    size_t noted;            /* calls that have begun, and will be told of when they are over: */
    struct {
        int64_t key;
        uint64_t start; /* cprof_ticks */
    } notes[CPROF_THREAD_NOTES];
} cprof_thread_trace;

enum { CPROF_THREAD_RESERVE = 96 * 1024 }; /* bytes of stack below which no wrapped call is begun */

typedef struct cprof_thread {
    uintptr_t stack_floor;  /* wrapped calls begin above this address, */
    size_t stack_room;      /* and at most this far above it; SIZE_MAX when the bounds are not known */
    uintptr_t stack_low;    /* the lowest address of the stack */
    cprof_span *free_spans; /* worked by span.c, as is what takes them back when the thread ends (NULL: there are none) */
    void (*take_spans_back)(struct cprof_thread *thread);
    void *binding; /* of the layer above: opaque here, NULL at first and after the thread's end */
    struct cprof_thread *next_free;
    _Atomic uint64_t life;          /* raised when the thread ends */
    _Atomic(cprof_probe *) running; /* the innermost probe that runs in it, NULL when it ends; worked by probe.c, as is: */
    cprof_probe *spare_probe;       /* one for its next call, or NULL; owned */
    cprof_thread_trace trace;
    uint32_t ordinal;            /* of the record: how many were made before */
    bool looking;                /* of the layer above: it is reading the arguments of a call */
    _Atomic uint32_t trace_mark; /* the serial of the recording for which it is writing an event at this moment; else 0 */
} cprof_thread;

/* What ended threads left for new ones, and how their end is noticed. */
typedef struct {
    pthread_once_t key_once;
    pthread_key_t key;
    bool key_made;
    cprof_lock lock; /* guards: */
    cprof_thread *threads;
    uint32_t made; /* records, in all */
} cprof_thread_spares;

extern cprof_thread_spares cprof_thread_spare;

/* NULL until the thread's first cprof_thread_get(). */
extern _Thread_local cprof_thread *cprof_thread_self __attribute__((tls_model("initial-exec")));

/* The calling thread's record; NULL without memory. */
cprof_thread *cprof_thread_get(void);

/* Whether the present depth of the stack is certainly fine: on the thread's own stack, above the reserve. */
static inline bool cprof_thread_stack_near(const cprof_thread *thread)
{
    return (uintptr_t)__builtin_frame_address(0) - thread->stack_floor < thread->stack_room;
}

/* Whether a call may begin at the present depth: at least 64 KiB of stack, and what we need ourselves, are left; of a stack
 * below 192 KiB, half. A stack that is not the thread's own (a coroutine library's) is not judged. */
bool cprof_thread_stack_ok(const cprof_thread *thread);

#endif
