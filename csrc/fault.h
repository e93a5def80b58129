/* What goes wrong in code that runs for the profiler's sake: names that are asked for, shapes, devices. */
#ifndef EXT_FAULT_H
#define EXT_FAULT_H

/* Ends the pending exception, which is not the user's call's; the caller counts it. What is no Exception (an interrupt, an
 * exit, raised by a signal's handler) is raised anew when this thread runs Python next, as if it had come then. */
void ext_fault_forget(void);

#endif
