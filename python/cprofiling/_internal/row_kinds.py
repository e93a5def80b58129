"""What kinds of rows recordings have, how they end, and their flags; the numbers are those of cprofiling/table.h."""

NODE, RECORD, STEP, HOST, DEVICE, INSTANT, COUNTER = range(7)
KINDS = ("node", "record", "step", "host", "device", "instant", "counter")
OUTCOMES = ("success", "error", "cancelled")
UNFINISHED, CUT, SUSPENDABLE = 1, 2, 4
