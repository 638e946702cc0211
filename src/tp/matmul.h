/*
 * matmul.h: the matrix product of one device, on all of its PEs. What layers and distributed
 * tensors are made of.
 *
 *     kb_policy w, x, out;
 *     tp_best_layout(ctx, 64, 4096, 1024, KB_BF16, &w, &x, &out);  // to create tensors with
 *     const tp_matmul_spec spec = {.name = "mlp", .x = x, .w = w, .out = out};
 *     KB_TRY(tp_matmul(ctx, &spec));
 */
#ifndef KB_TP_MATMUL_H
#define KB_TP_MATMUL_H

#include <stdint.h>

#include <kernbench/kernbench.h>

/*
 * out (m, n) = x (m, k) * w (k, n) + bias (n). Matrices are (product of all axes but the last, last
 * axis); a tensor of one dimension is one row. All are in HBM of one device, in any layout. Sums
 * are made in f32 (in i32 if x and w are integers) and rounded once to the dtype of out.
 */
typedef struct tp_matmul_spec {
    const char *name;    /* of the launch, for reports; NULL: "matmul" */
    kb_tensor x, w, out; /* out is another tensor than the inputs */
    kb_tensor bias;      /* {0}: none */
    kb_request *request; /* NULL: the call waits. Else it does not, and this becomes a request to be
                            waited for and freed. (If `out` has several copies it waits as well.) */
} tp_matmul_spec;

KB_MUST_USE kb_error *tp_matmul(kb_context *ctx, const tp_matmul_spec *spec);

/*
 * Installs what such a product needs between PEs, which takes simulated time, so that the product
 * does not have to. Shapes and layouts are those of the spec; contents are not looked at.
 */
KB_MUST_USE kb_error *tp_matmul_prepare(kb_context *ctx, const tp_matmul_spec *spec);

/* The layouts that make the product of this size fast, for tensors of one dtype; m is the number of
 * rows that is expected. */
void tp_best_layout(kb_context *ctx, uint64_t m, uint64_t k, uint64_t n, kb_dtype dtype,
                    kb_policy *w, kb_policy *x, kb_policy *out);

#endif
