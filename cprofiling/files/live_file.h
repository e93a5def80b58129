/* The file of a live file: where statistics go in it, and how it comes to be; the layout is in live.h.
 *
 * Thread rule: by one at a time.
 */
#ifndef CPROF_LIVE_FILE_H
#define CPROF_LIVE_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    CPROF_LIVE_HEAD = 4096,  /* bytes, as the next two */
    CPROF_LIVE_AREAS = 8192, /* where they begin */
    CPROF_LIVE_PLACE = 512,
    CPROF_LIVE_LAST = 1, /* flags of a commit */
    CPROF_LIVE_STALE = 2,
    CPROF_LIVE_ON = 1, /* flags of a part */
    CPROF_LIVE_GONE = 2,
    CPROF_LIVE_SOURCES = 1024, /* that are told apart of Profilers that are gone */
    CPROF_LIVE_NAMES = 9,      /* that a file which is made by the core may have: `live.cprof` to `live-9.cprof` */
};

/* Where the statistics go. */
typedef struct {
    int descriptor;       /* of a file that has its head, and room for two areas; taken over. Negative: there is none yet, */
    const char *path;     /* it is to be made here as soon as something was counted, */
    const uint8_t *head;  /* and begins with these CPROF_LIVE_HEAD bytes */
    uint64_t room;        /* of an area, in bytes */
    uint64_t interval_ns; /* between two commits; more where they would take more than a hundredth of a processor */
    const _Atomic uint64_t *errors; /* count of faults that are no registry's, which lives as long as the file; or NULL */
} cprof_live_plan;

typedef struct {
    uint64_t offset;
    uint64_t room;
} cprof_live_area;

typedef struct {
    int descriptor; /* owned. Negative: the file is still to be made, of */
    char *path;     /* owned, as the next; NULL where it was made by the caller */
    uint8_t *head;
    dev_t device; /* with the next what tells the file from one of the program's own that has its number now */
    ino_t inode;
    cprof_live_area areas[2];
    unsigned latest; /* the area that the last commit refers to */
    uint64_t end;    /* of the file */
    uint64_t length; /* of the statistics committed last, */
    uint64_t checksum;
    uint64_t taken_ns; /* the time of day at which they were the newest */
    uint64_t flags;    /* of the last commit, and */
    int error;         /* why it has no newer statistics, or 0 */
    uint64_t commits;
} cprof_live_file;

/* Statistics that are to be committed. */
typedef struct {
    const uint8_t *bytes; /* NULL: those committed last are still the newest */
    size_t size;
    uint64_t checksum; /* of the bytes */
    int error;         /* errno of why there are none, or 0: then that is committed */
    uint64_t flags;
} cprof_live_statistics;

/* Prepares a zeroed file. False without memory. */
bool cprof_live_file_init(cprof_live_file *file, const cprof_live_plan *plan);

/* Writes statistics into a file that is there. What fails is told to the reader, as far as that can be written. Returns the
 * errno of why the file does not have the newest statistics, or 0. ESTALE: it was cut, or has no name any more. EBADF: the
 * program has closed the descriptor, though it may have opened another file as that. */
int cprof_live_file_commit(cprof_live_file *file, const cprof_live_statistics *statistics);

/* Has readers see that the process lives: the last commit once more. Returns an errno, or 0. */
int cprof_live_file_beat(cprof_live_file *file);

/* Makes the file, with a first commit. It gets its name when it is whole: the path, or one beside it, numbered, where somebody
 * else's is, or one of a process that was killed. Returns an errno, without a file, or 0. */
int cprof_live_file_make(cprof_live_file *file, const cprof_live_statistics *statistics);

/* Closes the descriptor, if it is still that of the file. */
void cprof_live_file_close(const cprof_live_file *file);

/* Frees all that it owns but the descriptor. */
void cprof_live_file_dispose(cprof_live_file *file);

#endif
