/*
 * test_attention.c: attention over rings of PEs and of cubes. Results are compared with attention
 * by its definition, in double precision and without rings, parts or running sums. Data races fail
 * a launch in all of these tests.
 */
#include "rt/tensors.h"

#include <inttypes.h>
#include <math.h>

#include "benches/attention_ring.h"
#include "benches/benches.h"
#include "rt/rt.h"

/* ---- Machines ---------------------------------------------------------------------------- */

/* 4 x 4 cubes of 16 PEs, and 5 cubes in a row, of 3 PEs. */
#define WIDE                                                                                       \
    "sip: { cube_mesh: { w: 4, h: 4 } }\n"                                                         \
    "cube: { noc: { k: 4 }, pe_layout: { pe_per_router: 1 } }\n"
#define ROW                                                                                        \
    "sip: { cube_mesh: { w: 5, h: 1 } }\n"                                                         \
    "cube: { pe_layout: { pe_per_corner: 1, corners: [NW, SE, SW] } }\n"

/* ---- Numbers ----------------------------------------------------------------------------- */

typedef struct numbers {
    double *q; /* [ring][head][query][dim] */
    double *k; /* [ring][kv head][key][dim] */
    double *v; /* the same */
} numbers;

/* Random numbers that the dtype has; free() them. `factor` makes scores large. */
static double *draw(uint64_t seed, kb_dtype dtype, double factor, size_t count)
{
    uint16_t *halves = malloc((count + 1) * sizeof *halves);
    float *floats = malloc((count + 1) * sizeof *floats);
    double *doubles = malloc((count + 1) * sizeof *doubles);
    assert_true(halves && floats && doubles);
    kb_bench_random(seed, KB_F32, floats, count);
    for (size_t i = 0; i < count; i++)
        floats[i] *= (float)factor;
    kb_convert(dtype, halves, KB_F32, floats, count);
    kb_convert(KB_F32, floats, dtype, halves, count);
    for (size_t i = 0; i < count; i++)
        doubles[i] = (double)floats[i];
    free(halves);
    free(floats);
    return doubles;
}

static uint64_t q_index(const attention_shape *s, uint64_t ring, uint64_t head, uint64_t query)
{
    return ((ring * s->heads + head) * s->queries + query) * s->head_dim;
}

static uint64_t k_index(const attention_shape *s, uint64_t ring, uint64_t head, uint64_t key)
{
    return ((ring * s->kv_heads + head) * s->keys + key) * s->head_dim;
}

/* softmax(q K^T / sqrt(dim)) V for one query of one head, over the keys up to its position. */
static void attend(const attention_shape *s, const numbers *n, uint64_t ring, uint64_t head,
                   uint64_t query, double *o)
{
    uint64_t kv_head = head / (s->heads / s->kv_heads);
    uint64_t keys = s->kind == ATTENTION_MLO ? s->keys : s->keys - s->queries + query + 1;
    const double *q = n->q + q_index(s, ring, head, query);
    double *weights = malloc((size_t)(keys + 1) * sizeof *weights);
    assert_non_null(weights);
    double most = -HUGE_VAL, sum = 0;
    for (uint64_t key = 0; key < keys; key++) {
        const double *k = n->k + k_index(s, ring, kv_head, key);
        weights[key] = 0;
        for (uint64_t i = 0; i < s->head_dim; i++)
            weights[key] += q[i] * k[i] / sqrt((double)s->head_dim);
        most = fmax(most, weights[key]);
    }
    for (uint64_t i = 0; i < s->head_dim; i++)
        o[i] = 0;
    for (uint64_t key = 0; key < keys; key++) {
        const double *v = n->v + k_index(s, ring, kv_head, key);
        double weight = exp(weights[key] - most);
        sum += weight;
        for (uint64_t i = 0; i < s->head_dim; i++)
            o[i] += weight * v[i];
    }
    for (uint64_t i = 0; i < s->head_dim && keys > 0; i++)
        o[i] /= sum;
    free(weights);
}

/* ---- Tensors ----------------------------------------------------------------------------- */

