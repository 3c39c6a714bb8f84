/* mesh: which devices are used, and the sizes of the mesh axes.
 *
 * The sizes are those that the rules allow and whose product is the number of devices
 * used.  Where that leaves one way, nothing is open: `mesh dp = 2, tp = 2` on four
 * devices makes the other axes 1, and on one device every axis is 1. */
#include "planner/rules.h"

#include "base/text.h"

/* ---- devices ---- */

static void name_devices(Arena *a, Diags *ds, const Cluster *cl, const Rule *r, Decisions *d)
{
    bool *named = NEWN(a, bool, cl->ndevices);
    for (uint32_t i = 0; i < r->choice.nvalue; i++) {
        int64_t v = r->choice.value[i];
        if (v >= cl->ndevices) {
            diag_error(ds, r->at, "no device %lld: cluster '%s' has %u device%s, numbered from 0", (long long)v, cl->name, cl->ndevices,
                       cl->ndevices == 1 ? "" : "s");
            return;
        }
        if (named[v]) {
            diag_error(ds, r->at, "device %lld is named twice", (long long)v);
            return;
        }
        named[v] = true;
        PUSH(a, d->devices, d->ndevices, (uint32_t)v);
    }
    if (d->ndevices == 0)
        diag_error(ds, r->at, "no device is named");
}

static Status decide_devices(Arena *a, Diags *ds, const Cluster *cl, Decisions *d)
{
    if (d->devices_rule)
        name_devices(a, ds, cl, d->devices_rule, d);
    for (uint32_t i = 0; !d->devices_rule && i < cl->ndevices; i++)
        PUSH(a, d->devices, d->ndevices, i);
    return diags_status(ds);
}

/* ---- sizes ---- */

typedef struct Sizes { int64_t *value; uint32_t n; } Sizes;       /* ascending */

/* Divisors of the number of devices that the rules allow an axis to have. */
static Sizes allowed(Arena *a, const Rule *r, int64_t devices)
{
    Sizes s = {0};
    for (int64_t v = 1; v <= devices; v++)
        if (devices % v == 0 && (!r || choice_allows(&r->choice, v)))
            PUSH(a, s.value, s.n, v);
    return s;
}

/* Ways to make `devices` of the axes from `axis` on, up to 2.  The first is left in `size`:
 * the one with the most data parallelism, which needs no other rules. */
static int ways(const Sizes *s, int axis, int64_t devices, int64_t size[MESH_AXES])
{
    if (axis == MESH_AXES)
        return devices == 1;
    int n = 0;
    for (uint32_t i = 0; i < s[axis].n && n < 2; i++) {
        int64_t v = s[axis].value[axis == AXIS_dp ? s[axis].n - 1 - i : i], rest[MESH_AXES];
        int more = devices % v == 0 ? ways(s, axis + 1, devices / v, rest) : 0;
        if (more && n == 0) {
            size[axis] = v;
            for (int x = axis + 1; x < MESH_AXES; x++)
                size[x] = rest[x];
        }
        n += more;
    }
    return n;
}

/* "dp = 2, tp = 4" of the sizes that are given, and their product; 0 when one of them
 * is a choice. */
static int64_t given_sizes(Text *t, const Decisions *d)
{
    int64_t product = 1;
    for (int x = 0; x < MESH_AXES; x++) {
        const Rule *r = d->mesh_rule[x];
        if (!r)
            continue;
        if (r->choice.any || r->choice.nvalue != 1)
            return 0;
        text_add(t, "%s%s = %lld", t->n ? ", " : "", mesh_axis_name((MeshAxis)x), (long long)r->choice.value[0]);
        if (__builtin_mul_overflow(product, r->choice.value[0], &product))
            product = INT64_MAX;
    }
    return product;
}

/* "[0, 1]", or NULL when that would be long. */
static const char *first_devices(Arena *a, int64_t n)
{
    Text t = text_new(a);
    for (int64_t i = 0; i < n && n <= 8; i++)
        text_add(&t, "%s%lld", i ? ", " : "", (long long)i);
    return n <= 8 ? arena_printf(a, "[%s]", t.s) : NULL;
}

static Span first_mesh_rule(const Decisions *d)
{
    for (int x = 0; x < MESH_AXES; x++)
        if (d->mesh_rule[x])
            return d->mesh_rule[x]->at;
    return NOWHERE;
}

static Status wrong_product(Diags *ds, const PlanRequest *q, const Decisions *d)
{
    Text sizes = text_new(ds->arena);
    int64_t product = given_sizes(&sizes, d);
    const char *few = product && product < d->ndevices && !d->devices_rule ? first_devices(ds->arena, product) : NULL;
    const char *have = arena_printf(ds->arena, "%u device%s", d->ndevices, d->ndevices == 1 ? "" : "s");
    const char *whose = d->devices_rule ? arena_printf(ds->arena, "the rules name %s", have)
                                        : arena_printf(ds->arena, "cluster '%s' has %s", q->cluster->name, have);
    Diag *e = product ? diag_error(ds, first_mesh_rule(d), "the mesh %s has %lld place%s, but %s", sizes.s, (long long)product,
                                   product == 1 ? "" : "s", whose)
                      : diag_error(ds, first_mesh_rule(d), "no sizes that the rules allow have the product %u, and %s", d->ndevices, whose);
    if (d->devices_rule)
        diag_note(ds, e, d->devices_rule->at, "the devices are named here");
    if (few)
        diag_help(ds, e, "choose sizes whose product is %u, or leave devices idle with 'devices = %s'", d->ndevices, few);
    else
        diag_help(ds, e, "choose sizes whose product is %u", d->ndevices);
    return ERR_REJECT;
}

/* ---- what is open ---- */

/* "the sizes of mesh axes 'cp' and 'tp' ..", with rules that pin them. */
static const char *open_sizes(Arena *a, const Decisions *d, const Sizes *s)
{
    Text names = text_new(a), pins = text_new(a);
    int64_t rest = d->ndevices;
    int left = 0;
    for (int x = 0; x < MESH_AXES; x++)
        left += s[x].n > 1;
    for (int x = 0; x < MESH_AXES; x++) {
        const char *name = mesh_axis_name((MeshAxis)x);
        if (s[x].n == 1) {
            rest /= s[x].value[0];
            continue;
        }
        text_add(&names, "%s'%s'", names.n == 0 ? "" : left == 1 ? " and " : ", ", name);
        left--;
        if (d->mesh[x] > 1)
            text_add(&pins, "%s %s = %lld", pins.n ? "," : "mesh", name, (long long)d->mesh[x]);
    }
    return arena_printf(a, "the sizes of mesh axes %s, whose product must be %lld (for instance '%s')", names.s, (long long)rest, pins.s);
}

Status mesh_decide(Arena *a, Diags *ds, const PlanRequest *q, Decisions *d, const char **open)
{
    Sizes s[MESH_AXES];
    *open = "";
    TRY(decide_devices(a, ds, q->cluster, d));
    for (int x = 0; x < MESH_AXES; x++)
        s[x] = allowed(a, d->mesh_rule[x], d->ndevices);
    int n = ways(s, 0, d->ndevices, d->mesh);
    if (n == 0)
        return wrong_product(ds, q, d);
    if (n > 1)
        *open = open_sizes(a, d, s);
    for (int x = 0; x < MESH_AXES; x++)
        d->outer[x] = d->mesh_rule[x] ? d->mesh_rule[x]->outer : 0;
    return OK;
}
