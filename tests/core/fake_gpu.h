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

/* The driver and its devices as a text. A word:
 *
 *   on:0 at:0 own:0  makes the primary context of a device; makes it current (-1: none), or one that is not primary
 *   reset:0 drop:0   resets a device; destroys the context that is not primary, which renew:0 makes again
 *   devices:3 started:0 break:700  how many devices there are; the driver is not initialised; all calls answer 700 (0: no more)
 *   limit:3          there can be so many events
 *   fail:F:700:2     the second call of F from now on answers 700
 *   S=0 S=0b         makes a stream of device 0, that does not block, or does
 *   S:3m             gives it work of 3 ms; u: us; without: ns
 *   S{ S} S}x S!     begins a capture; ends it with a graph, or without; invalidates it
 *   5m               time passes
 */
static uint64_t played_streams[26];

static inline void play_stream(const char *word)
{
    uint64_t *stream = &played_streams[word[0] - 'A'];
    char *rest;
    switch (word[1]) {
    case '=':
        *stream = fake.new_stream(word[2] - '0', word[3] != 'b');
        break;
    case ':':
        fake.launch(*stream, check_ns(word + 2, &rest));
        break;
    case '{':
        fake.begin_capture(*stream);
        break;
    case '}':
        CHECK_EQUAL(fake.end_capture(*stream), word[2] != 'x');
        break;
    default:
        fake.invalidate_capture(*stream);
    }
}

/* False: it is another word. */
static inline bool play_driver(const char *word)
{
    const struct {
        const char *name;
        void (*set)(int number);
    } settings[] = {{"on:", fake.activate},
                    {"at:", fake.bind},
                    {"own:", fake.bind_own},
                    {"reset:", fake.device_reset},
                    {"drop:", fake.destroy_own},
                    {"renew:", fake.create_own},
                    {"devices:", fake.set_device_count},
                    {"started:", fake.set_initialized},
                    {"break:", fake.break_driver}};
    char function[64];
    unsigned long code, nth;
    char *rest;
    /* NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion) */
    if (sscanf(word, "fail:%63[^:]:%lu:%lu", function, &code, &nth) == 3) {
        fake.fail(function, (int)code, nth);
        return true;
    }
    if (strncmp(word, "limit:", 6) == 0) {
        fake.set_event_limit(strtoll(word + 6, NULL, 10));
        return true;
    }
    if (word[0] >= 'A' && word[0] <= 'Z') {
        play_stream(word);
        return true;
    }
    for (size_t i = 0; i < COUNT_OF(settings); i++) {
        size_t length = strlen(settings[i].name);
        if (strncmp(word, settings[i].name, length) == 0) {
            settings[i].set((int)strtol(word + length, NULL, 10));
            return true;
        }
    }
    int64_t ns = check_ns(word, &rest);
    bool is_time = rest > word && *rest == '\0';
    fake.advance(is_time ? ns : 0);
    return is_time;
}

/* A word `NAME=number` that checks the clock (now), the references to a device's context (refs1), the current device (current),
 * the thread's capture mode (mode), events that are not destroyed (events), or how often a function was called. */
static inline void check_driver(const char *word)
{
    char name[64];
    long long number = 0;
    check_case = word;
    /* NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion) */
    CHECK(sscanf(word, "%63[^=]=%lld", name, &number) == 2);
    CHECK_EQUAL(strcmp(name, "now") == 0        ? fake.now()
                : strncmp(name, "refs", 4) == 0 ? fake.references(name[4] - '0')
                : strcmp(name, "current") == 0  ? fake.current_device()
                : strcmp(name, "mode") == 0     ? fake.capture_mode()
                : strcmp(name, "events") == 0   ? fake.open_events()
                                                : (int64_t)fake.calls(name),
                number);
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

#endif
