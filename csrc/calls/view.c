#include "csrc/calls/view.h"

#include "csrc/calls/context_stack.h"
#include "csrc/fault.h"
#include "csrc/weak.h"

#include "cprofiling/calls/probe.h"

/* The chain of a task that is not running. One of blocks only goes with the context: they may still be left. Calls that have
 * not returned keep the context. */
typedef struct ext_parked {
    cprof_chain chain; /* first: it is found by that, too */
    PyObject *watch;   /* of the context; owned */
    PyObject *context; /* borrowed, never followed */
    PyObject *held;    /* the context; owned, or NULL */
    ext_view *view;
} ext_parked;

void ext_view_drop_spans(cprof_span **top, cprof_span *base)
{
    while (*top != base) {
        cprof_span *span = *top;
        *top = span->parent;
        if (span->place != NULL) {
            cprof_call_detach(span);
            continue;
        }
        PyObject *owner = span->owner;
        cprof_call_discard(span);
        Py_XDECREF(owner);
    }
}

static void drop_chain(cprof_chain *chain)
{
    (void)cprof_chain_top(chain);
    ext_view_drop_spans(&chain->top, chain->base);
}

static void free_parked(ext_parked *parked)
{
    if (parked != NULL) {
        PyObject *held = parked->held;
        drop_chain(&parked->chain);
        ext_weak_forget(&parked->watch);
        PyMem_Free(parked);
        Py_XDECREF(held);
    }
}

static void context_died(void *data)
{
    ext_parked *parked = data;
    (void)ext_ptrmap_take(&parked->view->parked, parked->context);
    free_parked(parked);
    cprof_probe_settle();
}

enum { MOST_CONTEXTS = 64 }; /* entered inside one another, when the outermost is looked for */

