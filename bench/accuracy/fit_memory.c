/* fit_memory: two figures of a profile, found on a grid. */
#include "bench/accuracy/fit_memory.h"

#include <math.h>
#include <string.h>

static const double PADS = 0.01, RESERVES = 0.1e9;   /* the grid's steps */
enum { PAD_STEPS = 60, RESERVE_STEPS = 100, TURNS = 3 };

typedef struct Memory { Fit *f; Profile *profile; } Memory;

static bool concerns(const Memory *m, uint32_t i)
{
    return m->f->in[i] && m->f->cases[i]->row->peak_gib > 0 && strcmp(m->f->cases[i]->loaded.profile->name, m->profile->name) == 0;
}

/* The sum of errors with a pad and a reserve. */
static double errors(const Memory *m, double pad, int64_t reserve)
{
    double sum = 0;
    for (uint32_t i = 0; i < m->f->n; i++) {
        if (!concerns(m, i))
            continue;
        Profile *p = m->f->cases[i]->loaded.profile;
        p->pad = pad;
        p->reserve = reserve;
        double gib = (double)case_measured_bytes(m->f->cases[i]) / (1 << 30);
        sum += fabs(gib / m->f->cases[i]->row->peak_gib - 1);
    }
    return sum;
}

static void search_memory(const Memory *m, double *pad, int64_t *reserve)
{
    double least = errors(m, *pad, *reserve);
    for (int t = 0; t < TURNS; t++) {
        for (int k = 0; k <= PAD_STEPS; k++) {
            double now = errors(m, 1 + PADS * k, *reserve);
            *pad = now < least ? 1 + PADS * k : *pad;
            least = now < least ? now : least;
        }
        for (int k = 0; k <= RESERVE_STEPS; k++) {
            double now = errors(m, *pad, (int64_t)(RESERVES * k));
            *reserve = now < least ? (int64_t)(RESERVES * k) : *reserve;
            least = now < least ? now : least;
        }
    }
    errors(m, *pad, *reserve);
}

void fit_memory(Fit *f)
{
    for (uint32_t i = 0; i < f->n; i++) {
        Memory m = {f, f->cases[i]->loaded.profile};
        bool before = false, any = false;
        for (uint32_t k = 0; k < f->n; k++) {
            before |= k < i && strcmp(f->cases[k]->loaded.profile->name, m.profile->name) == 0;
            any |= concerns(&m, k);
        }
        double pad = 1;
        int64_t reserve = 0;
        if (!before && any) {
            search_memory(&m, &pad, &reserve);
            printf("%-14s pad %.2f (1 to 1.6), reserve %.1f GB (0 to 10)\n", m.profile->name, pad, (double)reserve * 1e-9);
        }
    }
}
