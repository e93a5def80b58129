/* The controls of the fake driver (tests/fakes/fake_cuda.h) whose path the environment variable CPROFILING_LIBCUDA holds, and
 * what programs that drive it share. */
#ifndef TESTS_CORE_FAKE_GPU_H
#define TESTS_CORE_FAKE_GPU_H

#include "tests/core/check.h"
#include "tests/fakes/fake_cuda.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIBRARY_VARIABLE "CPROFILING_LIBCUDA"

#define CONTROLS(X)               \
    X(reset)                      \
    X(is_old_driver)              \
    X(set_device_count)           \
    X(set_initialized)            \
    X(activate)                   \
    X(device_reset)               \
    X(references)                 \
    X(bind)                       \
    X(bind_own)                   \
    X(create_own)                 \
    X(destroy_own)                \
    X(current_device)             \
    X(open_pushes)                \
    X(new_stream)                 \
    X(destroy_stream)             \
    X(launch)                     \
    X(launch_default)             \
    X(begin_capture)              \
    X(end_capture)                \
    X(invalidate_capture)         \
    X(capture_mode)               \
    X(answer_for_foreign_streams) \
    X(now)                        \
    X(advance)                    \
    X(hold)                       \
    X(hold_records)               \
    X(held)                       \
    X(fail)                       \
    X(break_driver)               \
    X(break_context)              \
    X(open_events)                \
    X(set_event_limit)            \
    X(next_elapsed)               \
    X(set_memory)                 \
    X(profiler_log)               \
    X(calls)                      \
    X(total_calls)                \
    X(log)                        \
    X(violations)                 \
    X(violation)

static struct {
#define CONTROL_FIELD(name) __typeof__(fake_##name) *name;
    CONTROLS(CONTROL_FIELD)
#undef CONTROL_FIELD
} fake;

static char *library_path;

static inline void load_fake(void)
{
    void *library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
#define LOAD_CONTROL(name) check_symbol(library, "fake_" #name, (void *)&fake.name);
    CONTROLS(LOAD_CONTROL)
#undef LOAD_CONTROL
}

/* Takes the path, to be freed at the end, and sees to it that the program ends. */
static inline void keep_library_path(void)
{
    (void)alarm(HANG_SECONDS);
    const char *path = getenv(LIBRARY_VARIABLE);
    if (path == NULL) {
        (void)fprintf(stderr, LIBRARY_VARIABLE " must name the fake driver\n");
        exit(EXIT_FAILURE);
    }
    library_path = strdup(path);
    CHECK(library_path != NULL);
}

static inline void check_rules(void)
{
    if (fake.violations() > 0) {
        (void)fprintf(stderr, "broken rule: %s\n", fake.violation(0));
    }
    CHECK(fake.violations() == 0);
    CHECK(fake.open_pushes() == 0);
}

static inline void check_text(const char *text, const char *expected)
{
    if (strcmp(text, expected) != 0) {
        (void)fprintf(stderr, "reason: %s\nexpected: %s\n", text, expected);
    }
    CHECK(strcmp(text, expected) == 0);
}

static inline void check_in_child(void (*in_child)(void))
{
    IN_CHILD
    {
        in_child();
    }
}

#endif
