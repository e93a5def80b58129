/* A finished recording: what happened, as a table of events with one column for each property.
 *
 * Rows are added in any order; cprof_table_finish() brings them into the order of their start and finds parents. From then on
 * a table is only read, by any number of threads; until then one thread at a time may use it.
 * A text is a number: each string is kept once, under its cprof_text; 0 is the empty one. Strings are UTF-8, of any length,
 * surrogates passed; the table does not look into them.
 */
#ifndef CPROF_TABLE_H
#define CPROF_TABLE_H

#include "cprofiling/base/clock.h"
#include "cprofiling/base/names.h"
#include "cprofiling/base/status.h"

#include <stdatomic.h>
#include <stdbool.h>

typedef uint32_t cprof_text;

#define CPROF_TABLE_UNKNOWN INT64_MIN /* of a quantity that may be negative */

enum {
    CPROF_TABLE_MAX_ROWS = INT32_MAX,
    CPROF_TABLE_MAX_LANES = 256,
};

/* What a row is. */
typedef enum {
    CPROF_KIND_NODE,    /* a call of a profiled node */
    CPROF_KIND_RECORD,  /* a block labelled by record() */
    CPROF_KIND_STEP,    /* from one step() to the next */
    CPROF_KIND_HOST,    /* something else on the host: an operator, a call of a device's runtime, a Python frame */
    CPROF_KIND_DEVICE,  /* on a device: a kernel, a copy */
    CPROF_KIND_INSTANT, /* a moment: it ends where it starts */
    CPROF_KIND_COUNTER, /* values at a moment: they are the row's args */
} cprof_kind;

enum {
    CPROF_ROW_UNFINISHED = 1,  /* open when the recording ended, which is its end here */
    CPROF_ROW_CUT = 2,         /* ended while the recording was paused: its end here is the beginning of that pause */
    CPROF_ROW_SUSPENDABLE = 4, /* a generator, or a coroutine: others may have run on its thread between its start and end */
};

/* The columns: name, type, the value that stands for "none", and what it is.
 *
 * start_ns, end_ns: since the epoch (1970, UTC), or what the file that was loaded counts from; start_ns <= end_ns
 * trace_high, trace_low: the 128-bit trace id; span, parent_span: the 64-bit ids of a span and of the one around it (W3C trace
 *     context). 0: it has none
 * parent: the row of the enclosing span, -1 where there is none; found by cprof_table_finish()
 * track: what cprof_table_track() returned: where it happened
 * name, cat, stage, shapes, types, stack: texts. shapes and types are JSON lists; stack has a frame in each line, innermost
 *     first
 * device: the number of the device; stream: its stream or queue
 * correlation: joins a call of a runtime with what it started on a device. external_id: joins an operator with such calls
 * bytes: copied, set or allocated
 * args_at, args_length: a JSON object in the table's bytes (cprof_table_keep), as loaded
 * memory_change, memory_peak: of the process's resident memory, in bytes; peak: the highest value while it was open, known
 *     where it rose. device_memory_change, device_memory_peak: of the framework's allocator for the device
 * suspended_ns: spent suspended between start and end
 * lane: 0, or the number of the additional row of its track in which it is drawn, because it overlaps others there without
 *     being inside them; found by cprof_table_finish()
 * kind: a cprof_kind. outcome: a cprof_outcome. flags: CPROF_ROW_ bits. Each 0 to 255 */
