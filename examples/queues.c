/*
 * queues.c: PEs that exchange messages in an ordinary launch.
 *
 * A vector is split over the eight PEs of a small machine. In each step every element becomes the
 * mean of itself and its two neighbours, around a ring. A PE needs one element of each neighbouring
 * PE: these are sent through queues that the program installs, and the kernel sends and receives by
 * direction. Prints:
 *
 *     8 PEs in a ring, 16 directions with 2 slots each
 *     a spike after 1 step:   0.000 0.333 0.333 0.333 0.000
 *     a spike after 3 steps:  0.111 0.222 0.259 0.222 0.111
 *     the sum is still 1.000
 */
#include <stdio.h>
#include <stdlib.h>
#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

enum { PES = 8, PART = 5, ELEMENTS = PES * PART };

KB_KERNEL(smooth, tl_ptr x, int steps)
{
    tl_ptr mine = x + (tl_program_id(1) * tl_num_programs(0) + tl_program_id(0)) * PART * 4;
    tl_tensor v = tl_load(mine, tl_shape(PART), TL_F32);
    for (int step = 0; step < steps; step++)
        TL_SCOPE {
            tl_send("W", tl_slice(v, 0, 0, 1));
            tl_send("E", tl_slice(v, 0, PART - 1, PART));
            tl_tensor before = tl_recv("W", tl_shape(1), TL_F32);
            tl_tensor behind = tl_recv("E", tl_shape(1), TL_F32);
            tl_tensor left = tl_concat(0, before, tl_slice(v, 0, 0, PART - 1));
            tl_tensor right = tl_concat(0, tl_slice(v, 0, 1, PART), behind);
            tl_assign(&v, tl_div(tl_add(tl_add(left, right), v), 3));
        }
    tl_store(mine, v);
}

/* A ring over all PEs, cube by cube. */
static kb_error *connect(kb_context *ctx, kb_queue_set *set)
{
    kb_machine machine = kb_context_machine(ctx);
    kb_pe pes[PES];
    for (uint32_t i = 0; i < PES; i++)
        pes[i] = (kb_pe){.cube = i / machine.pes, .pe = i % machine.pes};
    const kb_queue_spec ring = {.topology = "ring_1d", .pes = pes, .pe_count = PES, .n_slots = 2};
    KB_TRY(kb_queues_create(ctx, &ring, set));
    KB_TRY(kb_queues_install(ctx, *set));
    size_t directions;
    KB_TRY(kb_queues_list(ctx, *set, NULL, 0, &directions));
    printf("%d PEs in a ring, %zu directions with %u slots each\n", PES, directions, ring.n_slots);
    return NULL;
}

/* Starts from a single 1, and shows the elements around it. */
static kb_error *spread_spike(kb_context *ctx, int steps)
{
    const kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    const kb_tensor_spec spec = {
        .name = "x", .dtype = KB_F32, .shape = KB_SHAPE(ELEMENTS), .policy = &policy};
    const int spike = 2 * PART; /* the first element of PE 2: its neighbour is elsewhere */
    kb_tensor x;
    float host[ELEMENTS] = {[2 * PART] = 1}, sum = 0;
    KB_TRY(kb_empty(ctx, &spec, &x));
    KB_TRY(kb_tensor_set_slice(ctx, x, KB_TIMED, NULL, host, sizeof host));
    KB_TRY(kb_launch(ctx, NULL, &smooth, x, steps));
    KB_TRY(kb_tensor_to_host(ctx, x, KB_TIMED, host, sizeof host));
    printf("a spike after %d step%s:%s", steps, steps == 1 ? "" : "s", steps == 1 ? "  " : " ");
    for (int i = spike - 2; i <= spike + 2; i++)
        printf(" %.3f", (double)host[i]);
    printf("\n");
    for (int i = 0; i < ELEMENTS; i++)
        sum += host[i];
    if (steps > 1)
        printf("the sum is still %.3f\n", (double)sum);
    return kb_tensor_free(ctx, x);
}

static kb_error *program(kb_context *ctx)
{
    kb_queue_set set;
    KB_TRY(connect(ctx, &set));
    KB_TRY(spread_spike(ctx, 1));
    KB_TRY(spread_spike(ctx, 3));
    return kb_queues_remove(ctx, set);
}

int main(void)
{
    static const char *const settings[] = {"system.sips.count=1", "sip.cube_mesh.w=2",
                                           "sip.cube_mesh.h=1", "cube.pe_layout.pe_per_corner=1"};
    kb_context *ctx;
    kb_error *err =
        kb_context_create(&(kb_context_options){.settings = settings, .setting_count = 4}, &ctx);
    if (!err)
        err = program(ctx);
    if (err)
        fprintf(stderr, "queues: %s\n", kb_error_message(err));
    kb_context_destroy(ctx);
    int status = (int)kb_error_code(err);
    kb_error_free(err);
    return status;
}
