/* Writes a finished table as a Chrome trace: one JSON object that chrome://tracing, Perfetto, TensorBoard's plugin and
 * HolisticTraceAnalysis read, in Kineto's words (schemaVersion 1).
 *
 * Format: "Trace Event Format" (Google, 2016), the object form. ASCII only, so that no reader has to guess an encoding; what is
 * no Unicode (surrogates) is written as the escape of itself. A row that has a duration is exactly one complete event ("ph":
 * "X"); instants are "i", counters "C", the ends of arrows "s", "t", "f". Times are microseconds with three decimals since the
 * fact baseTimeNanoseconds, which is the start of the first row where it is not set. Facts come first; metadata, rows and
 * arrows follow. Where there are no arrows, there is one from each call of a device's runtime to what has its correlation on
 * the device.
 *
 * A lane of a track is a thread of its own, with the number of its thread plus the lane times 2^22: no thread of Linux has a
 * number so large.
 * Args are those that were loaded, as they were; otherwise what is known of: kind ("node", "record", "step", "device"; of no
 * other row), stage, trace_id (32 hexadecimal digits), span_id and parent_span_id (16), outcome ("error", "cancelled"),
 * unfinished, cut and suspendable (true), suspended_ns, memory_change, memory_peak, device_memory_change, device_memory_peak;
 * and in Kineto's words External id, correlation, device, stream, bytes, Input Dims, Input type, Call stack (frames joined by
 * semicolons).
 */
#ifndef CPROF_TRACE_JSON_H
#define CPROF_TRACE_JSON_H

#include "cprofiling/json_write.h"
#include "cprofiling/table.h"

/* Lane l of a thread is the thread whose number is greater by this times l. */
#define CPROF_TRACE_JSON_LANE (UINT64_C(1) << 22)

/* Writes the whole table through `write`, in pieces of at most 256 KiB, with constant extra memory. CPROF_NO_MEMORY before
 * anything was written, or the status that `write` returned. */
cprof_status cprof_trace_json_write(const cprof_table *table, cprof_write write, void *context);

#endif
