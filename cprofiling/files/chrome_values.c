#include "cprofiling/files/chrome_values.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/base/hash.h"
#include "cprofiling/files/json_text.h"

#include <string.h>

enum { NS_POWER = 3 }; /* times are microseconds */

void cprof_chrome_values_dispose(cprof_chrome_values *values)
{
    cprof_alloc_release(values->scratch.bytes);
    cprof_alloc_release(values->changed.bytes);
}

char *cprof_chrome_values_grow(cprof_chrome_values_room *room, size_t size)
{
    if (size > room->size) {
        size_t larger = size < 2 * room->size ? 2 * room->size : size;
        char *bytes = cprof_alloc_resize(room->bytes, larger);
        if (bytes == NULL) {
            return NULL;
        }
        *room = (cprof_chrome_values_room){bytes, larger};
    }
    return room->bytes;
}

static bool is_absent(const cprof_json_value *value)
{
    return value == NULL || value->kind == CPROF_JSON_UNKNOWN ||
           (value->kind == CPROF_JSON_WORD && value->text.bytes[0] == 'n');
}

/* ---- texts ---- */

/* Without a seed: arrows of several files meet by it. */
static uint64_t hash_text(cprof_name text)
{
    uint64_t hash = text.length;
    uint64_t eight;
    for (; text.length >= sizeof eight; text.bytes += sizeof eight, text.length -= sizeof eight) {
        memcpy(&eight, text.bytes, sizeof eight);
        hash = cprof_hash_mix(hash, eight);
    }
    eight = 0;
    memcpy(&eight, text.bytes, text.length);
    return cprof_hash_mix(hash, eight);
}

/* Most strings are one of those that were met lately. */
cprof_status cprof_chrome_values_intern(cprof_chrome_values *values, cprof_name string, cprof_text *text)
{
    uint64_t hash = hash_text(string);
    size_t slot = hash % CPROF_CHROME_VALUES_CACHED;
    if (values->cache[slot].hash == hash && values->cache[slot].text != 0) {
        *text = values->cache[slot].text;
        cprof_name known = cprof_table_string(values->table, *text);
        if (known.length == string.length && memcmp(known.bytes, string.bytes, string.length) == 0) {
            return CPROF_OK;
        }
    }
    cprof_status status = cprof_table_text(values->table, string, text);
    if (status == CPROF_OK) {
        values->cache[slot].hash = hash;
        values->cache[slot].text = *text;
    }
    return status;
}

cprof_status cprof_chrome_values_string(cprof_chrome_values *values, const cprof_json_value *value, cprof_name *string)
{
    *string = is_absent(value) ? (cprof_name){"", 0} : value->text;
    if (string->length == 0 || value->is_plain) {
        return CPROF_OK;
    }
    char *bytes = cprof_chrome_values_grow(&values->scratch, string->length);
    if (bytes == NULL) {
        return CPROF_NO_MEMORY;
    }
    *string = (cprof_name){bytes, cprof_json_text_unescape(*string, bytes)};
    return CPROF_OK;
}

cprof_status cprof_chrome_values_text(cprof_chrome_values *values, const cprof_json_value *value, cprof_text *text)
{
    cprof_name string;
    cprof_status status = cprof_chrome_values_string(values, value, &string);
    return status == CPROF_OK ? cprof_chrome_values_intern(values, string, text) : status;
}

cprof_status cprof_chrome_values_list(cprof_chrome_values *values, const cprof_json_value *value, cprof_text *text)
{
    cprof_name json;
    *text = 0;
    if (value == NULL || value->kind != CPROF_JSON_LIST) {
        return CPROF_OK;
    }
    cprof_status status = cprof_chrome_values_json(values, value, &json);
    return status == CPROF_OK ? cprof_chrome_values_intern(values, json, text) : status;
}

