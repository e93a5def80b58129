/* A fake tool for NVTX: see fake_nvtx.h. */
#define _GNU_SOURCE
#include "tests/fakes/fake_nvtx.h"

#include <nvtx3/nvToolsExt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    LOG_CAPACITY = 4096,
    DEEPEST = 64,
    NAMES = 256,
};

/* A handle is the place of a name in its table. */
typedef struct {
    char *names[NAMES];
    int count;
} name_table;

static struct {
    pthread_mutex_t lock;
    char *log[LOG_CAPACITY];
    uint64_t logged;
    uint64_t violations;
    name_table domains;
    name_table strings;
    void (*on_domain)(void);
} tool = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The open ranges of a thread, of whatever domain. */
static _Thread_local struct {
    const char *names[DEEPEST];
    uint64_t depth;
} own;

static void *copied(void *memory)
{
    if (memory == NULL) {
        abort();
    }
    return memory;
}

__attribute__((format(printf, 1, 2))) static void log_lock_held(const char *format, ...)
{
    char *text;
    va_list values;
    va_start(values, format);
    int length = vasprintf(&text, format, values);
    va_end(values);
    if (length < 0 || tool.logged == LOG_CAPACITY) {
        abort();
    }
    tool.log[tool.logged++] = text;
}

static void *add_lock_held(name_table *table, const char *name)
{
    if (table->count == NAMES) {
        abort();
    }
    table->names[table->count] = copied(strdup(name));
    return &table->names[table->count++];
}

static const char *name_lock_held(const name_table *table, const void *handle)
{
    for (int i = 0; i < table->count; i++) {
        if (handle == &table->names[i]) {
            return table->names[i];
        }
    }
    tool.violations++;
    return "?";
}

static nvtxDomainHandle_t NVTX_API domain_create(const char *name)
{
    (void)pthread_mutex_lock(&tool.lock);
    void (*hook)(void) = tool.on_domain;
    tool.on_domain = NULL;
    (void)pthread_mutex_unlock(&tool.lock);
    if (hook != NULL) {
        hook();
    }
    (void)pthread_mutex_lock(&tool.lock);
    log_lock_held("domain %s", name);
    void *handle = add_lock_held(&tool.domains, name);
    (void)pthread_mutex_unlock(&tool.lock);
    return handle;
}

static nvtxStringHandle_t NVTX_API register_string(nvtxDomainHandle_t domain, const char *name)
{
    (void)pthread_mutex_lock(&tool.lock);
    log_lock_held("name %s %s", name_lock_held(&tool.domains, domain), name);
    void *handle = add_lock_held(&tool.strings, name);
    (void)pthread_mutex_unlock(&tool.lock);
    return handle;
}

static bool is_as_asked_for(const nvtxEventAttributes_t *attributes)
{
    return attributes->version == NVTX_VERSION && attributes->size == NVTX_EVENT_ATTRIB_STRUCT_SIZE &&
           attributes->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64 && attributes->category == 0 &&
           attributes->colorType == NVTX_COLOR_UNKNOWN &&
           (attributes->messageType == NVTX_MESSAGE_TYPE_REGISTERED ||
            (attributes->messageType == NVTX_MESSAGE_UNKNOWN && attributes->message.registered == NULL));
}

static int NVTX_API range_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
    (void)pthread_mutex_lock(&tool.lock);
    tool.violations += is_as_asked_for(attributes) ? 0 : 1;
    bool is_named = attributes->messageType == NVTX_MESSAGE_TYPE_REGISTERED;
    const char *name = is_named ? name_lock_held(&tool.strings, attributes->message.registered) : "?";
    log_lock_held("push %s %d %s %" PRIu64, name_lock_held(&tool.domains, domain), gettid(), name,
                  attributes->payload.ullValue);
    (void)pthread_mutex_unlock(&tool.lock);
    if (own.depth == DEEPEST) {
        abort();
    }
    own.names[own.depth++] = name;
    return (int)own.depth - 1;
}

static int NVTX_API range_pop(nvtxDomainHandle_t domain)
{
    const char *name = own.depth > 0 ? own.names[--own.depth] : NULL;
    (void)pthread_mutex_lock(&tool.lock);
    tool.violations += name != NULL ? 0 : 1;
    log_lock_held("pop %s %d %s", name_lock_held(&tool.domains, domain), gettid(), name != NULL ? name : "nothing");
    (void)pthread_mutex_unlock(&tool.lock);
    return (int)own.depth;
}

static void hook(NvtxFunctionTable functions, int index, void *function)
{
    memcpy((void *)functions[index], (const void *)&function, sizeof function);
}

/* What NVTX calls when it has loaded the library. */
EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
    NvtxFunctionTable functions = NULL;
    unsigned count = 0;
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    if (getenv("FAKE_NVTX_REFUSES") != NULL || callbacks == NULL ||
        !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &count) ||
        count <= NVTX_CBID_CORE2_DomainCreateA) {
        return 0;
    }
    if (getenv("FAKE_NVTX_IS_DEAF") == NULL) {
        hook(functions, NVTX_CBID_CORE2_DomainCreateA, (void *)(uintptr_t)domain_create);
        hook(functions, NVTX_CBID_CORE2_DomainRegisterStringA, (void *)(uintptr_t)register_string);
        hook(functions, NVTX_CBID_CORE2_DomainRangePushEx, (void *)(uintptr_t)range_push);
        hook(functions, NVTX_CBID_CORE2_DomainRangePop, (void *)(uintptr_t)range_pop);
    }
    return 1;
}

EXPORT const char *fake_nvtx_log(uint64_t index)
{
    (void)pthread_mutex_lock(&tool.lock);
    const char *text = index < tool.logged ? tool.log[index] : NULL;
    (void)pthread_mutex_unlock(&tool.lock);
    return text;
}

EXPORT uint64_t fake_nvtx_violations(void)
{
    (void)pthread_mutex_lock(&tool.lock);
    uint64_t violations = tool.violations;
    (void)pthread_mutex_unlock(&tool.lock);
    return violations;
}

EXPORT uint64_t fake_nvtx_open(void)
{
    return own.depth;
}

EXPORT void fake_nvtx_on_domain(void (*called)(void))
{
    (void)pthread_mutex_lock(&tool.lock);
    tool.on_domain = called;
    (void)pthread_mutex_unlock(&tool.lock);
}
