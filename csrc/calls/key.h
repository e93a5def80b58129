/* Names of calls and what they stand for: the accumulators of Profilers for a node's, the numbers in the recording that runs
 * for a record()'s. */
#ifndef EXT_KEY_H
#define EXT_KEY_H

#include "csrc/profiler.h"

enum { EXT_KEY_PLACES = 4 };

/* A name, and the accumulators it was lately found at. */
typedef struct {
    PyObject *name; /* str; owned */
    struct {
        EXT_SHARED uint64_t profiler_uid; /* 0: free. The accumulator lives as long as the Profiler of this number */
        PyObject *EXT_SHARED stage;       /* str; owned. Readers compare it only */
        cprof_accum *EXT_SHARED accum;    /* borrowed */
    } places[EXT_KEY_PLACES];
#if EXT_FREE_THREADED
    EXT_SHARED size_t
        turn; /* raised before and after the places are changed, in EXT_ALONE() of the state's guard: odd meanwhile */
#endif
} ext_key;

/* What tells readers whether the places were changed meanwhile: an odd one says that they are being changed. */
#if EXT_FREE_THREADED
#define EXT_KEY_TURN(key) ((key)->turn)
#define EXT_KEY_TAKE_TURN(key) ((void)(key)->turn++)
#else
#define EXT_KEY_TURN(key) ((size_t)0)
#define EXT_KEY_TAKE_TURN(key) ((void)0)
#endif

/* The place of a key that is looked at first for a Profiler's accumulator for a stage. */
static inline size_t ext_key_place(const ext_profiler *profiler, const PyObject *stage)
{
    return (profiler->uid ^ ((uintptr_t)stage >> 5)) % EXT_KEY_PLACES;
}

/* The accumulator for a Profiler and a stage, if the key remembers it; or NULL. */
static inline cprof_accum *ext_key_known(const ext_key *key, const ext_profiler *profiler, const PyObject *stage)
{
    size_t first = ext_key_place(profiler, stage);
    size_t turn = EXT_KEY_TURN(key);
    for (size_t i = 0; i < EXT_KEY_PLACES; i++) {
        size_t place = (first + i) % EXT_KEY_PLACES;
        if (__builtin_expect(key->places[place].profiler_uid == profiler->uid && key->places[place].stage == stage, 1)) {
            cprof_accum *accum = key->places[place].accum;
            return turn % 2 == 0 && EXT_KEY_TURN(key) == turn ? accum : NULL;
        }
    }
    return NULL;
}

/* The accumulator of two legal names, made at its first use; borrowed, it lives as long as the Profiler. NULL without memory,
 * with an exception or without. */
cprof_accum *ext_key_accum(ext_profiler *profiler, PyObject *stage, PyObject *name);

/* The same for a key, which remembers it; in EXT_ALONE() of the state's guard. A failure is counted as the Profiler's, without
 * an exception. May run code of the user's: see the next. */
cprof_accum *ext_key_find(ext_profiler *profiler, ext_key *key, PyObject *stage);

/* Says once for each Profiler that its keys are used up. A warning filter that raises does not reach the user's call. */
void ext_key_warn_of_overflow(ext_profiler *profiler);

/* Lets go of all that it holds. */
void ext_key_clear(ext_key *key);

/* A label, as a number of the recording of a serial; label 0: none. */
typedef struct {
    uint32_t serial;
    uint32_t label;
} ext_label_number;

/* What a record() may read from the word of its Profiler: nobody counts it. */
#define EXT_LABEL_FLAGS ((uint64_t)(CPROF_FLAG_TRACE | CPROF_FLAG_DETAIL))

/* The number of a label in the recording that runs. Both strs are interned. Never leaves an exception. */
ext_label_number ext_key_label(ext_state *state, PyObject *stage, PyObject *name);

#endif
