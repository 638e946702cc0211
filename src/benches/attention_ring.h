/*
 * attention_ring.h: attention over rings of PEs, for benches and tests.
 *
 * The keys and values of a sequence are divided over the ranks of a ring, in parts that differ by
 * at most one key; with fewer keys than ranks, some ranks have none. Two kernels:
 *
 *   mlo   decode. All ranks have the one query. Each rank attends to its own keys; then the partial
 *         results (m, l, o) circulate in both directions. All ranks get the same bits.
 *   kv    prefill. The queries are divided too; tiles of K and V circulate eastward. The mask is
 *         causal: the queries are the last `queries` positions of the `keys`.
 *
 * Several rings, one per sequence, can run in one launch.
 */
#ifndef KB_BENCHES_ATTENTION_RING_H
#define KB_BENCHES_ATTENTION_RING_H

#include <kernbench/kernbench.h>

#include <stdbool.h>
#include <stdint.h>

typedef enum attention_kind { ATTENTION_MLO, ATTENTION_KV } attention_kind;

typedef struct attention_shape {
    attention_kind kind;
    bool over_cubes; /* a rank is PE 0 of a cube of the SIP; else a PE of cube 0 */
    uint32_t rings;  /* sequences: ring i has the ranks from i * ranks */
    uint32_t ranks;  /* of a ring */
    kb_dtype dtype;  /* f16 or bf16; m, l and o are f32 */
    uint64_t heads, kv_heads, head_dim;
    uint64_t queries;    /* of each sequence; 1 for mlo */
    uint64_t keys;       /* of each sequence */
    uint64_t tile_keys;  /* maximum keys of a product, and in kv of a message. 0: as many as fit in
                            the TCM, and in kv at most 256 */
    uint64_t pass_rows;  /* kv: rows (queries of the heads that share a kv head) that a rank has in
                            its TCM at a time; 0: as many as fit. K and V circulate once per pass */
    bool half_round;     /* mlo: triplets travel half of the ring, which suffices; else all of it */
    uint32_t n_slots;    /* of a queue; 0: as ccl.yaml has it */
    uint64_t slot_bytes; /* the same */
} attention_shape;

typedef struct attention {
    attention_shape shape; /* with defaults filled in */
    uint64_t block_rows;   /* kv: of a product */
    kb_tensor q, k, v, o;
    kb_queue_set *queues; /* of each ring; all 0 if a ring has one rank */
} attention;

/* Makes the tensors, untimed, and installs the queues through the fabric, which takes simulated
 * time. The attention must be destroyed also after an error. */
KB_MUST_USE kb_error *attention_create(kb_context *ctx, const attention_shape *shape, attention *a);

/* Removes the queues and frees the tensors. */
KB_MUST_USE kb_error *attention_destroy(kb_context *ctx, attention *a);

/* Runs the kernel on all ranks; *launch is to be waited for and freed. */
KB_MUST_USE kb_error *attention_launch(kb_context *ctx, const attention *a, kb_request *launch);

/* The messages that a launch sends. */
uint64_t attention_messages(const attention *a);

/* ---- Positions of elements ---- */

/*
 * q and o have heads * head_dim elements per query, k and v kv_heads * head_dim per key. Each rank
 * has room for the largest part, and uses the beginning of it:
 *
 *     q, o   [head][query of the rank][dim]
 *     k      [kv head][dim][key of the rank]: transposed, as the product needs it
 *     v      [key of the rank][kv head][dim]
 */
uint64_t attention_q_elements(const attention_shape *shape); /* of the tensors q and o */
uint64_t attention_k_elements(const attention_shape *shape); /* of the tensors k and v */

/* A query or key of a sequence: its rank, and its index there. */
typedef struct attention_position {
    uint32_t rank;
    uint64_t index;
} attention_position;
attention_position attention_find(uint64_t count, uint32_t ranks, uint64_t which);

/* Indices of elements in the tensors, row by row. With mlo the query is at every rank. */
uint64_t attention_q_at(const attention_shape *shape, uint32_t ring, attention_position query,
                        uint64_t head, uint64_t dim);
uint64_t attention_k_at(const attention_shape *shape, uint32_t ring, uint64_t key, uint64_t kv_head,
                        uint64_t dim);
uint64_t attention_v_at(const attention_shape *shape, uint32_t ring, uint64_t key, uint64_t kv_head,
                        uint64_t dim);

#endif
