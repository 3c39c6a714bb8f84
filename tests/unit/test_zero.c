/* States that ranks share out (ZeRO 1), and states that a server has: the numbers are
 * those of one device, the memory is not. */
#include "codegen/pass.h"
#include "tests/unit/same_numbers.h"

static const Setting gpt2 = {"tiny_gpt2", "batch=8 seq=6 vocab=60 hidden=24 heads=4 ffn=60 layers=2 context=6", NULL};
static const Setting llama = {"tiny_llama", "batch=8 seq=6 vocab=60 hidden=24 heads=4 kv_heads=2 ffn=60 layers=2", NULL};

static void no_clip(Optimizer *o)
{
    o->clip = 0;
}

static void sgd(Optimizer *o)
{
    *o = (Optimizer){.kind = OPTIMIZER_SGD, .lr = 0.05, .momentum = 0.9, .weight_decay = 0.1, .clip = 1, .steps = 10, .decay = o->decay};
}

static void plain_sgd(Optimizer *o)
{
    sgd(o);
    o->momentum = 0;
}

static void with(Setting s, void (*change)(Optimizer *), Pin pin)
{
    Model m = model_load(s);
    change(&m.g->optimizer);
    same_numbers_of(&m, pin, NULL);
    arena_free(m.a);
}

/* One bucket a tensor, a few, and one for all of a kind. */
static void zero_buckets(void **unused)
{
    (void)unused;
    same_numbers(gpt2, (Pin){1, 2, 1, 1, 1, "shard optimizer by dp; bucket = 1 B"});
    same_numbers(gpt2, (Pin){1, 2, 1, 1, 2, "shard optimizer by dp"});
    same_numbers(llama, (Pin){1, 4, 1, 1, 2, "shard optimizer by dp; bucket = 25 MB"});
    same_numbers(llama, (Pin){1, 4, 1, 1, 1, "shard optimizer by dp; bucket = 1 kB"});
}

static void zero_optimizers(void **unused)
{
    (void)unused;
    with(gpt2, no_clip, (Pin){1, 2, 1, 1, 1, "shard optimizer by dp"});
    with(gpt2, sgd, (Pin){1, 4, 1, 1, 1, "shard optimizer by dp"});
    with(gpt2, plain_sgd, (Pin){1, 2, 1, 1, 1, "shard optimizer by dp"});
}

static void zero_mixed(void **unused)
{
    (void)unused;
    same_numbers(gpt2, (Pin){1, 4, 1, 1, 1, "mesh dp = 2 * 2; shard optimizer by dp.inner"});
    same_numbers(gpt2, (Pin){1, 4, 1, 1, 1, "mesh dp = 2 * 2; shard optimizer by dp.outer"});
    same_numbers(gpt2, (Pin){1, 4, 1, 1, 1, "mesh dp = 2 * 2; shard optimizer by dp"});
    same_numbers(gpt2, (Pin){1, 2, 1, 2, 1, "split heads, ffn, vocab by tp; shard optimizer by dp"});
    same_numbers(llama, (Pin){1, 2, 1, 2, 2, "split heads, ffn, vocab by tp; split seq by tp; shard optimizer by dp"});
    same_numbers(gpt2, (Pin){1, 2, 2, 1, 1, "split seq by cp; shard optimizer by (dp, cp)"});
    same_numbers(gpt2, (Pin){1, 2, 2, 1, 1, "split seq by cp; shard optimizer by cp"});
}

static void zero_pipeline(void **unused)
{
    (void)unused;
    same_numbers(gpt2, (Pin){2, 2, 1, 1, 2, "stage before h[1]; shard optimizer by dp"});
    same_numbers(gpt2, (Pin){2, 4, 1, 1, 2, "stage before h[1]; mesh dp = 2 * 2; shard optimizer by dp.inner; bucket = 1 kB"});
    same_numbers(gpt2, (Pin){2, 2, 1, 2, 2, "split heads, ffn, vocab by tp; split seq by tp; stage before h[1]; shard optimizer by dp"});
    same_numbers(llama, (Pin){3, 2, 1, 1, 4, "stage before layer[0].mlp; stage before layer[1].mlp.down; shard optimizer by dp"});
}

static void server(void **unused)
{
    (void)unused;
    same_numbers(gpt2, (Pin){1, 2, 1, 1, 1, "sync = \"server\""});
    with(llama, sgd, (Pin){1, 4, 1, 1, 2, "sync = \"server\"; bucket = 1 kB"});
    same_numbers(gpt2, (Pin){1, 2, 1, 2, 1, "sync = \"server\"; split heads, ffn, vocab by tp; split seq by tp"});
    same_numbers(gpt2, (Pin){2, 2, 1, 1, 2, "sync = \"server\"; stage before h[1]"});
}

