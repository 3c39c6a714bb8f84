/* Mixed precision: the bytes of states, which values have which type, and how the
 * optimizer steps the master copy and rounds the weights from it. */
#include "codegen/pass.h"
#include "tests/unit/layouts.h"

static const Setting gpt2 = {"tiny_gpt2", "batch=8 seq=6 vocab=64 hidden=64 heads=4 ffn=64 layers=2 context=64", NULL};

/* One linear layer and a loss; `precision`: what stands in the braces. */
static Model small(const char *precision)
{
    char text[800];
    snprintf(text, sizeof text,
             "model m {\n  dim batch = 4, d = 64, class = 64\n  param dtype = f32\n  precision { %s }\n  optimizer adamw { lr = 0.1 }\n"
             "  input x[batch, d] : f32\n  input y[batch] : i32\n  z = linear(x, class, bias = false)\n  minimize cross_entropy(z, y)\n}\n",
             precision);
    return model_load_in("f32", (Setting){"m", "", text});
}

static void has_peaks(Model *m)
{
    m->cl->device->peak[DT_bf16] = m->cl->device->peak[DT_f16] = 1e11;
}

static Model gpt2_in(const char *dtype)
{
    Model m = model_load_in(dtype, gpt2);
    has_peaks(&m);
    return m;
}

static Program **lower(Model *m, Pin pin)
{
    has_peaks(m);
    Plan plan = plan_of(m, pin);
    return lower_programs(m, &plan);
}

/* ---- the ledger ---- */

static int64_t class_bytes(const Program *p, BufferClass c)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < p->nbuffer; i++)
        n += p->buffer[i].cls == c ? p->buffer[i].bytes * p->buffer[i].slots : 0;
    return n;
}

static int64_t parameters(const Program *p)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < p->nstate; i++)
        n += align_up(tensor_elements(&p->tensor[p->state[i].weight.i]), PAD_ELEMENTS);
    return n;
}

/* Bytes of each parameter: weights, gradients, master, moments. */
typedef struct Recipe { const char *precision; int weights, grads, master, moments; } Recipe;

static void holds(const Program *p, const Recipe *r)
{
    int64_t n = parameters(p);
    assert_int_equal(class_bytes(p, CLASS_weights), n * r->weights);
    assert_int_equal(class_bytes(p, CLASS_gradients), n * r->grads);
    assert_int_equal(class_bytes(p, CLASS_master), n * r->master);
    assert_int_equal(class_bytes(p, CLASS_moments), n * r->moments);
}

/* The rows of the literature: mixed precision as Megatron-LM counts it, 18 bytes; with
 * gradients in bf16, 16; casts of f32 weights, 16; one type, 16 in f32 and 32 in f64. */
static void bytes_of_a_parameter(void **unused)
{
    (void)unused;
    static const Recipe recipe[] = {
        {"compute = bf16", 2, 4, 4, 8},
        {"compute = f16", 2, 4, 4, 8},
        {"compute = bf16, grads = bf16", 2, 2, 4, 8},
        {"compute = bf16, weights = f32", 4, 4, 0, 8},
        {"compute = bf16, master = bf16", 2, 4, 0, 8},
        {"compute = f32", 4, 4, 0, 8},
        {"compute = f32, master = f64", 4, 4, 8, 16},
        {"compute = f64", 8, 8, 0, 16},
    };
    for (size_t i = 0; i < sizeof recipe / sizeof *recipe; i++) {
        Model m = small(recipe[i].precision);
        holds(*lower(&m, (Pin){1, 1, 1, 1, 1, ""}), &recipe[i]);
        arena_free(m.a);
    }
}

static void check_total(Model *m, Pin pin, int64_t each, int64_t shared)
{
    Program **p = lower(m, pin);
    for (int64_t r = 0; r < pin.dp; r++) {
        int64_t n = parameters(p[r]), states = 0;
        for (int c = CLASS_weights; c <= CLASS_moments; c++)
            states += class_bytes(p[r], (BufferClass)c);
        assert_int_equal(states, n * each + n * shared / pin.dp);
    }
}

/* 18 bytes, of which 12 are shared out by ZeRO 1.  The sizes of this model divide, so
 * that no bucket is padded. */
static void bytes_under_zero(void **unused)
{
    (void)unused;
    Model m = gpt2_in("bf16");
    check_total(&m, (Pin){1, 1, 1, 1, 1, "bucket = 1 GB"}, 18, 0);
    check_total(&m, (Pin){1, 2, 1, 1, 1, "bucket = 1 GB"}, 18, 0);
    check_total(&m, (Pin){1, 2, 1, 1, 1, "bucket = 1 GB; shard optimizer by dp"}, 6, 12);
    arena_free(m.a);
    m = small("compute = bf16");
    for (int64_t dp = 2; dp <= 4; dp *= 2)
        check_total(&m, (Pin){1, dp, 1, 1, 1, "shard optimizer by dp"}, 6, 12);
    arena_free(m.a);
}