cprof_status cprof_chrome_values_stack(cprof_chrome_values *values, const cprof_json_value *value, cprof_text *text)
{
    cprof_name string;
    *text = 0;
    if (value == NULL || value->kind != CPROF_JSON_STRING || value->text.length == 0) {
        return CPROF_OK;
    }
    cprof_status status = cprof_chrome_values_string(values, value, &string);
    char *lines = status == CPROF_OK ? cprof_chrome_values_grow(&values->changed, string.length) : NULL;
    if (lines == NULL) {
        return CPROF_NO_MEMORY;
    }
    for (size_t i = 0; i < string.length; i++) {
        lines[i] = (char)(string.bytes[i] == ';' ? '\n' : string.bytes[i]);
    }
    return cprof_chrome_values_intern(values, (cprof_name){lines, string.length}, text);
}

cprof_status cprof_chrome_values_json(cprof_chrome_values *values, const cprof_json_value *value, cprof_name *json)
{
    *json = value->text;
    if (value->is_strict) {
        return CPROF_OK;
    }
    char *bytes = cprof_chrome_values_grow(&values->scratch, 2 * json->length);
    if (bytes == NULL) {
        return CPROF_NO_MEMORY;
    }
    *json = (cprof_name){bytes, cprof_json_text_strict(*json, bytes)};
    return CPROF_OK;
}

/* ---- numbers ---- */

bool cprof_chrome_values_is_integer(const cprof_json_value *value, int64_t *integer)
{
    bool is_exact = false;
    return value != NULL && value->kind == CPROF_JSON_NUMBER && cprof_json_text_decimal(value->text, 0, integer, &is_exact) &&
           is_exact;
}

int64_t cprof_chrome_values_integer(const cprof_json_value *value, int64_t least, int64_t most, int64_t none)
{
    int64_t integer;
    return cprof_chrome_values_is_integer(value, &integer) && integer >= least && integer <= most ? integer : none;
}

cprof_status cprof_chrome_values_ns(const cprof_json_value *value, int64_t *ns, bool *is_known)
{
    bool ignored;
    *ns = 0;
    *is_known = value != NULL && value->kind == CPROF_JSON_NUMBER;
    return !*is_known || cprof_json_text_decimal(value->text, NS_POWER, ns, &ignored) ? CPROF_OK : CPROF_OUT_OF_RANGE;
}

static bool parse_hex(const char *digits, uint64_t *bits)
{
    enum { DIGITS = 16 };
    *bits = 0;
    for (int i = 0; i < DIGITS; i++) {
        char c = digits[i];
        bool is_letter = c >= 'a' && c <= 'f';
        if (!is_letter && (c < '0' || c > '9')) {
            return false;
        }
        *bits = *bits << 4 | (uint64_t)(is_letter ? c - 'a' + 10 : c - '0');
    }
    return true;
}

void cprof_chrome_values_hex(const cprof_json_value *value, uint64_t *high, uint64_t *low)
{
    enum { DIGITS = 16 };
    uint64_t upper = 0;
    uint64_t lower;
    size_t length = high != NULL ? 2 * DIGITS : DIGITS;
    if (value == NULL || value->kind != CPROF_JSON_STRING || value->text.length != length ||
        !parse_hex(value->text.bytes + length - DIGITS, &lower)) {
        return;
    }
    if (high != NULL) {
        if (!parse_hex(value->text.bytes, &upper)) {
            return;
        }
        *high = upper;
    }
    *low = lower;
}

/* Whether a text is a number of 64 bits without sign or point. */
static bool is_unsigned(cprof_name text, uint64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < text.length; i++) {
        unsigned digit = (unsigned char)text.bytes[i] - (unsigned)'0';
        if (digit > 9 || __builtin_mul_overflow(*number, 10, number) || __builtin_add_overflow(*number, digit, number)) {
            return false;
        }
    }
    return true;
}

cprof_status cprof_chrome_values_id(cprof_chrome_values *values, const cprof_json_value *value, uint64_t *id)
{
    int64_t integer;
    cprof_name string;
    if (cprof_chrome_values_is_integer(value, &integer)) {
        *id = (uint64_t)integer;
        return CPROF_OK;
    }
    if (value->kind == CPROF_JSON_NUMBER && is_unsigned(value->text, id)) {
        return CPROF_OK;
    }
    cprof_status status = cprof_chrome_values_string(values, value, &string);
    *id = hash_text(string);
    return status;
}
