/* Arrays that grow. */
#ifndef CPROF_VECTOR_H
#define CPROF_VECTOR_H

#include <stddef.h>

/* The items of an array, with room for one more than `count` of `width` bytes: where *capacity of them are taken it is resized,
 * and *capacity doubled, or `first` where it was 0. NULL without memory: then nothing was changed. */
void *cprof_vector_grow(void *items, size_t *capacity, size_t count, size_t width, size_t first);

#endif
