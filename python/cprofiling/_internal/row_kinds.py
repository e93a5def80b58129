"""Kinds, outcomes and flags of rows, as in cprofiling/trace/table.h."""

NODE, RECORD, STEP, HOST, DEVICE, INSTANT, COUNTER = range(7)
KINDS = ("node", "record", "step", "host", "device", "instant", "counter")
OUTCOMES = ("success", "error", "cancelled")
UNFINISHED, CUT, SUSPENDABLE = 1, 2, 4
