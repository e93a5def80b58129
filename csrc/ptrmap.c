#include "csrc/ptrmap.h"

enum { FIRST_SLOTS = 8 };

static void put(ext_ptrmap *map, const void *key, void *value)
{
    size_t i = ext_ptrmap_place(map, key);
    while (map->slots[i].key != NULL) {
        i = (i + 1) & map->mask;
    }
    map->slots[i] = (ext_ptrmap_slot){key, value};
}

static bool grow(ext_ptrmap *map)
{
    size_t slot_count = map->slots == NULL ? FIRST_SLOTS : (map->mask + 1) * 2;
    ext_ptrmap_slot *slots = PyMem_Calloc(slot_count, sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    ext_ptrmap bigger = {slots, slot_count - 1, 0, 0};
    for (size_t i = 0; map->slots != NULL && i <= map->mask; i++) {
        if (map->slots[i].key != NULL) {
            put(&bigger, map->slots[i].key, map->slots[i].value);
        }
    }
    PyMem_Free(map->slots);
    map->slots = bigger.slots;
    map->mask = bigger.mask;
    return true;
}

bool ext_ptrmap_add(ext_ptrmap *map, const void *key, void *value)
{
    if ((map->slots == NULL || map->count * 2 > map->mask) && !grow(map)) {
        return false;
    }
    put(map, key, value);
    map->count++;
    map->changes++;
    return true;
}

/* Closes the gap that a removed slot leaves, so that no search ends early at it. */
static void close_gap(ext_ptrmap *map, size_t gap)
{
    for (size_t i = (gap + 1) & map->mask; map->slots[i].key != NULL; i = (i + 1) & map->mask) {
        size_t home = ext_ptrmap_place(map, map->slots[i].key);
        if (((i - home) & map->mask) >= ((i - gap) & map->mask)) {
            map->slots[gap] = map->slots[i];
            gap = i;
        }
    }
    map->slots[gap] = (ext_ptrmap_slot){NULL, NULL};
}

static void *take_slot(ext_ptrmap *map, size_t i)
{
    void *value = map->slots[i].value;
    map->count--;
    map->changes++;
    close_gap(map, i);
    return value;
}

void *ext_ptrmap_take(ext_ptrmap *map, const void *key)
{
    if (map->count == 0) {
        return NULL;
    }
    for (size_t i = ext_ptrmap_place(map, key); map->slots[i].key != NULL; i = (i + 1) & map->mask) {
        if (map->slots[i].key == key) {
            return take_slot(map, i);
        }
    }
    return NULL;
}

void ext_ptrmap_clear(ext_ptrmap *map, void (*drop)(void *value))
{
    for (size_t i = 0; map->count > 0; i = (i + 1) & map->mask) {
        if (map->slots[i].key != NULL) {
            drop(take_slot(map, i));
            i = map->mask; /* dropping may have changed the table */
        }
    }
    PyMem_Free(map->slots);
    map->slots = NULL;
}

/* ---- Entries that go with objects */

static const char capsule_name[] = "cprofiling._core.watch";

/* The capsule has the entry as its context. Without one, the watch was ended in the meantime: others may keep a reference, and
 * call it, although we have let it go. */
static void end_watch(PyObject *capsule)
{
    ext_ptrmap_entry *entry = PyCapsule_GetContext(capsule);
    if (entry != NULL) {
        (void)ext_ptrmap_take(entry->map, entry->object);
        entry->drop(entry);
    }
}

/* Called with the dead reference; `self` is the capsule. */
static PyObject *call_watcher(PyObject *self, PyObject *Py_UNUSED(reference))
{
    EXT_ALONE(PyCapsule_GetPointer(self, capsule_name), end_watch(self));
    Py_RETURN_NONE;
}

static PyMethodDef watcher = {"watcher", call_watcher, METH_O, NULL};

/* A capsule of the guard, which it owns. */
static void release_guard(PyObject *capsule)
{
    Py_DECREF((PyObject *)PyCapsule_GetPointer(capsule, capsule_name));
}

/* The weak reference, and the capsule of its callback. */
static PyObject *make_watch(PyObject *object, PyObject *capsule)
{
    PyObject *callback = PyCFunction_New(&watcher, capsule);
    PyObject *reference = callback != NULL ? PyWeakref_NewRef(object, callback) : NULL;
    PyObject *watch = reference != NULL ? PyTuple_Pack(2, reference, capsule) : NULL;
    Py_XDECREF(callback);
    Py_XDECREF(reference);
    return watch;
}

bool ext_ptrmap_watch(ext_ptrmap_entry *entry, ext_ptrmap *map, PyObject *object, PyObject *guard, void (*drop)(void *entry))
{
    *entry = (ext_ptrmap_entry){map, object, drop, NULL};
    if (!ext_compat_can_be_referenced(object)) {
        return true;
    }
    PyObject *capsule = PyCapsule_New(Py_NewRef(guard), capsule_name, release_guard);
    if (capsule == NULL) {
        Py_DECREF(guard);
    }
    entry->watch = capsule != NULL ? make_watch(object, capsule) : NULL;
    if (entry->watch != NULL) {
        (void)PyCapsule_SetContext(capsule, entry); /* fails for no capsule only */
    }
    Py_XDECREF(capsule);
    return entry->watch != NULL;
}

void ext_ptrmap_forget(ext_ptrmap_entry *entry)
{
    if (entry->watch != NULL) {
        (void)PyCapsule_SetContext(PyTuple_GET_ITEM(entry->watch, 1), NULL);
        Py_CLEAR(entry->watch);
    }
}
