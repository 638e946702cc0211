/*
 * exchange.c: see exchange.h. Every PE makes the same calls in the same order and sends before it
 * receives. So a PE that waits for a free slot waits for a PE that is behind it: there is no
 * deadlock.
 */
#include "exchange.h"

/* ---- Host ---- */

enum { MAX_SLOT_BYTES = 2048, MIN_SLOT_BYTES = 64 };

/* Names of directions need static storage. */
#define TENS(prefix, tens)                                                                         \
    prefix tens "0", prefix tens "1", prefix tens "2", prefix tens "3", prefix tens "4",           \
        prefix tens "5", prefix tens "6", prefix tens "7"
#define NAMES(prefix)                                                                              \
    TENS(prefix, "0"), TENS(prefix, "1"), TENS(prefix, "2"), TENS(prefix, "3"), TENS(prefix, "4"), \
        TENS(prefix, "5"), TENS(prefix, "6"), TENS(prefix, "7")

/* In octal: 64 of each. */
static const char pe_names[NN_MAX_PEERS][4] = {NAMES("p")};
static const char cube_names[NN_MAX_PEERS][4] = {NAMES("c")};

static uint64_t count_peers(const kb_machine *machine)
{
    return machine->cubes - 1 + machine->pes - 1;
}

static uint64_t slot_bytes(const kb_machine *machine)
{
    return tp_choose_slot_bytes(machine, count_peers(machine), MIN_SLOT_BYTES, MAX_SLOT_BYTES);
}

bool nn_can_exchange(const kb_machine *machine)
{
    uint64_t peers = count_peers(machine);
    return peers > 0 && machine->cubes <= NN_MAX_PEERS && machine->pes <= NN_MAX_PEERS &&
           tp_slots_fit(machine, peers, slot_bytes(machine));
}

/* From one PE to its peers. */
static void add_edges_of(const kb_machine *machine, kb_pe from, tp_edges *edges)
{
    for (uint32_t pe = 0; pe < machine->pes; pe++)
        if (pe != from.pe)
            tp_add_edge(edges, from, pe_names[pe], (kb_pe){from.sip, from.cube, pe});
    for (uint32_t cube = 0; cube < machine->cubes; cube++)
        if (cube != from.cube)
            tp_add_edge(edges, from, cube_names[cube], (kb_pe){from.sip, cube, from.pe});
}

/* The key is the SIP. */
static void add_edges(const tp_queue_spec *spec, const kb_machine *machine, tp_edges *edges)
{
    for (uint32_t cube = 0; cube < machine->cubes; cube++)
        for (uint32_t pe = 0; pe < machine->pes; pe++)
            add_edges_of(machine, (kb_pe){(uint32_t)spec->key[0], cube, pe}, edges);
}

kb_error *nn_get_queues(kb_context *ctx, uint32_t sip, kb_queue_set *set)
{
    kb_machine machine = kb_context_machine(ctx);
    const tp_queue_spec spec = {.add_edges = add_edges,
                                .key = {sip},
                                .max_edges =
                                    (size_t)machine.cubes * machine.pes * count_peers(&machine),
                                .slot_bytes = slot_bytes(&machine)};
    return tp_get_queues(ctx, &spec, set);
}

/* ---- In kernels ---- */

static const char *name_of(bool of_cubes, int64_t index)
{
    return of_cubes ? cube_names[index] : pe_names[index];
}

/* One participant for each PE of the cube, or for each cube. */
typedef struct subgroup {
    bool of_cubes;
    int64_t own, count;
} subgroup;

static subgroup in_cube(tl_context *tl, const nn_peers *peers)
{
    return (subgroup){.own = tl_program_id(0), .count = peers->pes};
}

static subgroup over_cubes(tl_context *tl, const nn_peers *peers)
{
    return (subgroup){.of_cubes = true, .own = tl_program_id(1), .count = peers->cubes};
}

/* Sends each participant its part of the rows. */
static void send_parts(tl_context *tl, const subgroup *group, tl_tensor x, int64_t rows)
{
    for (int64_t step = 1; step < group->count; step++) {
        int64_t to = (group->own + step) % group->count;
        int64_t begin = tl_part_begin(rows, group->count, to),
                size = tl_part_size(rows, group->count, to);
        if (size == 0)
            continue;
        tl_tensor part = tl_slice(x, 0, begin, begin + size);
        tl_send(name_of(group->of_cubes, to), part);
        tl_free(part);
    }
}

