/* Profile: printing and checking. */
#include "ir/profile.h"

#include <string.h>

#include "ir/check.h"
#include "ir/quantity.h"

const char *overlap_name(OverlapKind k)
{
    static const char *const name[] = {
#define X(name) #name,
        OVERLAP_LIST(X)
#undef X
    };
    return name[k];
}

double profile_stall(const Profile *p, uint32_t ndevices)
{
    return ndevices > p->stall_above ? p->stall : 0;
}

const Keep *profile_keep(const Profile *p, OpKind op)
{
    for (uint32_t i = 0; i < p->nkeep; i++)
        if (p->keep[i].op == op)
            return &p->keep[i];
    return NULL;
}

/* ---- printing, in the layout of `pplan fmt` ---- */

static int key_width(const Profile *p)
{
    size_t w = strlen("overlap.collective");
    for (uint32_t i = 0; i < p->nkeep; i++) {
        size_t n = strlen("keeps.") + strlen(op_info[p->keep[i].op].name);
        w = n > w ? n : w;
    }
    return (int)w;
}

static void put_real(FILE *f, int width, const char *key, double value)
{
    fprintf(f, "  %-*s = ", width, key);
    real_print(f, value);
    fputc('\n', f);
}

static void put_seconds(FILE *f, int width, const char *key, double value)
{
    fprintf(f, "  %-*s = ", width, key);
    quantity_put(f, value, QUANTITY_SECONDS);
    fputc('\n', f);
}

void profile_print(FILE *f, const Profile *p)
{
    int w = key_width(p);
    char key[64];
    fprintf(f, "profile %s", p->name);
    if (p->doc)
        fprintf(f, " \"%s\"", p->doc);
    fputs(" {\n", f);
    for (int k = 0; k < OVERLAPS; k++) {
        snprintf(key, sizeof key, "overlap.%s", overlap_name((OverlapKind)k));
        fprintf(f, "  %-*s = %s\n", w, key, p->overlap[k] ? "true" : "false");
    }
    fprintf(f, "  %-*s = %s\n", w, "fuses.sums", p->fuses_sums ? "true" : "false");
    fprintf(f, "  %-*s = %s\n", w, "holds.gradients", p->holds_gradients ? "true" : "false");
    fprintf(f, "  %-*s = %s\n", w, "converts.gradients", p->converts_gradients ? "true" : "false");
    fprintf(f, "  %-*s = %s\n", w, "packs", p->packs ? "true" : "false");
    put_real(f, w, "slowdown.compute", p->slow_compute);
    put_real(f, w, "slowdown.link", p->slow_link);
    put_real(f, w, "slowdown.matmul", p->slow_matmul);
    put_real(f, w, "slowdown.attention", p->slow_attention);
    put_real(f, w, "slowdown.memory", p->slow_memory);
    put_seconds(f, w, "step", p->step);
    put_seconds(f, w, "issue", p->issue);
    put_seconds(f, w, "issue.rank", p->issue_rank);
    put_seconds(f, w, "message", p->message);
    put_seconds(f, w, "stall", p->stall);
    fprintf(f, "  %-*s = %lld\n", w, "stall.above", (long long)p->stall_above);
    for (uint32_t i = 0; i < p->nkeep; i++) {
        snprintf(key, sizeof key, "keeps.%s", op_info[p->keep[i].op].name);
        put_real(f, w, key, p->keep[i].part);
    }
    put_real(f, w, "late.gathers", p->late_gathers);
    fprintf(f, "  %-*s = %lld\n", w, "late.within", (long long)p->late_within);
    put_real(f, w, "pad", p->pad);
    fprintf(f, "  %-*s = ", w, "reserve");
    quantity_put(f, (double)p->reserve, QUANTITY_BYTES);
    fputs("\n}\n", f);
}

/* ---- checking ---- */

int profile_check(const Profile *p, FILE *err)
{
    Checker k = {err, "profile", 0};
    if (!p->name || !(p->slow_compute >= 1) || !(p->slow_link >= 1) || !(p->pad >= 1))
        broken(&k, "'%s' slows compute by %g and links by %g, and pads by %g", p->name ? p->name : "", p->slow_compute, p->slow_link, p->pad);
    if (!(p->slow_matmul >= 1) || !(p->slow_attention >= 1) || !(p->slow_memory >= 1))
        broken(&k, "'%s' slows matmuls by %g, attention by %g and ops bound by memory by %g", p->name, p->slow_matmul, p->slow_attention, p->slow_memory);
    if (!(p->step >= 0) || !(p->issue >= 0) || !(p->issue_rank >= 0) || !(p->message >= 0) || p->reserve < 0)
        broken(&k, "'%s' adds %g s to a step, %g s to an instruction and %g s to a message, and reserves %lld bytes", p->name, p->step, p->issue,
               p->message, (long long)p->reserve);
    if (!(p->stall >= 0) || p->stall_above < 0)
        broken(&k, "'%s' stalls for %g s above %lld devices", p->name, p->stall, (long long)p->stall_above);
    if (!(p->late_gathers >= 0) || p->late_within < 0)
        broken(&k, "'%s' frees %g of what it gathers in groups of %lld late", p->name, p->late_gathers, (long long)p->late_within);
    for (uint32_t i = 0; i < p->nkeep; i++)
        if (p->keep[i].op >= OP_KINDS || !(p->keep[i].part >= 0) || (i && p->keep[i].op <= p->keep[i - 1].op))
            broken(&k, "'%s': what it keeps (%u) is of no op, below 0, or out of order", p->name, i);
    return k.broken;
}
