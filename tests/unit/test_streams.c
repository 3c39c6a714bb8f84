/* Streams and waits, against a slow and simple judge: all calls of a step, all pairs of
 * instructions that use the same bytes, and for each instruction the set of all that
 * have surely ended before it.  Then damaged programs, and what the verifier says. */
#include "codegen/pass.h"
#include "ir/stream_order.h"
#include "tests/unit/layouts.h"

/* ---- the judge ---- */

typedef struct Done { uint32_t instr; const Call *call; } Done;
typedef struct Pair { uint32_t a, b; } Pair;         /* runs; a comes first in the order of the calls */

typedef struct Judge {
    const Program *p;
    Arena    *a;
    Done     *run; uint32_t n;
    Pair     *pair; uint32_t npair;   /* of different streams, on the same bytes, one writing */
    uint64_t *before; uint32_t words; /* by run: the set of those that have ended */
} Judge;

typedef struct Bytes { int part; int64_t from, to; bool writes; } Bytes;

static int bytes_of(const Program *p, const Done *d, Bytes *span)
{
    const Instr *in = &p->instr[d->instr];
    int n = 0;
    for (int k = 0; k < in->narg + in->nout + 1; k++) {
        TensorId t = k < in->narg ? in->arg[k] : k < in->narg + in->nout ? in->out[k - in->narg] : in->workspace;
        if (!has_tensor(t))
            continue;
        const Buffer *b = &p->buffer[p->tensor[t.i].buffer.i];
        uint32_t slot = b->by_micro ? d->call->micro : b->slots > 1 ? d->call->slot : 0;
        int64_t at = b->offset + slot * b->bytes + p->tensor[t.i].at;
        span[n++] = (Bytes){(int)b->part, at, at + tensor_bytes(&p->tensor[t.i]), k >= in->narg};
    }
    return n;
}

static bool conflict(const Judge *j, const Done *x, const Done *y)
{
    Bytes a[MAX_ARGS + MAX_OUTS + 1], b[MAX_ARGS + MAX_OUTS + 1];
    int na = bytes_of(j->p, x, a), nb = bytes_of(j->p, y, b);
    for (int i = 0; i < na; i++)
        for (int k = 0; k < nb; k++)
            if ((a[i].writes || b[k].writes) && a[i].part == b[k].part && a[i].from < b[k].to && b[k].from < a[i].to)
                return true;
    return false;
}

static Judge judge_new(Arena *a, const Program *p, const Call *call, uint32_t ncall)
{
    Judge j = {.p = p, .a = a};
    for (uint32_t c = 0; c < ncall; c++)
        for (uint32_t i = p->proc[call[c].proc].first; i < p->proc[call[c].proc].end; i++)
            if (instr_runs(&p->instr[i], p, &call[c]))
                PUSH(a, j.run, j.n, ((Done){i, &call[c]}));
    for (uint32_t y = 0; y < j.n; y++)
        for (uint32_t x = 0; x < y; x++)
            if (p->instr[j.run[x].instr].stream != p->instr[j.run[y].instr].stream && conflict(&j, &j.run[x], &j.run[y]))
                PUSH(a, j.pair, j.npair, ((Pair){x, y}));
    j.words = j.n / 64 + 1;
    j.before = NEWN(a, uint64_t, (size_t)j.n * j.words + 1);
    return j;
}

static bool has_ended(const Judge *j, uint32_t a, uint32_t b)
{
    return j->before[(size_t)b * j->words + a / 64] >> a % 64 & 1;
}

static void follows(const Judge *j, uint32_t y, uint32_t x)
{
    for (uint32_t k = 0; k < j->words; k++)
        j->before[(size_t)y * j->words + k] |= j->before[(size_t)x * j->words + k];
    j->before[(size_t)y * j->words + x / 64] |= UINT64_C(1) << x % 64;
}

/* The last run before y of an instruction, of any call or of one in its slot. */
static void wait_for(const Judge *j, uint32_t y, const Wait *w)
{
    for (uint32_t x = y; x-- > 0;)
        if (j->run[x].instr == w->on && (!w->same_slot || j->run[x].call->slot == j->run[y].call->slot)) {
            follows(j, y, x);
            return;
        }
}

/* Pairs that are not ordered when wait `without` is not there (nwait: all are). */
static uint32_t unordered(const Judge *j, uint32_t without)
{
    const Program *p = j->p;
    uint32_t n = 0;
    memset(j->before, 0, sizeof *j->before * j->n * j->words);
    for (uint32_t y = 0; y < j->n; y++) {
        for (uint32_t x = y; x-- > 0;)
            if (p->instr[j->run[x].instr].stream == p->instr[j->run[y].instr].stream) {
                follows(j, y, x);
                break;
            }
        for (uint32_t k = 0; k < p->nwait; k++)
            if (k != without && p->wait[k].instr == j->run[y].instr)
                wait_for(j, y, &p->wait[k]);
    }
    for (uint32_t k = 0; k < j->npair; k++)
        n += !has_ended(j, j->pair[k].a, j->pair[k].b);
    return n;
}

