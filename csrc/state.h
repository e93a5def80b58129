/* What one interpreter's copy of the module owns, and the few functions that several of its files share.
 *
 * There is no mutable global in this folder. Objects keep a pointer to the state, and hold it, or hold an object that does.
 * Everything here is used with the GIL held, or, in builds without it, in EXT_ALONE() of the guard; but for fields that are
 * EXT_SHARED, and for those that do not change once the package is set up.
 */
#ifndef EXT_STATE_H
#define EXT_STATE_H

#include "csrc/compat.h"
#include "csrc/ptrmap.h"

#include "cprofiling/base/lock.h"
#include "cprofiling/calls/probe.h"
#include "cprofiling/nodes/registry.h"
#include "cprofiling/process.h"

/* Attribute names that are looked up again and again, interned once. */
#define EXT_WORD_MAP(X)                         \
    X(GI_FRAME, "gi_frame")                     \
    X(CR_FRAME, "cr_frame")                     \
    X(AG_FRAME, "ag_frame")                     \
    X(GI_RUNNING, "gi_running")                 \
    X(AG_RUNNING, "ag_running")                 \
    X(SEND, "send")                             \
    X(THROW, "throw")                           \
    X(CLOSE, "close")                           \
    X(ANEXT, "__anext__")                       \
    X(ASEND, "asend")                           \
    X(ATHROW, "athrow")                         \
    X(ACLOSE, "aclose")                         \
    X(ASYNCIO_EXCEPTIONS, "asyncio.exceptions") \
    X(CANCELLED_ERROR, "CancelledError")        \
    X(TRIO, "trio")                             \
    X(CANCELLED, "Cancelled")                   \
    X(EXCEPTIONS, "exceptions")                 \
    X(GREENLET, "greenlet")                     \
    X(MODULES, "modules")                       \
    X(GET_HOOKS, "get_asyncgen_hooks")          \
    X(SET_HOOKS, "set_asyncgen_hooks")          \
    X(NAME, "name")                             \
    X(CALL, "__call__")                         \
    X(CODE, "__code__")                         \
    X(DOC, "__doc__")                           \
    X(MODULE, "__module__")                     \
    X(CLASS, "__class__")                       \
    X(DICT, "__dict__")                         \
    X(INLINE, "_torchdynamo_inline")            \
    X(AWAIT, "__await__")                       \
    X(CLASS_NAME, "__name__")                   \
    X(DATACLASS_FIELDS, "__dataclass_fields__") \
    X(SHAPE, "shape")                           \
    X(DTYPE, "dtype")

typedef enum {
#define EXT_WORD_ENUM(word, text) EXT_WORD_##word,
    EXT_WORD_MAP(EXT_WORD_ENUM)
#undef EXT_WORD_ENUM
        EXT_WORD_COUNT
} ext_word;

/* A name that record() was lately given, and its number in the recording of a serial. Both strs are interned, and owned. */
typedef struct {
    PyObject *name;
    PyObject *stage;
    uint32_t serial;
    uint32_t label;
} ext_label;

enum { EXT_LABEL_PLACES = 64 };

/* What one profiled call costs; 0: not measured yet. */
typedef struct {
    unsigned flags;   /* CPROF_FLAG_COUNTERS, _MEMORY and _SHAPES, as asked for, */
    uint32_t probing; /* and with which counters */
    double cost_ns;
} ext_cost;

/* The fields of the state that own something, listed once: struct, traverse and clear are made of these.
 *
 * All types, with their bases; also what the module adds, in this order. */
#define EXT_STATE_TYPES(X)            \
    X(profiler, NULL)                 \
    X(function, NULL)                 \
    X(callable, state->function_type) \
    X(block, NULL)                    \
    X(stage, NULL)                    \
    X(idle, NULL)                     \
    X(generator, NULL)                \
    X(coroutine, NULL)                \
    X(async_generator, NULL)          \
    X(step, NULL)                     \
    X(await, NULL)                    \
    X(method_switch, NULL)            \
    X(inherited, NULL)                \
    X(ready, NULL)                    \
    X(live, NULL)                     \
    X(snapshot, NULL)                 \
    X(view, NULL)                     \
    X(record, NULL)                   \
    X(recorder, NULL)                 \
    X(recording, NULL)

