#include "csrc/calls/view.h"

#include "csrc/calls/context.h"
#include "csrc/convert.h"
#include "csrc/types.h"

#include "cprofiling/calls/probe.h"
#include "cprofiling/trace/recording.h"

/* The chain of a task that is not running. One of blocks only goes with the context: they may still be left. Calls that have
 * not returned keep the context. */
typedef struct ext_parked {
    ext_ptrmap_entry weak; /* of the context */
    cprof_chain chain;
    PyObject *held; /* the context; owned, or NULL */
} ext_parked;

void ext_view_drop_spans(cprof_span **top, cprof_span *base)
{
    while (*top != base) {
        cprof_span *span = *top;
        *top = span->parent;
        if (span->place != NULL && !cprof_span_is_left(span)) {
            cprof_call_detach(span);
            continue;
        }
        void *owner = span->owner;
        cprof_call_discard(span);
        ext_view_release_owner(owner);
    }
}

static void drop_chain(cprof_chain *chain)
{
    (void)cprof_chain_top(chain);
    ext_view_drop_spans(&chain->top, chain->base);
}

static void free_parked(void *data)
{
    ext_parked *parked = data;
    if (parked != NULL) {
        PyObject *held = parked->held;
        drop_chain(&parked->chain);
        ext_ptrmap_forget(&parked->weak);
        PyMem_Free(parked);
        Py_XDECREF(held);
    }
}

static void context_died(void *data)
{
    free_parked(data);
    cprof_probe_settle();
}

static void end_view(ext_view *view)
{
    if (view->thread != NULL && view->thread->binding == view) {
        view->thread->binding = NULL;
    }
    free_parked(view->known);
    drop_chain(&view->chain);
    ext_ptrmap_clear(&view->parked, free_parked);
    cprof_probe_settle();
    *view->link = view->next;
    if (view->next != NULL) {
        view->next->link = view->link;
    }
    Py_CLEAR(view->task);
    Py_CLEAR(view->base_task);
    Py_CLEAR(view->stage);
    Py_CLEAR(view->bound);
#if EXT_FREE_THREADED
    Py_CLEAR(view->block_owner);
#endif
}

static void view_dealloc(PyObject *object)
{
    ext_view *view = (ext_view *)object;
    EXT_ALONE(view->state->guard, end_view(view));
    ext_state_release(view->state);
    ext_state_free(object);
}

static PyType_Slot view_slots[] = {
    {Py_tp_dealloc, view_dealloc},
    {Py_tp_doc, (void *)"A thread's view of the profiler. Internal."},
    {0, NULL},
};

PyType_Spec ext_view_spec = EXT_TYPES_SPEC("View", ext_view, view_slots, Py_TPFLAGS_DISALLOW_INSTANTIATION);

/* Asks the package for the name of a new thread, which nobody can tell after its end. */
static void name_thread(ext_state *state, cprof_thread *thread)
{
    PyObject *namer = Py_XNewRef(state->thread_namer);
    PyObject *name = namer != NULL ? PyObject_CallNoArgs(namer) : NULL;
    PyObject *owner = NULL;
    cprof_name utf8;
    if (name != NULL && PyUnicode_Check(name) && ext_convert_utf8(name, &utf8, &owner)) {
        cprof_recording_name_thread(thread, utf8);
    }
    if (PyErr_Occurred()) {
        ext_state_forget_error();
        state->internal_errors++;
    }
    Py_XDECREF(owner);
    Py_XDECREF(name);
    Py_XDECREF(namer);
}

static ext_view *make_view(ext_state *state, cprof_thread *thread, PyObject *dictionary, PyThreadState *tstate)
{
    ext_view *view = PyObject_New(ext_view, state->view_type);
    if (view == NULL) {
        return NULL;
    }
    memset((char *)view + sizeof(PyObject), 0, sizeof *view - sizeof(PyObject));
    view->state = ext_state_hold(state);
    view->next = state->views;
    view->link = &state->views;
    if (view->next != NULL) {
        view->next->link = &view->next;
    }
    state->views = view;
    view->state_serial = state->serial;
    view->tstate_id = tstate->id;
    view->task = Py_XNewRef(ext_context_current(tstate));
    if (view->task == NULL || PyDict_SetItem(dictionary, state->view_key, (PyObject *)view) < 0) {
        Py_DECREF(view);
        return NULL;
    }
    view->base_task = ext_context_outermost(state, tstate);
    Py_DECREF(view); /* the dictionary's now */
    if (state->recording) {
        name_thread(state, thread);
    }
    return view;
}

