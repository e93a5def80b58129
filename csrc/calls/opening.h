/* The openings of an object that is used as a context manager, as often and by as many threads and tasks at once as they like.
 *
 * Where something is measured an opening is a span, tagged with the ext_opening, in the chain of whoever entered. Where nothing
 * is, entries are only counted, so that each exit finds its own kind. An exit closes the span of the frame that it is in; else
 * one of its own task; else any, in whichever thread: it fails only without any entry. All this is done in EXT_ALONE() of the
 * object.
 */
#ifndef EXT_OPENING_H
#define EXT_OPENING_H

#include "csrc/calls/node.h"

typedef struct ext_opening {
    const _Atomic uint64_t *gate; /* borrowed: no flag is set while nothing can be measured */
    size_t open;                  /* spans with this tag, */
    cprof_span *spans;            /* the one that was opened last first, */
    ext_ptrmap places;            /* and, when there are several, by their places */
    size_t idle;                  /* times entered, and not yet left, without a span, as nothing was to be measured */
    const void *idle_thread;      /* the thread of all of these; NULL: of several */
    const void *quick_thread;     /* idle_thread while there is no span, so that nothing else need be asked; else NULL */
} ext_opening;

/* Opens a span of this opening on the view's chain, which may be one that only marks the place. NULL: there is none.
 * `arguments`, here and below: those of the call that it is opened for, a tuple; NULL: it is for none. Others may enter at the
 * same time, with arguments of their own. */
typedef cprof_span *(*ext_opener)(ext_opening *self, ext_view *view, PyObject *arguments);

/* A thread, told by the address of a thread-local variable: that costs nothing and needs no record. */
static inline const void *ext_opening_this_thread(void)
{
    return &cprof_thread_self;
}

/* All zero, but for the gate: an opening that its maker's thread will probably enter. */
static inline void ext_opening_init(ext_opening *self, const _Atomic uint64_t *gate)
{
    *self = (ext_opening){.gate = gate, .idle_thread = ext_opening_this_thread(), .quick_thread = ext_opening_this_thread()};
}

/* The slow half of ext_opening_clear. */
void ext_opening_drop(ext_opening *self, PyObject *guard);

/* Gives up the open spans when the object goes: nobody can leave them any more. The guard is the state's. */
static inline void ext_opening_clear(ext_opening *self, PyObject *guard)
{
    if (__builtin_expect(self->spans != NULL || self->places.slots != NULL, 0)) {
        ext_opening_drop(self, guard);
    }
}

/* Enters. */
void ext_opening_enter_slowly(ext_opening *self, ext_state *state, ext_opener opener, PyObject *arguments);

/* Leaves, as __exit__ does with these arguments: None, or NULL with RuntimeError, which says that what(name) was not entered.
 */
PyObject *ext_opening_exit_slowly(ext_opening *self, ext_state *state, PyObject *const *args, Py_ssize_t nargs,
                                  const char *what, PyObject *name);

/* A span for a measured opening. The target's Profiler, if it has one, becomes the span's. */
cprof_span *ext_opening_put_span(ext_opening *self, ext_view *view, const ext_target *target, PyObject *arguments);

/* The quick half of entering, while nothing is measured: a leaf, which saves no register. False: it takes the slow half. */
static inline bool ext_opening_enter_quickly(ext_opening *self)
{
    if ((atomic_load_explicit(self->gate, memory_order_relaxed) & CPROF_FLAG_ALL) != 0 ||
        self->quick_thread != ext_opening_this_thread()) {
        return false;
    }
    self->idle++;
    return true;
}

/* As above, of leaving. */
static inline bool ext_opening_exit_quickly(ext_opening *self)
{
    if (self->quick_thread != ext_opening_this_thread() || self->idle == 0) {
        return false;
    }
    self->idle--;
    return true;
}

#endif
