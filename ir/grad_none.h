#ifndef IR_GRAD_NONE_H
#define IR_GRAD_NONE_H
/* Ops without a rule of differentiation, each with the reason; grad_rules.c has the
 * others.  An op that stands in neither does not compile. */
#define NO_RULE NULL

/* Constants: nothing behind them can be trained. */
#define grad_iota         NO_RULE
#define grad_zeros        NO_RULE
#define grad_constant     NO_RULE
#define grad_count_labels NO_RULE

/* Names of the language that are other ops in a Graph. */
#define grad_matmul NO_RULE
#define grad_mean   NO_RULE
#define grad_sum    NO_RULE

/* Backward ops: no gradients of gradients. */
#define grad_embed_grad         NO_RULE
#define grad_layernorm_grad     NO_RULE
#define grad_rmsnorm_grad       NO_RULE
#define grad_softmax_grad       NO_RULE
#define grad_gelu_grad          NO_RULE
#define grad_relu_grad          NO_RULE
#define grad_silu_grad          NO_RULE
#define grad_tanh_grad          NO_RULE
#define grad_rope_grad          NO_RULE
#define grad_attention_grad     NO_RULE
#define grad_relative_bias_grad NO_RULE
#define grad_conv2d_grad_x      NO_RULE
#define grad_conv2d_grad_w      NO_RULE
#define grad_router_grad        NO_RULE
#define grad_dispatch_grad      NO_RULE
#define grad_combine_grad       NO_RULE
#define grad_load_balance_grad  NO_RULE
#define grad_cross_entropy_grad NO_RULE

/* Made by codegen and for the update, after differentiation. */
#define grad_cross_entropy_both NO_RULE
#define grad_add_layernorm      NO_RULE
#define grad_add_rmsnorm        NO_RULE
#define grad_silu_mul           NO_RULE
#define grad_silu_mul_grad      NO_RULE
#define grad_linear_gelu        NO_RULE
#define grad_all_reduce         NO_RULE
#define grad_reduce_scatter     NO_RULE
#define grad_all_gather         NO_RULE
#define grad_all_to_all         NO_RULE
#define grad_reduce_to          NO_RULE
#define grad_broadcast          NO_RULE
#define grad_send               NO_RULE
#define grad_recv               NO_RULE
#define grad_cross_entropy_stats NO_RULE
#define grad_cross_entropy_merge NO_RULE
#define grad_sum_squares        NO_RULE
#define grad_adamw              NO_RULE
#define grad_sgd                NO_RULE

#endif
