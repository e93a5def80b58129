/* Controls of fake_cupti.c, a libcupti with virtual records, a call log, and rules that it watches.
 *
 * Build:
 *
 *     cc -std=c11 -I. -shared -fPIC -pthread -Wl,-soname,libcupti.so.13 -o libcupti.so.13 tests/fakes/fake_cupti.c
 *
 * With -DFAKE_CUPTI_INCOMPLETE it lacks cuptiActivityGetNumDroppedRecords. It needs no driver, and no other fake.
 *
 * The controls are plain functions of int, int64_t, uint64_t and const char *, to be called through dlsym or ctypes, from any
 * thread. They stand for what the user's program and the device do, and never appear in the call log.
 *
 * Stamps are those of the fake's clock: the time of day, until fake_cupti_set_time() makes it a virtual one.
 */
#ifndef FAKE_CUPTI_H
#define FAKE_CUPTI_H

#include <stdint.h>

/* Forgets everything, as when it is loaded: no subscriber, version 130000, the time of day; this process is the one in which
 * calls are allowed. */
void fake_cupti_reset(void);

/* The nth call of `function` from now (1 is the next) answers `code` and does nothing. One such order per function, the last
 * one counts; nth 0: every call. */
void fake_cupti_fail(const char *function, int code, uint64_t nth);

/* Every call answers `code`; 0 ends it. */
void fake_cupti_break(int code);

/* What cuptiGetVersion says; records have the sizes of that version. */
void fake_cupti_set_version(uint64_t version);

/* Another client has the subscriber: 1, or not: 0. */
void fake_cupti_hold(int held);

/* Makes the clock a virtual one that stands at `ns`; and moves it. */
void fake_cupti_set_time(int64_t ns);
void fake_cupti_advance(int64_t ns);

/* The clock, in ns, whatever is made of it below. */
int64_t fake_cupti_now(void);

/* Stamps are `offset` + now * `numerator` / `denominator` from now on, as if a client had set a clock of its own. */
void fake_cupti_set_clock(int64_t offset, int64_t numerator, int64_t denominator);

/* The stamp of a moment of fake_cupti_now(). */
uint64_t fake_cupti_stamp(int64_t ns);

/* 1: buffers are given back by another thread. */
void fake_cupti_use_thread(int other);

/* So many records are said to have been dropped, once. */
void fake_cupti_drop(uint64_t count);

/* A number that no call of CUDA has had. */
int64_t fake_cupti_correlation(void);

/* This thread enters or leaves a call of CUDA: the subscriber is told if it wants such calls. Whether it was. */
int fake_cupti_enter(int domain, int number, int64_t correlation);
int fake_cupti_leave(int domain, int number, int64_t correlation);

/* Work of a device that begins and ends at such stamps; recorded if that is wanted, and handed over by a flush once the clock
 * is past its end (0: at once). What is not over is handed over by a forced flush, without times. */
void fake_cupti_kernel(const char *name, uint64_t start, uint64_t end, int device, int stream, int64_t correlation);
void fake_cupti_copy(int direction, int from, int to, uint64_t bytes, uint64_t start, uint64_t end, int64_t correlation);
void fake_cupti_peer_copy(uint64_t bytes, uint64_t start, uint64_t end, int64_t correlation);
void fake_cupti_fill(int memory, uint64_t bytes, uint64_t start, uint64_t end, int64_t correlation);

/* A record of a kind that nobody asked for. */
void fake_cupti_strange_record(void);

/* cudaLaunchKernel in this thread, which calls cuLaunchKernel, of a kernel that runs `ns` on device 0, stream 7, as soon as
 * that is free; and cudaMemcpyAsync to it likewise. The call's number. */
int64_t fake_cupti_launch(const char *name, int64_t ns);
int64_t fake_cupti_upload(uint64_t bytes, int64_t ns);

/* Whether the subscriber is told of such calls, and gets such records. */
int fake_cupti_wants_call(int domain, int number);
int fake_cupti_wants_kind(int kind);

/* Whether there is a subscriber; buffers that were asked for and not given back. */
int fake_cupti_is_subscribed(void);
int64_t fake_cupti_open_buffers(void);

/* The calls of a function since the reset, and of all; UINT64_MAX when there is no such function. */
uint64_t fake_cupti_calls(const char *function);
uint64_t fake_cupti_total_calls(void);

/* Broken rules since the reset: records wanted without the subscriber, a call in a forked child or in a callback, a clock set,
 * cuptiFinalize, a handle that is none. And the text of the last one. */
uint64_t fake_cupti_violations(void);
const char *fake_cupti_violation(void);

#endif