/* Types of named tuples, made by statistics/summary.c. */
#define EXT_STATE_ROWS(X) X(summary) X(node) X(resources) X(gpu) X(launches) X(counters) X(memory) X(shape) X(facts)

/* Objects of the package, which it sets by configure(); NULL until then. */
#define EXT_STATE_HOOKS(X)                                                                                             \
    X(default_profiler) /* Profiler */                                                                                 \
    X(mixin)            /* the class PipelineProfiling */                                                              \
    X(profiler_class)   /* makes the Profilers of pipelines */                                                         \
    X(device_finder)    /* callable(arguments) -> device index or None, for synchronisation */                         \
    X(stream_finder)    /* callable(device index) -> handle of the stream in use there, 0 when not known */            \
    X(awaiter)          /* coroutine function(awaitable) that awaits it */                                             \
    X(record_wrapper)   /* callable(function, name, warm_up) -> the function as a record() */                          \
    X(stage_wrapper)    /* callable(function, stage) -> the function, in force while it runs */                        \
    X(kind_finder)      /* callable(function) -> ext_kind */                                                           \
    X(parameter_finder) /* callable(function) -> the name of its first parameter, or None */                           \
    X(stand_in_maker)   /* callable(function) -> the function that torch.compile traces in the place of its wrapper */ \
    X(marks_finder)     /* callable(function) -> dict of attributes that torch.compile finds in its wrapper */         \
    X(reducer)          /* callable(function) -> what pickle and copy take for it */                                   \
    X(probers)          /* tuple of the callables of ext_callback */                                                   \
    X(warner)           /* callable(message) that warns at the line of the user */                                     \
    X(thread_namer)     /* callable() -> str or None: the name of the thread that calls, while a recording runs */     \
    X(live_switch)      /* callable(Profiler, path or None, whether it is on) -> callable() or None */

/* Other objects that may be in a cycle. */
#define EXT_STATE_OBJECTS(X)                                                                         \
    X(sys_module)                                                                                    \
    X(describer)            /* callable(arguments) -> (shapes, types, stack), each a str or None */  \
    X(device_memory_finder) /* callable() -> (bytes in use, the most there were) or None */          \
    X(defaults)             /* list: the default stages that are entered, the last one in force */   \
    X(retired)              /* list: objects of the package that were replaced, and may be in use */ \
    X(record_profiler)      /* Profiler in whose name record() is; counts nothing */

/* Objects that have no part in a cycle: kept until the last user lets go. */
#define EXT_STATE_KEPT(X)                                                                                                \
    X(stage_variable) /* context variable: the innermost stage, an interned str */                                       \
    X(bound_variable) /* context variable: the Profiler bound by `with profiler:` */                                     \
    X(guard)          /* what is used by one thread at a time is used in EXT_ALONE() of it */                            \
    X(first_stage)    /* interned str: "inference" */                                                                    \
    X(default_stage)  /* interned str: that of the last of `defaults`, else the first */                                 \
    X(entered_stages) /* dict: stage -> the number of its last entry while a Profiler was on, 0 once a node ran in it */ \
    X(view_key)       /* str: the key of views in the thread states' dictionaries */                                     \
    X(enum_type)      /* enum.Enum */                                                                                    \
    X(format_error)   /* the class FormatError */

/* The state lives until its last user, the module or an object, lets go: at the interpreter's end objects may outlive the
 * module, as the collector takes the types of both apart. After clear (at the interpreter's end, while calls may still come)
 * all types are NULL: whoever uses one looks first. */
