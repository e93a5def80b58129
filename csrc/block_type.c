#include "csrc/block.h"

#include "csrc/function.h"
#include "csrc/ready.h"
#include "csrc/suspendable.h"
#include "csrc/sync.h"

/* Open blocks live as spans, tagged with this object, in the chain of whoever entered; so one object may be open many times. */
typedef struct {
    PyObject_HEAD
    const _Atomic uint64_t *gate; /* borrowed from the node */
    size_t open;                  /* spans with this tag */
    size_t idle;                  /* times entered, and not yet left, without a span, as nothing was to be measured */
    const void *idle_thread;      /* the thread of all of these; NULL: of several */
    const void *quick_thread; /* idle_thread while there is a name and no span, so that nothing else need be asked; else NULL */
    ext_node node;
    PyObject *weakrefs;
} block_object;

static PyObject *block_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"name", "stage", "profiler", NULL};
    PyObject *name, *stage, *profiler;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO:Block", keywords, &name, &stage, &profiler)) {
        return NULL;
    }
    ext_state *state = ext_state_of_type(type);
    block_object *self = state != NULL ? (block_object *)type->tp_alloc(type, 0) : NULL;
    if (self == NULL) {
        return NULL;
    }
    if (!ext_node_init(&self->node, state, name, Py_None, stage, profiler)) {
        Py_DECREF(self);
        return NULL;
    }
    self->gate = ext_node_gate(&self->node);
    return (PyObject *)self;
}

/* The Python frame that enters or leaves: the same object both times, as long as the frame runs. Compared only. */
static const void *entering_frame(void)
{
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
    Py_XDECREF(frame);
    return frame;
}

/* Whether other openings may be mistaken for a new one: on the same chain, where each may belong to another generator, or
 * inside a suspended call that will come back to this chain. */
static bool needs_place(const block_object *self, const ext_view *view)
{
    return self->open > 0 && (self->node.state->holding != NULL || cprof_chain_find(&view->chain, self) != NULL);
}

static cprof_span *put_span(block_object *self, ext_view *view, const ext_target *target)
{
    if (!ext_view_renew(view)) {
        return NULL;
    }
    bool placed = needs_place(self, view);
    cprof_span *span = cprof_span_open(view->thread, &view->chain, target->accum, target->state, target->profiler, self);
    if (span != NULL && placed) {
        span->place = entering_frame();
    }
    return span;
}

/* Opens a span; while nothing is measured but the block is open further out, one that only marks the place, so that each exit
 * finds its own entry. False: there is no span. */
static bool open_span(block_object *self, ext_view *view)
{
    ext_target target;
    ext_profiler *profiler = ext_node_find_profiler(&self->node, view, NULL);
    bool measured = ext_node_resolve(&self->node, view, profiler, NULL, &target);
    if (!measured && self->open == 0) {
        return false;
    }
    if (!measured) {
        target = (ext_target){NULL, NULL, 0};
    } else if (__builtin_expect((target.state & CPROF_FLAG_SYNC) != 0, 0)) {
        ext_sync_wait(self->node.state, EXT_SYNC_CURRENT);
    }
    cprof_span *span = put_span(self, view, &target);
    if (span == NULL) {
        self->node.state->internal_errors++;
        Py_XDECREF(target.profiler);
    }
    return span != NULL;
}

static PyObject *refuse_nameless(void)
{
    PyErr_SetString(PyExc_TypeError, "profile_node needs a name (a str) to be used as a context manager");
    return NULL;
}

/* A thread, told by the address of a thread-local variable: that costs nothing and needs no record. */
static inline const void *this_thread(void)
{
    return &cprof_thread_self;
}

static void enter_idle(block_object *self)
{
    self->idle_thread = self->idle++ == 0 || self->idle_thread == this_thread() ? this_thread() : NULL;
    self->quick_thread = self->open == 0 ? self->idle_thread : NULL;
}

static __attribute__((noinline)) PyObject *enter_slowly(block_object *self)
{
    if (self->node.key.name == NULL) {
        return refuse_nameless();
    }
    bool is_off = (atomic_load_explicit(self->gate, memory_order_relaxed) & CPROF_FLAG_ALL) == 0;
    if (is_off && self->open == 0) {
        enter_idle(self);
        return Py_NewRef((PyObject *)self);
    }
    cprof_thread *thread = cprof_thread_self != NULL ? cprof_thread_self : cprof_thread_get();
    ext_view *view = thread != NULL ? ext_view_get(self->node.state, thread) : NULL;
    if (view != NULL && open_span(self, view)) {
        self->open++;
        self->quick_thread = NULL;
    } else {
        enter_idle(self);
    }
    return Py_NewRef((PyObject *)self);
}