static void set_tensor(kb_context *ctx, const attention_shape *s, kb_tensor tensor,
                       const float *floats, uint64_t count)
{
    uint16_t *halves = malloc((size_t)count * sizeof *halves);
    assert_non_null(halves);
    kb_convert(s->dtype, halves, KB_F32, floats, (size_t)count);
    expect_ok(
        kb_tensor_set_slice(ctx, tensor, KB_UNTIMED, NULL, halves, (size_t)count * sizeof *halves));
    free(halves);
}

/* Elements that belong to no query or key are NaN: who reads one has it in the result. */
static float *all_nan(uint64_t count)
{
    float *floats = malloc((size_t)count * sizeof *floats);
    assert_non_null(floats);
    for (uint64_t i = 0; i < count; i++)
        floats[i] = NAN;
    return floats;
}

/* Ranks that have the query: all with mlo, else one. */
static attention_position place_of(const attention_shape *s, uint64_t query, uint32_t copy)
{
    return s->kind == ATTENTION_MLO ? (attention_position){copy, query}
                                    : attention_find(s->queries, s->ranks, query);
}

static uint32_t copies(const attention_shape *s)
{
    return s->kind == ATTENTION_MLO ? s->ranks : 1;
}

static void set_queries(kb_context *ctx, const attention *a, const numbers *n)
{
    const attention_shape *s = &a->shape;
    float *q = all_nan(attention_q_elements(s));
    for (uint32_t ring = 0; ring < s->rings; ring++)
        for (uint64_t head = 0; head < s->heads; head++)
            for (uint64_t query = 0; query < s->queries; query++)
                for (uint32_t copy = 0; copy < copies(s); copy++)
                    for (uint64_t i = 0; i < s->head_dim; i++)
                        q[attention_q_at(s, ring, place_of(s, query, copy), head, i)] =
                            (float)n->q[q_index(s, ring, head, query) + i];
    set_tensor(ctx, s, a->q, q, attention_q_elements(s));
    free(q);
}

static void set_keys(kb_context *ctx, const attention *a, const numbers *n)
{
    const attention_shape *s = &a->shape;
    float *k = all_nan(attention_k_elements(s)), *v = all_nan(attention_k_elements(s));
    for (uint32_t ring = 0; ring < s->rings; ring++)
        for (uint64_t head = 0; head < s->kv_heads; head++)
            for (uint64_t key = 0; key < s->keys; key++)
                for (uint64_t i = 0; i < s->head_dim; i++) {
                    uint64_t from = k_index(s, ring, head, key) + i;
                    k[attention_k_at(s, ring, key, head, i)] = (float)n->k[from];
                    v[attention_v_at(s, ring, key, head, i)] = (float)n->v[from];
                }
    set_tensor(ctx, s, a->k, k, attention_k_elements(s));
    set_tensor(ctx, s, a->v, v, attention_k_elements(s));
    free(k);
    free(v);
}

/* The weights are rounded to the dtype once, and the result once. */
static void expect_result(const attention_shape *s, const numbers *n, const float *o)
{
    const double epsilon = s->dtype == KB_F16 ? 0x1p-10 : 0x1p-7;
    double *expected = malloc((size_t)s->head_dim * sizeof *expected);
    assert_non_null(expected);
    for (uint32_t ring = 0; ring < s->rings; ring++)
        for (uint64_t head = 0; head < s->heads; head++)
            for (uint64_t query = 0; query < s->queries; query++) {
                attend(s, n, ring, head, query, expected);
                for (uint32_t copy = 0; copy < copies(s); copy++)
                    for (uint64_t i = 0; i < s->head_dim; i++) {
                        attention_position place = place_of(s, query, copy);
                        double got = (double)o[attention_q_at(s, ring, place, head, i)];
                        if (!(fabs(got - expected[i]) <= epsilon * (fabs(expected[i]) + 0.5)))
                            fail_msg("ring %u head %" PRIu64 " query %" PRIu64 " dim %" PRIu64
                                     " at rank %u of %u: got %g, expected %g",
                                     ring, head, query, i, place.rank, s->ranks, got, expected[i]);
                    }
            }
    free(expected);
}

