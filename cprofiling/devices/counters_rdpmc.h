/* The instruction that reads a counter of the processor in user space.
 *
 * Any thread; but only with a number that the page of an event of the calling thread gives, while it gives it.
 */
#ifndef CPROF_COUNTERS_RDPMC_H
#define CPROF_COUNTERS_RDPMC_H

#include <stdbool.h>
#include <stdint.h>

/* Whether one is known for this architecture. */
bool cprof_counters_rdpmc_exists(void);

/* The counter with that number, of which only the page's pmc_width lowest bits mean something; 0 where none is known. */
uint64_t cprof_counters_rdpmc(uint32_t number);

#endif