static int64_t moment_bytes(const Program *p, uint32_t *buffers)
{
    int64_t bytes = 0;
    *buffers = 0;
    for (uint32_t i = 0; i < p->nbuffer; i++)
        if (p->buffer[i].cls == CLASS_moments) {
            bytes += p->buffer[i].bytes;
            ++*buffers;
        }
    return bytes;
}

/* The ledger of four ranks: a fourth each, but for padding; all at the server. */
static void moments_are_shared_out(void **unused)
{
    (void)unused;
    Model m = model_load(gpt2);
    Lockstep whole = lower_all(&m, (Pin){1, 4, 1, 1, 1, ""}), zero = lower_all(&m, (Pin){1, 4, 1, 1, 1, "shard optimizer by dp"});
    Lockstep inner = lower_all(&m, (Pin){1, 4, 1, 1, 1, "mesh dp = 2 * 2; shard optimizer by dp.inner"});
    Lockstep served = lower_all(&m, (Pin){1, 4, 1, 1, 1, "sync = \"server\""});
    uint32_t n;
    for (uint32_t r = 0; r < 4; r++) {
        int64_t all = moment_bytes(whole.rank[r].p, &n), padding = (int64_t)n * 4 * PAD_ELEMENTS * (int64_t)sizeof(double);
        int64_t fourth = moment_bytes(zero.rank[r].p, &n), half = moment_bytes(inner.rank[r].p, &n);
        assert_true(4 * fourth >= all && 4 * fourth < all + padding);
        assert_true(2 * half >= all && 2 * half < all + padding);
        assert_int_equal(moment_bytes(served.rank[r].p, &n), r == 0 ? all : 0);
    }
    lock_close(&whole);
    lock_close(&zero);
    lock_close(&inner);
    lock_close(&served);
    arena_free(m.a);
}

/* ---- the verifier, on programs with a fault ---- */

static Instr *first_of(Program *p, ProcKind kind, OpKind op)
{
    const Proc *proc = proc_find(p, kind);
    for (uint32_t i = proc->first; i < proc->end; i++)
        if (p->instr[i].op == op)
            return &p->instr[i];
    fail_msg("no %s", op_info[op].name);
    return NULL;
}

/* What each rank has is another part: one that is shifted overlaps or leaves a gap. */
static void shift_part(Program *p, TensorId t)
{
    p->tensor[t.i].at += tensor_bytes(&p->tensor[t.i]);
}

typedef enum Fault { NO_FAULT, SUM_TWICE, SUM_NONE, SUM_FEW, READ_ALL, STEP_OTHERS, GATHER_OTHERS, CLAIM_OTHERS, NOT_GATHERED, FAULTS } Fault;

static void plant(Program *p, Fault fault)
{
    Instr *sum = first_of(p, PROC_backward, OP_reduce_scatter), *norm = first_of(p, PROC_update, OP_sum_squares);
    Instr *gather = first_of(p, PROC_update, OP_all_gather);
    switch (fault) {
    case SUM_TWICE:
        *norm = *sum;
        norm->arg[0] = sum->out[0];
        break;
    case SUM_NONE:
        *sum = *norm;
        break;
    case SUM_FEW:
        p->group[sum->group].n--;
        break;
    case READ_ALL:
        norm->arg[0] = sum->arg[0];
        break;
    case STEP_OTHERS:
        shift_part(p, first_of(p, PROC_update, OP_adamw)->out[0]);
        break;
    case GATHER_OTHERS:
        shift_part(p, gather->arg[0]);
        break;
    case CLAIM_OTHERS:
        for (uint32_t s = 0; s < p->nstate; s++)
            p->state[s].shard.first += PAD_ELEMENTS;
        break;
    case NOT_GATHERED:
        *gather = *norm;
        break;
    default:
        break;
    }
}

/* Of a rank's own program, or of it beside the other's. */
static void verifier_sees_faults(void **unused)
{
    (void)unused;
    FILE *err = fopen("/dev/null", "w");
    for (int fault = NO_FAULT; fault < FAULTS; fault++) {
        Model m = model_load(gpt2);
        Plan plan = plan_of(&m, (Pin){1, 2, 1, 1, 1, "shard optimizer by dp; bucket = 25 MB"});
        Program **p = lower_programs(&m, &plan);
        plant(p[0], (Fault)fault);
        bool alone = fault != SUM_NONE && fault != SUM_FEW;
        int seen = alone ? verify_update(p[0], err) : verify_ranks(m.g, &plan, (const Program *const *)p, err);
        if ((seen > 0) != (fault != NO_FAULT))
            fail_msg("fault %d is %s", fault, fault ? "not seen" : "none");
        arena_free(m.a);
    }
    fclose(err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_buckets),
        cmocka_unit_test(zero_optimizers),
        cmocka_unit_test(zero_mixed),
        cmocka_unit_test(zero_pipeline),
        cmocka_unit_test(server),
        cmocka_unit_test(moments_are_shared_out),
        cmocka_unit_test(verifier_sees_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
