/* Statistics that count in a Profiler, and beside it in the plain sums of a peer's profiler: see cprofiling/plain.h. */
#ifndef EXT_PLAIN_PROFILER_H
#define EXT_PLAIN_PROFILER_H

#include "csrc/profiler.h"

#include "cprofiling/stats/plain.h"

enum { EXT_PLAIN_RECENT = 128 };

/* A place for two objects in a table of 128, by their identity; a second one is beside it (^ 1). */
static inline size_t ext_plain_profiler_place(const PyObject *first, const PyObject *second)
{
    return (size_t)((((uintptr_t)first >> 4) ^ ((uintptr_t)second >> 3)) * UINT64_C(0x9e3779b97f4a7c15) >> 57);
}

/* One key. */
typedef struct {
    PyObject *stage; /* any hashable object; owned, as is: */
    PyObject *name;
    cprof_accum *accum; /* the Profiler's; NULL: it takes no such names. Lives as long as the Profiler */
    cprof_plain sums;
} ext_plain_entry;

typedef struct {
    PyObject_HEAD
    ext_profiler *profiler; /* owned, and on */
    PyObject *dict;         /* the instance's attributes; NULL: none */
    PyObject *weakrefs;
    PyObject *skip_first_n;    /* as it was asked for; owned */
    uint64_t skips;            /* that each key begins with */
    PyObject *names;           /* dict: name -> dict: stage -> the entry's place; owned */
    PyObject *stages;          /* dict: the strs that stand for the stages that are strs; owned */
    ext_plain_entry **entries; /* in the order of their first samples; owned */
    size_t count;
    size_t capacity;
    ext_plain_entry *recent[EXT_PLAIN_RECENT]; /* by the identity of their objects; borrowed */
    PyObject *last_stage;                      /* as it was given at last; owned. It equals: */
    PyObject *last_known;                      /* the object that stands for this stage, the first one; owned */
} ext_plain_profiler;

extern PyType_Spec ext_plain_profiler_spec;

/* Counts a sample of a key. `elapsed_ns`: what it is in ns; negative: not known, then the Profiler is given `elapsed_ms` too.
 * False with the exception that hashing or comparing the key raised, or MemoryError. */
bool ext_plain_profiler_add(ext_plain_profiler *self, PyObject *stage, PyObject *name, cprof_ns elapsed_ns, double elapsed_ms);

/* The Profiler's accumulator of a key that has been counted; NULL, without an exception, where there is none. */
cprof_accum *ext_plain_profiler_accum(ext_plain_profiler *self, PyObject *stage, PyObject *name);

#endif
