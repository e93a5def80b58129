/* Kernels, copies and launches, through CUPTI: the library that the process has loaded, or an installed one.
 *
 * A process can have one subscriber. While it is held, callbacks see launches in the threads that make them (and count them for
 * the thread's node), and records of kernels, copies and fills come in buffers, in whichever thread CUPTI calls. Whatever
 * stands in the way (another client, no driver, an error) turns CUPTI off for this use, with a reason; no context is made.
 *
 * Thread rule: any thread, any number at once; start, stop, flush and collect may wait for CUPTI's locks: not with the GIL
 * held.
 */
#ifndef CPROF_CUPTI_H
#define CPROF_CUPTI_H

#include "cprofiling/nodes/accum.h"
#include "cprofiling/trace/table.h"

/* What the subscriber is held for; of each kind any number of users. */
typedef enum {
    CPROF_CUPTI_COUNTS, /* what each node launches: cprof_accum_add_launches() */
    CPROF_CUPTI_TRACE,  /* every launch and record, for a recording: cprof_cupti_collect() */
    CPROF_CUPTI_USES,
} cprof_cupti_use;

/* Becomes a user. False: CUPTI is not to be had, cprof_cupti_reason() says why; there is nothing to stop then. */
bool cprof_cupti_start(cprof_cupti_use use);

/* Ceases to be one. The last user gives the subscriber back, so that others can have it. */
void cprof_cupti_stop(cprof_cupti_use use);

/* Asks CUPTI for the records that are complete, without waiting for any device. */
void cprof_cupti_flush(void);

/* Forgets a registry that is being destroyed: records that come for it later count nowhere. */
void cprof_cupti_forget(const cprof_registry *registry);

/* Adds what CPROF_CUPTI_TRACE users that have stopped since the last call recorded to a table that is being filled, as Kineto's
 * traces have it: calls in rows of their thread, kernels, copies and fills in rows of their device and stream, and the flows
 * between them; and forgets it. Table NULL: only forgets it. CPROF_NO_MEMORY, CPROF_OUT_OF_RANGE: rows are missing. */
cprof_status cprof_cupti_collect(cprof_table *table);

/* Where an installed CUPTI is looked for when the process has none loaded: `count` folders, copied, in place of those that were
 * given before. False without memory: there are none then. */
bool cprof_cupti_set_folders(const char *const *folders, size_t count);

/* Why CUPTI is off, or what was lost (records dropped, launches whose node is not known). Writes at most `size` bytes with the
 * NUL. False, and an empty text: no reason. */
bool cprof_cupti_reason(char *buffer, size_t size);

/* What there is, and what was seen since the first user of now came, or of the last time that there was any. */
typedef struct {
    bool has_library;
    uint32_t version; /* of CUPTI's interface: 18 for 11.8, 130000 for 13.0; 0: not known */
    char path[256];   /* of the library; cut if need be, empty where not known */
    uint64_t users[CPROF_CUPTI_USES];
    uint64_t launched;       /* outermost calls that launch */
    uint64_t outside;        /* of them, by threads without a node */
    uint64_t unknown_node;   /* of them, by threads of PyTorch's backward pass, when no or several threads had a node */
    uint64_t records;        /* of kernels, copies and fills */
    uint64_t unknown_launch; /* of them, with a call not seen, or forgotten */
    uint64_t untimed;        /* of them, without times, or with impossible durations */
    uint64_t dropped;        /* records that CUPTI had no room for */
} cprof_cupti_state;

/* Copies it. Any thread; waits for the other functions here. */
void cprof_cupti_get_state(cprof_cupti_state *state);

/* In the child of a fork: CUPTI is the parent's; no call of it is ever made. */
void cprof_cupti_after_fork_in_child(void);

/* Back to the state at the start of the process. Only while no other thread is in these functions. */
void cprof_cupti_reset_for_test(void);

#endif
