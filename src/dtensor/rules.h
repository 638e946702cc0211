/*
 * rules.h: the rules by which operations propagate placements. A rule applies to one dimension of
 * the mesh; each dimension follows its own rule.
 */
#ifndef KB_DTENSOR_RULES_H
#define KB_DTENSOR_RULES_H

#include "dtensor_state.h"

/* Classes of operations with the same rules. */
typedef enum dt_op_class {
    DT_OP_MATMUL,
    DT_OP_ADD, /* and sub */
    DT_OP_MUL,
    DT_OP_DIV,
    DT_OP_MAXIMUM,
    DT_OP_MINIMUM,
    DT_OP_NEG,
    DT_OP_MONOTONE, /* unary, defined for all numbers, x <= y implies op(x) <= op(y) */
    DT_OP_UNARY,    /* all other unary ones */
    DT_OP_SUM,      /* and mean */
    DT_OP_MAX,
    DT_OP_MIN,
    DT_OP_CLASSES
} dt_op_class;

/* The placement of an operand or the result in a rule. */
typedef enum dt_term {
    DT_NONE,          /* there is no such operand */
    DT_REPLICATE,     /* Replicate */
    DT_SHARD_M,       /* of matmul: Shard of a dimension of a but its last */
    DT_SHARD_K,       /* of matmul: Shard of the last dimension of a, the first of b */
    DT_SHARD_N,       /* of matmul: Shard of the last dimension of b */
    DT_SHARD,         /* element-wise: Shard of dimension d, counted in the result */
    DT_BROADCAST,     /* element-wise: Replicate of an operand that is repeated along d */
    DT_SHARD_KEPT,    /* reductions: Shard of a dimension d that is not reduced */
    DT_SHARD_REDUCED, /* reductions: Shard of a dimension that is reduced */
    DT_PARTIAL_SUM,
    DT_PARTIAL_AVG,
    DT_PARTIAL_MAX,
    DT_PARTIAL_MIN,
    DT_PARTIAL_PROD,
} dt_term;

typedef struct dt_rule {
    uint32_t classes; /* of operations: bits by dt_op_class */
    dt_term a, b, result;
} dt_rule;

extern const dt_rule dt_rules[];
extern const size_t dt_rule_count;

/* An operation with its shapes. */
typedef struct dt_problem {
    dt_op_class class;
    kb_shape a, b, result; /* b has rank 0 if there is none */
    bool has_b;
    bool reduces_all; /* reductions: over all dimensions */
    uint32_t reduced; /* else: over this one */
    bool keeps_dim;   /* reduced dimensions are kept with size 1 */
} dt_problem;

/* A rule with its dimension chosen. */
typedef struct dt_choice {
    kb_placement a, b, result;
} dt_choice;

/* The rule for choice `index` of its dimension: *choice, or false if there are not as many. *fits:
 * whether the choice suits the shapes. */
bool dt_apply_rule(const dt_rule *rule, const dt_problem *problem, uint32_t index,
                   dt_choice *choice, bool *fits);

#endif
