/* Where CUPTI is looked for, against a loader that is a fake. */
#define _GNU_SOURCE
#include "cprofiling/devices/cupti_library.h"

#include "tests/core/check.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

enum { MOST = 64, PATH = 128 };

/* What the fake loader has been asked, and what it has. */
static char asked[MOST][PATH];
static int flags[MOST];
static int asked_count;
static const char *loaded;    /* found also without loading */
static const char *installed; /* found by loading */
static const char *mapped[3]; /* of the process's objects */
static const char *missing;   /* a function */
static bool has_info;
static int handle;

WRAP(void *, dlopen, const char *path, int how)
{
    CHECK(asked_count < MOST);
    (void)snprintf(asked[asked_count], PATH, "%s", path);
    flags[asked_count++] = how;
    bool is_there = (loaded != NULL && strcmp(path, loaded) == 0) ||
                    (installed != NULL && strcmp(path, installed) == 0 && (how & RTLD_NOLOAD) == 0);
    return is_there ? &handle : NULL;
}

static cprof_cupti_result answer(cprof_cupti_result result, const char **text)
{
    *text = result == 1 ? "CUPTI_ERROR_INVALID_PARAMETER" : NULL;
    return result == 2 ? 999 : 0;
}

WRAP(void *, dlsym, void *library, const char *name)
{
    void *address;
    cprof_cupti_result (*function)(cprof_cupti_result result, const char **text) = answer;
    CHECK(library == &handle);
    memcpy((void *)&address, (const void *)&function, sizeof address);
    return missing != NULL && strcmp(name, missing) == 0 ? NULL : address;
}

WRAP(int, dladdr, const void *address, Dl_info *info)
{
    CHECK(address != NULL);
    info->dli_fname = "/where/libcupti.so.13";
    return has_info;
}

WRAP(int, dl_iterate_phdr, int (*visitor)(struct dl_phdr_info *info, size_t size, void *context), void *context)
{
    int found = 0;
    for (size_t i = 0; i < COUNT_OF(mapped) && found == 0; i++) {
        struct dl_phdr_info info = {.dlpi_name = mapped[i]};
        found = visitor(&info, sizeof info, context);
    }
    return found;
}

static bool find(const cprof_cupti_places *places, const char *expected_reason)
{
    char reason[100] = "";
    cprof_cupti_library library;
    asked_count = 0;
    bool is_found = cprof_cupti_library_find(places, &library, reason, sizeof reason);
    CHECK(strcmp(reason, expected_reason) == 0);
    return is_found;
}

static void begin(void)
{
    loaded = installed = missing = NULL;
    mapped[0] = "";
    mapped[1] = NULL;
    mapped[2] = "/lib/libc.so.6";
}

static const cprof_cupti_places everywhere = {.folders = "/site/a\0/site/b\0", .home = "/cuda"};

TEST(the_places_come_in_their_order)
{
    static const char *const expected[] = {
        "libcupti.so.13",
        "libcupti.so.12",
        "libcupti.so.11.8",
        "libcupti.so",
        "/site/a/libcupti.so.13",
        "/site/a/libcupti.so.12",
        "/site/a/libcupti.so.11.8",
        "/site/a/libcupti.so",
        "/site/b/libcupti.so.13",
        "/site/b/libcupti.so.12",
        "/site/b/libcupti.so.11.8",
        "/site/b/libcupti.so",
        "/cuda/extras/CUPTI/lib64/libcupti.so.13",
        "/cuda/extras/CUPTI/lib64/libcupti.so.12",
        "/cuda/extras/CUPTI/lib64/libcupti.so.11.8",
        "/cuda/extras/CUPTI/lib64/libcupti.so",
        "/cuda/lib64/libcupti.so.13",
        "/cuda/lib64/libcupti.so.12",
        "/cuda/lib64/libcupti.so.11.8",
        "/cuda/lib64/libcupti.so",
        "libcupti.so.13",
        "libcupti.so.12",
        "libcupti.so.11.8",
        "libcupti.so",
    };
    CHECK(!find(&everywhere, "no libcupti is installed where it is looked for"));
    CHECK_EQUAL(asked_count, COUNT_OF(expected));
    for (int i = 0; i < asked_count; i++) {
        CHECK(strcmp(asked[i], expected[i]) == 0);
        CHECK(((flags[i] & RTLD_NOLOAD) != 0) == (i < 4));
        CHECK((flags[i] & RTLD_GLOBAL) == 0);
    }
}