#define CPROF_TABLE_COLUMNS(X)                            \
    X(start_ns, int64_t, 0)                               \
    X(end_ns, int64_t, 0)                                 \
    X(trace_high, uint64_t, 0)                            \
    X(trace_low, uint64_t, 0)                             \
    X(span, uint64_t, 0)                                  \
    X(parent_span, uint64_t, 0)                           \
    X(parent, int32_t, -1)                                \
    X(track, uint32_t, 0)                                 \
    X(name, uint32_t, 0)                                  \
    X(cat, uint32_t, 0)                                   \
    X(stage, uint32_t, 0)                                 \
    X(device, int32_t, -1)                                \
    X(stream, int64_t, -1)                                \
    X(correlation, int64_t, -1)                           \
    X(external_id, int64_t, -1)                           \
    X(bytes, int64_t, CPROF_TABLE_UNKNOWN)                \
    X(shapes, uint32_t, 0)                                \
    X(types, uint32_t, 0)                                 \
    X(stack, uint32_t, 0)                                 \
    X(args_length, uint32_t, 0)                           \
    X(args_at, uint64_t, 0)                               \
    X(memory_change, int64_t, CPROF_TABLE_UNKNOWN)        \
    X(memory_peak, int64_t, CPROF_TABLE_UNKNOWN)          \
    X(device_memory_change, int64_t, CPROF_TABLE_UNKNOWN) \
    X(device_memory_peak, int64_t, CPROF_TABLE_UNKNOWN)   \
    X(suspended_ns, int64_t, 0)                           \
    X(lane, uint16_t, 0)                                  \
    X(kind, uint8_t, 0)                                   \
    X(outcome, uint8_t, 0)                                \
    X(flags, uint8_t, 0)

/* One row. Begin with cprof_row_none, and set the known fields. */
typedef struct {
#define CPROF_TABLE_FIELD(name, type, none) type name;
    CPROF_TABLE_COLUMNS(CPROF_TABLE_FIELD)
#undef CPROF_TABLE_FIELD
} cprof_row;

extern const cprof_row cprof_row_none;

/* The number of each column: CPROF_COLUMN_start_ns, ... */
typedef enum {
#define CPROF_TABLE_NUMBER(name, type, none) CPROF_COLUMN_##name,
    CPROF_TABLE_COLUMNS(CPROF_TABLE_NUMBER)
#undef CPROF_TABLE_NUMBER
        CPROF_COLUMN_COUNT
} cprof_column_number;

/* Where something happened: a thread of a process, or a stream of a device, which traces show as one. The three things that
 * are said of a process may be set at any track of it: cprof_table_finish() brings them to all. */
typedef struct {
    int64_t pid; /* as shown, unless there is a text */
    int64_t tid;
    cprof_text pid_text;
    cprof_text tid_text;
    cprof_text process_name;
    cprof_text process_labels;
    cprof_text thread_name;
    int64_t process_sort; /* CPROF_TABLE_UNKNOWN: none */
    int64_t thread_sort;
    uint32_t process; /* the first track of the same process */
    uint16_t lanes;   /* the highest lane in use */
} cprof_track;

/* One end of an arrow between two events, as Chrome's format has it. */
typedef struct {
    int64_t at_ns;
    uint64_t id;
    uint32_t track;
    cprof_text name;
    cprof_text cat;
    char phase; /* 's', 't' or 'f' */
    bool binds_enclosing;
} cprof_flow;

/* A fact about the whole recording: a key, and a JSON value in the table's bytes. */
typedef struct {
    cprof_text key;
    uint64_t at;
    uint64_t length;
} cprof_fact;

/* A hash table of indices into a list: index + 1, or 0; the size is a power of two. */
typedef struct {
    uint32_t *slots;
    size_t count;
} cprof_table_slots;

/* Fields are read by anybody, and changed by the functions below only, but for names and sort numbers of tracks, and the number
 * of dropped events, which are set directly until the table is finished. A column is NULL where no row has anything but its
 * "none"; but start_ns, end_ns, track, name, cat, kind and parent are there whenever there are rows. */