/* What is off, here and in block_exit, is a leaf: it saves no register. */
static PyObject *block_enter(PyObject *object, PyObject *unused)
{
    (void)unused;
    block_object *self = (block_object *)object;
    if ((atomic_load_explicit(self->gate, memory_order_relaxed) & CPROF_FLAG_ALL) != 0 || self->quick_thread != this_thread()) {
        return enter_slowly(self);
    }
    self->idle++;
    return Py_NewRef(object);
}

static PyObject *refuse_exit(block_object *self)
{
    PyErr_Format(PyExc_RuntimeError, "profile_node(%A): left without having been entered in this thread", self->node.key.name);
    return NULL;
}

static cprof_outcome outcome_of(const ext_state *state, PyObject *const *args, Py_ssize_t nargs)
{
    if (__builtin_expect(nargs == 0 || args[0] == Py_None, 1)) {
        return CPROF_OUTCOME_SUCCESS;
    }
    return ext_function_outcome_of(state, args[0]);
}

static PyObject *close_span(block_object *self, ext_view *view, cprof_chain *chain, cprof_span *span, cprof_outcome outcome)
{
    /* In the thread's outermost context nothing is suspended while the thread runs. */
    bool may_suspend = view->task != view->base_task;
    PyObject *owner = span->owner;
    if (__builtin_expect((span->state & CPROF_FLAG_SYNC) != 0, 0) && outcome == CPROF_OUTCOME_SUCCESS) {
        ext_sync_wait(self->node.state, EXT_SYNC_CURRENT);
    }
    cprof_span_close(view->thread, chain, span, outcome, may_suspend);
    ext_view_forget_idle(view, chain);
    self->open--;
    Py_XDECREF(owner);
    Py_RETURN_NONE;
}

/* Whether this thread may have an entry without a span. */
static bool has_idle(const block_object *self)
{
    return self->idle > 0 && (self->idle_thread == NULL || self->idle_thread == this_thread());
}

static PyObject *leave_idle(block_object *self)
{
    if (!has_idle(self)) {
        return refuse_exit(self);
    }
    self->idle--;
    Py_RETURN_NONE;
}

/* The opening on the current chain that is to be closed. NULL: there is none. */
static cprof_span *find_current(const block_object *self, const ext_view *view)
{
    cprof_span *span = cprof_chain_find(&view->chain, self);
    bool several = span != NULL && self->open > 1 && cprof_chain_next(&view->chain, span) != NULL;
    return several ? cprof_chain_find_at(&view->chain, self, entering_frame()) : span;
}

static PyObject *close_inside(block_object *self, ext_view *view, ext_suspendable *holder, cprof_span *span,
                              cprof_outcome outcome)
{
    PyObject *owner = span->owner;
    cprof_resumable_close(&holder->call, view->thread, span, outcome);
    self->open--;
    Py_XDECREF(owner);
    Py_RETURN_NONE;
}

/* Leaves an opening that is not on the current chain: one of this thread without a span; else one of another task, whose
 * coroutine is being collected, or one inside a suspended call, made there by a generator that now goes on outside. */
static PyObject *exit_elsewhere(block_object *self, ext_view *view, cprof_outcome outcome)
{
    if (has_idle(self)) {
        return leave_idle(self);
    }
    cprof_chain *chain;
    ext_suspendable *holder;
    const void *frame = entering_frame();
    cprof_span *parked = ext_view_find(view, self, frame, &chain);
    cprof_span *inside = ext_suspendable_find_inside(self->node.state, self, frame, &holder);
    if (parked != NULL && cprof_span_fit(parked, frame) >= cprof_span_fit(inside, frame)) {
        return close_span(self, view, chain, parked, outcome);
    }
    return inside != NULL ? close_inside(self, view, holder, inside, outcome) : leave_idle(self);
}

static __attribute__((noinline)) PyObject *exit_slowly(block_object *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (self->open == 0) {
        return leave_idle(self);
    }
    cprof_thread *thread = cprof_thread_self != NULL ? cprof_thread_self : cprof_thread_get();
    ext_view *view = thread != NULL ? ext_view_get(self->node.state, thread) : NULL;
    if (view == NULL) {
        return leave_idle(self);
    }
    cprof_span *span = find_current(self, view);
    cprof_outcome outcome = outcome_of(self->node.state, args, nargs);
    if (__builtin_expect(span == NULL, 0)) {
        return exit_elsewhere(self, view, outcome);
    }
    return close_span(self, view, &view->chain, span, outcome);
}

