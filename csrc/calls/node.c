#include "csrc/calls/node.h"

#include "csrc/convert.h"

/* Owned by the node's table; goes when the instance does. */
typedef struct {
    ext_ptrmap_entry weak;
    ext_key key;
} ext_instance_key;

static void free_instance_key(void *data)
{
    ext_instance_key *instance = data;
    ext_key_clear(&instance->key);
    ext_ptrmap_forget(&instance->weak);
    PyMem_Free(instance);
}

static bool init_names(ext_node *node, PyObject *name, PyObject *default_name)
{
    if (name != Py_None && !PyUnicode_Check(name)) {
        if (!PyCallable_Check(name)) {
            ext_convert_refuse_type("name", "a str or a callable of the first argument", name);
            return false;
        }
        node->name_finder = Py_NewRef(name);
        name = Py_None;
    }
    if (name == Py_None) {
        name = default_name;
    }
    if (name == Py_None) {
        return true;
    }
    node->key.name = ext_convert_name(name, "name");
    return node->key.name != NULL;
}

bool ext_node_init(ext_node *node, ext_state *state, PyObject *name, PyObject *default_name, PyObject *stage,
                   PyObject *profiler)
{
    node->state = ext_state_hold(state);
    if (profiler != Py_None) {
        if (!ext_convert_is_profiler(state, profiler, "a Profiler or None")) {
            return false;
        }
        node->profiler = (ext_profiler *)Py_NewRef(profiler);
    }
    if (stage != Py_None) {
        node->stage = ext_convert_stage(state, stage, "stage");
        if (node->stage == NULL) {
            return false;
        }
    }
    return init_names(node, name, default_name);
}

int ext_node_traverse(ext_node *node, visitproc visit, void *arg)
{
    Py_VISIT(node->profiler);
    Py_VISIT(node->name_finder);
    return 0;
}

void ext_node_clear(ext_node *node)
{
    Py_CLEAR(node->profiler);
    Py_CLEAR(node->stage);
    Py_CLEAR(node->name_finder);
    ext_key_clear(&node->key);
    ext_key_clear(&node->passing_key);
    if (node->instance_keys.slots != NULL) {
        EXT_ALONE(node->state->guard, ext_ptrmap_clear(&node->instance_keys, free_instance_key));
    }
    ext_state_release(node->state);
    node->state = NULL;
}

const _Atomic uint64_t *ext_node_gate(const ext_node *node)
{
    return node->profiler != NULL ? &node->profiler->registry->epoch.state : &node->state->gate;
}

/* The innermost open span that names an owner. */
static PyObject *running_owner(ext_view *view)
{
    cprof_span *span = ext_view_around(view, cprof_chain_top(&view->chain));
    while (span != NULL && !ext_node_names_owner(span)) {
        span = cprof_span_around(span);
        span = ext_view_around(view, span);
    }
    return span != NULL ? ext_view_owner(span) : NULL;
}

ext_profiler *ext_node_find_profiler_slow(ext_node *node, ext_view *view, PyObject *first)
{
    if (first != NULL && ext_pipeline_is(node->state, first)) {
        return NULL; /* one that was never asked for its Profiler: it is off */
    }
    if (first != NULL && ext_compat_type_version(Py_TYPE(first)) != 0) {
        node->other_type = Py_TYPE(first);
        node->other_version = ext_compat_type_version(Py_TYPE(first));
    }
    PyObject *owner;
#if EXT_FREE_THREADED
    EXT_ALONE(node->state->guard, {
        owner = running_owner(view);
        Py_XSETREF(view->block_owner, Py_XNewRef(owner)); /* others may leave the block that names it */
    });
#else
    owner = running_owner(view);
#endif
    if (owner == NULL) {
        owner = view->bound != NULL ? view->bound : node->state->default_profiler;
    }
    return (ext_profiler *)owner;
}

enum { MOST_ASKING = 16 };

/* The innermost asking for the name of an instance by this thread, from `asking` outwards; NULL: there is none. */
static ext_asking *asking_for(ext_asking *asking, const PyObject *instance)
{
    while (asking != NULL && (asking->instance != instance || asking->thread != PyThreadState_Get())) {
        asking = asking->outer;
    }
    return asking;
}

/* Whether the user's callable, which is asking for the name of an instance, calls the node for it without end. Then these calls
 * are not counted: the program made none of them. */
static bool is_asking_without_end(const ext_node *node, const PyObject *instance)
{
    int depth = 0;
    for (ext_asking *at = asking_for(node->asking, instance); at != NULL; at = asking_for(at->outer, instance)) {
        depth++;
    }
    for (ext_asking *at = node->asking; depth >= MOST_ASKING && at != NULL; at = at->outer) {
        at->is_endless = at->is_endless || asking_for(at, instance) == at;
    }
    return depth >= MOST_ASKING;
}

static void stop_asking(ext_node *node, ext_asking *asking)
{
    ext_asking **at = &node->asking;
    while (*at != asking) {
        at = &(*at)->outer;
    }
    *at = asking->outer;
    PyMem_Free(asking);
}

