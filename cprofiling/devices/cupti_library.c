#define _GNU_SOURCE
#include "cprofiling/devices/cupti_library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#define ANY_NAME "libcupti.so"
#define CXX_LIBRARY "libstdc++.so.6"

enum { PATH_SIZE = 4096 };

static const char *const names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", ANY_NAME};
enum { NAMES = sizeof names / sizeof names[0] };

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define FUNCTION(field, name, arguments) {#name, offsetof(cprof_cupti_library, field)},
    CPROF_CUPTI_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

/* A library of any of the names, with these flags: by its name alone, or in a folder. */
static void *open_in(const char *folder, int flags)
{
    char path[PATH_SIZE];
    void *found = NULL;
    for (size_t i = 0; i < NAMES && found == NULL; i++) {
        int length = snprintf(path, sizeof path, "%s%s%s", folder, folder[0] != '\0' ? "/" : "", names[i]);
        if (length < PATH_SIZE) {
            found = dlopen(path, RTLD_NOW | RTLD_LOCAL | flags);
        }
    }
    return found;
}

typedef struct {
    char path[PATH_SIZE];
} mapped;

static int look_at_mapped(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    mapped *found = context;
    const char *slash = info->dlpi_name != NULL ? strrchr(info->dlpi_name, '/') : NULL;
    if (slash == NULL || strncmp(slash + 1, ANY_NAME, sizeof ANY_NAME - 1) != 0) {
        return 0;
    }
    (void)snprintf(found->path, sizeof found->path, "%s", info->dlpi_name);
    return 1;
}

/* The library in the process, also under an unknown name. *is_there: it has one. */
static void *find_loaded(bool *is_there)
{
    mapped found;
    void *library = open_in("", RTLD_NOLOAD);
    *is_there = library != NULL || dl_iterate_phdr(look_at_mapped, &found) != 0;
    return library != NULL || !*is_there ? library : dlopen(found.path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
}

static void *find_in_home(const char *home)
{
    static const char *const below[] = {"extras/CUPTI/lib64", "lib64"};
    char folder[PATH_SIZE];
    void *found = NULL;
    for (size_t i = 0; i < sizeof below / sizeof below[0] && found == NULL; i++) {
        if (snprintf(folder, sizeof folder, "%s/%s", home, below[i]) < PATH_SIZE) {
            found = open_in(folder, 0);
        }
    }
    return found;
}

static void *find_installed(const cprof_cupti_places *places)
{
    void *found = NULL;
    const char *folder = places->folders;
    while (folder != NULL && folder[0] != '\0' && found == NULL) {
        found = open_in(folder, 0);
        folder += strlen(folder) + 1;
    }
    if (found == NULL && places->home != NULL) {
        found = find_in_home(places->home);
    }
    return found != NULL ? found : open_in("", 0);
}

static void *find(const cprof_cupti_places *places, const char **reason)
{
    bool is_there;
    void *found;
    if (places->path != NULL) {
        *reason = "the library in CPROFILING_LIBCUPTI cannot be loaded";
        return dlopen(places->path, RTLD_NOW | RTLD_LOCAL);
    }
    found = find_loaded(&is_there);
    *reason = is_there ? "the libcupti that is loaded cannot be opened" : "no libcupti is installed where it is looked for";
    return is_there ? found : find_installed(places);
}

bool cprof_cupti_library_find(const cprof_cupti_places *places, cprof_cupti_library *library, char *reason, size_t size)
{
    const char *fault;
    void *handle = find(places, &fault);
    if (handle == NULL) {
        (void)snprintf(reason, size, "%s", fault);
        return false;
    }
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *address = dlsym(handle, functions[i].name);
        if (address == NULL) {
            (void)snprintf(reason, size, "the libcupti that was found lacks %s", functions[i].name);
            return false;
        }
        memcpy((char *)library + functions[i].offset, (const void *)&address, sizeof address);
    }
    return true;
}

const char *cprof_cupti_library_path(const cprof_cupti_library *library)
{
    Dl_info info;
    void *address;
    memcpy((void *)&address, (const void *)&library->get_version, sizeof address);
    return dladdr(address, &info) != 0 ? info.dli_fname : NULL;
}

char *(*cprof_cupti_library_demangler(void))(const char *name, char *buffer, size_t *length, int *status)
{
    char *(*function)(const char *name, char *buffer, size_t *length, int *status) = NULL;
    void *library = dlopen(CXX_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    void *address = library != NULL ? dlsym(library, "__cxa_demangle") : NULL;
    memcpy((void *)&function, (const void *)&address, sizeof address);
    return function;
}

const char *cprof_cupti_library_result(const cprof_cupti_library *library, cprof_cupti_result result)
{
    const char *text = NULL;
    if (library->get_result_string(result, &text) != CPROF_CUPTI_SUCCESS || text == NULL) {
        return "CUPTI error";
    }
    return text;
}
