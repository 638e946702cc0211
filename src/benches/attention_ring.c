/*
 * attention_ring.c: the host side of attention over rings: tensors, queues, launches.
 *
 * Tensors are divided by rows, with the same number of rows for each rank, so that a rank without
 * keys or queries has memory too and takes part in the ring.
 */
#include "attention_ring.h"

#include <stdlib.h>

#include "attention_kernels.h"

/* ---- Positions of elements --------------------------------------------------------------- */

static uint64_t part_size(uint64_t count, uint32_t ranks, uint32_t rank)
{
    return (uint64_t)tl_part_size((int64_t)count, ranks, rank);
}

/* The room of each rank; at least 1, because a tensor has no rows of zero elements. */
static uint64_t max_part(uint64_t count, uint32_t ranks)
{
    uint64_t max = part_size(count, ranks, 0);
    return max > 0 ? max : 1;
}

/* The queries of a rank: divided in kv, all of them on every rank in mlo. */
static uint64_t queries_of(const attention_shape *s, uint32_t rank)
{
    return s->kind == ATTENTION_MLO ? s->queries : part_size(s->queries, s->ranks, rank);
}

static uint64_t max_queries(const attention_shape *s)
{
    return s->kind == ATTENTION_MLO ? s->queries : max_part(s->queries, s->ranks);
}

static uint64_t global_rank(const attention_shape *s, uint32_t ring, uint32_t rank)
{
    return (uint64_t)ring * s->ranks + rank;
}

uint64_t attention_q_elements(const attention_shape *s)
{
    return global_rank(s, s->rings, 0) * s->heads * max_queries(s) * s->head_dim;
}

uint64_t attention_k_elements(const attention_shape *s)
{
    return global_rank(s, s->rings, 0) * s->kv_heads * max_part(s->keys, s->ranks) * s->head_dim;
}

attention_position attention_find(uint64_t count, uint32_t ranks, uint64_t which)
{
    attention_position place = {0, which};
    while (place.index >= part_size(count, ranks, place.rank))
        place.index -= part_size(count, ranks, place.rank++);
    return place;
}

uint64_t attention_q_at(const attention_shape *s, uint32_t ring, attention_position query,
                        uint64_t head, uint64_t dim)
{
    uint64_t first = global_rank(s, ring, query.rank) * s->heads * max_queries(s);
    return (first + head * queries_of(s, query.rank) + query.index) * s->head_dim + dim;
}

/* The first element of a rank in k and v. */
static uint64_t first_of_rank(const attention_shape *s, uint32_t ring, uint32_t rank)
{
    return global_rank(s, ring, rank) * s->kv_heads * max_part(s->keys, s->ranks) * s->head_dim;
}

uint64_t attention_k_at(const attention_shape *s, uint32_t ring, uint64_t key, uint64_t kv_head,
                        uint64_t dim)
{
    attention_position place = attention_find(s->keys, s->ranks, key);
    uint64_t row = kv_head * s->head_dim + dim, keys = part_size(s->keys, s->ranks, place.rank);
    return first_of_rank(s, ring, place.rank) + row * keys + place.index;
}

uint64_t attention_v_at(const attention_shape *s, uint32_t ring, uint64_t key, uint64_t kv_head,
                        uint64_t dim)
{
    attention_position place = attention_find(s->keys, s->ranks, key);
    uint64_t row = place.index * s->kv_heads + kv_head;
    return first_of_rank(s, ring, place.rank) + row * s->head_dim + dim;
}

/* ---- Counts ------------------------------------------------------------------------------ */

/* Steps in which each rank forwards a triplet in each direction. */
static uint32_t mlo_steps(const attention_shape *s)
{
    return s->half_round ? s->ranks / 2 : s->ranks - 1;
}

/* The passes over all keys for each kv head. */
static uint64_t passes(const attention_shape *s)
{
    uint64_t rows = s->heads / s->kv_heads * max_queries(s);
    return (rows + s->pass_rows - 1) / s->pass_rows;
}

/* The tiles of keys of all ranks. */
static uint64_t tiles(const attention_shape *s)
{
    uint64_t count = 0;
    for (uint32_t rank = 0; rank < s->ranks; rank++)
        count += (part_size(s->keys, s->ranks, rank) + s->tile_keys - 1) / s->tile_keys;
    return s->rings * count;
}

uint64_t attention_messages(const attention *a)
{
    const attention_shape *s = &a->shape;
    if (s->kind == ATTENTION_MLO)
        return (uint64_t)s->rings * s->ranks * mlo_steps(s) * 2 * 3; /* two directions, m l o */
    /* K and V, to all other ranks. */
    return s->kv_heads * passes(s) * tiles(s) * 2 * (s->ranks - 1);
}

