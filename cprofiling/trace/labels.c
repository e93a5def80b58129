#include "cprofiling/trace/labels.h"

#include "cprofiling/trace/recording.h"

static const cprof_names overflow = {{"", 0}, {"__overflow__", sizeof "__overflow__" - 1}};

static size_t bytes_of(cprof_names names)
{
    return names.stage.length + names.node.length;
}

static bool has_room(const cprof_labels *labels, cprof_names names)
{
    return labels->names.count < CPROF_RECORDING_MAX_LABELS &&
           labels->bytes + bytes_of(names) <= CPROF_RECORDING_MAX_LABEL_BYTES;
}

static uint32_t number_of(const cprof_labels *labels, cprof_names names)
{
    size_t index = cprof_names_find(&labels->names, names);
    return index != CPROF_NAMES_ABSENT ? (uint32_t)index + 1 : 0;
}

static uint32_t add(cprof_labels *labels, cprof_names names)
{
    if (cprof_names_add(&labels->names, names) != CPROF_OK) {
        return 0;
    }
    labels->bytes += bytes_of(names);
    return (uint32_t)labels->names.count;
}

uint32_t cprof_labels_find(const cprof_labels *labels, cprof_names names)
{
    uint32_t number = number_of(labels, names);
    return number != 0 || has_room(labels, names) ? number : number_of(labels, overflow);
}

uint32_t cprof_labels_make(cprof_labels *labels, cprof_names names)
{
    uint32_t number = cprof_labels_find(labels, names);
    return number != 0 ? number : add(labels, has_room(labels, names) ? names : overflow);
}

uint32_t cprof_labels_make_text(cprof_labels *labels, cprof_name text)
{
    cprof_names names = {{"", 0}, text};
    uint32_t number = number_of(labels, names);
    return number == 0 && has_room(labels, names) ? add(labels, names) : number;
}
