/* What one interpreter's copy of the module owns, and the few functions that several of its files share.
 *
 * There is no mutable global in this folder. Objects keep a pointer to the state, and hold it, or hold an object that does.
 * Everything here is used with the GIL held.
 */
#ifndef EXT_STATE_H
#define EXT_STATE_H

#include "csrc/compat.h"
#include "csrc/ptrmap.h"

#include "cprofiling/calls/probe.h"
#include "cprofiling/nodes/registry.h"

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

/* The state lives until its last user, the module or an object, lets go: at the interpreter's end objects may outlive the
 * module, as the collector takes the types of both apart. Struct, traverse and clear (module.c) list the same fields in the
 * same order. After clear (at the interpreter's end, while calls may still come) all types are NULL: whoever uses one looks
 * first. */
typedef struct {
    /* Types */
    PyTypeObject *profiler_type;
    PyTypeObject *function_type;
    PyTypeObject *callable_type; /* a subtype of it */
    PyTypeObject *block_type;
    PyTypeObject *stage_type;
    PyTypeObject *idle_type;
    PyTypeObject *generator_type;
    PyTypeObject *coroutine_type;
    PyTypeObject *async_generator_type;
    PyTypeObject *step_type;
    PyTypeObject *await_type;
    PyTypeObject *method_switch_type;
    PyTypeObject *inherited_type;
    PyTypeObject *ready_type;
    PyTypeObject *live_type;
    PyTypeObject *snapshot_type;
    PyTypeObject *view_type;
    PyTypeObject *record_type;
    PyTypeObject *recorder_type;
    PyTypeObject *recording_type;
    /* Objects of the package; NULL until set */
    PyObject *default_profiler; /* Profiler */
    PyObject *mixin;            /* the class PipelineProfiling */
    PyObject *profiler_class;   /* what makes the Profilers of pipelines */
    PyObject *device_finder;    /* callable(arguments) -> device index or None, for synchronisation */
    PyObject *sys_module;
    PyObject *awaiter;                    /* coroutine function(awaitable) that awaits it */
    PyObject *probers;                    /* tuple of the callables of ext_callback */
    PyObject *stream_finder;              /* callable(device index) -> handle of the stream in use there, 0 when not known */
    PyObject *record_wrapper;             /* callable(function, name, warm_up) -> the function as a record() */
    PyObject *kind_finder;                /* callable(function) -> ext_kind */
    PyObject *parameter_finder;           /* callable(function) -> the name of its first parameter, or None */
    PyObject *stand_in_maker;             /* callable(function) -> what torch.compile traces in the place of its wrapper */
    PyObject *marks_finder;               /* callable(function) -> dict of attributes that torch.compile finds in its wrapper */
    PyObject *thread_namer;               /* callable() that notes the name of the thread, while a recording runs */
    PyObject *describer;                  /* callable(arguments) -> (shapes, types, stack), each a str or None */
    PyObject *device_memory_finder;       /* callable() -> (bytes in use, the most there were) or None */
    PyObject *defaults;                   /* list: the default stages that are entered, the last one in force */
    PyObject *stage_wrapper;              /* callable(function, stage) -> the function, in force while it runs */
    PyObject *live_switch;                /* callable(Profiler, path or None, whether it is on) -> callable() or None */
    struct ext_profiler *record_profiler; /* in whose name record() is; counts nothing */
    /* Objects that have no part in a cycle: kept until the module goes (module_free) */
    PyObject *stage_variable; /* context variable: the innermost stage, an interned str */
    PyObject *bound_variable; /* context variable: the Profiler bound by `with profiler:` */
    PyObject *first_stage;    /* interned str: "inference" */
    PyObject *default_stage;  /* interned str: that of the last of `defaults`, else the first */
    PyObject *entered_stages; /* dict: stage -> the number of its last entry while a Profiler was on, 0 once a node ran in it */
    PyObject *view_key;       /* str: the key of views in the thread states' dictionaries */
    PyObject *enum_type;      /* enum.Enum */
    PyObject *words[EXT_WORD_COUNT];
    PyObject *format_error; /* the class FormatError */
    ext_label labels[EXT_LABEL_PLACES];
    /* Not objects */
    size_t users;
    ext_ptrmap pipelines;    /* pipeline (borrowed) -> ext_pipeline */
    ext_ptrmap shape_types;  /* type (borrowed) -> what its instances are; shape.c's, as the next */
    ext_ptrmap shape_dtypes; /* dtype -> its text */
    _Atomic uint64_t gate; /* not 0 while a Profiler of this interpreter may be on, a recording of it runs, or a capture window
                              was set */
    size_t profilers_on;
    uint64_t stage_entries;           /* of stages while a Profiler was on */
    cprof_probe_rest no_other_device; /* none but CUDA's was in use: it is not asked for until this is over */
    uint64_t entered;                 /* how often a stage, or a Profiler, was put in force in a context */
    struct ext_view *views;           /* all there are; borrowed */
    bool capturing;                   /* a capture window was set */
    bool recording;                   /* one of this interpreter runs, not paused */
    const void *recorder;             /* the Recorder of it, or of the last one; compared only */
    bool wants_memory;                /* as do its details */
    uint64_t serial;                  /* unique among the states of the process; 0 after clear */
    _Atomic uint64_t internal_errors; /* faults that belong to no Profiler */
    ext_cost costs[2];                /* of one profiled call; of one that is asked for more than times */
} ext_state;

/* The module `word` names, when it is loaded: a new reference, or NULL. Never leaves an exception; safe late in finalisation.
 */
PyObject *ext_state_loaded_module(const ext_state *state, ext_word word);

/* Becomes a user of the state, and ceases to be one (NULL: of none). Profilers, nodes, views and Recorders are. */
ext_state *ext_state_hold(ext_state *state);
void ext_state_release(ext_state *state);

/* Forgets the labels that are remembered. */
void ext_state_forget_labels(ext_state *state);

/* Sets the gate by what it depends on. */
static inline void ext_state_set_gate(ext_state *state)
{
    atomic_store(&state->gate, state->profilers_on > 0 || state->recording || state->capturing);
}

/* Sets a field of the state that owns an object; None: to NULL. */
static inline void ext_state_set(PyObject **field, PyObject *value)
{
    Py_XSETREF(*field, value != Py_None ? Py_NewRef(value) : NULL);
}

/* The state of a module of ours; NULL before it is set up. */
ext_state *ext_state_of_module(PyObject *module);

/* The state of the module that `type`, or a base of it, belongs to. NULL with TypeError when it is none of ours. */
ext_state *ext_state_of_type(PyTypeObject *type);

#endif
