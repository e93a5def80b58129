/* An allocator for the core that counts, and that fails when told to. */
#ifndef TESTS_CORE_FAKE_ALLOC_H
#define TESTS_CORE_FAKE_ALLOC_H

#include "tests/core/check.h"

/* Puts it in the place of the system's, until the program ends. Not while another thread is in the core. */
void fake_alloc_install(void);

/* Lets the `nth` allocation from now on fail, counted from 1, and no other; 0: none. */
void fake_alloc_fail(uint64_t nth);

/* The same, and all that come after it. */
void fake_alloc_fail_from(uint64_t nth);

/* Whether the failure that was asked for last has come. If not, it never will; nor will others. */
bool fake_alloc_has_failed(void);

/* For a loop in which the first allocation fails, alone and then with all that come after it, then the second and so on, and at
 * last none: *nth begins with 0. */
bool fake_alloc_fail_next(uint64_t *nth);

/* Allocations that succeeded, and those of them that were not given back yet. A resized block is the same block. */
uint64_t fake_alloc_made(void);
uint64_t fake_alloc_live(void);

/* The bytes of the blocks that were not given back yet, and the most since the last question. */
uint64_t fake_alloc_live_bytes(void);
uint64_t fake_alloc_peak_bytes(void);

/* The size of all mappings that were made, whether or not they were given back. */
uint64_t fake_alloc_mapped_bytes(void);

/* A main function that runs the tests with this allocator, and checks that all memory was given back. */
#define FAKE_ALLOC_MAIN(begin, end)        \
    int main(void)                         \
    {                                      \
        fake_alloc_install();              \
        check_run(begin, end);             \
        CHECK_EQUAL(fake_alloc_live(), 0); \
        return EXIT_SUCCESS;               \
    }

#endif