/* Of mlo: all ranks of a ring have the same bits. */
static void expect_same_bits(const attention_shape *s, const uint16_t *o)
{
    size_t each = (size_t)(attention_q_elements(s) / ((uint64_t)s->rings * s->ranks));
    for (uint32_t ring = 0; ring < s->rings && s->kind == ATTENTION_MLO; ring++)
        for (uint32_t rank = 1; rank < s->ranks; rank++) {
            const uint16_t *first = o + (size_t)ring * s->ranks * each;
            assert_memory_equal(first, first + rank * each, each * sizeof *o);
        }
}

/* ---- Trials ------------------------------------------------------------------------------ */

typedef struct counts {
    uint64_t products, loads;
    uint64_t sends;        /* of slots: a message may take several */
    uint64_t last_message; /* messages are numbered from 1 on */
} counts;

static void count_op(void *self, const kb_op *op)
{
    counts *c = self;
    c->products += op->unit == KB_UNIT_GEMM;
    c->loads += op->unit == KB_UNIT_DMA_READ;
    c->sends += strcmp(op->name, "send") == 0;
    c->last_message = op->message > c->last_message ? op->message : c->last_message;
}

typedef struct trial {
    const char *machine; /* NULL: the default one */
    const char *setting; /* of the machine or of collectives; NULL: none */
    attention_shape shape;
    double factor; /* of the queries; 0: 1 */
    bool timing_only;
    kb_time took;
} trial;

/* Products of mlo: two per tile of keys, and a rank has as even a share of keys as there is. */
static uint64_t mlo_products(const attention_shape *s)
{
    uint64_t tiles = 0;
    for (uint32_t rank = 0; rank < s->ranks; rank++) {
        uint64_t keys = s->keys / s->ranks + (rank < s->keys % s->ranks);
        tiles += (keys + s->tile_keys - 1) / s->tile_keys;
    }
    return 2 * s->rings * tiles;
}

static void check_counts(kb_context *ctx, const attention *a, const counts *c)
{
    const attention_shape *s = &a->shape;
    if (s->kind == ATTENTION_MLO)
        assert_int_equal(c->products, mlo_products(s));
    if (s->slot_bytes >= 1 << 18) /* each message takes one slot */
        assert_int_equal(c->sends, attention_messages(a));
    assert_int_equal(c->last_message, attention_messages(a));
    assert_int_equal(kb_context_op_total(ctx, KB_UNIT_GEMM, NULL).count, c->products);
    assert_int_equal(kb_context_op_total(ctx, KB_UNIT_DMA_READ, NULL).count, c->loads);
    assert_int_equal(kb_context_op_total(ctx, KB_UNIT_DMA_WRITE, "send").count, c->sends);
    assert_int_equal(kb_context_op_total(ctx, KB_UNIT_DMA_READ, "none").count, 0);
}

static void check_output(kb_context *ctx, const attention *a, const numbers *n)
{
    size_t count = (size_t)attention_q_elements(&a->shape);
    uint16_t *halves = malloc(count * sizeof *halves);
    float *floats = malloc(count * sizeof *floats);
    assert_true(halves && floats);
    expect_ok(kb_tensor_to_host(ctx, a->o, KB_UNTIMED, halves, count * sizeof *halves));
    kb_convert(KB_F32, floats, a->shape.dtype, halves, count);
    expect_result(&a->shape, n, floats);
    expect_same_bits(&a->shape, halves);
    free(halves);
    free(floats);
}