static PyObject *block_exit(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    block_object *self = (block_object *)object;
    if (self->quick_thread != this_thread() || self->idle == 0) {
        return exit_slowly(self, args, nargs);
    }
    self->idle--;
    Py_RETURN_NONE;
}

static PyObject *block_aenter(PyObject *object, PyObject *unused)
{
    return ext_ready_new(((block_object *)object)->node.state, block_enter(object, unused));
}

static PyObject *block_aexit(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    return ext_ready_new(((block_object *)object)->node.state, block_exit(object, args, nargs));
}

static PyObject *block_repr(PyObject *object)
{
    block_object *self = (block_object *)object;
    return PyUnicode_FromFormat("profile_node(%A)", self->node.key.name != NULL ? self->node.key.name : Py_None);
}

static PyObject *block_name(PyObject *object, void *unused)
{
    (void)unused;
    block_object *self = (block_object *)object;
    return Py_NewRef(self->node.name_finder != NULL ? self->node.name_finder
                     : self->node.key.name != NULL  ? self->node.key.name
                                                    : Py_None);
}

static PyObject *block_stage(PyObject *object, void *unused)
{
    (void)unused;
    block_object *self = (block_object *)object;
    return Py_NewRef(self->node.stage != NULL ? self->node.stage : Py_None);
}

static PyObject *block_profiler(PyObject *object, void *unused)
{
    (void)unused;
    block_object *self = (block_object *)object;
    return Py_NewRef(self->node.profiler != NULL ? (PyObject *)self->node.profiler : Py_None);
}

static int block_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    return ext_node_traverse(&((block_object *)object)->node, visit, arg);
}

static void block_dealloc(PyObject *object)
{
    block_object *self = (block_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    ext_node_clear(&self->node);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *block_own_methods(PyObject *cls, PyObject *unused);

static PyMethodDef block_methods[] = {
    {"__enter__", block_enter, METH_NOARGS, PyDoc_STR("Opens the block. TypeError when the node has no name.")},
    {"__exit__", (PyCFunction)(void (*)(void))block_exit, METH_FASTCALL,
     PyDoc_STR("Closes the block. RuntimeError when it is not open in this thread.")},
    {"__aenter__", block_aenter, METH_NOARGS, PyDoc_STR("Opens the block in the running task.")},
    {"__aexit__", (PyCFunction)(void (*)(void))block_aexit, METH_FASTCALL, PyDoc_STR("Closes the block in the running task.")},
    {"own_methods", block_own_methods, METH_NOARGS | METH_CLASS,
     PyDoc_STR("Gives a subclass methods of its own, which overrides those above.")},
    {NULL, NULL, 0, NULL},
};

/* An inherited method looks along the bases of its object's type, each time that it is bound; that takes longer than all that
 * we do ourselves while nothing is measured. */
static PyObject *block_own_methods(PyObject *cls, PyObject *unused)
{
    (void)unused;
    for (PyMethodDef *method = block_methods; method->ml_name != NULL; method++) {
        if ((method->ml_flags & METH_CLASS) != 0) {
            continue;
        }
        PyObject *own = PyDescr_NewMethod((PyTypeObject *)cls, method);
        bool is_set = own != NULL && PyObject_SetAttrString(cls, method->ml_name, own) == 0;
        Py_XDECREF(own);
        if (!is_set) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

static PyGetSetDef block_getset[] = {
    {"name", block_name, NULL, PyDoc_STR("The node's name, the callable that finds it, or None."), NULL},
    {"stage", block_stage, NULL, PyDoc_STR("The explicit stage, or None."), NULL},
    {"profiler", block_profiler, NULL, PyDoc_STR("The explicit Profiler, or None."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef block_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(block_object, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot block_slots[] = {
    {Py_tp_new, block_new},
    {Py_tp_repr, block_repr},
    {Py_tp_traverse, block_traverse},
    {Py_tp_dealloc, block_dealloc},
    {Py_tp_methods, block_methods},
    {Py_tp_getset, block_getset},
    {Py_tp_members, block_members},
    {Py_tp_doc, (void *)"Block(name, stage, profiler)\n--\n\nA block of code that counts as a node's call."},
    {0, NULL},
};

PyType_Spec ext_block_spec = {
    .name = "cprofiling._core.Block",
    .basicsize = sizeof(block_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = block_slots,
};