static Call *evaluation(Arena *a, const Program *p, uint32_t *n)
{
    static const ProcKind kinds[] = {PROC_begin, PROC_begin, PROC_agree, PROC_evaluate, PROC_evaluate, PROC_total};
    Call *call = NULL;
    *n = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (proc_find(p, kinds[k]))
            PUSH(a, call, *n, ((Call){.proc = (uint32_t)(proc_find(p, kinds[k]) - p->proc)}));
    return call;
}

static uint32_t missing(Arena *a, Program *p, uint32_t without)
{
    Wait *all = p->wait;
    uint32_t n = p->nwait;
    if (without < n) {
        p->wait = memcpy(NEWN(a, Wait, n), all, sizeof *all * n);
        memmove(&p->wait[without], &p->wait[without + 1], sizeof *all * (n - without - 1));
        p->nwait--;
    }
    uint32_t found = stream_order(p, a).nmissing;
    p->wait = all;
    p->nwait = n;
    return found;
}

/* With all waits every pair is ordered; without any one of them some is not, and the
 * verifier sees it. */
static uint32_t check_program(Arena *a, Program *p)
{
    uint32_t n;
    Call *call = evaluation(a, p, &n);
    Judge step = judge_new(a, p, p->call, p->ncall), other = judge_new(a, p, call, n);
    assert_int_equal(unordered(&step, p->nwait), 0);
    assert_int_equal(unordered(&other, p->nwait), 0);
    for (uint32_t k = 0; k < p->nwait; k++) {
        if (unordered(&step, k) + unordered(&other, k) == 0)
            fail_msg("instruction %u waits for %u for nothing", p->wait[k].instr, p->wait[k].on);
        if (missing(a, p, k) == 0)
            fail_msg("nobody sees that instruction %u does not wait for %u", p->wait[k].instr, p->wait[k].on);
    }
    return p->nwait;
}

static const Setting gpt2 = {"tiny_gpt2", "batch=24 seq=12 vocab=60 hidden=48 heads=12 ffn=120 layers=4 context=12", NULL};
static const Setting llama = {"tiny_llama", "batch=8 seq=12 vocab=60 hidden=48 heads=12 kv_heads=4 ffn=120 layers=2", NULL};

static const struct { const Setting *model; Pin pin; } layouts[] = {
    {&gpt2, {1, 2, 1, 1, 1, ""}},
    {&gpt2, {1, 2, 1, 1, 3, "shard optimizer by dp"}},
    {&gpt2, {1, 2, 1, 1, 2, "sync = \"server\""}},
    {&gpt2, {1, 1, 1, 4, 2, "split heads, ffn, vocab by tp"}},
    {&llama, {1, 1, 1, 4, 2, "split heads, ffn, vocab by tp; split seq by tp; recompute layer full"}},
    {&llama, {1, 2, 2, 2, 1, "split heads, ffn, vocab by tp; split seq by cp"}},
    {&gpt2, {4, 1, 1, 1, 12, "stage every 1 in h"}},
    {&gpt2, {4, 1, 1, 1, 6, "stage every 1 in h; recompute h"}},
    {&gpt2, {4, 1, 1, 1, 3, "stage every 1 in h"}},
    {&gpt2, {4, 1, 1, 1, 6, "stage every 1 in h; schedule = \"gpipe\""}},
    {&llama, {2, 1, 1, 2, 8, "split heads, ffn, vocab by tp; split seq by tp; stage before layer[1]"}},
    {&gpt2, {2, 2, 1, 2, 6, "split heads, ffn, vocab by tp; split seq by tp; stage before h[2]; shard optimizer by dp"}},
};

static void conflicts_are_ordered(void **state)
{
    (void)state;
    uint32_t waits = 0;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        Model m = model_load(*layouts[i].model);
        Plan plan = plan_of(&m, layouts[i].pin);
        Program **p = lower_programs(&m, &plan);
        uint32_t per_stage = plan.ndevices / (uint32_t)layouts[i].pin.pp;
        for (uint32_t r = 0; r < plan.ndevices; r += per_stage)
            waits += check_program(m.a, p[r]);
        arena_free(m.a);
    }
    assert_true(waits > 300);
}

/* ---- damaged programs ---- */

typedef struct Sound { Model m; Plan plan; Program *p; } Sound;

/* Sums of gradients, conversions and messages. */
static Sound sound(void)
{
    Sound s = {.m = model_load(gpt2)};
    s.plan = plan_of(&s.m, (Pin){2, 2, 1, 2, 6, "split heads, ffn, vocab by tp; split seq by tp; stage before h[2]"});
    s.p = lower_programs(&s.m, &s.plan)[0];
    return s;
}

static void expect(Sound *s, const char *part)
{
    char *said = NULL;
    size_t n = 0;
    FILE *err = open_memstream(&said, &n);
    int broken = program_check(s->p, err);
    fclose(err);
    if (broken == 0 || !strstr(said, part))
        fail_msg("expected '%s' in '%s'", part, said);
    free(said);
    arena_free(s->m.a);
}

