#include "cprofiling/nodes/epoch.h"

#define ONE_GENERATION (UINT64_C(1) << CPROF_STATE_GENERATION_SHIFT)

void cprof_epoch_begin(cprof_epoch *epoch)
{
    atomic_store(&epoch->state, ONE_GENERATION);
}

static void renew_state_lock_held(cprof_epoch *epoch, bool new_generation)
{
    uint64_t generation = cprof_epoch_state(epoch) & ~(uint64_t)CPROF_FLAG_ALL;
    unsigned flags = epoch->configured_flags | epoch->added_flags;
    atomic_store(&epoch->state, (new_generation ? generation + ONE_GENERATION : generation) | flags);
}

void cprof_epoch_configure(cprof_epoch *epoch, unsigned flags, uint64_t skip_first_n, bool reset)
{
    bool wants_p2 = (flags & CPROF_FLAG_P2) != 0;
    flags &= ~(unsigned)CPROF_FLAG_P2;
    cprof_lock_acquire(&epoch->lock);
    bool lacks_p2 = wants_p2 && !atomic_load(&epoch->has_p2);
    bool discard = reset || (flags != 0 && (epoch->skip_first_n != skip_first_n || lacks_p2));
    if (discard) {
        epoch->skip_first_n = skip_first_n;
        atomic_store(&epoch->has_p2, wants_p2);
    } else if (flags != 0 && !wants_p2) {
        atomic_store(&epoch->has_p2, false);
    }
    epoch->configured_flags = flags;
    renew_state_lock_held(epoch, discard);
    cprof_lock_release(&epoch->lock);
}

void cprof_epoch_set_added(cprof_epoch *epoch, unsigned flags)
{
    cprof_lock_acquire(&epoch->lock);
    epoch->added_flags = flags;
    renew_state_lock_held(epoch, false);
    cprof_lock_release(&epoch->lock);
}

void cprof_epoch_reset(cprof_epoch *epoch)
{
    cprof_lock_acquire(&epoch->lock);
    renew_state_lock_held(epoch, true);
    cprof_lock_release(&epoch->lock);
}

void cprof_epoch_restart_lock_held(cprof_epoch *epoch, bool new_generation)
{
    epoch->added_flags = 0;
    renew_state_lock_held(epoch, new_generation);
}

bool cprof_epoch_present_before(cprof_epoch *epoch, int64_t deadline_ns, cprof_generation *now)
{
    if (!cprof_lock_acquire_before(&epoch->lock, deadline_ns)) {
        return false;
    }
    *now = (cprof_generation){
        .generation = cprof_epoch_state(epoch) >> CPROF_STATE_GENERATION_SHIFT,
        .skip_first_n = epoch->skip_first_n,
        .has_p2 = atomic_load(&epoch->has_p2),
    };
    cprof_lock_release(&epoch->lock);
    return true;
}

cprof_generation cprof_epoch_present(cprof_epoch *epoch)
{
    cprof_generation now;
    (void)cprof_epoch_present_before(epoch, INT64_MAX, &now);
    return now;
}
