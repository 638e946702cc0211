/*
 * dtensor_walk.c: the worker of docs/dtensor.md, on four small devices.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <kernbench/dtensor.h>

/* Of the host: x (6, 7) and w (7, 5). */
static kb_tensor x_values, w_values;

static kb_error *print_local(kb_context *ctx, uint32_t rank, const char *name, kb_dtensor x)
{
    kb_placements placements;
    kb_tensor local;
    kb_shape shape;
    char text[KB_PLACEMENTS_BYTES];
    KB_TRY(kb_dtensor_placements(ctx, x, &placements));
    KB_TRY(kb_dtensor_to_local(ctx, x, &local));
    KB_TRY(kb_tensor_shape(ctx, local, &shape));
    kb_placements_print(placements, text);
    printf("rank %" PRIu32 ": %s %s is (%" PRIu64 ", %" PRIu64 ") here\n", rank, name, text,
           shape.dims[0], shape.dims[1]);
    return NULL;
}

/* @WORKER@ */

static void print_note(void *self, const char *line)
{
    (void)self;
    if (strncmp(line, "dtensor:", 8) == 0) /* others are of collectives */
        printf("note: %s\n", line);
}

int main(void)
{
    static float numbers[42];
    for (int i = 0; i < 42; i++)
        numbers[i] = (float)(i % 5);
    static const char *const settings[] = {"system.sips.count=4", "sip.cube_mesh.w=2",
                                           "sip.cube_mesh.h=1"};
    const kb_context_options options = {
        .settings = settings, .setting_count = 3, .on_note = print_note};
    const kb_tensor_spec x = {.name = "x", .dtype = KB_F32, .shape = KB_SHAPE(6, 7)};
    const kb_tensor_spec w = {.name = "w", .dtype = KB_F32, .shape = KB_SHAPE(7, 5)};
    kb_context *ctx;
    kb_error *err = kb_context_create(&options, &ctx);
    if (!err)
        err = kb_from_host(ctx, &x, numbers, 42 * sizeof(float), &x_values);
    if (!err)
        err = kb_from_host(ctx, &w, numbers, 35 * sizeof(float), &w_values);
    if (!err)
        err = kb_spawn(ctx, work, NULL, 4);
    if (err)
        fprintf(stderr, "%s\n", kb_error_message(err));
    int code = (int)kb_error_code(err);
    kb_error_free(err);
    kb_context_destroy(ctx);
    return code;
}