static counts run(trial *t)
{
    const attention_shape *s = &t->shape;
    counts c = {0};
    kb_context *ctx =
        open_context(t->machine, (kb_context_options){.races = KB_RACES_FAIL,
                                                      .on_op = count_op,
                                                      .on_op_self = &c,
                                                      .settings = &t->setting,
                                                      .setting_count = t->setting ? 1 : 0,
                                                      .threads = 1,
                                                      .timing_only = t->timing_only});
    size_t q_count = (size_t)(s->rings * s->heads * s->queries * s->head_dim);
    size_t k_count = (size_t)(s->rings * s->kv_heads * s->keys * s->head_dim);
    numbers n = {.q = draw(1, s->dtype, t->factor > 0 ? t->factor : 1, q_count),
                 .k = draw(2, s->dtype, 1, k_count),
                 .v = draw(3, s->dtype, 1, k_count)};
    attention a;
    kb_request launch;
    expect_ok(attention_create(ctx, s, &a));
    if (!t->timing_only) {
        set_queries(ctx, &a, &n);
        set_keys(ctx, &a, &n);
    }
    c = (counts){0};
    kb_time began = kb_context_now(ctx);
    expect_ok(attention_launch(ctx, &a, &launch));
    expect_ok(kb_request_wait(ctx, launch, NULL));
    expect_ok(kb_request_free(ctx, launch));
    t->took = kb_context_now(ctx) - began;
    check_counts(ctx, &a, &c);
    if (!t->timing_only)
        check_output(ctx, &a, &n);
    expect_ok(attention_destroy(ctx, &a));
    kb_context_destroy(ctx);
    free(n.q);
    free(n.k);
    free(n.v);
    return c;
}

static const uint32_t all_ranks[] = {1, 2, 3, 5, 8, 16};
static const uint32_t all_slots[] = {1, 2, 4, 8};
static const uint64_t all_heads[][2] = {{64, 8}, {32, 32}, {8, 1}, {6, 2}, {1, 1}};
enum { RANKS = 6, SLOTS = 4, HEADS = 5 };

/* ---- Decode ------------------------------------------------------------------------------ */

/* Queues of 1 to 8 slots; a slot holds all of a message, or a small part of it. */
static void mlo_with_any_ranks_and_slots(void **state)
{
    (void)state;
    for (size_t i = 0; i < RANKS; i++)
        for (size_t k = 0; k < 2 * SLOTS; k++) {
            size_t which = i * 2 * SLOTS + k;
            trial t = {.machine = WIDE,
                       .shape = {.kind = ATTENTION_MLO,
                                 .over_cubes = k >= SLOTS,
                                 .rings = 1,
                                 .ranks = all_ranks[i],
                                 .dtype = which % 3 == 0 ? KB_BF16 : KB_F16,
                                 .heads = all_heads[which % HEADS][0],
                                 .kv_heads = all_heads[which % HEADS][1],
                                 .head_dim = which % 2 ? 17 : 32,
                                 .queries = 1,
                                 .keys = 37 + which,
                                 .half_round = which % 5 < 2,
                                 .n_slots = all_slots[k % SLOTS],
                                 .slot_bytes = i % 2 ? 256 : 1 << 18}};
            run(&t);
        }
}

/* Fewer keys than ranks: some ranks have none. None at all: the result is 0. */
static void mlo_with_ranks_without_keys(void **state)
{
    (void)state;
    static const uint64_t keys[] = {0, 1, 2, 4, 7};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        for (int over_cubes = 0; over_cubes < 2; over_cubes++) {
            trial t = {.shape = {.kind = ATTENTION_MLO,
                                 .over_cubes = over_cubes,
                                 .rings = 1,
                                 .ranks = 8,
                                 .dtype = over_cubes ? KB_BF16 : KB_F16,
                                 .heads = 8,
                                 .kv_heads = 2,
                                 .head_dim = 5,
                                 .queries = 1,
                                 .keys = keys[i],
                                 .half_round = i % 2}};
            counts c = run(&t);
            assert_int_equal(c.products, 2 * keys[i]);
        }
}

/* Two products a rank, whatever the heads. Seven steps, two ways, three messages at each of 8. */
static void mlo_takes_two_products_a_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < HEADS; i++) {
        trial t = {.shape = {.kind = ATTENTION_MLO,
                             .rings = 1,
                             .ranks = 8,
                             .dtype = KB_F16,
                             .heads = all_heads[i][0],
                             .kv_heads = all_heads[i][1],
                             .head_dim = 64,
                             .queries = 1,
                             .keys = 99,
                             .n_slots = 4,
                             .slot_bytes = 1 << 20}};
        counts c = run(&t);
        assert_int_equal(c.products, 16);
        assert_int_equal(c.sends, 8 * 42);
    }
}

