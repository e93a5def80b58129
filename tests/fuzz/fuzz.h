/* What fuzzers of the core have in common: libFuzzer calls LLVMFuzzerTestOneInput with one input after the other. A property
 * that does not hold is a crash to it, as is what the sanitizers find. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdlib.h>
#include <unistd.h>

#define _exit(status) abort() /* where a CHECK fails */
#include "tests/core/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
