/* How many calls a second one thread counts in a key, and two threads in the same key: prints both. */
#define _GNU_SOURCE
#include "cprofiling/calls/call.h"
#include "cprofiling/process.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CALLS = 1000000, MOST_THREADS = 2 };

static cprof_registry *registry;
static cprof_accum *accum;
static pthread_barrier_t start;

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void *count(void *unused)
{
    cprof_thread *thread = cprof_thread_get();
    cprof_chain chain = {0};
    (void)pthread_barrier_wait(&start);
    for (int i = 0; thread != NULL && i < CALLS; i++) {
        cprof_span *span = cprof_call_open(thread, &chain, accum, cprof_registry_state(registry), registry, accum);
        cprof_call_close(thread, &chain, span, CPROF_OUTCOME_SUCCESS, false);
    }
    return unused;
}

static double calls_per_s(unsigned threads)
{
    pthread_t ids[MOST_THREADS];
    (void)pthread_barrier_init(&start, NULL, threads + 1);
    for (unsigned i = 0; i < threads; i++) {
        if (pthread_create(&ids[i], NULL, count, NULL) != 0) {
            abort();
        }
    }
    (void)pthread_barrier_wait(&start);
    double begin = now_s();
    for (unsigned i = 0; i < threads; i++) {
        (void)pthread_join(ids[i], NULL);
    }
    (void)pthread_barrier_destroy(&start);
    return (double)CALLS * threads / (now_s() - begin);
}

int main(void)
{
    cprof_process_start();
    registry = cprof_registry_create(1);
    if (registry == NULL) {
        return EXIT_FAILURE;
    }
    cprof_registry_configure(registry, CPROF_FLAG_STATS, 0, false);
    accum = cprof_registry_accum(registry, (cprof_names){cprof_name_of("inference"), cprof_name_of("node")});
    if (accum == NULL) {
        return EXIT_FAILURE;
    }
    (void)calls_per_s(MOST_THREADS); /* they meet */
    double alone = calls_per_s(1);
    (void)printf("%.0f %.0f\n", alone, calls_per_s(MOST_THREADS));
    return EXIT_SUCCESS;
}
