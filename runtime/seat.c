/* Seat: the core on which a rank of a crowd begins.
 *
 * The kernel takes ranks that yield or wait for a moment for ranks that work.  So it may
 * leave the ranks of a stage, which work at the same time, on one core while those of another
 * stage wait on the next, and a run stays as it began.  Ranks of a stage follow each other in
 * number: each begins on the core of its number.  Nothing keeps it there, as other programs
 * may need that core. */
#include "runtime/run.h"

void seat_take(Seat *s, uint32_t rank, uint32_t near, int threads)
{
    cpu_set_t one;
    uint32_t cores, at = 0;
    *s = (Seat){.taken = false};
    if (sched_getaffinity(0, sizeof s->before, &s->before) != 0)
        return;
    cores = (uint32_t)CPU_COUNT(&s->before);
    if (threads > 1 || near <= cores)
        return;
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &s->before) && at++ == rank % cores)
            CPU_SET(cpu, &one);
    s->taken = sched_setaffinity(0, sizeof one, &one) == 0;
}

void seat_leave(const Seat *s)
{
    if (s->taken)
        (void)sched_setaffinity(0, sizeof s->before, &s->before);
}
