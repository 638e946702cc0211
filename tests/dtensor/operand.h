/*
 * operand.h: DTensors with known numbers in given placements. Terms of a reduction differ between
 * ranks, so that a wrong treatment of them gives wrong numbers.
 */
#ifndef TESTS_DTENSOR_OPERAND_H
#define TESTS_DTENSOR_OPERAND_H

#include "plain.h"

typedef struct operand {
    uint32_t mesh[2]; /* mesh[1] is 1 if there is one dimension */
    kb_placements placements;
    kb_dtype dtype;
    plain terms[PLAIN_RANKS]; /* by position: what the whole would be if others were like it */
    plain whole;
    kb_tensor locals[PLAIN_RANKS]; /* by position, those that were made */
    kb_dtensor dtensor;            /* of the last operand_open() */
} operand;

/* Numbers are whole and from 1 to 4 if `positive`, else from -4 to 4. `kb_placements.count` is that
 * of the mesh. */
void operand_draw(operand *o, kb_rng *rng, const uint32_t mesh[2], kb_placements placements,
                  const kb_shape *shape, kb_dtype dtype, bool positive);
void operand_fini(operand *o);

/* Makes the local tensors of positions from `first` on, `count` of them, in all sorts of layouts,
 * and the DTensor of them. */
void operand_open(operand *o, kb_context *ctx, kb_device_mesh mesh, uint32_t first, uint32_t count);
void operand_close(operand *o, kb_context *ctx, uint32_t first, uint32_t count);

/* ---- Plain operations ---- */

plain plain_matmul(const plain *a, const plain *b);
plain plain_binary(kb_binary_op op, const plain *a, const plain *b);
plain plain_unary(kb_unary_op op, const plain *x);

typedef enum plain_reduction { PLAIN_SUM, PLAIN_MEAN, PLAIN_MAX, PLAIN_MIN } plain_reduction;
plain plain_reduce(plain_reduction op, const plain *x, int dim, bool keepdim);

kb_error *reduce_dtensor(kb_context *ctx, plain_reduction op, kb_dtensor x, int dim, bool keepdim,
                         kb_dtensor *result);

#endif
