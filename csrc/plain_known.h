/* What was found out about a peer's object, for as long as neither its attributes nor its class have changed. */
#ifndef EXT_PLAIN_KNOWN_H
#define EXT_PLAIN_KNOWN_H

#include "csrc/state.h"

/* All zero: of no object. */
typedef struct {
    const PyTypeObject *type; /* compared only */
    unsigned int type_version;
    uint64_t version; /* of the attributes, which is of no two objects; 0: of no object */
} ext_plain_known;

/* Whether it is of this object as it is now. */
static inline bool ext_plain_known_is(const ext_plain_known *known, PyObject *object)
{
    const PyTypeObject *type = Py_TYPE(object);
    return __builtin_expect(known->type == type && known->type_version == type->tp_version_tag && known->version != 0, 1) &&
           known->version == ext_compat_attributes_version(object);
}

/* Makes it of this object as it is now; whether this can be told from how it is later. */
static inline bool ext_plain_known_set(ext_plain_known *known, PyObject *object)
{
    known->type = Py_TYPE(object);
    known->type_version = known->type->tp_version_tag;
    known->version = known->type_version != 0 ? ext_compat_attributes_version(object) : 0;
    return known->version != 0;
}

/* What was found out about a class, for as long as it has not changed. All zero: of no class. */
typedef struct {
    const PyTypeObject *type; /* compared only */
    unsigned int version;     /* 0: of no class */
    bool is_fine;
} ext_plain_kind;

/* Whether it is of this class as it is now. */
static inline bool ext_plain_kind_is(const ext_plain_kind *kind, const PyTypeObject *type)
{
    return __builtin_expect(kind->type == type && kind->version == type->tp_version_tag && kind->version != 0, 1);
}

/* Whether instances of a class have the attributes of a tuple in their dict, and nothing in the class says otherwise. */
bool ext_plain_known_in_dict(PyTypeObject *type, PyObject *attributes);

#endif
