#include "cprofiling/devices/nvtx.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/base/lock.h"

#if __has_include(<nvtx3/nvToolsExt.h>)

#include <nvtx3/nvToolsExt.h>
#include <stdatomic.h>
#include <sys/auxv.h>

#define DOMAIN_NAME "cprofiling"

enum {
    STATE_UNASKED,
    STATE_ASKING,
    STATE_SILENT, /* from here on final */
    STATE_HEARD,  /* `domain` may be used, and never changes again */
};

static struct {
    _Atomic int state;
    cprof_lock lock; /* held while NVTX looks for a tool, and that starts */
    nvtxDomainHandle_t domain;
} nvtx;

/* A child that was forked while another thread asked must not ask: NVTX would wait for that thread. In a set-user-ID program
 * the environment says nothing about tools. */
static int ask_lock_held(void)
{
    if (atomic_load_explicit(&nvtx.state, memory_order_relaxed) == STATE_ASKING) {
        return STATE_SILENT;
    }
    atomic_store_explicit(&nvtx.state, STATE_ASKING, memory_order_relaxed);
    nvtx.domain = getauxval(AT_SECURE) == 0 ? nvtxDomainCreateA(DOMAIN_NAME) : NULL;
    return nvtx.domain != NULL ? STATE_HEARD : STATE_SILENT;
}

static int present_state(void)
{
    int state = atomic_load_explicit(&nvtx.state, memory_order_acquire);
    if (state >= STATE_SILENT) {
        return state;
    }
    cprof_lock_acquire(&nvtx.lock);
    state = atomic_load_explicit(&nvtx.state, memory_order_relaxed);
    if (state < STATE_SILENT) {
        state = ask_lock_held();
        atomic_store_explicit(&nvtx.state, state, memory_order_release);
    }
    cprof_lock_release(&nvtx.lock);
    return state;
}

bool cprof_nvtx_is_heard(void)
{
    return present_state() == STATE_HEARD;
}

void *cprof_nvtx_register(cprof_name name)
{
    char *text = cprof_nvtx_is_heard() ? cprof_alloc_zeroed(name.length + 1) : NULL;
    if (text == NULL) {
        return NULL;
    }
    memcpy(text, name.bytes, name.length);
    nvtxStringHandle_t message = nvtxDomainRegisterStringA(nvtx.domain, text);
    cprof_alloc_release(text);
    return message;
}

void cprof_nvtx_push(void *message, uint64_t payload)
{
    if (!cprof_nvtx_is_heard()) {
        return;
    }
    nvtxEventAttributes_t attributes = {
        .version = NVTX_VERSION,
        .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
        .payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
        .payload.ullValue = payload,
        .messageType = message != NULL ? NVTX_MESSAGE_TYPE_REGISTERED : NVTX_MESSAGE_UNKNOWN,
        .message.registered = message,
    };
    (void)nvtxDomainRangePushEx(nvtx.domain, &attributes);
}

void cprof_nvtx_pop(void)
{
    if (cprof_nvtx_is_heard()) {
        (void)nvtxDomainRangePop(nvtx.domain);
    }
}

const char *cprof_nvtx_reason(void)
{
    return NULL;
}

#else

bool cprof_nvtx_is_heard(void)
{
    return false;
}

void *cprof_nvtx_register(cprof_name name)
{
    (void)name;
    return NULL;
}

void cprof_nvtx_push(void *message, uint64_t payload)
{
    (void)message, (void)payload;
}

void cprof_nvtx_pop(void)
{
    /* Nothing was pushed. */
}

const char *cprof_nvtx_reason(void)
{
    return "built without NVTX's headers";
}

#endif