static void send_all(tl_context *tl, const subgroup *group, tl_tensor x)
{
    for (int64_t step = 1; step < group->count; step++)
        tl_send(name_of(group->of_cubes, (group->own + step) % group->count), x);
}

/* Receives from all participants, (rows of each, 1), and concatenates along the axis in their
 * order. Axis 1: each sends `rows`; axis 0: each sends its part of the rows. Consumes `own`. */
static tl_tensor gather(tl_context *tl, const subgroup *group, int axis, tl_tensor own,
                        int64_t rows, kb_dtype dtype)
{
    tl_tensor parts[NN_MAX_PEERS] = {{0}};
    size_t count = 0;
    for (int64_t from = 0; from < group->count; from++) {
        int64_t size = axis == 1 ? rows : tl_part_size(rows, group->count, from);
        if (size == 0)
            continue;
        parts[count++] = from == group->own ? own
                                            : tl_recv_async(name_of(group->of_cubes, from),
                                                            tl_shape(size, 1), dtype);
    }
    if (count == 1)
        return parts[0];
    tl_tensor all = tl_concat_(tl, TL_DETAIL_HERE, axis, parts, count);
    for (size_t i = 0; i < count; i++)
        tl_free(parts[i]);
    return all;
}

static tl_tensor combine(tl_context *tl, nn_combine how, tl_tensor all)
{
    tl_tensor result = how == NN_SUM ? tl_sum(all, 1) : tl_max(all, 1);
    tl_free(all);
    return result;
}

/* A copy of a part of a value. */
static tl_tensor own_part(tl_context *tl, const subgroup *group, tl_tensor x, int64_t rows)
{
    int64_t begin = tl_part_begin(rows, group->count, group->own);
    return tl_slice(x, 0, begin, begin + tl_part_size(rows, group->count, group->own));
}

tl_tensor nn_exchange(tl_context *tl, const nn_peers *peers, nn_combine how, tl_tensor x,
                      int64_t rows)
{
    subgroup cube = in_cube(tl, peers), cubes = over_cubes(tl, peers);
    int64_t size = tl_part_size(rows, cube.count, cube.own);
    tl_tensor part = {0};
    send_parts(tl, &cube, x, rows);
    if (size > 0) {
        part = own_part(tl, &cube, x, rows);
        part = combine(tl, how, gather(tl, &cube, 1, part, size, KB_F32));
        send_all(tl, &cubes, part);
        part = combine(tl, how, gather(tl, &cubes, 1, part, size, KB_F32));
        send_all(tl, &cube, part);
    }
    tl_free(x);
    return gather(tl, &cube, 0, part, rows, KB_F32);
}

nn_largest nn_choose_largest(tl_context *tl, nn_largest all)
{
    tl_tensor which = tl_argmax(all.values, 1);
    nn_largest best = {tl_gather(all.values, which, 1), tl_gather(all.indices, which, 1)};
    tl_free(which);
    tl_free(all.values);
    tl_free(all.indices);
    return best;
}

/* Values and indices of the same rows, of all participants of the subgroup. */
static nn_largest gather_largest(tl_context *tl, const subgroup *group, int axis, nn_largest own,
                                 int64_t rows)
{
    nn_largest all = {.values = gather(tl, group, axis, own.values, rows, KB_F32)};
    all.indices = gather(tl, group, axis, own.indices, rows, KB_I32);
    return all;
}

static void send_largest(tl_context *tl, const subgroup *group, nn_largest x)
{
    send_all(tl, group, x.values);
    send_all(tl, group, x.indices);
}

nn_largest nn_exchange_largest(tl_context *tl, const nn_peers *peers, nn_largest x, int64_t rows,
                               bool to_all)
{
    subgroup cube = in_cube(tl, peers), cubes = over_cubes(tl, peers);
    int64_t size = tl_part_size(rows, cube.count, cube.own);
    nn_largest part = {{0}, {0}};
    send_parts(tl, &cube, x.values, rows);
    send_parts(tl, &cube, x.indices, rows);
    if (size > 0) {
        part.values = own_part(tl, &cube, x.values, rows);
        part.indices = own_part(tl, &cube, x.indices, rows);
        part = nn_choose_largest(tl, gather_largest(tl, &cube, 1, part, size));
        send_largest(tl, &cubes, part);
        part = nn_choose_largest(tl, gather_largest(tl, &cubes, 1, part, size));
        if (to_all)
            send_largest(tl, &cube, part);
    }
    tl_free(x.values);
    tl_free(x.indices);
    return to_all ? gather_largest(tl, &cube, 0, part, rows) : part;
}