/* Keys that do not fit in the TCM at once: two products for each tile. */
static void mlo_with_several_tiles(void **state)
{
    (void)state;
    for (int over_cubes = 0; over_cubes < 2; over_cubes++) {
        trial t = {.shape = {.kind = ATTENTION_MLO,
                             .over_cubes = over_cubes,
                             .rings = 1,
                             .ranks = 3,
                             .dtype = KB_F16,
                             .heads = 8,
                             .kv_heads = over_cubes ? 1 : 4,
                             .head_dim = 16,
                             .queries = 1,
                             .keys = 20, /* 7, 7, 6 */
                             .tile_keys = 3}};
        counts c = run(&t);
        assert_int_equal(c.products, 2 * (3 + 3 + 2));
    }
}

/* Tiles, blocks and passes that fit in a TCM of 1 MiB. */
static void kernels_fit_in_a_small_tcm(void **state)
{
    (void)state;
    for (int kind = ATTENTION_MLO; kind <= ATTENTION_KV; kind++)
        for (uint64_t dim = 32; dim <= 128; dim *= 4) {
            trial t = {.machine = "cube: { pe_tcm: { capacity_mib: 5, reserved_mib: 4 } }\n",
                       .timing_only = true,
                       .shape = {.kind = (attention_kind)kind,
                                 .rings = 1,
                                 .ranks = 2,
                                 .dtype = KB_F16,
                                 .heads = 16,
                                 .kv_heads = 2,
                                 .head_dim = dim,
                                 .queries = kind == ATTENTION_MLO ? 1 : 1500,
                                 .keys = 3000}};
            run(&t);
        }
}

/* Half a round is enough, and takes less time. */
static void mlo_half_a_round_is_faster(void **state)
{
    (void)state;
    trial t = {.shape = {.kind = ATTENTION_MLO,
                         .rings = 1,
                         .ranks = 8,
                         .dtype = KB_F16,
                         .heads = 64,
                         .kv_heads = 8,
                         .head_dim = 64,
                         .queries = 1,
                         .keys = 100}};
    run(&t);
    kb_time all_round = t.took;
    t.shape.half_round = true;
    run(&t);
    assert_true(t.took < all_round);
}

/* ---- Prefill ----------------------------------------------------------------------------- */

static void kv_with_any_ranks_and_slots(void **state)
{
    (void)state;
    static const uint64_t tiles[] = {0, 3, 8};
    for (size_t i = 0; i < RANKS; i++)
        for (size_t k = 0; k < 2 * SLOTS; k++) {
            size_t which = i * 2 * SLOTS + k;
            trial t = {.machine = WIDE,
                       .shape = {.kind = ATTENTION_KV,
                                 .over_cubes = k >= SLOTS,
                                 .rings = 1,
                                 .ranks = all_ranks[i],
                                 .dtype = which % 3 == 0 ? KB_BF16 : KB_F16,
                                 .heads = all_heads[(which + 2) % HEADS][0],
                                 .kv_heads = all_heads[(which + 2) % HEADS][1],
                                 .head_dim = which % 2 ? 9 : 16,
                                 .queries = 5 + which,
                                 .keys = 5 + which + (which % 4) * 7,
                                 .tile_keys = tiles[which % 3],
                                 .n_slots = all_slots[k % SLOTS],
                                 .slot_bytes = i % 2 ? 64 : 1 << 18}};
            run(&t);
        }
}

/* Queries or keys at some ranks only. */
static void kv_with_empty_ranks(void **state)
{
    (void)state;
    static const uint64_t sizes[][2] = {{1, 1}, {1, 3}, {2, 2}, {3, 20}, {7, 8}, {1, 50}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int over_cubes = 0; over_cubes < 2; over_cubes++) {
            trial t = {.shape = {.kind = ATTENTION_KV,
                                 .over_cubes = over_cubes,
                                 .rings = 1,
                                 .ranks = 8,
                                 .dtype = over_cubes ? KB_F16 : KB_BF16,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = 8,
                                 .queries = sizes[i][0],
                                 .keys = sizes[i][1],
                                 .n_slots = 1,
                                 .slot_bytes = 128}};
            run(&t);
        }
}

