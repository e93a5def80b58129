/* The file of a live file: where statistics go in it, and how it comes to be; the layout is in live.h.
 *
 * Thread rule: by one at a time.
 */
#ifndef CPROF_LIVE_FILE_H
#define CPROF_LIVE_FILE_H

#include "cprofiling/files/live.h"

typedef struct {
    uint64_t offset;
    uint64_t room;
} cprof_live_area;

typedef struct {
    int descriptor; /* owned. Negative: the file is still to be made, of */
    char *path;     /* owned, as the next; NULL where it was made by the caller */
    uint8_t *head;
    cprof_live_area areas[2];
    unsigned latest; /* the area that the last commit refers to */
    uint64_t end;    /* of the file */
    uint64_t length; /* of the statistics committed last, */
    uint64_t checksum;
    uint64_t commits;
} cprof_live_file;

/* Statistics that are to be committed. */
typedef struct {
    const uint8_t *bytes;
    size_t size;
    int error; /* errno of why there are none, or 0: then that is committed */
    uint64_t flags;
} cprof_live_statistics;

/* Prepares a zeroed file. False without memory. */
bool cprof_live_file_init(cprof_live_file *file, const cprof_live_plan *plan);

/* Writes statistics into a file that is there. What fails is told to the reader, as far as that can be written. Returns the
 * errno of why the file does not have the newest statistics, or 0. ESTALE: it was cut, or has no name any more. */
int cprof_live_file_commit(cprof_live_file *file, const cprof_live_statistics *statistics);

/* Makes the file, with a first commit. It gets its name when it is whole: the path, or one beside it, numbered, where somebody
 * else's is, or one of a process that was killed. Returns an errno, and there is no file, or 0. */
int cprof_live_file_make(cprof_live_file *file, const cprof_live_statistics *statistics);

/* Gives back what is owned, but leaves the descriptor. */
void cprof_live_file_dispose(cprof_live_file *file);

#endif
