/*
 * attention_ring.h: attention over rings of PEs, for benches and tests.
 *
 * The keys and values of a sequence are divided over the ranks of a ring, in parts that differ by
 * one key at most; with fewer keys than ranks, some ranks have none. Two kernels:
 *
 *   mlo   decode. All ranks have the one query. Each rank attends to its own keys, then the partial
 *         results (m, l, o) go round the ring in both directions. All ranks end with the same bits.
 *   kv    prefill. The queries are divided too; tiles of K and V go round the ring eastward. The
 *         mask is causal: the queries are at the last `queries` positions of the `keys`.
 *
 * Several rings, one a sequence, can run in one launch.
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
    uint32_t rings;  /* sequences: ring i has the ranks from i * ranks on */
    uint32_t ranks;  /* of a ring */
    kb_dtype dtype;  /* f16 or bf16; m, l and o are f32 */
    uint64_t heads, kv_heads, head_dim;
    uint64_t queries;    /* of each sequence; 1 for mlo */
    uint64_t keys;       /* of each sequence */
    uint64_t tile_keys;  /* the most keys of a product, and in kv of a message. 0: as many as fit in
                            the TCM, and in kv 256 at most */
    uint64_t pass_rows;  /* kv: rows (queries of the heads that share a kv head) that a rank has in
                            its TCM at a time; 0: as many as fit. K and V go round for each pass */
    bool half_round;     /* mlo: triplets go half round the ring, which is enough; else all round */
    uint32_t n_slots;    /* of a queue; 0: as ccl.yaml has it */
    uint64_t slot_bytes; /* the same */
} attention_shape;

typedef struct attention {
    attention_shape shape; /* with values in place of the zeros that mean a default */
    uint64_t block_rows;   /* kv: of a product */
    kb_tensor q, k, v, o;
    kb_queue_set *queues; /* of each ring; all 0 if a ring has one rank */
} attention;

/* Makes the tensors untimed, and installs the queues through the fabric, which takes
 * simulated time. The attention is to be destroyed also after an error. */
KB_MUST_USE kb_error *attention_create(kb_context *ctx, const attention_shape *shape, attention *a);

/* Removes the queues and frees the tensors. */
KB_MUST_USE kb_error *attention_destroy(kb_context *ctx, attention *a);

/* Runs the kernel on all ranks; *launch is to be waited for and freed. */
KB_MUST_USE kb_error *attention_launch(kb_context *ctx, const attention *a, kb_request *launch);

/* Messages that a launch sends; and the products of a launch of mlo: two for each tile, so two for
 * each rank that has keys if its keys are one tile. */
uint64_t attention_messages(const attention *a);
uint64_t attention_mlo_products(const attention *a);

/* ---- Where elements are ---- */

/*
 * q and o have heads * head_dim elements a query, k and v kv_heads * head_dim a key. Each rank has
 * room for as many as the largest part has, and uses the beginning of it:
 *
 *     q, o   [head][query of the rank][dim]
 *     k      [kv head][dim][key of the rank]: transposed, as the product needs it
 *     v      [key of the rank][kv head][dim]
 */
uint64_t attention_q_elements(const attention_shape *shape); /* of the tensors q and o */
uint64_t attention_k_elements(const attention_shape *shape); /* of the tensors k and v */

/* A query or key of a sequence: the rank that has it, and which of that rank's it is. */
typedef struct attention_place {
    uint32_t rank;
    uint64_t index;
} attention_place;
attention_place attention_find(uint64_t count, uint32_t ranks, uint64_t which);

/* Indices of elements in the tensors, row by row. With mlo the query is at every rank. */
uint64_t attention_q_at(const attention_shape *shape, uint32_t ring, attention_place query,
                        uint64_t head, uint64_t dim);
uint64_t attention_k_at(const attention_shape *shape, uint32_t ring, uint64_t key, uint64_t kv_head,
                        uint64_t dim);
uint64_t attention_v_at(const attention_shape *shape, uint32_t ring, uint64_t key, uint64_t kv_head,
                        uint64_t dim);

#endif