TEST(each_place_will_do)
{
    static const char *const paths[] = {"/site/a/libcupti.so.12", "/site/b/libcupti.so",
                                        "/cuda/extras/CUPTI/lib64/libcupti.so.13", "/cuda/lib64/libcupti.so.12",
                                        "libcupti.so.12"};
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        begin();
        installed = paths[i];
        CHECK(find(&everywhere, ""));
        CHECK(strcmp(asked[asked_count - 1], paths[i]) == 0);
    }
    begin();
    installed = "libcupti.so";
    CHECK(find(&(cprof_cupti_places){.path = NULL}, ""));
    CHECK_EQUAL(asked_count, 8);
}

TEST(no_second_one_is_loaded)
{
    begin();
    loaded = "libcupti.so.12";
    installed = "/site/a/libcupti.so.13";
    CHECK(find(&everywhere, ""));
    CHECK_EQUAL(asked_count, 2);
    begin();
    installed = "/site/a/libcupti.so.13";
    mapped[2] = loaded = "/elsewhere/libcupti.so.2025.1.1";
    CHECK(find(&everywhere, ""));
    CHECK_EQUAL(asked_count, 5);
    CHECK((flags[4] & RTLD_NOLOAD) != 0);
    loaded = NULL; /* which is there, but cannot be had */
    CHECK(!find(&everywhere, "the libcupti that is loaded cannot be opened"));
    CHECK_EQUAL(asked_count, 5);
}

TEST(one_that_is_named_is_the_only_one)
{
    installed = "libcupti.so.13";
    CHECK(!find(&(cprof_cupti_places){.path = "/mine.so"}, "the library in CPROFILING_LIBCUPTI cannot be loaded"));
    installed = "/mine.so";
    CHECK(find(&(cprof_cupti_places){.path = "/mine.so"}, ""));
    CHECK_EQUAL(asked_count, 1);
}

TEST(all_functions_are_needed)
{
    static const char *const names[] = {
#define NAME(field, name, arguments) #name,
        CPROF_CUPTI_FUNCTIONS(NAME)
#undef NAME
    };
    installed = "/mine.so";
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char expected[100];
        missing = names[i];
        (void)snprintf(expected, sizeof expected, "the libcupti that was found lacks %s", missing);
        CHECK(!find(&(cprof_cupti_places){.path = "/mine.so"}, expected));
    }
}

/* Such a folder cannot be there. */
TEST(paths_that_are_too_long_are_passed_over)
{
    static char folders[5002];
    static char home[5001];
    memset(folders, 'x', 5000);
    memset(home, 'x', 5000);
    CHECK(!find(&(cprof_cupti_places){.folders = folders, .home = home}, "no libcupti is installed where it is looked for"));
    CHECK_EQUAL(asked_count, 8);
    home[4085] = '\0'; /* long enough for what is below it to be too long */
    CHECK(!find(&(cprof_cupti_places){.home = home}, "no libcupti is installed where it is looked for"));
    CHECK_EQUAL(asked_count, 8);
}

TEST(what_it_says_of_itself)
{
    char reason[100];
    cprof_cupti_library library;
    installed = "/mine.so";
    CHECK(cprof_cupti_library_find(&(cprof_cupti_places){.path = "/mine.so"}, &library, reason, sizeof reason));
    has_info = true;
    CHECK(strcmp(cprof_cupti_library_path(&library), "/where/libcupti.so.13") == 0);
    has_info = false;
    CHECK(cprof_cupti_library_path(&library) == NULL);
    CHECK(strcmp(cprof_cupti_library_result(&library, 1), "CUPTI_ERROR_INVALID_PARAMETER") == 0);
    CHECK(strcmp(cprof_cupti_library_result(&library, 2), "CUPTI error") == 0);
    CHECK(strcmp(cprof_cupti_library_result(&library, 3), "CUPTI error") == 0);
}

TEST(names_of_cxx_are_read_where_it_is)
{
    asked_count = 0;
    CHECK(cprof_cupti_library_demangler() == NULL);
    loaded = "libstdc++.so.6";
    CHECK(cprof_cupti_library_demangler() != NULL);
    CHECK((flags[0] & flags[1] & RTLD_NOLOAD) != 0);
    missing = "__cxa_demangle";
    CHECK(cprof_cupti_library_demangler() == NULL);
}

TEST_MAIN(begin, NULL)
