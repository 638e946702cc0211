/*
 * layouts.c: the shards of a tensor under several policies.
 *
 * A tensor of 3 x 5 bytes is placed on two cubes of two PEs each. A shard is shown as offset+bytes:
 * its offset in the tensor's virtual addresses and its size. Sizes need not divide: the first parts
 * are larger. Prints:
 *
 *                                         cube0.pe0  cube0.pe1  cube1.pe0  cube1.pe1
 *     all replicated                           0+15       0+15       0+15       0+15
 *     rows to cubes, replicated in them        0+10       0+10       10+5       10+5
 *     rows to cubes, columns to PEs             0+6        6+4       10+3       13+2
 *     columns to cubes, then to PEs             0+6        6+3        9+3       12+3
 *     rows to cubes, then to PEs                0+5        5+5       10+5       15+0
 *     tiles of 2 x 2, along rows           0+4 12+2   4+4 14+1        8+2       10+2
 *     tiles of 2 x 2, along columns        0+4 12+2   4+2 14+1        6+4       10+2
 */
#include <stdio.h>
#include <string.h>
#include <kernbench/kernbench.h>

enum { CUBES = 2, PES = 2 };

static const struct layout {
    const char *name;
    kb_policy policy;
} layouts[] = {
    {"all replicated", {.cube = KB_REPLICATE, .pe = KB_REPLICATE}},
    {"rows to cubes, replicated in them", {.cube = KB_ROW_WISE, .pe = KB_REPLICATE}},
    {"rows to cubes, columns to PEs", {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE}},
    {"columns to cubes, then to PEs", {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE}},
    {"rows to cubes, then to PEs", {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE}},
    {"tiles of 2 x 2, along rows",
     {.tiling = KB_TILED_COLUMN_MAJOR, .tile_rows = 2, .tile_columns = 2}},
    {"tiles of 2 x 2, along columns",
     {.tiling = KB_TILED_ROW_MAJOR, .tile_rows = 2, .tile_columns = 2}},
};

/* Appends a shard to those of the same PE. */
static void note(char *cell, size_t room, const kb_shard *shard)
{
    size_t length = strlen(cell);
    snprintf(cell + length, room - length, "%s%u+%u", length > 0 ? " " : "",
             (unsigned)shard->offset_bytes, (unsigned)shard->nbytes);
}

static kb_error *print_layout(kb_context *ctx, const struct layout *layout)
{
    kb_policy policy = layout->policy;
    policy.num_cubes = CUBES;
    policy.num_pes = PES;
    const kb_tensor_spec spec = {
        .dtype = KB_I8, .shape = KB_SHAPE(3, 5), .policy = &policy, .access = KB_UNTIMED};
    kb_tensor x;
    KB_TRY(kb_empty(ctx, &spec, &x));

    char cells[CUBES][PES][16] = {{""}};
    size_t count;
    KB_TRY(kb_tensor_shard_count(ctx, x, &count));
    for (size_t i = 0; i < count; i++) {
        kb_shard shard;
        KB_TRY(kb_tensor_shard(ctx, x, i, &shard));
        char *cell = cells[shard.cube][shard.pe];
        note(cell, sizeof cells[0][0], &shard);
    }

    printf("%-34s", layout->name);
    for (int cube = 0; cube < CUBES; cube++)
        for (int pe = 0; pe < PES; pe++)
            printf(" %10s", cells[cube][pe]);
    printf("\n");
    return kb_tensor_free(ctx, x);
}

static kb_error *print_layouts(kb_context *ctx)
{
    printf("%-34s %10s %10s %10s %10s\n", "", "cube0.pe0", "cube0.pe1", "cube1.pe0", "cube1.pe1");
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        KB_TRY(print_layout(ctx, &layouts[i]));
    return NULL;
}

int main(void)
{
    kb_context *ctx;
    kb_error *err = kb_context_create(NULL, &ctx);
    if (!err)
        err = print_layouts(ctx);
    if (err)
        fprintf(stderr, "%s\n", kb_error_message(err));
    int code = (int)kb_error_code(err);
    kb_error_free(err);
    kb_context_destroy(ctx);
    return code;
}
