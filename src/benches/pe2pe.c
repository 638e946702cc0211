/*
 * pe2pe.c: the latency from the TCM of one PE to another PE, by distance and size. The source is PE
 * 0 of cube 0 of the first SIP. Each transfer has the machine to itself.
 *
 * - queue: tl_send() to tl_recv(). From the call of tl_send() until the receiver, with a posted
 *   receive, can use the value.
 * - DMA: a tl_store() to the memory of the other PE. From the call until the store is complete: the
 *   bytes are in that memory. The other PE is not notified, so this is the cost of the bytes alone.
 *
 * Both write to the same kind of memory of the other PE (`memory`): the slots of the queue, and the
 * destination of the store.
 */
#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#include <stdlib.h>
#include <string.h>

#include "benches.h"
#include "pe2pe.h"

/* ---- The kernels ------------------------------------------------------------------------- */

/* Inputs and measured times of the kernels; kb_kernel.user. */
typedef struct probe {
    const pe2pe_sizes *sizes;
    int64_t warmup;
    uint64_t inbox;    /* offset of the receiver's part */
    kb_time sent;      /* time of the last send */
    kb_time *latency;  /* by size; of locate(), by PE */
    uint32_t pe_count; /* of locate() */
} probe;

/* Stores of the smallest size, one after the other, to every other PE of the cube. */
KB_KERNEL(locate, tl_ptr source, tl_ptr to)
{
    const probe *p = tl_user();
    int64_t bytes = (int64_t)p->sizes->bytes[0];
    tl_tensor value = tl_load(source, tl_shape(bytes), TL_I8);
    tl_wait(value);
    for (uint32_t pe = 1; pe < p->pe_count; pe++) {
        kb_time began = tl_now();
        tl_wait(tl_store(to + pe * bytes, value));
        p->latency[pe] = tl_now() - began;
    }
}

KB_KERNEL(store_remotely, tl_ptr source, tl_ptr to)
{
    const probe *p = tl_user();
    for (size_t i = 0; i < p->sizes->count; i++)
        TL_SCOPE {
            int64_t bytes = (int64_t)p->sizes->bytes[i], offset = (int64_t)p->sizes->offset[i];
            tl_tensor value = tl_load(source + offset, tl_shape(bytes), TL_I8);
            tl_wait(value);
            kb_time began = tl_now();
            tl_wait(tl_store(to + offset, value));
            p->latency[i] = tl_now() - began;
        }
}

/* Sends when the receiver is ready, and returns when the message has arrived. */
static void send_one(tl_context *tl, probe *p, tl_ptr source, int64_t bytes)
{
    tl_tensor value = tl_load(source, tl_shape(bytes), TL_I8);
    tl_wait(value);
    tl_wait(tl_recv("target", tl_shape(1), TL_I8));
    p->sent = tl_now();
    tl_send_sync("target", value);
}

static tl_tensor receive_one(tl_context *tl, probe *p, tl_tensor token, int64_t bytes,
                             kb_time *latency)
{
    tl_tensor value = tl_recv_async("source", tl_shape(bytes), TL_I8);
    tl_send("source", token);
    tl_wait(value);
    *latency = tl_now() - p->sent;
    return value;
}

/*
 * Runs on all PEs that have a part of the inbox; PEs that are neither sender nor receiver end at
 * once. The first rounds are not timed, because completions of those PEs are still in the fabric.
 */
KB_KERNEL(exchange, tl_ptr inbox, tl_ptr source)
{
    probe *p = tl_user();
    bool sends = tl_can_send("target");
    if (!sends && !tl_can_send("source"))
        return;
    tl_tensor token = tl_zeros(tl_shape(1), TL_I8);
    for (size_t i = 0; i < p->sizes->count; i++)
        for (int64_t round = 0; round <= p->warmup; round++)
            TL_SCOPE {
                int64_t bytes = (int64_t)p->sizes->bytes[i], offset = (int64_t)p->sizes->offset[i];
                if (sends)
                    send_one(tl, p, source + offset, bytes);
                else
                    tl_store(inbox + (int64_t)p->inbox + offset,
                             receive_one(tl, p, token, bytes, &p->latency[i]));
            }
}

/* ---- The two ends ------------------------------------------------------------------------ */

typedef struct job {
    kb_bench *bench;
    kb_context *ctx;
    kb_machine machine;
    pe2pe_table table;
    kb_pe source, targets[PE2PE_DISTANCES];
    kb_tensor payload;
    uint64_t payload_va;
    unsigned char *sent, *arrived; /* contents of the payload, and of a target */
} job;