static void view_dealloc(PyObject *object)
{
    ext_view *view = (ext_view *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (view->thread != NULL && view->thread->binding == view) {
        view->thread->binding = NULL;
    }
    free_parked(view->known);
    drop_chain(&view->chain);
    ext_parked *parked;
    while ((parked = ext_ptrmap_take_any(&view->parked)) != NULL) {
        free_parked(parked);
    }
    ext_ptrmap_dispose(&view->parked);
    cprof_probe_settle();
    *view->link = view->next;
    if (view->next != NULL) {
        view->next->link = view->link;
    }
    Py_CLEAR(view->task);
    Py_CLEAR(view->base_task);
    ext_state_release(view->state);
    PyObject_Free(view);
    Py_DECREF(type);
}

static PyType_Slot view_slots[] = {
    {Py_tp_dealloc, view_dealloc},
    {Py_tp_doc, (void *)"A thread's view of the profiler. Internal."},
    {0, NULL},
};

PyType_Spec ext_view_spec = {
    .name = "cprofiling._core.View",
    .basicsize = sizeof(ext_view),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = view_slots,
};

/* Whether `context` is entered at this moment, on whatever level. Asked by trying to enter it, as there is no other way. */
static bool is_entered(PyObject *context)
{
    if (PyContext_Enter(context) < 0) {
        PyErr_Clear();
        return true;
    }
    if (PyContext_Exit(context) < 0) {
        PyErr_Clear();
    }
    return false;
}

/* At the interpreter's end there is none any more, and context variables remember values that went with it, until the version
 * of the context changes: entering one does that. */
PyObject *ext_view_context(PyThreadState *tstate)
{
    if (ext_compat_context(tstate) == NULL) {
        PyObject *copy = PyContext_CopyCurrent();
        if (copy != NULL) {
            (void)is_entered(copy);
        }
        Py_XDECREF(copy);
    }
    return ext_compat_context(tstate);
}

/* A greenlet other than the thread's first is suspended while others run, though its context was not entered. */
static bool in_child_greenlet(const ext_state *state)
{
    PyObject *greenlet = ext_state_loaded_module(state, EXT_WORD_GREENLET);
    if (greenlet == NULL) {
        return false;
    }
    PyObject *current = PyObject_CallMethod(greenlet, "getcurrent", NULL);
    PyObject *parent = current != NULL ? PyObject_GetAttrString(current, "parent") : NULL;
    bool is_child = parent != NULL && parent != Py_None;
    Py_XDECREF(current);
    Py_XDECREF(parent);
    Py_DECREF(greenlet);
    ext_fault_forget();
    return is_child;
}

/* The thread's outermost context, a new reference: found by leaving all contexts that were entered, and entering them again.
 * NULL when it cannot be told. No Python runs in between. */
static PyObject *find_base(const ext_state *state, PyThreadState *tstate)
{
    PyObject *left[MOST_CONTEXTS];
    int count = 0;
    PyObject *base = NULL;
    if (in_child_greenlet(state)) {
        return NULL;
    }
    while (base == NULL && count < MOST_CONTEXTS) {
        PyObject *context = Py_XNewRef(ext_view_context(tstate));
        if (context == NULL || PyContext_Exit(context) < 0) {
            PyErr_Clear();
            base = context;
            break;
        }
        left[count++] = context;
    }
    while (count > 0) {
        PyObject *context = left[--count];
        if (PyContext_Enter(context) < 0) {
            PyErr_Clear();
        }
        Py_DECREF(context);
    }
    return base;
}

/* Lets the package note the name of a thread, which nobody can tell after its end. */
static void name_thread(ext_state *state)
{
    PyObject *namer = Py_XNewRef(state->thread_namer);
    PyObject *result = namer != NULL ? PyObject_CallNoArgs(namer) : NULL;
    if (namer != NULL && result == NULL) {
        ext_fault_forget();
        state->internal_errors++;
    }
    Py_XDECREF(result);
    Py_XDECREF(namer);
}

static ext_view *make_view(ext_state *state, PyObject *dictionary, PyThreadState *tstate)
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
    view->task = Py_XNewRef(ext_view_context(tstate));
    if (view->task == NULL || PyDict_SetItem(dictionary, state->view_key, (PyObject *)view) < 0) {
        Py_DECREF(view);
        return NULL;
    }
    view->base_task = find_base(state, tstate);
    Py_DECREF(view); /* the dictionary's now */
    if (state->recording) {
        name_thread(state);
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
        view = make_view(state, dictionary, tstate);
    }
    if (view != NULL) {
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
    if (view->task == view->base_task || is_entered(view->task)) {
        return top;
    }
    cprof_chain outer = {.top = view->chain.base, .base = view->chain.base, .base_serial = view->chain.base_serial};
    return cprof_chain_top(&outer);
}

/* Makes what is kept of the current task while it does not run. The user's code may run, and make it, or switch tasks. False
 * with an exception. */
static bool make_known(ext_view *view)
{
    ext_parked *parked = PyMem_Calloc(1, sizeof *parked);
    if (parked == NULL) {
        PyErr_NoMemory();
        return false;
    }
    PyObject *task = Py_NewRef(view->task);
    *parked = (ext_parked){.context = task, .view = view};
    bool made = ext_weak_watch(task, context_died, parked, &parked->watch);
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
    PyObject *task = ext_view_context(tstate);
    bool is_switched = task != NULL;
    while (is_switched && task != view->task) {
        is_switched = switch_task(view, task);
        task = ext_compat_context(tstate);
    }
    if (!is_switched || !ext_context_stack_top(state->stage_variable, &view->stage) ||
        !ext_context_stack_top(state->bound_variable, &view->bound)) {
        return NULL;
    }
    view->version = ext_compat_context_version(tstate);
    view->chain.moment = view->version;
    return view;
}

ext_view *ext_view_refresh(ext_state *state, cprof_thread *thread)
{
    ext_compat_error error = ext_compat_take_error();
    ext_view *view = refresh(state, thread);
    if (view == NULL) {
        ext_fault_forget();
        state->internal_errors++;
    }
    ext_compat_restore_error(error);
    return view;
}

void ext_view_invalidate(void)
{
    cprof_thread *thread = cprof_thread_self;
    if (thread != NULL && thread->binding != NULL) {
        ((ext_view *)thread->binding)->version = 0;
    }
}

void ext_view_invalidate_all(ext_state *state)
{
    for (ext_view *view = state->views; view != NULL; view = view->next) {
        view->version = 0;
    }
}

static bool has_span(const cprof_chain *chain, const cprof_span *span)
{
    const cprof_span *at = chain->top;
    while (at != chain->base && at != span) {
        at = at->parent;
    }
    return at != chain->base;
}

cprof_chain *ext_view_chain_of(ext_view *view, const cprof_span *span)
{
    if (has_span(&view->chain, span)) {
        return &view->chain;
    }
    for (size_t i = 0; view->parked.slots != NULL && i <= view->parked.mask; i++) {
        ext_parked *parked = view->parked.slots[i].key != NULL ? view->parked.slots[i].value : NULL;
        if (parked != NULL && has_span(&parked->chain, span)) {
            return &parked->chain;
        }
    }
    return NULL;
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
    ext_parked *parked = (ext_parked *)chain;
    (void)ext_ptrmap_take(&view->parked, parked->context);
    free_parked(parked);
}
