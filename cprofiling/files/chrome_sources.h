/* Where the functions of nodes are: what the fact "cprofiling" of a table says in its "sources", file and line by the name of
 * the node. The metadata of a recording has them once; a Chrome trace has them in each event, too.
 */
#ifndef CPROF_CHROME_SOURCES_H
#define CPROF_CHROME_SOURCES_H

#include "cprofiling/trace/table.h"

enum { CPROF_CHROME_SOURCES_CACHED = 1024 }; /* a power of two */

typedef struct {
    const cprof_table *table; /* borrowed; NULL: not opened */
    /* Of the functions here only: */
    char *text; /* of the fact */
    cprof_names_table names;
    cprof_name *places; /* of the names; in the text */
    size_t capacity;
    struct {
        cprof_text name;
        cprof_name place;
    } cache[CPROF_CHROME_SOURCES_CACHED];
} cprof_chrome_sources;

/* Reads the fact of a table; where it is no JSON, what comes before the fault counts. The struct is all zero, and given back by
 * cprof_chrome_sources_close() in any case. CPROF_NO_MEMORY. */
cprof_status cprof_chrome_sources_open(cprof_chrome_sources *sources, const cprof_table *table);

/* Gives everything back. */
void cprof_chrome_sources_close(cprof_chrome_sources *sources);

/* The place of the function of a node, as JSON without quotes, by the text of its name; of length 0 where it is not known. It
 * is borrowed until the sources are closed. */
cprof_name cprof_chrome_sources_of(cprof_chrome_sources *sources, cprof_text name);

#endif
