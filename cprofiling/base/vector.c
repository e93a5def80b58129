#include "cprofiling/base/vector.h"

#include "cprofiling/base/alloc.h"

void *cprof_vector_grow(void *items, size_t *capacity, size_t count, size_t width, size_t first)
{
    if (count < *capacity) {
        return items;
    }
    size_t more = *capacity == 0 ? first : *capacity * 2;
    void *grown = cprof_alloc_resize(items, more * width);
    *capacity = grown != NULL ? more : *capacity;
    return grown;
}