typedef struct {
#define EXT_STATE_TYPE_FIELD(name, base) PyTypeObject *name##_type;
#define EXT_STATE_ROW_FIELD(name) PyTypeObject *name##_row;
#define EXT_STATE_FIELD(name) PyObject *EXT_SHARED name;
    EXT_STATE_TYPES(EXT_STATE_TYPE_FIELD)
    EXT_STATE_ROWS(EXT_STATE_ROW_FIELD)
    EXT_STATE_HOOKS(EXT_STATE_FIELD)
    EXT_STATE_OBJECTS(EXT_STATE_FIELD)
    EXT_STATE_KEPT(EXT_STATE_FIELD)
#undef EXT_STATE_FIELD
#undef EXT_STATE_ROW_FIELD
#undef EXT_STATE_TYPE_FIELD
    PyObject *words[EXT_WORD_COUNT];
    ext_label labels[EXT_LABEL_PLACES];
    /* Not objects */
    EXT_SHARED size_t users;
    ext_ptrmap pipelines;    /* pipeline (borrowed) -> ext_pipeline */
    ext_ptrmap shape_types;  /* type (borrowed) -> what its instances are; shape.c's, as the next */
    ext_ptrmap shape_dtypes; /* dtype -> its text */
    _Atomic uint64_t gate; /* not 0 while a Profiler of this interpreter may be on, a recording of it runs, or a capture window
                              was set */
    EXT_SHARED size_t profilers_on;
    uint64_t stage_entries;           /* of stages while a Profiler was on */
    cprof_probe_rest no_other_device; /* none but CUDA's was in use: it is not asked for until this is over */
    uint64_t entered;                 /* how often a stage, or a Profiler, was put in force in a context */
    struct ext_view *views;           /* all there are; borrowed */
    EXT_SHARED bool capturing;        /* a capture window was set */
    EXT_SHARED bool recording;        /* one of this interpreter runs, not paused */
    const void *recorder;             /* the Recorder of it, or of the last one; compared only */
    EXT_SHARED bool wants_memory;     /* as do its details */
    EXT_SHARED uint64_t serial;       /* unique among the states of the process; 0 after clear */
    _Atomic uint64_t internal_errors; /* faults that belong to no Profiler */
    cprof_lock live_files;            /* of live_type.c */
    cprof_process_watch forks;        /* frees the guard in children */
    ext_cost costs[2];                /* of one profiled call; of one that is asked for more than times */
} ext_state;

/* The module `word` names, when it is loaded: a new reference, or NULL. Never leaves an exception; safe late in finalisation.
 */
PyObject *ext_state_loaded_module(const ext_state *state, ext_word word);

/* A new state, with its words and serial; the caller is its first user. NULL with an exception. */
ext_state *ext_state_create(void);

/* The part of the state in its module's m_traverse and m_clear. */
int ext_state_traverse(ext_state *state, visitproc visit, void *arg);
void ext_state_clear(ext_state *state);

/* Becomes a user of the state, and ceases to be one (NULL: of none). Profilers, nodes, views and Recorders are. */
ext_state *ext_state_hold(ext_state *state);
void ext_state_release(ext_state *state);

/* Forgets the labels that are remembered. */
void ext_state_forget_labels(ext_state *state);

/* RuntimeError: the interpreter is ending. Returns NULL. */
PyObject *ext_state_ending(void);

/* Gives back the memory of an object, and its type's reference: the last step of tp_dealloc. */
static inline void ext_state_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

/* Sets the gate by what it depends on. */
static inline void ext_state_set_gate(ext_state *state)
{
    atomic_store(&state->gate, state->profilers_on > 0 || state->recording || state->capturing);
}

/* Sets a field of the state that owns an object; None: to NULL. */
static inline void ext_state_set(PyObject * EXT_SHARED * field, PyObject *value)
{
    Py_XSETREF(*field, value != Py_None ? Py_NewRef(value) : NULL);
}

/* Ends the pending exception of code that ran for the profiler's sake (names, shapes, devices); the caller counts it. What is
 * no Exception, such as an interrupt, is raised anew when this thread runs Python next. */
void ext_state_forget_error(void);

/* The name of the module: by its address the module is known. */
extern const char ext_state_module_name[];

/* The state of a module of ours; NULL before it is set up. */
ext_state *ext_state_of_module(PyObject *module);

/* The state of the module that `type`, or a base of it, belongs to. NULL with TypeError when it is none of ours. */
ext_state *ext_state_of_type(PyTypeObject *type);

#endif