static kb_error *out_of_memory(void)
{
    return kb_error_new(KB_ERR_HOST, "out of memory");
}

static const char *memory_names[] = {"tcm", "hbm", NULL};

static kb_memory memory_of(const job *j)
{
    return kb_bench_param(j->bench, "memory") == 0 ? KB_TCM : KB_HBM;
}

/* Zeros on a device: `bytes` on each PE up to *last. */
static kb_error *make_zeros(const job *j, const char *name, kb_memory memory, const kb_pe *last,
                            uint64_t bytes, kb_tensor *tensor)
{
    const kb_policy policy = {.cube = KB_COLUMN_WISE,
                              .pe = KB_COLUMN_WISE,
                              .num_cubes = last->cube + 1,
                              .num_pes = last->pe + 1};
    const kb_tensor_spec spec = {.name = name,
                                 .dtype = KB_I8,
                                 .shape = KB_SHAPE(bytes * policy.num_cubes * policy.num_pes),
                                 .memory = memory,
                                 .policy = &policy,
                                 .access = KB_UNTIMED};
    KB_TRY(kb_ahbm_set_device(j->ctx, last->sip));
    return kb_zeros(j->ctx, &spec, tensor);
}

/* Random bytes at the source. */
static kb_error *make_payload(job *j)
{
    uint64_t total = j->table.sizes.total;
    KB_TRY(make_zeros(j, "payload", KB_HBM, &j->source, total, &j->payload));
    KB_TRY(kb_tensor_va(j->ctx, j->payload, &j->payload_va));
    kb_bench_random(1, KB_F16, j->sent, (size_t)(total + 1) / 2); /* all bits of a byte vary */
    return kb_tensor_set_slice(j->ctx, j->payload, KB_UNTIMED, NULL, j->sent, (size_t)total);
}

/* ---- Choice of the PEs -------------------------------------------------------------------- */

static kb_error *run_locate(job *j, kb_time *latency)
{
    kb_pe last = {j->source.sip, 0, j->machine.pes - 1};
    probe p = {.sizes = &j->table.sizes, .latency = latency, .pe_count = j->machine.pes};
    kb_kernel kernel = locate;
    kb_tensor marks;
    uint64_t va;
    kernel.user = &p;
    KB_TRY(make_zeros(j, "marks", KB_TCM, &last, p.sizes->bytes[0], &marks));
    KB_TRY(kb_tensor_va(j->ctx, marks, &va));
    KB_TRY(kb_launch(j->ctx, "locate", &kernel, j->payload, va));
    return kb_tensor_free(j->ctx, marks);
}

/* The nearest and the farthest PE of the cube, by the time of a store of the smallest size: numbers
 * of PEs do not tell their location. */
static kb_error *find_in_cube(job *j)
{
    const char **missing = j->table.missing;
    if (j->machine.pes == 1) {
        missing[PE2PE_NEIGHBOUR] = missing[PE2PE_ACROSS] = "a cube has one PE";
        return NULL;
    }
    kb_time *latency = calloc(j->machine.pes, sizeof *latency);
    if (!latency)
        return out_of_memory();
    kb_error *err = run_locate(j, latency);
    uint32_t near = 1, far = 1;
    for (uint32_t pe = 2; pe < j->machine.pes && !err; pe++) {
        near = latency[pe] < latency[near] ? pe : near;
        far = latency[pe] > latency[far] ? pe : far;
    }
    j->targets[PE2PE_NEIGHBOUR].pe = near;
    j->targets[PE2PE_ACROSS].pe = far;
    if (latency[near] == latency[far])
        missing[PE2PE_ACROSS] = "all other PEs of the cube are at the same distance";
    free(latency);
    return err;
}

/* Cubes are numbered row by row: cube 1 is next to cube 0, and the last one is farthest away. */
static kb_error *find_targets(job *j)
{
    const char **missing = j->table.missing;
    for (int i = 0; i < PE2PE_DISTANCES; i++)
        j->targets[i] = j->source;
    KB_TRY(find_in_cube(j));
    j->targets[PE2PE_NEXT_CUBE].cube = 1;
    j->targets[PE2PE_FAR_CUBE].cube = j->machine.cubes - 1;
    if (j->machine.cubes == 1)
        missing[PE2PE_NEXT_CUBE] = missing[PE2PE_FAR_CUBE] = "a SIP has one cube";
    else if (j->machine.cubes == 2)
        missing[PE2PE_FAR_CUBE] = "a SIP has two cubes: the next one is the farthest";
    if (kb_bench_device_count(j->bench) > 1)
        j->targets[PE2PE_OTHER_SIP].sip = kb_bench_device(j->bench, 1);
    else
        missing[PE2PE_OTHER_SIP] = "the run uses one SIP";
    for (int i = 0; i < PE2PE_DISTANCES; i++)
        if (!missing[i])
            return NULL;
    return kb_error_new(KB_ERR_INPUT,
                        "machine '%s': the run uses one PE, and there is none to "
                        "send to",
                        j->machine.name);
}

