/* Writes a finished table as a Chrome trace: one JSON object that chrome://tracing, Perfetto, TensorBoard's plugin and
 * HolisticTraceAnalysis read, in Kineto's words (schemaVersion 1).
 *
 * Format: "Trace Event Format" (Google, 2016), the object form, in UTF-8; surrogates are written as the escape of
 * themselves. A row that has a duration is exactly one complete event ("ph": "X"); instants are "i", counters "C", the
 * ends of arrows "s", "t", "f". Facts come first; metadata, rows and arrows follow. Where there are no arrows, there is one
 * from each call of a device's runtime to what has its correlation on the device; of a call within one of the same correlation,
 * from the outer one.
 * Times are microseconds with three decimals since the fact baseTimeNanoseconds. Where it is not set, or not within the time
 * before the first event in which a double tells each ns, it is the beginning of that event's week, counted from 1970: so
 * traces of many processes have one base, for readers that do not look at it.
 *
 * A lane of a track is a thread of its own, with the number of its thread plus the lane times 2^22: no thread of Linux has a
 * number so large.
 * Args are those that were loaded, as they were; otherwise the known ones of: kind ("node", "record", "step", "device"; of no
 * other row), stage, source (of nodes: file and line of the function, see chrome_sources.h), trace_id (32 hexadecimal digits),
 * span_id and parent_span_id (16), outcome ("error", "cancelled"), unfinished, cut and suspendable (true), suspended_ns,
 * memory_change, memory_peak, device_memory_change, device_memory_peak; and in Kineto's words External id, correlation, device,
 * stream, bytes, Input Dims, Input type, Call stack (frames joined by semicolons).
 */
#ifndef CPROF_CHROME_WRITE_H
#define CPROF_CHROME_WRITE_H

#include "cprofiling/files/json_write.h"
#include "cprofiling/trace/table.h"

/* Lane l of a thread has the thread's number plus this times l. */
#define CPROF_CHROME_WRITE_LANE (UINT64_C(1) << 22)

#define CPROF_CHROME_WRITE_PERIOD_NS (INT64_C(7) * 24 * 3600 * 1000000000)
/* 2^43 microseconds: 101 days. Kineto's base is 91 back at most. */
#define CPROF_CHROME_WRITE_LONGEST_NS (UINT64_C(1000) << 43)

/* Writes the whole table through `write`, in pieces of at most 256 KiB, with constant extra memory beyond that of the sources.
 * CPROF_NO_MEMORY before anything was written, or the status that `write` returned. */
cprof_status cprof_chrome_write(const cprof_table *table, cprof_write write, void *context);

/* Writes only the events, for a file of several tables: times are counted from `base_ns`, and a comma stands before each event
 * but the first, if `is_first`. Else as above. */
cprof_status cprof_chrome_write_events(const cprof_table *table, cprof_ns base_ns, bool is_first, cprof_write write,
                                       void *context);

/* The base of the times that cprof_chrome_write() would choose. */
cprof_ns cprof_chrome_write_base(const cprof_table *table);

#endif
