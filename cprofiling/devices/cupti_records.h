/* One record of CUPTI's about work of a device, read by offsets that are the same from CUDA 11 on. Nothing here locks. */
#ifndef CPROF_CUPTI_RECORDS_H
#define CPROF_CUPTI_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kinds of records that are asked for, by CUPTI's numbers. */
enum {
    CPROF_CUPTI_MEMCPY = 1,
    CPROF_CUPTI_MEMSET = 2,
    CPROF_CUPTI_KERNEL = 10,    /* without making kernels wait for one another */
    CPROF_CUPTI_PEER_COPY = 22, /* between devices */
};

/* Directions of copies, by CUPTI's numbers; H: host, A: array on a device, D: device, P: two devices. */
enum {
    CPROF_CUPTI_HTOD = 1,
    CPROF_CUPTI_DTOH = 2,
    CPROF_CUPTI_HTOA = 3,
    CPROF_CUPTI_ATOH = 4,
    CPROF_CUPTI_ATOA = 5,
    CPROF_CUPTI_ATOD = 6,
    CPROF_CUPTI_DTOA = 7,
    CPROF_CUPTI_DTOD = 8,
    CPROF_CUPTI_HTOH = 9,
    CPROF_CUPTI_PTOP = 10,
};

/* Times are stamps of CUPTI's clock; fields that a kind does not have are 0. */
typedef struct {
    int32_t kind; /* a CPROF_CUPTI_ kind */
    uint8_t direction;
    uint8_t from; /* kinds of memory, by CUPTI's numbers; a fill has the second only */
    uint8_t to;
    uint64_t start;
    uint64_t end;
    uint64_t bytes;
    uint32_t device;
    uint32_t stream;
    uint32_t correlation;
    const char *name; /* of a kernel: borrowed from CUPTI as long as the buffer is held; NULL: not known */
} cprof_cupti_record;

/* Reads the record that begins at `bytes`, aligned to 8. False: it is of another kind. */
bool cprof_cupti_record_read(const void *bytes, cprof_cupti_record *record);

/* Writes what traces of Kineto call a copy or a fill: `Memcpy HtoD (Pinned -> Device)`, `Memset (Device)`. */
void cprof_cupti_record_describe(const cprof_cupti_record *record, char *text, size_t size);

#endif
