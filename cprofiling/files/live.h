/* A live file: statistics that other processes read while this one runs, and after it was killed.
 *
 * A thread of the file's own looks again and again for what has changed in its registries, as any reader does, and writes the
 * statistics where the last complete ones are not; the few bytes that say which are the latest follow last. So calls pay
 * nothing for it, a file is whole at each moment, and what was once to be read from it is still there when its process is gone.
 * It is written to, not mapped: a file that somebody else truncates harms nobody. While nothing changes, or commits are far
 * apart as they are dear, only those few bytes are written, once a second: the file's time of change shows that its process
 * lives.
 * Nothing waits for the disk. A power cut leaves a file readable whose statistics are older than the time after which the
 * kernel writes back, half a minute by default: of a process that has ended or rested. One with newer statistics may be
 * refused then, as the kernel writes back in any order; checksums see to it that it is not misread.
 *
 * Layout, integers little-endian:
 *   0     the head, which the caller writes
 *   4096  two places of 512 bytes for the last two commits; the one with the greater number counts: u64 number of
 *         the commit, u64 time in ns since 1970, u64 offset and u64 length of the statistics, u64 flags (1: the last one,
 *         2: stale, as newer ones could not be written), u64 errno of why that was, u64 checksum of the statistics,
 *         u64 checksum of the seven before
 *   8192  two areas for statistics. One that has become too small is left for another behind the end.
 * Statistics: u64 count of parts; each part: u32 length of a label, u32 flags (1: profiling is on, 2: of Profilers that are
 * gone, merged), u64 look-ups of keys that went to an overflow key, u64 length of a snapshot; the label, and the snapshot's
 * bytes (snapshot.h). Checksums are those of checksum.h.
 *
 * Thread rule: any thread, but registries are added, removed and destroyed, and files closed, by one at a time, and no file
 * while another thread is in a function with it. In a forked child a live file of its parent's is only to be closed;
 * registries are in none.
 */
#ifndef CPROF_LIVE_H
#define CPROF_LIVE_H

#include "cprofiling/files/live_file.h"
#include "cprofiling/nodes/registry.h"

typedef struct cprof_live cprof_live;
typedef struct cprof_live_part cprof_live_part;

/* What a registry does not know of itself. */
typedef struct {
    cprof_name label;        /* what the reader is shown; UTF-8, copied, as are */
    const cprof_name *notes; /* those of cprof_snapshot_remarks */
    size_t note_count;
    double cost_ns;                 /* of one profiled call */
    const _Atomic uint64_t *errors; /* count of faults inside the profiler, which lives as long as the registry; or NULL */
} cprof_live_about;

/* How a live file does. */
typedef struct {
    uint64_t commits;
    uint64_t bytes; /* of the statistics committed last */
    int error;      /* errno of the failure to write the newest state; 0: written */
} cprof_live_state;

/* Starts to write. The first commit, of nothing, is made before this returns, if there is a file. Returns an errno, and leaves
 * the descriptor to the caller then; or 0. */
int cprof_live_open(const cprof_live_plan *plan, cprof_live **live);

/* Has a registry that is in no live file be part of the next commits; waits for nobody. What this file has of it is not there
 * twice then: while its statistics are those with which it left, and many others have left since, they stay as they were.
 * CPROF_NO_MEMORY. CPROF_IN_USE. CPROF_ABSENT: it is another process's. */
cprof_status cprof_live_add(cprof_live *live, cprof_registry *registry, const cprof_live_about *about);

/* Whether a registry is in this file. */
bool cprof_live_has(const cprof_live *live, const cprof_registry *registry);

/* Takes a registry out of its live file, if it is in one; what it has counted up to then is in the next commits. Waits for
 * those who commit, and copies what has changed. */
void cprof_live_remove(cprof_registry *registry);

/* The same of a registry that nobody uses any more; waits for nobody. The file destroys it, once it has what it counted. False:
 * it is in none, and still the caller's. */
bool cprof_live_take_over(cprof_registry *registry);

/* Commits now, without waiting for the thread's time, also if there is nothing new. */
void cprof_live_commit(cprof_live *live, cprof_live_state *state);

/* Commits now, as the process is about to end: from now on registries that nobody uses any more stay in the statistics as they
 * are, instead of becoming a part of those that are gone. */
void cprof_live_prepare_end(cprof_live *live, cprof_live_state *state);

/* Ends the thread, and commits for the last time; once. *state receives how it ended. */
void cprof_live_stop(cprof_live *live, cprof_live_state *state);

/* Does so for all files that nobody has stopped, when no other thread will use any. Returns the error of one, but not
 * what cprof_live_prepare_end() has told; or 0. */
int cprof_live_stop_all(void);

/* Whether this is called for the first time in the process: so that the end is seen to once. */
bool cprof_live_is_first(void);

/* Takes out all registries, closes the file and gives everything back; after cprof_live_stop(), with little left to do. */
void cprof_live_close(cprof_live *live);

#endif
