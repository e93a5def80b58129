#include "cprofiling/files/chrome_sources.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/files/json_read.h"

enum { FIRST_PLACES = 32 };

/* Enters the object "sources" of the fact; false: there is none. */
static bool enter_sources(cprof_json_reader *reader)
{
    cprof_json_value value;
    if (*reader->at != '{' || !cprof_json_read_enter(reader)) {
        return false;
    }
    while (cprof_json_read_member(reader, &value) == CPROF_JSON_ITEM) {
        if (cprof_name_is(value.text, "sources")) {
            return *reader->at == '{' && cprof_json_read_enter(reader);
        }
        if (!cprof_json_read_value(reader, &value)) {
            return false;
        }
    }
    return false;
}

static cprof_status add(cprof_chrome_sources *sources, cprof_name name, cprof_name place)
{
    cprof_names names = {{"", 0}, name};
    size_t index = cprof_names_find(&sources->names, names);
    if (index == CPROF_NAMES_ABSENT) {
        index = sources->names.count;
        cprof_name *places = cprof_alloc_grow(sources->places, &sources->capacity, index, sizeof *places, FIRST_PLACES);
        if (places == NULL) {
            return CPROF_NO_MEMORY;
        }
        sources->places = places;
        if (cprof_names_add(&sources->names, names) != CPROF_OK) {
            return CPROF_NO_MEMORY;
        }
    }
    sources->places[index] = place;
    return CPROF_OK;
}

cprof_status cprof_chrome_sources_open(cprof_chrome_sources *sources, const cprof_table *table)
{
    cprof_name fact;
    cprof_json_reader reader;
    cprof_json_value key;
    cprof_json_value value;
    sources->table = table;
    if (!cprof_table_fact(table, cprof_name_of("cprofiling"), &fact) || fact.length == 0) {
        return CPROF_OK;
    }
    sources->text = cprof_alloc_zeroed(fact.length + CPROF_JSON_PADDING);
    if (sources->text == NULL) {
        return CPROF_NO_MEMORY;
    }
    memcpy(sources->text, fact.bytes, fact.length);
    cprof_json_read_text(&reader, (cprof_name){sources->text, fact.length});
    cprof_status status = CPROF_OK;
    bool goes_on = enter_sources(&reader);
    while (goes_on && status == CPROF_OK && cprof_json_read_member(&reader, &key) == CPROF_JSON_ITEM) {
        goes_on = cprof_json_read_value(&reader, &value);
        if (goes_on && value.kind == CPROF_JSON_STRING) {
            /* What is unescaped is no longer than its text, which is read no more. */
            char *name = sources->text + (key.text.bytes - sources->text);
            status = add(sources, (cprof_name){name, cprof_json_read_unescape(key.text, name)}, value.text);
        }
    }
    return status;
}

void cprof_chrome_sources_close(cprof_chrome_sources *sources)
{
    cprof_alloc_release(sources->text);
    cprof_alloc_release(sources->places);
    cprof_names_dispose(&sources->names);
}

cprof_name cprof_chrome_sources_of(cprof_chrome_sources *sources, cprof_text name)
{
    size_t slot = name % CPROF_CHROME_SOURCES_CACHED;
    if (sources->names.count == 0) {
        return (cprof_name){"", 0};
    }
    if (sources->cache[slot].name != name || name == 0) {
        size_t index = cprof_names_find(&sources->names, (cprof_names){{"", 0}, cprof_table_string(sources->table, name)});
        sources->cache[slot].name = name;
        sources->cache[slot].place = index != CPROF_NAMES_ABSENT ? sources->places[index] : (cprof_name){"", 0};
    }
    return sources->cache[slot].place;
}