/* ---- Transfers --------------------------------------------------------------------------- */

/* Compares the received bytes of all sizes with those sent. */
static kb_error *verify(const job *j, kb_tensor inbox, uint64_t offset, pe2pe_distance distance,
                        pe2pe_method method)
{
    if (!kb_bench_verifies(j->bench))
        return NULL;
    uint64_t total = j->table.sizes.total;
    KB_TRY(kb_tensor_get_slice(j->ctx, inbox, KB_UNTIMED, &KB_SLICE({offset, offset + total}),
                               j->arrived, (size_t)total));
    for (uint64_t i = 0; i < total; i++)
        if (j->sent[i] != j->arrived[i])
            return kb_error_new(KB_ERR_CHECK,
                                "%s by %s: byte %llu of the payload is 0x%02x, not "
                                "0x%02x",
                                pe2pe_distance_names[distance], pe2pe_method_names[method],
                                (unsigned long long)i, j->arrived[i], j->sent[i]);
    return NULL;
}

/* The begin of the target's part, which is the last one. */
static kb_error *find_last_shard(const job *j, kb_tensor tensor, kb_shard *shard,
                                 kb_location *location)
{
    size_t count;
    KB_TRY(kb_tensor_shard_count(j->ctx, tensor, &count));
    KB_TRY(kb_tensor_shard(j->ctx, tensor, count - 1, shard));
    return kb_tensor_shard_location(j->ctx, tensor, count - 1, location);
}

static kb_error *request(const job *j, const kb_message *message)
{
    kb_request r;
    KB_TRY(kb_request_submit(j->ctx, message, &r));
    KB_TRY(kb_request_wait(j->ctx, r, NULL));
    return kb_request_free(j->ctx, r);
}

/* Only the source runs. A tensor is mapped on its own device only, so the destination is mapped
 * again, for the MMU of the source, which may be on another SIP. */
static kb_error *measure_dma(job *j, pe2pe_distance distance)
{
    probe p = {.sizes = &j->table.sizes, .latency = j->table.latency[distance][PE2PE_DMA]};
    kb_kernel kernel = store_remotely;
    kb_message map = {.kind = KB_MMU_MAP, .bytes = j->table.sizes.total, .pe = j->source};
    kb_tensor inbox;
    kb_shard shard;
    kernel.user = &p;
    KB_TRY(make_zeros(j, "dma inbox", memory_of(j), &j->targets[distance], map.bytes, &inbox));
    KB_TRY(find_last_shard(j, inbox, &shard, &map.to));
    KB_TRY(kb_va_alloc(j->ctx, map.bytes, &map.va));
    KB_TRY(request(j, &map));
    KB_TRY(kb_launch(j->ctx, "pe2pe dma", &kernel, j->payload, map.va));
    KB_TRY(verify(j, inbox, shard.offset_bytes, distance, PE2PE_DMA));
    const kb_message unmap = {.kind = KB_MMU_UNMAP, .pe = j->source, .va = map.va};
    KB_TRY(request(j, &unmap));
    KB_TRY(kb_va_free(j->ctx, map.va));
    return kb_tensor_free(j->ctx, inbox);
}

/* On another SIP the payload makes the source run the kernel; on the same SIP the inbox does. */
static kb_error *launch_exchange(const job *j, const kb_kernel *kernel, kb_queue_set queues,
                                 kb_tensor inbox, bool other_sip)
{
    const kb_tensor tensors[] = {inbox, j->payload};
    const kb_launch_options options = {.name = "pe2pe queue", .queues = queues};
    return kb_launch_with(j->ctx, &options, kernel, KB_EACH(tensors, other_sip ? 2 : 1),
                          j->payload_va);
}

