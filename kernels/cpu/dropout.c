/* Dropout: which elements are kept follows from their index in the whole tensor. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/random.h"
#include "kernels/ref/ref.h"

enum { PIECE = 1024 };

typedef struct Job {
    const KCall *c;
    Reals        x, y;
    RandomKey    random;
    uint32_t     threshold;
    float        by;                  /* 1 / (1 - p) */
    int64_t      rows, d;
} Job;

/* Elements [at, at + n) of a row whose first element has global index `first`. */
static void drop_piece(const Job *j, int64_t row, int64_t first, int64_t at, int64_t n)
{
    uint32_t room[RANDOM_ROOM(PIECE) + LANES];
    const uint32_t *word = random_words(&j->random, first + at, n, room);
    Reals x = reals_from(j->x, row * j->d + at), y = reals_from(j->y, row * j->d + at);
    const Vec by = vec_all(j->by);
    for (int64_t i = 0; i < n; i += LANES) {
        Vec kept = lanes_take(x, i, n) * by;
        lanes_give(y, i, random_keep(word + i, j->threshold, kept), n);
    }
}

static void drop_some(void *ctx, int worker, int nworker)
{
    const Job *j = ctx;
    int64_t pieces = (j->d + PIECE - 1) / PIECE, first, end;
    team_part(j->rows * pieces, 1, worker, nworker, &first, &end);
    for (int64_t i = first; i < end; i++) {
        int64_t row = i / pieces, at = i % pieces * PIECE;
        int64_t n = j->d - at < PIECE ? j->d - at : PIECE;
        drop_piece(j, row, place_row(j->c->outt[0], row, j->c->step->micro), at, n);
    }
}

CPU_REALS(dropout)
{
    double p = attr_real(c, "p");
    uint64_t threshold = dropout_threshold(p);
    if (threshold > UINT32_MAX) {
        ref_dropout(c);
        return;
    }
    int64_t d = row_length(c->outt[0]);
    Job j = {c, ARG(0), OUT(0), {c->step->seed, (uint64_t)c->step->step, fnv1a(c->in->key)}, (uint32_t)threshold, (float)(1 / (1 - p)),
             d ? tensor_elements(c->outt[0]) / d : 0, d};
    team_run(c->team, drop_some, &j);
}