static ext_view *find_view(ext_state *state, cprof_thread *thread, PyThreadState *tstate)
{
    PyObject *dictionary = PyThreadState_GetDict();
    if (dictionary == NULL) {
        return NULL;
    }
    ext_view *view = (ext_view *)PyDict_GetItemWithError(dictionary, state->view_key);
    if (view == NULL && !PyErr_Occurred()) {
        view = make_view(state, thread, dictionary, tstate);
    }
    if (view != NULL) {
        /* Threads may take turns with the same state of a sub-interpreter, up to CPython 3.11. */
        if (view->thread != NULL && view->thread->binding == view) {
            view->thread->binding = NULL;
        }
        view->thread = thread;
        thread->binding = view;
    }
    return view;
}

/* Of the chain that is left: the innermost span that encloses the line of execution that is now taken up, or NULL. A chain's
 * own spans do while its context is still entered further out, or is the thread's outermost. */
static cprof_span *enclosing_span(ext_view *view)
{
    cprof_span *top = cprof_chain_top(&view->chain);
    if (!cprof_chain_busy(&view->chain)) {
        return top;
    }
    if (view->task == view->base_task || ext_context_is_entered(view->task)) {
        return top;
    }
    cprof_chain outer = {.top = view->chain.base, .base = view->chain.base, .base_serial = view->chain.base_serial};
    return cprof_chain_top(&outer);
}

/* Makes the record that is kept of the current task while it does not run. The user's code may run, and make it, or switch
 * tasks. False with an exception. */
static bool make_known(ext_view *view)
{
    ext_parked *parked = PyMem_Calloc(1, sizeof *parked);
    if (parked == NULL) {
        PyErr_NoMemory();
        return false;
    }
    PyObject *task = Py_NewRef(view->task);
    bool made = ext_ptrmap_watch(&parked->weak, &view->parked, task, view->state->guard, context_died);
    if (made && view->known == NULL && view->task == task) {
        view->known = parked;
    } else {
        free_parked(parked);
    }
    Py_DECREF(task);
    return made;
}

/* Whether calls are open in the current chain. */
static bool has_calls(const ext_view *view)
{
    const cprof_span *span = view->chain.top;
    while (span != view->chain.base && (span->place != NULL || cprof_span_is_left(span))) {
        span = span->parent;
    }
    return span != view->chain.base;
}

/* Keeps the chain that is left while it has open spans. False without memory. */
static bool park(ext_view *view)
{
    if (!cprof_chain_busy(&view->chain)) {
        free_parked(view->known);
    } else if (ext_ptrmap_add(&view->parked, view->task, view->known)) {
        view->known->chain = view->chain;
        view->known->held = view->task == view->base_task || has_calls(view) ? Py_NewRef(view->task) : NULL;
    } else {
        return false;
    }
    view->known = NULL;
    return true;
}

/* One step towards `task`. The context that is left may go, and run finalisers, which may switch contexts: afterwards another
 * one may be current. False without memory. */
static bool switch_task(ext_view *view, PyObject *task)
{
    cprof_call_trim(view->thread, &view->chain);
    if (view->known == NULL && cprof_chain_busy(&view->chain)) {
        return make_known(view);
    }
    cprof_span *enclosing = enclosing_span(view);
    if (!park(view)) {
        return false;
    }
    PyObject *left = view->task;
    view->task = Py_NewRef(task);
    view->known = ext_ptrmap_take(&view->parked, task);
    if (view->known != NULL) {
        view->chain = view->known->chain;
        cprof_chain_begin(&view->known->chain, NULL);
        Py_CLEAR(view->known->held); /* it is the view's task */
    } else {
        cprof_chain_begin(&view->chain, enclosing);
    }
    Py_XDECREF(left);
    return true;
}

/* Takes stage and Profiler from the current context. Those of before may go, and run code that changes it again: this goes
 * last. False with an exception. */
static bool look_up(ext_view *view, PyThreadState *tstate)
{
    PyObject *stage = NULL;
    PyObject *bound = NULL;
    bool known = ext_context_top(view->state->stage_variable, &stage) && ext_context_top(view->state->bound_variable, &bound);
    if (known) {
        view->version = ext_compat_context_version(tstate);
        view->chain.moment = view->version;
    }
    PyObject *old_stage = view->stage;
    PyObject *old_bound = view->bound;
    view->stage = stage;
    view->bound = bound;
    Py_XDECREF(old_stage);
    Py_XDECREF(old_bound);
    return known;
}