/* More rows than a block has, in heads that do not divide the blocks; more rows than 32 blocks. */
static void kv_with_many_rows(void **state)
{
    (void)state;
    static const uint64_t sizes[][3] = {{8, 1, 200}, {3, 1, 350}, {64, 2, 300}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        trial t = {.shape = {.kind = ATTENTION_KV,
                             .rings = 1,
                             .ranks = i == 2 ? 1 : 2,
                             .dtype = KB_F16,
                             .heads = sizes[i][0],
                             .kv_heads = sizes[i][1],
                             .head_dim = 4,
                             .queries = sizes[i][2],
                             .keys = sizes[i][2] + i,
                             .tile_keys = 40}};
        run(&t);
        t.shape.pass_rows = 301; /* several passes, at some ranks fewer rows than at others */
        t.shape.queries--;
        t.shape.ranks = 3;
        t.shape.slot_bytes = 1 << 20;
        run(&t);
    }
}

/* ---- Both -------------------------------------------------------------------------------- */

/* Scores of some hundreds: their exponentials alone would overflow. */
static void large_scores(void **state)
{
    (void)state;
    for (int kind = ATTENTION_MLO; kind <= ATTENTION_KV; kind++) {
        trial t = {.factor = 200,
                   .shape = {.kind = (attention_kind)kind,
                             .rings = 1,
                             .ranks = 5,
                             .dtype = KB_F16,
                             .heads = 4,
                             .kv_heads = 2,
                             .head_dim = 32,
                             .queries = kind == ATTENTION_MLO ? 1 : 23,
                             .keys = 41}};
        run(&t);
    }
}

/* Several sequences at once: rows of cubes of their own, or PEs. */
static void several_rings(void **state)
{
    (void)state;
    for (int kind = ATTENTION_MLO; kind <= ATTENTION_KV; kind++)
        for (int over_cubes = 0; over_cubes < 2; over_cubes++) {
            trial t = {.shape = {.kind = (attention_kind)kind,
                                 .over_cubes = over_cubes,
                                 .rings = over_cubes ? 4 : 2,
                                 .ranks = 4,
                                 .dtype = KB_F16,
                                 .heads = 8,
                                 .kv_heads = 2,
                                 .head_dim = 16,
                                 .queries = kind == ATTENTION_MLO ? 1 : 9,
                                 .keys = 30}};
            run(&t);
        }
}

/* Slots in other memory than the TCM: the DMA reads them. */
static void any_memory_for_slots(void **state)
{
    (void)state;
    static const char *const kinds[] = {"ccl.defaults.buffer_kind=hbm",
                                        "ccl.defaults.buffer_kind=sram"};
    for (int kind = ATTENTION_MLO; kind <= ATTENTION_KV; kind++)
        for (uint32_t i = 0; i < 2 * SLOTS; i++) {
            trial t = {.setting = kinds[i % 2],
                       .shape = {.kind = (attention_kind)kind,
                                 .over_cubes = i >= SLOTS,
                                 .rings = 1,
                                 .ranks = 6,
                                 .dtype = KB_F16,
                                 .heads = 8,
                                 .kv_heads = 2,
                                 .head_dim = 16,
                                 .queries = kind == ATTENTION_MLO ? 1 : 9,
                                 .keys = 9 + 13 * i,
                                 .n_slots = all_slots[i % SLOTS],
                                 .slot_bytes = 200}};
            run(&t);
        }
}

/* With data and without. */
static void times_do_not_depend_on_data(void **state)
{
    (void)state;
    for (int kind = ATTENTION_MLO; kind <= ATTENTION_KV; kind++) {
        trial t = {.machine = ROW,
                   .shape = {.kind = (attention_kind)kind,
                             .over_cubes = true,
                             .rings = 1,
                             .ranks = 5,
                             .dtype = KB_BF16,
                             .heads = 8,
                             .kv_heads = 4,
                             .head_dim = 16,
                             .queries = kind == ATTENTION_MLO ? 1 : 16,
                             .keys = 64,
                             .n_slots = 2}};
        run(&t);
        kb_time with_data = t.took;
        t.timing_only = true;
        run(&t);
        assert_int_equal(t.took, with_data);
    }
}