/* Runs the user's callable; a legal name, or NULL with an exception, or without one for a call that is not to be counted. */
static PyObject *ask_for_name(ext_node *node, PyObject *first)
{
    ext_asking *asking = PyMem_Malloc(sizeof *asking);
    if (asking == NULL) {
        return PyErr_NoMemory();
    }
    *asking = (ext_asking){.outer = node->asking, .instance = first, .thread = PyThreadState_Get()};
    node->asking = asking;
    PyObject *answer = PyObject_CallOneArg(node->name_finder, first);
    bool is_counted = !asking->is_endless || asking_for(asking->outer, first) == NULL;
    stop_asking(node, asking);
    PyObject *name = answer != NULL && is_counted ? ext_convert_name(answer, "name") : NULL;
    Py_XDECREF(answer);
    return name;
}

/* Remembers the name of an instance. NULL without an exception when the instance cannot be told again, or with one. */
static ext_key *remember(ext_node *node, PyObject *first, PyObject *name)
{
    ext_instance_key *instance = PyMem_Calloc(1, sizeof *instance);
    if (instance == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    instance->key.name = Py_NewRef(name);
    bool watched = ext_ptrmap_watch(&instance->weak, &node->instance_keys, first, node->state->guard, free_instance_key);
    /* Code that ran meanwhile may have called the node. */
    ext_instance_key *known = watched ? ext_ptrmap_get(&node->instance_keys, first) : NULL;
    if (known != NULL || !watched || instance->weak.watch == NULL || !ext_ptrmap_add(&node->instance_keys, first, instance)) {
        free_instance_key(instance);
        return known != NULL ? &known->key : NULL;
    }
    return &instance->key;
}

/* The name of an instance that takes no weak reference is asked for at each call. */
static ext_key *pass_by(ext_node *node, PyObject *name)
{
    if (node->passing_key.name != name) {
        ext_key_clear(&node->passing_key);
        node->passing_key.name = Py_NewRef(name);
    }
    return &node->passing_key;
}

/* Where that fails, the node's own key; NULL: the call is not to be counted. `profiler` may be NULL. */
static ext_key *new_instance_key(ext_node *node, ext_profiler *profiler, PyObject *first)
{
    PyObject *name = ask_for_name(node, first);
    ext_key *key = NULL;
    if (name == NULL && !PyErr_Occurred()) {
        return NULL;
    }
    if (name != NULL) {
        /* The user's callable may have called this very node with this very instance. */
        const ext_instance_key *known = ext_ptrmap_get(&node->instance_keys, first);
        key = known != NULL ? (ext_key *)&known->key : remember(node, first, name);
        if (key == NULL && !PyErr_Occurred()) {
            key = pass_by(node, name);
        }
        Py_DECREF(name);
    }
    if (key == NULL) {
        ext_state_forget_error();
        if (profiler != NULL) {
            profiler->internal_errors++;
        }
        key = &node->key;
    }
    return key;
}

/* NULL: the call is not to be counted. */
static ext_key *key_of(ext_node *node, ext_profiler *profiler, PyObject *first)
{
    if (node->name_finder == NULL || first == NULL) {
        return &node->key;
    }
    ext_instance_key *known = ext_ptrmap_get(&node->instance_keys, first);
    if (known != NULL) {
        return &known->key;
    }
    return is_asking_without_end(node, first) ? NULL : new_instance_key(node, profiler, first);
}

static bool init_bound(ext_node *node, ext_node *of, PyObject *first)
{
    ext_profiler *profiler = of->profiler;
    node->state = ext_state_hold(of->state);
    node->is_record = of->is_record;
    node->mutes = of->mutes;
    if (profiler == NULL && first != NULL && ext_pipeline_find(of->state, first, &profiler)) {
        profiler = ext_pipeline_profiler(of->state, first);
        if (profiler == NULL) {
            return false;
        }
    }
    node->profiler = (ext_profiler *)Py_XNewRef((PyObject *)profiler);
    node->stage = Py_XNewRef(of->stage);
    node->name_finder = first == NULL ? Py_XNewRef(of->name_finder) : NULL;
    const ext_key *key = key_of(of, profiler, first);
    node->key.name = Py_XNewRef(key != NULL ? key->name : of->key.name);
    return true;
}

bool ext_node_init_bound(ext_node *node, ext_node *of, PyObject *first)
{
    bool made;
    EXT_ALONE(of->state->guard, made = init_bound(node, of, first));
    return made;
}

/* NULL: the call is not to be counted as a node's. Gives its name, a new reference; or NULL: it is not to be counted at all. */
static cprof_accum *find_accum(ext_node *node, ext_profiler *profiler, PyObject *stage, PyObject *first, PyObject **name)
{
    ext_key *key = key_of(node, profiler, first);
    *name = key != NULL ? Py_XNewRef(key->name) : NULL;
    return key == NULL || node->is_record ? NULL : ext_key_find(profiler, key, stage);
}

/* The user's code runs here (the name's callable, a warning's filter): it may let go of the last other reference to the
 * Profiler or the stage, and switch contexts. */
bool ext_node_resolve_slow(ext_node *node, ext_view *view, PyObject *stage, PyObject *first, ext_target *target)
{
    ext_profiler *profiler = (ext_profiler *)Py_NewRef((PyObject *)target->profiler);
    PyObject *name;
    Py_INCREF(stage);
    EXT_ALONE(node->state->guard, target->accum = find_accum(node, profiler, stage, first, &name));
    if (name != NULL && node->is_record) {
        target->label = ext_key_label(node->state, stage, name);
        target->state &= EXT_LABEL_FLAGS;
    }
    Py_XDECREF(name);
    Py_DECREF(stage);
    if ((target->accum == NULL && target->label.label == 0) || !ext_view_renew(view)) {
        Py_DECREF(profiler);
        return false;
    }
    return true;
}