/* ---- Tensors and queues ------------------------------------------------------------------ */

static kb_error *check_shape(kb_context *ctx, const attention_shape *s)
{
    kb_machine machine = kb_context_machine(ctx);
    uint32_t max_ranks = s->over_cubes ? machine.cubes : machine.pes;
    if (s->rings == 0 || s->ranks == 0 || (uint64_t)s->rings * s->ranks > max_ranks)
        return kb_error_new(KB_ERR_INPUT, "attention: %u ring%s of %u ranks: the machine has %u %s",
                            s->rings, s->rings == 1 ? "" : "s", s->ranks, max_ranks,
                            s->over_cubes ? "cubes in a SIP (cube_mesh)"
                                          : "PEs in a cube (pe_layout)");
    if (s->kv_heads == 0 || s->heads == 0 || s->heads % s->kv_heads != 0)
        return kb_error_new(KB_ERR_INPUT,
                            "attention: %llu heads and %llu kv heads: expected a multiple",
                            (unsigned long long)s->heads, (unsigned long long)s->kv_heads);
    if (s->dtype != KB_F16 && s->dtype != KB_BF16)
        return kb_error_new(KB_ERR_INPUT, "attention: dtype %s: expected f16 or bf16",
                            kb_dtype_name(s->dtype));
    if (s->head_dim == 0 || s->queries == 0 || (s->kind == ATTENTION_MLO && s->queries != 1))
        return kb_error_new(KB_ERR_INPUT,
                            "attention: head_dim %llu, %llu queries: expected at "
                            "least 1, and exactly one query for decode",
                            (unsigned long long)s->head_dim, (unsigned long long)s->queries);
    if (s->kind == ATTENTION_KV && s->queries > s->keys)
        return kb_error_new(KB_ERR_INPUT,
                            "attention: %llu queries and %llu keys: queries are the last positions "
                            "of the context, so it cannot be shorter",
                            (unsigned long long)s->queries, (unsigned long long)s->keys);
    return NULL;
}

static kb_error *make_tensor(kb_context *ctx, const attention_shape *s, const char *name,
                             uint64_t elements, kb_tensor *tensor)
{
    uint32_t all_ranks = s->rings * s->ranks;
    const kb_policy policy = {.cube = KB_ROW_WISE,
                              .pe = KB_ROW_WISE,
                              .num_cubes = s->over_cubes ? all_ranks : 1,
                              .num_pes = s->over_cubes ? 1 : all_ranks};
    const kb_tensor_spec spec = {.name = name,
                                 .dtype = s->dtype,
                                 .shape = KB_SHAPE(all_ranks, elements / all_ranks),
                                 .policy = &policy,
                                 .access = KB_UNTIMED};
    return kb_empty(ctx, &spec, tensor);
}

/* Queues between the ranks of a ring: E to the next rank, W to the one before. */
static kb_error *connect(kb_context *ctx, const attention_shape *s, uint32_t ring,
                         kb_queue_set *set)
{
    kb_pe *pes = calloc(s->ranks, sizeof *pes);
    if (!pes)
        return kb_error_new(KB_ERR_HOST, "out of memory");
    for (uint32_t rank = 0; rank < s->ranks; rank++) {
        uint32_t number = (uint32_t)global_rank(s, ring, rank);
        pes[rank] = (kb_pe){.sip = kb_ahbm_current_device(ctx),
                            .cube = s->over_cubes ? number : 0,
                            .pe = s->over_cubes ? 0 : number};
    }
    const kb_queue_spec spec = {.topology = "ring_1d",
                                .pes = pes,
                                .pe_count = s->ranks,
                                .n_slots = s->n_slots,
                                .slot_bytes = s->slot_bytes};
    kb_error *err = kb_queues_create(ctx, &spec, set);
    free(pes);
    return err ? err : kb_queues_install(ctx, *set);
}

/* ---- Sizes that fit in the TCM ---- */

enum { MAX_BLOCK = 256, MIN_BLOCK = 16 };

/* The number of keys whose K and scores fit in 3/4 of the TCM, beside queries and results of all kv
 * heads and the results of all ranks. V overwrites K if there is only one tile. */
static uint64_t mlo_tile_keys(uint64_t tcm, const attention_shape *s)
{
    uint64_t width = s->kv_heads * s->head_dim, bytes = kb_dtype_bytes(s->dtype);
    uint64_t others = s->heads * width * (bytes + 2 * sizeof(float)) +
                      (s->ranks + 4ull) * s->heads * (s->head_dim + 2) * sizeof(float);
    uint64_t of_key = width * bytes + s->heads * (3 * sizeof(float) + bytes);
    uint64_t budget = tcm / 4 * 3;
    uint64_t keys = budget > others ? (budget - others) / of_key : 0;
    return keys > MIN_BLOCK ? keys : MIN_BLOCK;
}