static void bad_shapes_are_refused(void **state)
{
    (void)state;
    const attention_shape good = {.kind = ATTENTION_KV,
                                  .rings = 1,
                                  .ranks = 3,
                                  .dtype = KB_F16,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 8,
                                  .queries = 2,
                                  .keys = 2};
    attention_shape bad[7];
    for (size_t i = 0; i < 7; i++)
        bad[i] = good;
    bad[0].ranks = 4;
    bad[1].ranks = 0;
    bad[2].kv_heads = 3;
    bad[3].dtype = KB_F32;
    bad[4].keys = 1;
    bad[5].head_dim = 0;
    bad[6].kind = ATTENTION_MLO;
    static const char *const messages[] = {
        "the machine has 3 PEs", "0 ranks",    "expected a multiple", "expected f16 or bf16",
        "cannot be shorter",     "head_dim 0", "exactly one query"};
    kb_context *ctx = open_machine(ROW);
    for (size_t i = 0; i < 7; i++) {
        attention a;
        kb_error *err = attention_create(ctx, &bad[i], &a);
        assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
        if (!strstr(kb_error_message(err), messages[i]))
            fail_msg("'%s' lacks '%s'", kb_error_message(err), messages[i]);
        kb_error_free(err);
        expect_ok(attention_destroy(ctx, &a));
    }
    kb_context_destroy(ctx);
}

/* ---- The bench --------------------------------------------------------------------------- */

static double metric(const kb_bench *bench, const char *panel, const char *name)
{
    char full[80];
    size_t count;
    const rt_metric *metrics = rt_bench_metrics(bench, &count);
    snprintf(full, sizeof full, "%s.%s", panel, name);
    for (size_t i = 0; i < count; i++)
        if (strcmp(metrics[i].name, full) == 0)
            return metrics[i].value;
    fail_msg("there is no metric %s", full);
    return 0;
}

/* Runs the bench; what it reports goes to `look`. */
static void run_bench(const char *machine, const char *const *settings, size_t count,
                      bool timing_only, void (*look)(const kb_bench *, const kb_context *))
{
    kb_context *ctx = open_context(
        machine, (kb_context_options){.races = KB_RACES_FAIL, .timing_only = timing_only});
    const rt_bench_options options = {.settings = settings, .setting_count = count};
    kb_bench *bench;
    expect_ok(rt_bench_create(&bench_gqa_llama70b, &options, &bench));
    expect_ok(rt_bench_run(bench, ctx));
    assert_int_equal(rt_bench_verdict(bench), timing_only ? RT_NOT_VERIFIED : RT_VERIFIED);
    if (look)
        look(bench, ctx);
    rt_bench_destroy(bench);
    kb_context_destroy(ctx);
}

/* The parts of the PEs' time are those of their kernels. */
static void expect_sound(const kb_bench *bench, const char *panel)
{
    double kernels = metric(bench, panel, "users") * metric(bench, panel, "ranks") *
                     metric(bench, panel, "kernel_ns");
    double parts = metric(bench, panel, "compute_ns") + metric(bench, panel, "memory_ns") +
                   metric(bench, panel, "communication_ns") + metric(bench, panel, "idle_ns");
    assert_true(parts > 0 && parts <= kernels + 1);
    assert_true(metric(bench, panel, "time_ns") > metric(bench, panel, "kernel_ns"));
    assert_true(metric(bench, panel, "dmas") == metric(bench, panel, "dma_reads") +
                                                    metric(bench, panel, "dma_stores") +
                                                    metric(bench, panel, "slots_sent"));
}

/*
 * 5 cubes in a row, of 3 PEs: rings of 3 PEs and of 4 cubes. 64 keys, 16 queries, 16 heads and 2 kv
 * heads of 64 elements. Each rank has one tile of each kv head; a tile visits all other ranks.
 * Decode: m and l of 16 numbers and o of 16 * 64 are 4224 bytes, a way, a step and a rank.
 */