static kb_error *measure_queue(job *j, pe2pe_distance distance)
{
    const kb_pe *target = &j->targets[distance];
    probe p = {.sizes = &j->table.sizes,
               .warmup = kb_bench_param(j->bench, "warmup"),
               .latency = j->table.latency[distance][PE2PE_QUEUE]};
    kb_kernel kernel = exchange;
    const kb_queue_edge edges[] = {{j->source, "target", *target}, {*target, "source", j->source}};
    const kb_queue_spec spec = {.edges = edges,
                                .edge_count = 2,
                                .buffer_kind = memory_names[kb_bench_param(j->bench, "memory")]};
    kb_queue_set queues;
    kb_tensor inbox;
    kb_shard shard;
    kb_location location;
    kernel.user = &p;
    KB_TRY(make_zeros(j, "queue inbox", KB_HBM, target, j->table.sizes.total, &inbox));
    KB_TRY(find_last_shard(j, inbox, &shard, &location));
    p.inbox = shard.offset_bytes;
    KB_TRY(kb_queues_create(j->ctx, &spec, &queues));
    KB_TRY(kb_queues_install(j->ctx, queues));
    KB_TRY(launch_exchange(j, &kernel, queues, inbox, target->sip != j->source.sip));
    KB_TRY(kb_queues_remove(j->ctx, queues));
    KB_TRY(verify(j, inbox, shard.offset_bytes, distance, PE2PE_QUEUE));
    return kb_tensor_free(j->ctx, inbox);
}

/* ---- The bench --------------------------------------------------------------------------- */

/* From min_bytes, each `factor` times the previous one, and max_bytes at the end. */
static kb_error *list_sizes(const kb_bench *bench, pe2pe_sizes *sizes)
{
    uint64_t min = (uint64_t)kb_bench_param(bench, "min_bytes");
    uint64_t max = (uint64_t)kb_bench_param(bench, "max_bytes");
    uint64_t factor = (uint64_t)kb_bench_param(bench, "factor");
    if (min > max)
        return kb_error_new(KB_ERR_INPUT, "min_bytes is %llu, more than max_bytes, %llu",
                            (unsigned long long)min, (unsigned long long)max);
    *sizes = (pe2pe_sizes){.count = 0};
    for (uint64_t bytes = min; bytes < max; bytes *= factor)
        sizes->bytes[sizes->count++] = bytes;
    sizes->bytes[sizes->count++] = max;
    for (size_t i = 0; i < sizes->count; i++) {
        sizes->offset[i] = sizes->total;
        sizes->total += sizes->bytes[i];
    }
    return NULL;
}

static kb_error *run_job(job *j)
{
    KB_TRY(make_payload(j));
    KB_TRY(find_targets(j));
    for (int i = 0; i < PE2PE_DISTANCES; i++) {
        if (j->table.missing[i])
            continue;
        KB_TRY(measure_queue(j, (pe2pe_distance)i));
        KB_TRY(measure_dma(j, (pe2pe_distance)i));
    }
    if (kb_bench_verifies(j->bench))
        kb_bench_confirm(j->bench);
    kb_bench_print(j->bench,
                   "From the TCM of sip%u.cube0.pe0 to the %s of another PE, each transfer alone",
                   j->source.sip, memory_of(j) == KB_TCM ? "TCM" : "HBM");
    pe2pe_print_targets(j->bench, &j->table, j->targets);
    pe2pe_print_table(j->bench, &j->table);
    pe2pe_print_plot(j->bench, &j->table);
    return NULL;
}

static kb_error *run(kb_bench *bench)
{
    kb_context *ctx = kb_bench_context(bench);
    job *j = calloc(1, sizeof *j);
    if (!j)
        return out_of_memory();
    j->bench = bench;
    j->ctx = ctx;
    j->machine = kb_context_machine(ctx);
    j->source.sip = kb_bench_device(bench, 0);
    kb_error *err = list_sizes(bench, &j->table.sizes);
    if (!err) {
        size_t room = (size_t)j->table.sizes.total + 1;
        j->sent = calloc(room, 1);
        j->arrived = calloc(room, 1);
        err = j->sent && j->arrived ? run_job(j) : out_of_memory();
    }
    free(j->sent);
    free(j->arrived);
    free(j);
    return err;
}

static const kb_param params[] = {
    {.name = "min_bytes",
     .value = 128,
     .min = 1,
     .max = PE2PE_MAX_BYTES,
     .help = "the smallest size, in bytes"},
    {.name = "max_bytes",
     .value = 10 << 10,
     .min = 1,
     .max = PE2PE_MAX_BYTES,
     .help = "the largest size, in bytes"},
    {.name = "factor", .value = 2, .min = 2, .max = 1024, .help = "from size to size"},
    {.name = "memory",
     .value = 0,
     .help = "of the target: slots of the queue, destination of the DMA",
     .names = memory_names},
    {.name = "warmup",
     .value = 2,
     .min = 0,
     .max = 100,
     .help = "messages of each size before the one that is timed"},
};

const kb_bench_spec bench_pe2pe = {
    .name = "pe2pe",
    .summary = "latency between PEs by distance and size, through queues and by DMA stores",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .run = run,
};
