#include "cprofiling/devices/event_delay.h"

static void begin_window(cprof_event_delay *delay, cprof_ns host_ns, cprof_ns offset_ns, cprof_ns previous_offset_ns)
{
    *delay = (cprof_event_delay){
        .is_begun = true,
        .window_ns = host_ns,
        .offset_ns = offset_ns,
        .previous_offset_ns = previous_offset_ns,
    };
}

cprof_ns cprof_event_delay_of(cprof_event_delay *delay, cprof_ns host_ns, cprof_ns device_ns)
{
    cprof_ns offset_ns = host_ns - device_ns;
    cprof_ns age_ns = host_ns - delay->window_ns;
    if (!delay->is_begun || age_ns >= 2 * CPROF_EVENT_DELAY_WINDOW_NS) {
        begin_window(delay, host_ns, offset_ns, offset_ns);
    } else if (age_ns >= CPROF_EVENT_DELAY_WINDOW_NS) {
        begin_window(delay, host_ns, offset_ns, delay->offset_ns);
    } else if (offset_ns > delay->offset_ns) {
        delay->offset_ns = offset_ns;
    }
    cprof_ns best_ns = delay->offset_ns > delay->previous_offset_ns ? delay->offset_ns : delay->previous_offset_ns;
    return best_ns - offset_ns;
}

bool cprof_event_delay_ns_of_ms(float ms, cprof_ns *ns)
{
    double exact = (double)ms * 1e6;           /* 24 bits times 14: nothing is lost */
    const double most = 4611686018427387904.0; /* 2^62 */
    if (!(exact > -most && exact < most)) {
        return false;
    }
    *ns = (cprof_ns)(exact < 0 ? exact - 0.5 : exact + 0.5);
    return true;
}