static void look_at_row(const kb_bench *bench, const kb_context *ctx)
{
    (void)ctx;
    static const char *const names[] = {"single_user_prefill", "multi_user_prefill",
                                        "single_user_decode", "multi_user_decode"};
    static const double ranks[] = {3, 4, 3, 4};
    for (int i = 0; i < 4; i++) {
        double n = ranks[i];
        expect_sound(bench, names[i]);
        assert_true(metric(bench, names[i], "ranks") == n);
        assert_true(metric(bench, names[i], "keys") == 64);
        bool is_prefill = i < 2;
        double queries = is_prefill ? 16 : n; /* one query, at all ranks */
        double messages = is_prefill ? 2 * 2 * n * (n - 1) : 2 * 3 * n * (n - 1);
        double sent = is_prefill ? (n - 1) * 64 * 2 * 64 * 2 * 2 : 2 * n * (n - 1) * 4224;
        assert_true(metric(bench, names[i], "queries") == (is_prefill ? 16 : 1));
        assert_true(metric(bench, names[i], "queue_messages") == messages);
        assert_true(metric(bench, names[i], "sent_bytes") == sent);
        assert_true(metric(bench, names[i], "stored_bytes") == queries * 16 * 64 * 2);
        assert_true(metric(bench, names[i], "loaded_bytes") ==
                    queries * 16 * 64 * 2 + 64 * 2 * 64 * 2 * 2);
        if (!is_prefill)
            assert_true(metric(bench, names[i], "matrix_products") == 2 * n);
    }
}

static void all_panels_report(void **state)
{
    (void)state;
    run_bench(ROW, NULL, 0, false, look_at_row);
}

static void look_at_headline(const kb_bench *bench, const kb_context *ctx)
{
    (void)ctx;
    expect_sound(bench, "multi_user_decode");
    assert_true(metric(bench, "multi_user_decode", "users") == 3);
    assert_true(metric(bench, "multi_user_decode", "ranks") == 2);
    assert_true(metric(bench, "multi_user_decode", "keys") == 4096);
    assert_true(metric(bench, "multi_user_decode", "matrix_products") == 3 * 2 * 2);
}

/* A user for each row of cubes. */
static void headline_uses_all_cubes(void **state)
{
    (void)state;
    static const char *const settings[] = {"scale=headline", "panel=multi_user_decode"};
    run_bench("sip: { cube_mesh: { w: 2, h: 3 } }\n", settings, 2, true, look_at_headline);
}

/* Machines of one PE, and of several SIPs; sizes that do not divide. */
static void the_bench_runs_on_any_machine(void **state)
{
    (void)state;
    static const char *const settings[] = {"context=29", "prompt=5",   "heads=6",
                                           "kv_heads=3", "head_dim=7", "dtype=bf16"};
    for (size_t i = 0; i < SMALL_MACHINES; i++)
        run_bench(small_machines[i], settings, 6, false, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlo_with_any_ranks_and_slots),
        cmocka_unit_test(mlo_with_ranks_without_keys),
        cmocka_unit_test(mlo_takes_two_products_a_rank),
        cmocka_unit_test(mlo_with_several_tiles),
        cmocka_unit_test(kernels_fit_in_a_small_tcm),
        cmocka_unit_test(mlo_half_a_round_is_faster),
        cmocka_unit_test(kv_with_any_ranks_and_slots),
        cmocka_unit_test(kv_with_empty_ranks),
        cmocka_unit_test(kv_with_many_rows),
        cmocka_unit_test(large_scores),
        cmocka_unit_test(several_rings),
        cmocka_unit_test(any_memory_for_slots),
        cmocka_unit_test(times_do_not_depend_on_data),
        cmocka_unit_test(bad_shapes_are_refused),
        cmocka_unit_test(all_panels_report),
        cmocka_unit_test(headline_uses_all_cubes),
        cmocka_unit_test(the_bench_runs_on_any_machine),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