typedef struct {
    size_t count; /* rows */
    size_t capacity;
#define CPROF_TABLE_ARRAY(name, type, none) type *name;
    CPROF_TABLE_COLUMNS(CPROF_TABLE_ARRAY)
#undef CPROF_TABLE_ARRAY
    cprof_names_table texts; /* text 1 is its first entry; the stage of its entries is empty */
    cprof_track *tracks;
    size_t track_count;
    size_t track_capacity;
    cprof_flow *flows;
    size_t flow_count;
    size_t flow_capacity;
    cprof_fact *facts;
    size_t fact_count;
    size_t fact_capacity;
    char *kept; /* the table's bytes: args and facts */
    uint64_t kept_count;
    uint64_t kept_capacity;
    uint64_t dropped; /* events that are missing, as there was no room for them */
    bool finished;
    uint64_t seed;               /* of its hashes; random */
    _Atomic size_t shares;       /* owners beyond the first */
    cprof_table_slots slots;     /* of tracks, by themselves and by their process */
    cprof_names_table fact_keys; /* in the order of the facts */
} cprof_table;

/* An empty table; NULL without memory. */
cprof_table *cprof_table_create(void);

/* Makes the caller one more owner of a finished table. Any thread. */
cprof_table *cprof_table_share(cprof_table *table);

/* Frees a table that has no other owner; NULL is ignored. Any thread. */
void cprof_table_destroy(cprof_table *table);

/* The number of a string, which is copied at its first use. CPROF_NO_MEMORY. */
cprof_status cprof_table_text(cprof_table *table, cprof_name string, cprof_text *text);

/* The string of a text: borrowed, as long as the table lives. */
cprof_name cprof_table_string(const cprof_table *table, cprof_text text);

/* The track of a process and a thread, made at its first use, without names. Either number is replaced by a text that is not
 * 0. CPROF_NO_MEMORY. */
cprof_status cprof_table_track(cprof_table *table, int64_t pid, cprof_text pid_text, int64_t tid, cprof_text tid_text,
                               uint32_t *track);

/* The track of a process and a thread; of a process, its first one. False: none. */
bool cprof_table_find_track(const cprof_table *table, int64_t pid, cprof_text pid_text, int64_t tid, cprof_text tid_text,
                            uint32_t *track);
bool cprof_table_find_process(const cprof_table *table, int64_t pid, cprof_text pid_text, uint32_t *track);

/* Copies bytes to the end of table->kept; *at is their place there. CPROF_NO_MEMORY. */
cprof_status cprof_table_keep(cprof_table *table, cprof_name bytes, uint64_t *at);

/* Adds a row. Its texts and its track are of this table. CPROF_NO_MEMORY; CPROF_OUT_OF_RANGE when there are too many. */
cprof_status cprof_table_add(cprof_table *table, const cprof_row *row);

/* Adds one end of an arrow. CPROF_NO_MEMORY. */
cprof_status cprof_table_add_flow(cprof_table *table, const cprof_flow *flow);

/* Sets a fact to a JSON value (checked by nobody), replacing an older one. CPROF_NO_MEMORY. */
cprof_status cprof_table_set_fact(cprof_table *table, cprof_name key, cprof_name value);

/* The value of a fact, borrowed until the next change of the table; false: none. */
bool cprof_table_fact(const cprof_table *table, cprof_name key, cprof_name *value);

/* Sorts rows by start, longer ones first, then parents before their children, then as added. Finds parents: by ids (circles, of
 * damaged data, are cut), else the innermost row of the track around them that is no instant, counter or step; rows without ids
 * may stick out by a microsecond. And lays rows of a track that overlap without lying within one another into lanes, on
 * devices, too: in its parent's where it fits; a suspendable row that shares its time with others of the parent in a further
 * one; what does not fit into CPROF_TABLE_MAX_LANES in the last. A finished table stays as it is. CPROF_NO_MEMORY: the table is
 * unchanged, but for the order of its rows. */
cprof_status cprof_table_finish(cprof_table *table);

/* A column: its name, its type as a format of Python's struct module ('q', 'Q', 'i', 'I', 'H', 'B'), its array (NULL:
 * all "none") and that value. */
typedef struct {
    const char *name;
    char format;
    size_t item_size;
    const void *items;
    int64_t none;
} cprof_column;

/* A column by number. */
cprof_column cprof_table_column(const cprof_table *table, cprof_column_number number);

#endif
