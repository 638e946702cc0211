/*
 * matmul.h: the matrix product of one device, on all of its PEs. Layers and distributed tensors
 * use it.
 *
 *     kb_policy w, x, out;
 *     tp_best_layout(ctx, 64, 4096, 1024, KB_BF16, false, &w, &x, &out);  // to create tensors with
 *     const tp_matmul_spec spec = {.name = "mlp", .x = x, .w = w, .out = out};
 *     KB_TRY(tp_matmul(ctx, &spec));
 */
#ifndef KB_TP_MATMUL_H
#define KB_TP_MATMUL_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

/*
 * out (m, n) = x (m, k) * w (k, n) + bias (n). Matrices are (product of all axes but the last, last
 * axis); a tensor of one dimension is one row. All are in HBM of one device, in any layout. Sums
 * are made in f32 (in i32 if x and w are integers) and rounded once to the dtype of out.
 *
 * Operations that can be fused into the product, in this order, in f32 before the one rounding:
 *
 *     norm       out = rms_norm(x) * w, where row i of rms_norm(x) is
 *                x[i] * norm_gain / sqrt(mean(x[i]^2) + norm_eps). x * norm_gain is rounded to the
 *                dtype of x. Needs whole rows of x, so there are no sums over ranks with it
 *     ranks      the sum over ranks
 *     bias
 *     gated      columns of w (and of the bias) are pairs (gate, up); out (m, n / 2) is
 *                silu(gate) * up
 *     residual   is added. A tensor of the shape of out; it may be out itself
 *
 * norm and gated are for floating-point products.
 */
typedef struct tp_matmul_spec {
    const char *name;            /* of the launch, for reports; NULL: "matmul" */
    kb_tensor x, w, out;         /* out is another tensor than x, w, bias and norm_gain */
    kb_tensor bias;              /* {0}: none */
    kb_tensor norm_gain;         /* (k); {0}: no norm. {.cube = KB_REPLICATE, .pe = KB_COLUMN_WISE}
                                    is a good layout */
    double norm_eps;             /* at least 0 */
    bool gated;                  /* n is even */
    kb_tensor residual;          /* {0}: none. Any floating-point dtype; integers for integers */
    bool x_by_cube;              /* x is a matrix by cube (view.h): (cubes * m, k) */
    bool out_by_cube;            /* out is one, and so is the residual */
    kb_tensor single;            /* for an `out` of several copies: a tensor of its shape and dtype
                                    with one copy; {0}: the call makes one and frees it */
    int64_t x_column, x_columns; /* the part of x that is used; no columns: all of it */
    uint32_t ranks;  /* 0 or 1: none. Else this number of ranks makes this call, on consecutive
                        devices, and the result of all is the sum over the ranks of their
                        products, each rounded to sum_dtype. Bias and residual are added once, and
                        have to be the same on all ranks */
    uint32_t rank;   /* of the caller, from 0 */
    uint32_t chunks; /* in which sums are exchanged during the product, approximately */
    kb_dtype sum_dtype;
    kb_stream stream;    /* 0: the default stream */
    kb_request *request; /* NULL: the call waits. Else it does not, and this becomes a request to be
                            waited for and freed. (If `out` has several copies and `single` is {0},
                            it waits as well.) */
} tp_matmul_spec;

KB_MUST_USE kb_error *tp_matmul(kb_context *ctx, const tp_matmul_spec *spec);

/* Installs the queues for products with these weights, laid out by tp_best_layout(). This takes
 * simulated time; otherwise the first product does it. `rank` and `ranks` are as in the spec. */
KB_MUST_USE kb_error *tp_matmul_prepare(kb_context *ctx, kb_tensor w, uint32_t rank,
                                        uint32_t ranks);

/* The layouts for a fast product of this size, for tensors of one dtype; m is the expected number
 * of rows. `gated` is as in the spec: columns of w are split between pairs. */
void tp_best_layout(kb_context *ctx, uint64_t m, uint64_t k, uint64_t n, kb_dtype dtype, bool gated,
                    kb_policy *w, kb_policy *x, kb_policy *out);

#endif