/* The first wait of an instruction of `of` for one of `on`. */
static uint32_t wait_between(const Program *p, Stream of, Stream on)
{
    uint32_t k = 0;
    while (k < p->nwait && (p->instr[p->wait[k].instr].stream != of || p->instr[p->wait[k].on].stream != on))
        k++;
    assert_true(k < p->nwait);
    return k;
}

static const char *names_of(Sound *s, const Wait *w)
{
    const Instr *on = &s->p->instr[w->on];
    return arena_printf(s->m.a, " and does not wait for instruction %u (%s of '%s', stream %s), which ", w->on, op_info[on->op].name, on->path,
                        stream_name(on->stream));
}

static void a_wait_that_is_missing(void **state)
{
    (void)state;
    static const struct { Stream of, on; } kinds[] = {
        {STREAM_gradient, STREAM_compute}, {STREAM_send, STREAM_compute}, {STREAM_collective, STREAM_recv}, {STREAM_compute, STREAM_gradient},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        Sound s = sound();
        uint32_t k = wait_between(s.p, kinds[i].of, kinds[i].on);
        Wait w = s.p->wait[k];
        memmove(&s.p->wait[k], &s.p->wait[k + 1], sizeof w * (s.p->nwait - k - 1));
        s.p->nwait--;
        expect(&s, names_of(&s, &w));
    }
}

/* It names the buffer, and both instructions. */
static void a_sum_that_does_not_wait_for_what_it_sums(void **state)
{
    (void)state;
    Sound s = sound();
    Wait *w = &s.p->wait[wait_between(s.p, STREAM_gradient, STREAM_compute)];
    const Instr *in = &s.p->instr[w->instr], *on = &s.p->instr[w->on];
    uint32_t made = w->on;
    w->on = 0;
    expect(&s, arena_printf(s.m.a, "program: instruction %u (%s of '%s', stream gradient) reads '%s' and does not wait for instruction %u (%s of '%s', "
                            "stream compute), which writes it", w->instr, op_info[in->op].name, in->path, in->path, made, op_info[on->op].name, on->path));
}

static void a_wait_for_its_own_stream(void **state)
{
    (void)state;
    Sound s = sound();
    s.p->wait[3].on = s.p->wait[3].instr;
    expect(&s, "of its own stream");
}

/* A gradient crosses back: send reads what the next call of backward writes again. */
static void waits_across_calls_are_there(void **state)
{
    (void)state;
    Sound s = sound();
    uint32_t latest = 0, in_slot = 0;
    for (uint32_t k = 0; k < s.p->nwait; k++) {
        latest += !s.p->wait[k].same_slot;
        in_slot += s.p->wait[k].same_slot;
    }
    assert_true(latest > 0 && in_slot > latest);
    arena_free(s.m.a);
}

static void waits_out_of_order(void **state)
{
    (void)state;
    Sound s = sound();
    Wait w = s.p->wait[0];
    s.p->wait[0] = s.p->wait[s.p->nwait - 1];
    s.p->wait[s.p->nwait - 1] = w;
    expect(&s, "stands after that of instruction");
}

/* ---- how many ---- */

static void count(const char *layers, uint32_t *waits, uint32_t *communications)
{
    Model m = model_load((Setting){"../llama2_7b", layers, NULL});
    Plan plan = plan_of(&m, (Pin){1, 2, 1, 4, 8, "split heads, ffn, vocab by tp; split seq by tp; recompute layer; shard optimizer by dp; bucket = 25 MB"});
    Program *p;
    assert_int_equal(codegen(m.a, m.ds, m.g, &plan, m.cl, 0, NULL, &p), OK);
    *waits = p->nwait;
    *communications = 0;
    for (uint32_t i = 0; i < p->ninstr; i++)
        *communications += op_info[p->instr[i].op].flags & OPF_COMM ? 1 : 0;
    arena_free(m.a);
}

/* What communicates waits for what makes its argument, what computes for what it gets:
 * no more than two waits an instruction of communication. */
static void waits_grow_with_communication(void **state)
{
    (void)state;
    static const char *const layers[] = {"layers=4", "layers=32"};
    for (size_t i = 0; i < 2; i++) {
        uint32_t waits, communications;
        count(layers[i], &waits, &communications);
        print_message("# %s: %u waits, %u communications\n", layers[i], waits, communications);
        assert_true(communications > 100 && waits <= 2 * communications);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conflicts_are_ordered),
        cmocka_unit_test(a_wait_that_is_missing),
        cmocka_unit_test(a_sum_that_does_not_wait_for_what_it_sums),
        cmocka_unit_test(a_wait_for_its_own_stream),
        cmocka_unit_test(waits_across_calls_are_there),
        cmocka_unit_test(waits_out_of_order),
        cmocka_unit_test(waits_grow_with_communication),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