/* Weights that nothing trains have one copy. */
static void frozen_weights_have_no_master(void **unused)
{
    (void)unused;
    Model m = gpt2_in("bf16");
    m.g->loss = NO_VALUE;
    for (uint32_t i = 0; i < m.g->nweight; i++)
        m.g->weight[i].gradient = NO_VALUE;
    Program *p = *lower(&m, (Pin){1, 1, 1, 1, 1, ""});
    assert_int_equal(class_bytes(p, CLASS_master), 0);
    assert_int_equal(class_bytes(p, CLASS_weights), 2 * parameters(p));
    arena_free(m.a);
}

/* ---- types ---- */

static const Tensor *tensor_named(const Program *p, const char *path)
{
    for (uint32_t i = 0; i < p->ntensor; i++)
        if (strcmp(p->tensor[i].path, path) == 0)
            return &p->tensor[i];
    fail_msg("no tensor '%s'", path);
    return NULL;
}

/* Activations and weights in bf16; statistics, log-sum-exp, losses and gradients of
 * weights in f32; counts and the norm in f64. */
static void values_have_their_types(void **unused)
{
    (void)unused;
    Model m = gpt2_in("bf16");
    Program *p = *lower(&m, (Pin){1, 1, 1, 1, 2, ""});
    static const struct { const char *path; DType type; } want[] = {
        {"wte", DT_bf16}, {"h[0].ln1", DT_bf16}, {"h[1].attn.q", DT_bf16}, {"logits", DT_bf16}, {"grad:h[0].mlp.gelu", DT_bf16},
        {"h[0].ln1:mean", DT_f32}, {"h[0].ln1:rstd", DT_f32}, {"h[1].attn.a:lse", DT_f32}, {"cross_entropy", DT_f32},
        {"grad:wte", DT_f32}, {"grad:h[0].ln1.w", DT_f32}, {"grad:h[1].mlp.up.b", DT_f32}, {"norm", DT_f64}, {"count:labels", DT_f64},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (tensor_named(p, want[i].path)->dtype != want[i].type)
            fail_msg("'%s' is %s", want[i].path, dtype_name(tensor_named(p, want[i].path)->dtype));
    arena_free(m.a);
}

static int casts(const Program *p, ProcKind kind)
{
    const Proc *proc = proc_find(p, kind);
    int n = 0;
    for (uint32_t i = proc->first; i < proc->end; i++)
        n += p->instr[i].op == OP_cast;
    return n;
}

/* Each cast is an instruction: of the input, and of the weight where it is kept in f32. */
static void casts_are_instructions(void **unused)
{
    (void)unused;
    Model m = small("compute = bf16");
    Program *p = *lower(&m, (Pin){1, 1, 1, 1, 1, ""});
    assert_int_equal(casts(p, PROC_forward), 1);
    assert_int_equal(casts(p, PROC_backward), 0);
    arena_free(m.a);
    m = small("compute = bf16, weights = f32");
    p = *lower(&m, (Pin){1, 1, 1, 1, 1, ""});
    assert_int_equal(casts(p, PROC_forward), 2);
    assert_int_equal(casts(p, PROC_backward), 1);
    arena_free(m.a);
    m = small("compute = f32");
    assert_int_equal(casts(*lower(&m, (Pin){1, 1, 1, 1, 1, ""}), PROC_forward), 0);
    arena_free(m.a);
}

/* Of a weight whose gradient comes from an op that cannot sum, the gradient is cast. */
static void gradients_are_cast_where_ops_do_not_sum(void **unused)
{
    (void)unused;
    Model m = model_load_in("bf16", (Setting){"m", "", "model m {\n  dim batch = 2, d = 64\n  param dtype = f64\n  precision { compute = dtype }\n"
        "  optimizer sgd { lr = 0.1 }\n  input x[batch, d] : f32\n  weight w[d]\n  dim e = 64\n  g = gelu(w)\n  minimize sum(sum(x * g, over = d), over = batch)\n}\n"});
    Program *p = *lower(&m, (Pin){1, 1, 1, 1, 1, ""});
    const Tensor *g = &p->tensor[p->state[0].gradient.i];
    assert_int_equal(g->dtype, DT_f32);
    const Proc *back = proc_find(p, PROC_backward);
    const Instr *grad = NULL;
    for (uint32_t i = back->first; i < back->end; i++)
        grad = p->instr[i].op == OP_gelu_grad ? &p->instr[i] : grad;
    assert_non_null(grad);
    assert_int_equal(p->tensor[grad->out[0].i].dtype, DT_bf16);
    assert_int_equal(casts(p, PROC_backward), 1);
    arena_free(m.a);
}

/* ---- the update ---- */

/* Of gradients and weights: in backward's late sums, or in update. */
static Instr *first_of(Program *p, OpKind op)
{
    for (uint32_t i = proc_find(p, PROC_backward)->first; i < proc_find(p, PROC_update)->end; i++)
        if (p->instr[i].op == op)
            return &p->instr[i];
    fail_msg("no %s", op_info[op].name);
    return NULL;
}

static BufferClass class_of(const Program *p, TensorId t)
{
    return p->buffer[p->tensor[t.i].buffer.i].cls;
}

/* One instruction steps the master and rounds the weights; what is gathered is bf16,
 * what is summed f32. */
static void one_instruction_steps_and_rounds(void **unused)
{
    (void)unused;
    Model m = gpt2_in("bf16");
    Program *p = lower(&m, (Pin){1, 2, 1, 1, 1, "shard optimizer by dp"})[1];
    const Instr *step = first_of(p, OP_adamw), *gather = first_of(p, OP_all_gather), *sum = first_of(p, OP_reduce_scatter);
    assert_int_equal(step->nout, 4);
    assert_int_equal(step->arg[0].i, step->out[0].i);
    assert_int_equal(class_of(p, step->arg[0]), CLASS_master);
    assert_int_equal(class_of(p, step->out[3]), CLASS_weights);
    assert_int_equal(p->tensor[gather->out[0].i].dtype, DT_bf16);
    assert_int_equal(p->tensor[sum->out[0].i].dtype, DT_f32);
    arena_free(m.a);
}

/* At a server, the others have neither master nor moments. */
static void the_server_has_the_master(void **unused)
{
    (void)unused;
    Model m = gpt2_in("bf16");
    Program **p = lower(&m, (Pin){1, 2, 1, 1, 1, "sync = \"server\""});
    assert_int_equal(class_bytes(p[0], CLASS_master), 2 * class_bytes(p[0], CLASS_weights));
    assert_int_equal(class_bytes(p[1], CLASS_master), 0);
    assert_int_equal(p[1]->tensor[first_of(p[1], OP_broadcast)->out[0].i].dtype, DT_bf16);
    arena_free(m.a);
}

typedef enum Fault { NO_FAULT, STEP_WEIGHTS, ROUND_OTHERS, OTHER_MASTER, NO_MASTER, FAULTS } Fault;

static void plant(Program *p, Fault fault)
{
    Instr *step = first_of(p, OP_adamw);
    State *s = &p->state[0];
    TensorId *master = s->sharded ? &s->shard.master : &s->master;
    switch (fault) {
    case STEP_WEIGHTS:
        step->nout = 3;
        break;
    case ROUND_OTHERS:
        p->tensor[step->out[3].i].at += PAD_ELEMENTS * dtype_bytes(DT_bf16);
        break;
    case OTHER_MASTER:
        *master = program_add_tensor(p, p->tensor[master->i]);
        p->tensor[master->i].at += PAD_ELEMENTS * dtype_bytes(DT_f32);
        break;
    case NO_MASTER:
        *master = NO_TENSOR;
        break;
    default:
        break;
    }
}

static void verifier_sees_faults(void **unused)
{
    (void)unused;
    static const char *const rules[] = {"bucket = 1 GB", "bucket = 1 GB; shard optimizer by dp"};
    FILE *err = fopen("/dev/null", "w");
    for (int k = 0; k < 2; k++)
        for (int fault = NO_FAULT; fault < FAULTS; fault++) {
            Model m = gpt2_in("bf16");
            Program *p = lower(&m, (Pin){1, 2, 1, 1, 1, rules[k]})[0];
            plant(p, (Fault)fault);
            if ((verify_update(p, err) > 0) != (fault != NO_FAULT))
                fail_msg("'%s': fault %d is %s", rules[k], fault, fault ? "not seen" : "none");
            arena_free(m.a);
        }
    fclose(err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_a_parameter),
        cmocka_unit_test(bytes_under_zero),
        cmocka_unit_test(frozen_weights_have_no_master),
        cmocka_unit_test(values_have_their_types),
        cmocka_unit_test(casts_are_instructions),
        cmocka_unit_test(gradients_are_cast_where_ops_do_not_sum),
        cmocka_unit_test(one_instruction_steps_and_rounds),
        cmocka_unit_test(the_server_has_the_master),
        cmocka_unit_test(verifier_sees_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
