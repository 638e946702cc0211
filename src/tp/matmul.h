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
    const char *name;            /* of the launch, for reports; NULL: "matmul" */
    kb_tensor x, w, out;         /* out is another tensor than the inputs */
    kb_tensor bias;              /* {0}: none */
    kb_tensor single;            /* for an `out` of several copies: a tensor of its shape and dtype
                                    with one copy; {0}: the call makes one and frees it */
    int64_t x_column, x_columns; /* the part of x that is used; no columns: all of it */
    uint32_t ranks;  /* 0 or 1, or: each of as many ranks makes this call, on devices that follow
                        each other, and the result of all is the sum over the ranks of their
                        products, each rounded to sum_dtype, plus the bias */
    uint32_t rank;   /* which of them the caller is */
    uint32_t chunks; /* in which sums are exchanged while the product goes on, about */
    kb_dtype sum_dtype;
    kb_request *request; /* NULL: the call waits. Else it does not, and this becomes a request to be
                            waited for and freed. (If `out` has several copies and `single` is {0},
                            it waits as well.) */
} tp_matmul_spec;

KB_MUST_USE kb_error *tp_matmul(kb_context *ctx, const tp_matmul_spec *spec);

/*
 * Installs what products with these weights, laid out by tp_best_layout(), need between PEs: that
 * takes simulated time, and is done by the first product otherwise. `rank` and `ranks` are as in
 * the spec.
 */
KB_MUST_USE kb_error *tp_matmul_prepare(kb_context *ctx, kb_tensor w, uint32_t rank,
                                        uint32_t ranks);

/* The layouts that make the product of this size fast, for tensors of one dtype; m is the number of
 * rows that is expected. */
void tp_best_layout(kb_context *ctx, uint64_t m, uint64_t k, uint64_t n, kb_dtype dtype,
                    kb_policy *w, kb_policy *x, kb_policy *out);

#endif
