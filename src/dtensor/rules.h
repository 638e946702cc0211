/*
 * rules.h: the rules by which operations propagate placements. A rule is for one dimension of the
 * mesh; the dimensions of a mesh follow rules of their own.
 */
#ifndef KB_DTENSOR_RULES_H
#define KB_DTENSOR_RULES_H

#include "state.h"

/* Operations that have rules of their own. */
typedef enum dt_op_class {
    DT_OP_MATMUL,
    DT_OP_ADD, /* and sub */
    DT_OP_MUL,
    DT_OP_DIV,
    DT_OP_MAXIMUM,
    DT_OP_MINIMUM,
    DT_OP_NEG,
    DT_OP_MONOTONE, /* unary, for all numbers, and x <= y means op(x) <= op(y) */
    DT_OP_UNARY,    /* all others */
    DT_OP_SUM,      /* and mean */
    DT_OP_MAX,
    DT_OP_MIN,
    DT_OP_CLASSES
} dt_op_class;

/* What a rule says of the placement of an operand or the result. */
typedef enum dt_term {
    DT_NONE,          /* there is no such operand */
    DT_REPLICATE,     /* Replicate */
    DT_SHARD_M,       /* of matmul: Shard of a dimension of a but its last */
    DT_SHARD_K,       /* of matmul: Shard of the last dimension of a, the first of b */
    DT_SHARD_N,       /* of matmul: Shard of the last dimension of b */
    DT_SHARD,         /* element-wise: Shard of dimension d, counted in the result */
    DT_BROADCAST,     /* element-wise: Replicate of an operand that is repeated along d */
    DT_SHARD_KEPT,    /* reductions: Shard of a dimension d that is not reduced */
    DT_SHARD_REDUCED, /* reductions: Shard of a dimension that is */
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

/* An operation, and the shapes it is about. */
typedef struct dt_problem {
    dt_op_class class;
    kb_shape a, b, result; /* b has rank 0 if there is none */
    bool has_b;
    bool reduces_all; /* of reductions: over all dimensions, */
    uint32_t reduced; /* or this one, */
    bool keeps_dim;   /* which is kept with size 1 */
} dt_problem;

/* A rule for chosen dimensions. */
typedef struct dt_choice {
    kb_placement a, b, result;
} dt_choice;

/*
 * The rule for number `index` of the dimensions that it may be used with: *choice, or false if
 * there are not as many. Some of them make no sense for the shapes: *fits says whether it does.
 */
bool dt_apply_rule(const dt_rule *rule, const dt_problem *problem, uint32_t index,
                   dt_choice *choice, bool *fits);

#endif