static ext_view *refresh(ext_state *state, cprof_thread *thread)
{
    PyThreadState *tstate = PyThreadState_Get();
    if (state->serial == 0) {
        return NULL; /* the interpreter is ending */
    }
    ext_view *view = find_view(state, thread, tstate);
    if (view == NULL) {
        return NULL;
    }
    view->version = 0;
    PyObject *task = ext_context_current(tstate);
    bool is_switched = task != NULL;
    while (is_switched && task != view->task) {
        is_switched = switch_task(view, task);
        task = ext_compat_context(tstate);
    }
    return is_switched && look_up(view, tstate) ? view : NULL;
}

ext_view *ext_view_refresh(ext_state *state, cprof_thread *thread)
{
    ext_compat_error error = ext_compat_take_error();
    ext_view *view;
    EXT_ALONE(state->guard, view = refresh(state, thread));
    if (view == NULL) {
        ext_state_forget_error();
        state->internal_errors++;
    }
    ext_compat_restore_error(error);
    return view;
}

/* Stage or Profiler in force was changed: the view lets go of the old ones. */
static void invalidate(ext_view *view)
{
    PyObject *stage = view->stage;
    PyObject *bound = view->bound;
    view->version = 0;
    view->stage = NULL;
    view->bound = NULL;
    Py_XDECREF(stage);
    Py_XDECREF(bound);
}

/* Another interpreter's view, which this thread may have used last, is not concerned. */
static void invalidate_this(const ext_state *state)
{
    ext_view *view = cprof_thread_self != NULL ? cprof_thread_self->binding : NULL;
    if (view != NULL && view->state == state) {
        invalidate(view);
    }
}

bool ext_view_push(ext_state *state, PyObject *variable, PyObject *item, PyObject **entries)
{
    PyObject *before = ext_context_push(state, variable, item, entries);
    invalidate_this(state);
    Py_XDECREF(before); /* may go with that, and run finalisers */
    return before != NULL;
}

bool ext_view_pop(ext_state *state, PyObject *variable, PyObject *entries, PyObject *what)
{
    PyObject *before = ext_context_pop(variable, entries, what);
    if (before != Py_None) {
        invalidate_this(state);
    }
    for (ext_view *view = state->views; before == Py_None && view != NULL; view = view->next) {
        view->version = 0; /* any of them may have been left */
    }
    Py_XDECREF(before);
    return before != NULL;
}

static bool has_span(const cprof_chain *chain, const cprof_span *span)
{
    const cprof_span *at = chain->top;
    while (at != chain->base && at != span) {
        at = at->parent;
    }
    return at != chain->base;
}

static cprof_chain *parked_chain_of(ext_view *view, const cprof_span *span)
{
    for (size_t i = 0; view->parked.slots != NULL && i <= view->parked.mask; i++) {
        ext_parked *parked = view->parked.slots[i].key != NULL ? view->parked.slots[i].value : NULL;
        if (parked != NULL && has_span(&parked->chain, span)) {
            return &parked->chain;
        }
    }
    return NULL;
}

cprof_chain *ext_view_chain_of(ext_view *view, const cprof_span *span)
{
    cprof_chain *chain = &view->chain;
    if (!has_span(chain, span)) {
        EXT_ALONE(view->state->guard, chain = parked_chain_of(view, span));
    }
    return chain;
}

bool ext_view_is_away(const ext_view *view, const cprof_span *block)
{
    PyObject *generator = ext_compat_find_generator(block->opener);
    if (generator == NULL) {
        return true;
    }
    ext_word word = PyGen_CheckExact(generator) ? EXT_WORD_GI_RUNNING : EXT_WORD_AG_RUNNING;
    PyObject *running = PyObject_GetAttr(generator, view->state->words[word]);
    bool is_away = running == Py_False;
    if (running == NULL) {
        PyErr_Clear(); /* no memory: nothing of the user's ran */
    }
    Py_XDECREF(running);
    Py_DECREF(generator);
    return is_away;
}

void ext_view_forget_idle(ext_view *view, cprof_chain *chain)
{
    if (chain == &view->chain || cprof_chain_busy(chain)) {
        return;
    }
    ext_parked *parked = (ext_parked *)((char *)chain - offsetof(ext_parked, chain));
    EXT_ALONE(view->state->guard, {
        (void)ext_ptrmap_take(&view->parked, parked->weak.object);
        free_parked(parked);
    });
}

void ext_view_push_pending(ext_view *view, ext_pending *pending)
{
    pending->outer = view->pending;
    view->pending = pending;
}

/* Mostly the first; greenlets may take turns. */
void ext_view_pop_pending(ext_view *view, ext_pending *pending)
{
    ext_pending **at = &view->pending;
    while (*at != NULL && *at != pending) {
        at = &(*at)->outer;
    }
    if (*at != NULL) {
        *at = pending->outer;
    }
}
