/* What the values of a Chrome trace's events are in a table: texts, numbers, times.
 *
 * All functions take a value of NULL for one that is absent; null, NaN and the like are absent, too.
 */
#ifndef CPROF_CHROME_VALUES_H
#define CPROF_CHROME_VALUES_H

#include "cprofiling/files/json_read.h"
#include "cprofiling/trace/table.h"

enum { CPROF_CHROME_VALUES_CACHED = 4096 };

typedef struct {
    char *bytes;
    size_t size;
} cprof_chrome_values_room;

/* What is needed to make them. All zero but for the table: nothing was made yet. */
typedef struct {
    cprof_table *table;               /* borrowed */
    cprof_chrome_values_room scratch; /* for texts that are not as they are in the file */
    cprof_chrome_values_room changed; /* for stacks */
    struct {
        uint64_t hash;
        cprof_text text; /* 0: none */
    } cache[CPROF_CHROME_VALUES_CACHED];
} cprof_chrome_values;

/* Gives back what they own. */
void cprof_chrome_values_dispose(cprof_chrome_values *values);

/* At least `size` bytes; NULL without memory, and it is as it was. */
char *cprof_chrome_values_grow(cprof_chrome_values_room *room, size_t size);

/* The text of a string that needs none of the care below. CPROF_NO_MEMORY. */
cprof_status cprof_chrome_values_intern(cprof_chrome_values *values, cprof_name string, cprof_text *text);

/* The string that a value stands for; of one that is no string, its JSON. Borrowed until the next call of a function here.
 * Empty: it is absent. CPROF_NO_MEMORY. */
cprof_status cprof_chrome_values_string(cprof_chrome_values *values, const cprof_json_value *value, cprof_name *string);

/* The same as a text. CPROF_NO_MEMORY. */
cprof_status cprof_chrome_values_text(cprof_chrome_values *values, const cprof_json_value *value, cprof_text *text);

/* The JSON of a list as a text; 0: it is no list. CPROF_NO_MEMORY. */
cprof_status cprof_chrome_values_list(cprof_chrome_values *values, const cprof_json_value *value, cprof_text *text);

/* The frames of a stack, which Kineto puts in one line; 0: it is no string. CPROF_NO_MEMORY. */
cprof_status cprof_chrome_values_stack(cprof_chrome_values *values, const cprof_json_value *value, cprof_text *text);

/* The JSON of a value (a string's without its quotes), with null for what is no JSON by the RFC. Borrowed until the next call
 * of a function here. CPROF_NO_MEMORY. */
cprof_status cprof_chrome_values_json(cprof_chrome_values *values, const cprof_json_value *value, cprof_name *json);

/* The integer, if it is one within these limits (also if it is written as 1.0 or 1e3); otherwise `none`. */
int64_t cprof_chrome_values_integer(const cprof_json_value *value, int64_t least, int64_t most, int64_t none);

/* Whether the value is an integer. */
bool cprof_chrome_values_is_integer(const cprof_json_value *value, int64_t *integer);

/* The 64 bits that 16 hexadecimal digits in lower case are, or 128 bits, where there is a place for their upper half; of
 * anything else, nothing is changed. */
void cprof_chrome_values_hex(const cprof_json_value *value, uint64_t *high, uint64_t *low);

/* Whether the value is a number, then its microseconds in ns, rounded half to even. CPROF_OUT_OF_RANGE: beyond int64. */
cprof_status cprof_chrome_values_ns(const cprof_json_value *value, int64_t *ns, bool *is_known);

/* The 64 bits of an arrow's id: those of an integer, or a hash of anything else. */
cprof_status cprof_chrome_values_id(cprof_chrome_values *values, const cprof_json_value *value, uint64_t *id);

#endif
