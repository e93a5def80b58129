#include "cprofiling/files/live_gone.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/files/live.h"

enum { BATCH = 256 }; /* so many are merged at the latest */

static void unlink_sibling(struct cprof_live_left *left)
{
    struct cprof_live_left **at = &left->registry->left;
    while (*at != left) {
        at = &(*at)->sibling;
    }
    *at = left->sibling;
    left->registry = NULL;
}

static void change(cprof_live_gone *gone)
{
    cprof_snapshot_destroy(gone->shown);
    gone->shown = NULL;
}

/* Whose statistics are merged is told for so many; then they are the file's, or lists of sources would grow for ever. So would
 * keys; without memory for less of them, there are more until the next time. */
static void bound_merged(cprof_live_gone *gone)
{
    (void)cprof_snapshot_bound(gone->merged, CPROF_REGISTRY_MAX_KEYS, CPROF_REGISTRY_MAX_OVERFLOW_STAGES, &gone->folded);
    if (gone->merged->source_count > CPROF_LIVE_SOURCES) {
        gone->merged->sources[0] = gone->id;
        gone->merged->source_count = 1;
    }
}

static void release(struct cprof_live_left *left)
{
    cprof_snapshot_destroy(left->snapshot);
    cprof_alloc_release(left);
}

/* Takes the settled ones out of the list, and gives them back. */
static void release_settled(cprof_live_gone *gone)
{
    struct cprof_live_left **at = &gone->left;
    while (*at != NULL) {
        struct cprof_live_left *left = *at;
        if (left->registry == NULL) {
            *at = left->next;
            release(left);
        } else {
            at = &left->next;
        }
    }
    gone->settled = 0;
}

/* Merges `first`, which may be NULL, with those left that may return, or with the others. */
static cprof_status merge(const cprof_live_gone *gone, const cprof_snapshot *first, bool may_return, cprof_snapshot **merged)
{
    size_t most = 1 + (may_return ? gone->may_return : gone->settled);
    const cprof_snapshot **all = cprof_alloc_zeroed(most * sizeof *all);
    if (all == NULL) {
        return CPROF_NO_MEMORY;
    }
    size_t count = 0;
    if (first != NULL) {
        all[count++] = first;
    }
    for (const struct cprof_live_left *left = gone->left; left != NULL; left = left->next) {
        if ((left->registry != NULL) == may_return) {
            all[count++] = left->snapshot;
        }
    }
    cprof_snapshot_clash clash;
    cprof_status status = cprof_snapshot_merge(all, count, merged, &clash);
    cprof_alloc_release(all);
    return status;
}

/* Without memory they wait. */
static cprof_status merge_settled(cprof_live_gone *gone)
{
    cprof_snapshot *merged;
    cprof_status status = gone->settled > 0 ? merge(gone, gone->merged, false, &merged) : CPROF_OK;
    if (gone->settled == 0 || status == CPROF_NO_MEMORY) {
        return status;
    }
    change(gone);
    if (status == CPROF_OK) {
        cprof_snapshot_destroy(gone->merged);
        gone->merged = merged;
        bound_merged(gone);
    } else { /* nor would they fit the next time */
        gone->lost += gone->settled;
    }
    release_settled(gone);
    return CPROF_OK;
}

static void bound_settled(cprof_live_gone *gone)
{
    if (gone->settled >= BATCH) {
        (void)merge_settled(gone);
    }
}

void cprof_live_gone_keep(cprof_live_gone *gone, struct cprof_live *live, cprof_registry *registry, cprof_snapshot *snapshot)
{
    struct cprof_live_left *left = cprof_alloc_zeroed(sizeof *left);
    if (left == NULL) {
        gone->lost++;
        cprof_snapshot_destroy(snapshot);
        return;
    }
    *left = (struct cprof_live_left){
        .live = live, .registry = registry, .sibling = registry->left, .next = gone->left, .snapshot = snapshot};
    registry->left = gone->left = left;
    gone->may_return++;
    change(gone);
}

void cprof_live_gone_settle(cprof_live_gone *gone, struct cprof_live_left *left)
{
    unlink_sibling(left);
    gone->may_return--;
    gone->settled++;
    change(gone);
    bound_settled(gone);
}

static void drop(cprof_live_gone *gone, struct cprof_live_left *left)
{
    struct cprof_live_left **at = &gone->left;
    while (*at != left) {
        at = &(*at)->next;
    }
    *at = left->next;
    unlink_sibling(left);
    release(left);
    gone->may_return--;
    change(gone);
}

/* At most one is of a registry that may return. */
void cprof_live_gone_return(cprof_live_gone *gone, cprof_registry *registry)
{
    struct cprof_live_left *left = gone->left;
    while (left != NULL && left->registry != registry) {
        left = left->next;
    }
    if (left == NULL) {
        return;
    }
    uint64_t generation = cprof_registry_state(registry) >> CPROF_STATE_GENERATION_SHIFT;
    if (left->snapshot->sources[0].generation == generation) {
        drop(gone, left);
    } else {
        cprof_live_gone_settle(gone, left);
    }
}

cprof_status cprof_live_gone_show(cprof_live_gone *gone, const cprof_snapshot **shown)
{
    cprof_status status = merge_settled(gone);
    if (status == CPROF_OK && gone->may_return > 0 && gone->shown == NULL) {
        status = merge(gone, gone->merged, true, &gone->shown);
    }
    *shown = gone->shown != NULL ? gone->shown : gone->merged;
    return status;
}

void cprof_live_gone_dispose(cprof_live_gone *gone)
{
    for (struct cprof_live_left *left = gone->left; left != NULL;) {
        struct cprof_live_left *next = left->next;
        if (left->registry != NULL) {
            unlink_sibling(left);
        }
        release(left);
        left = next;
    }
    cprof_snapshot_destroy(gone->merged);
    cprof_snapshot_destroy(gone->shown);
}