/* Rows, and keys, of a product of kv: scores in three stages, two tiles of K and V, and results of
 * the rows before and after the product, in an eighth of the TCM. */
static uint64_t kv_block(uint64_t tcm, const attention_shape *s)
{
    uint64_t bytes = kb_dtype_bytes(s->dtype), block = MAX_BLOCK;
    while (block > MIN_BLOCK && block * block * (3 * sizeof(float) + bytes) +
                                        block * s->head_dim * (4 * bytes + 2 * sizeof(float)) >
                                    tcm / 8)
        block /= 2;
    return block;
}

/* Rows of kv whose queries and f32 results take half of the TCM. */
static uint64_t kv_pass_rows(uint64_t tcm, const attention_shape *s)
{
    uint64_t rows = tcm / 2 / (s->head_dim * (kb_dtype_bytes(s->dtype) + sizeof(float)));
    return rows > 0 ? rows : 1;
}

static void choose_sizes(kb_context *ctx, attention *a)
{
    attention_shape *s = &a->shape;
    uint64_t tcm = kb_context_machine(ctx).tcm_bytes;
    a->block_rows = kv_block(tcm, s);
    if (s->tile_keys == 0)
        s->tile_keys = s->kind == ATTENTION_MLO ? mlo_tile_keys(tcm, s) : a->block_rows;
    if (s->pass_rows == 0)
        s->pass_rows = kv_pass_rows(tcm, s);
    if (s->pass_rows > ATTENTION_MAX_BLOCKS * a->block_rows)
        s->pass_rows = ATTENTION_MAX_BLOCKS * a->block_rows;
}

/* ---- Creating and destroying ---- */

kb_error *attention_create(kb_context *ctx, const attention_shape *given, attention *a)
{
    *a = (attention){.shape = *given};
    attention_shape *s = &a->shape;
    KB_TRY(check_shape(ctx, s));
    choose_sizes(ctx, a);
    KB_TRY(make_tensor(ctx, s, "q", attention_q_elements(s), &a->q));
    KB_TRY(make_tensor(ctx, s, "k", attention_k_elements(s), &a->k));
    KB_TRY(make_tensor(ctx, s, "v", attention_k_elements(s), &a->v));
    KB_TRY(make_tensor(ctx, s, "o", attention_q_elements(s), &a->o));
    a->queues = calloc(s->rings, sizeof *a->queues);
    if (!a->queues)
        return kb_error_new(KB_ERR_HOST, "out of memory");
    for (uint32_t ring = 0; ring < s->rings && s->ranks > 1; ring++)
        KB_TRY(connect(ctx, s, ring, &a->queues[ring]));
    return NULL;
}

/* Returns the first of two errors. */
static kb_error *first_of(kb_error *err, kb_error *next)
{
    if (err)
        kb_error_free(next);
    return err ? err : next;
}

kb_error *attention_destroy(kb_context *ctx, attention *a)
{
    const kb_tensor tensors[] = {a->q, a->k, a->v, a->o};
    kb_error *err = NULL;
    for (uint32_t ring = 0; a->queues && ring < a->shape.rings; ring++)
        if (a->queues[ring].id != 0)
            err = first_of(err, kb_queues_remove(ctx, a->queues[ring]));
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        if (tensors[i].id != 0)
            err = first_of(err, kb_tensor_free(ctx, tensors[i]));
    free(a->queues);
    *a = (attention){0};
    return err;
}

/* ---- Launch ------------------------------------------------------------------------------ */

kb_error *attention_launch(kb_context *ctx, const attention *a, kb_request *launch)
{
    const attention_shape *s = &a->shape;
    /* Each PE is in one ring, so it uses the queues that were installed last: those of its ring.
     */
    const kb_launch_options options = {.request = launch,
                                       .queues = s->rings == 1 ? a->queues[0] : (kb_queue_set){0}};
    const int axis = s->over_cubes;
    if (s->kind == ATTENTION_MLO)
        return kb_launch_with(ctx, &options, attention_mlo_kernel(), a->q, a->k, a->v, a->o, axis,
                              s->ranks, s->heads, s->kv_heads, s->head_dim, s->keys, (int)s->dtype,
                              s->tile_keys, mlo_steps(s));
    return kb_launch_with(ctx, &options, attention_kv_kernel(), a->q, a->k, a->v, a->o, axis,
                          s->ranks, s->heads, s->kv_heads, s->head_dim, s->queries, s->keys,
                          (int)s->dtype, s->tile_keys, a->block_rows, s->pass_rows);
}
