/* Numbers that nobody else has. Any thread. */
#ifndef CPROF_RANDOM_H
#define CPROF_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Fills `bytes`: random where the system has it; else at least different from process to process and from call to call. */
void cprof_random_bytes(void *bytes, size_t size);

/* A number that no other call in this process returns: 1, 2, ... */
uint64_t cprof_random_serial(void);

#endif
