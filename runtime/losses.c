/* Losses: the parts of a loss that is a sum of several, from the ranks that have them. */
#include <math.h>
#include <string.h>

#include "runtime/ranks.h"

static int64_t bits_of(double x)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double from_bits(int64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Who has a loss says its bits: ranks that have the same one say the same, and the largest is anybody's. */
Status losses_read(const Rank *r, double *of)
{
    const Program *p = r->program;
    int64_t said[MOST_AGREED];
    for (uint32_t first = 0, n; first < p->nterm; first += n) {
        n = p->nterm - first < MOST_AGREED ? p->nterm - first : MOST_AGREED;
        for (uint32_t k = 0; k < n; k++) {
            TensorId t = p->term[first + k].tensor;
            said[k] = has_tensor(t) ? bits_of(rank_scalar(r, t)) : INT64_MIN;
        }
        TRY(rank_agree(r, said, (int)n, REDUCE_MAX));
        for (uint32_t k = 0; k < n; k++)
            of[first + k] = from_bits(said[k]);
    }
    return OK;
}

const char *loss_text(OneLossText *out, double loss)
{
    snprintf(out->text, sizeof out->text, fabs(loss) < 1e6 ? "%.4f" : "%.4e", plain(loss));
    return out->text;
}

const char *losses_text(LossText *out, const LossParts *l)
{
    char *at = out->text, *end = at + sizeof out->text - 8;
    *at = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        OneLossText one;
        int n = snprintf(at, (size_t)(end - at), "%s%s %s", i ? ", " : " (", l->of[i].name, loss_text(&one, l->value[i]));
        if (n < 0 || n >= end - at) {
            strcpy(at, i ? ", .." : " (..");
            i = l->n;
        }
        at += strlen(at);
    }
    if (l->n > 0)
        strcpy(at, ")");
    return out->text;
}
