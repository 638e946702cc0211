/*
 * ipcq_rig.h: what the tests of ipcq share: edges, and a machine with queues that a test drives
 * itself, without kernels and DMAs: bytes are in their slot as soon as the test says so.
 */
#ifndef TESTS_IPCQ_RIG_H
#define TESTS_IPCQ_RIG_H

#include "support/expect.h"

#include "ipcq/ipcq.h"
#include "topo/random_machines.h"

/* PE n of cube 0 of SIP 0. */
static inline kb_pe pe(uint32_t n)
{
    return (kb_pe){.pe = n};
}

static inline ipcq_edge edge(uint32_t from, const char *direction, uint32_t to)
{
    return (ipcq_edge){pe(from), direction, pe(to)};
}

static const ipcq_settings mostly = {
    .buffer = KB_TCM, .n_slots = 4, .slot_bytes = 4096, .credit_bytes = 16};

/* Rings of two: E and W lead to the same PE. */
#define TWO_PES                                                                                    \
    {                                                                                              \
        edge(0, "E", 1), edge(0, "W", 1), edge(1, "E", 0), edge(1, "W", 0)                         \
    }

typedef struct rig {
    topo_machine *machine;
    kb_sim *sim;
    net *fabric;
    mem_memories *memories;
    data_store *store;
    kb_oplog *log;
    ipcq *queues;
    ipcq_set *set;
    kb_text *trace; /* NULL: none is kept */
} rig;

static inline void keep_line(void *self, const char *line)
{
    kb_text_printf(self, "%s\n", line);
}

/* Takes over the machine. After an error what was made is there and the rest is NULL. */
static inline kb_error *rig_try(rig *r, topo_machine *machine, bool traces)
{
    *r = (rig){.machine = machine, .trace = traces ? calloc(1, sizeof(kb_text)) : NULL};
    KB_TRY(kb_sim_create(NULL, &r->sim));
    KB_TRY(net_create_for(r->sim, machine, 0, false, &r->fabric));
    KB_TRY(mem_memories_create(machine, TOPO_NONE, &r->memories));
    KB_TRY(data_store_create(&(data_options){.memories = r->memories, .threads = 1}, &r->store));
    KB_TRY(kb_oplog_create(r->sim, topo_machine_shape(machine)->pe_count, &r->log));
    return ipcq_create(&(ipcq_options){.sim = r->sim,
                                       .machine = machine,
                                       .fabric = r->fabric,
                                       .memories = r->memories,
                                       .store = r->store,
                                       .log = r->log,
                                       .trace = traces ? keep_line : NULL,
                                       .trace_self = r->trace},
                       &r->queues);
}

static inline void rig_fini(rig *r)
{
    if (r->sim)
        kb_sim_abandon(r->sim);
    ipcq_destroy(r->queues);
    kb_oplog_destroy(r->log);
    data_store_destroy(r->store);
    mem_memories_destroy(r->memories);
    net_destroy(r->fabric);
    kb_sim_destroy(r->sim);
    topo_machine_destroy(r->machine);
    if (r->trace)
        kb_text_fini(r->trace);
    free(r->trace);
}

static inline kb_error *try_set(rig *r, const ipcq_edge *edges, size_t count,
                                const ipcq_settings *settings, ipcq_set **set)
{
    ipcq_plan plan;
    *set = NULL;
    KB_TRY(ipcq_plan_init(&plan, edges, count, settings));
    kb_error *err = ipcq_set_create(r->queues, &plan, set);
    ipcq_plan_fini(&plan);
    return err;
}

static inline kb_error *install_all(ipcq_set *set)
{
    size_t count;
    const ipcq_member *members = ipcq_set_members(set, &count);
    for (size_t i = 0; i < count; i++)
        KB_TRY(ipcq_install(set, members[i].pe));
    return NULL;
}

/* One SIP of one cube with one router, and so many PEs there. */
static inline topo_machine *one_router(uint32_t pes)
{
    char text[256];
    snprintf(text, sizeof text,
             "system: { sips: { count: 1 } }\n"
             "sip: { cube_mesh: { w: 1, h: 1 } }\n"
             "cube: { noc: { k: 1 }, pe_layout: { pe_per_router: %u } }\n",
             pes);
    return machine_of(text);
}

/* PEs at one router, with the queues of the edges installed. */
static inline rig rig_make(uint32_t pes, const ipcq_edge *edges, size_t count,
                           const ipcq_settings *settings)
{
    rig r;
    expect_ok(rig_try(&r, one_router(pes), true));
    expect_ok(try_set(&r, edges, count, settings, &r.set));
    expect_ok(install_all(r.set));
    return r;
}

#define RIG(pes, edges, settings)                                                                  \
    rig_make((pes), (edges), sizeof(edges) / sizeof(edges)[0], (settings))

static inline ipcq_end *end_of(rig *r, uint32_t n, const char *direction)
{
    ipcq_end *end = ipcq_find(r->set, pe(n), direction);
    assert_non_null(end);
    return end;
}

static inline ipcq_message *message_of(ipcq_end *end, uint64_t bytes)
{
    ipcq_message *message = ipcq_message_new(end, bytes);
    assert_non_null(message);
    message->dtype = KB_I8;
    message->shape = KB_SHAPE(bytes);
    return message;
}

/* Takes a slot for a message that is never sent. */
static inline kb_location take_slot(ipcq_end *end)
{
    ipcq_message *message = message_of(end, 1);
    kb_location slot = ipcq_take_slot(message).slot;
    ipcq_message_free(message);
    return slot;
}

/* The next segment of the message is there at once. */
static inline void send_next(ipcq_message *message)
{
    uint64_t delivered;
    ipcq_segment segment = ipcq_take_slot(message);
    expect_ok(ipcq_arrive(&segment, &delivered));
}

static inline void arrive(const ipcq_segment *segment)
{
    uint64_t delivered;
    expect_ok(ipcq_arrive(segment, &delivered));
}

static inline void go_to(rig *r, kb_time when)
{
    expect_ok(kb_sim_run(r->sim, when));
}

/* Whether the sender has a credit by now. */
static inline bool has_credit(const rig *r, const ipcq_end *end)
{
    kb_time at;
    return ipcq_credit_at(end, &at) && at <= kb_sim_now(r->sim);
}

static inline void wake_waiter(void *self)
{
    kb_co_wake(self);
}

/* Waits until it has one; if the coroutine is being unwound this returns at once. */
static inline void await_credit(const rig *r, ipcq_end *end, kb_co *co)
{
    kb_time at;
    while (!ipcq_credit_at(end, &at) && !kb_co_is_unwinding(co)) {
        kb_wait(co, ipcq_await_credit(end, co, wake_waiter, co));
        ipcq_stop_awaiting(end);
    }
    kb_time now = kb_sim_now(r->sim);
    if (at > now && !kb_co_is_unwinding(co))
        kb_co_sleep(co, at - now);
}

/* Sends a message of one segment, which is there at once. */
static inline void send(rig *r, ipcq_end *end, uint64_t bytes)
{
    assert_true(has_credit(r, end));
    send_next(message_of(end, bytes));
}

/* A receive that remembers what it gets. Slots that have to be read are read at once, unless it
 * keeps them. */
typedef struct taker {
    ipcq_receive receive; /* first */
    rig *r;
    uint32_t pe;              /* of one for any end */
    ipcq_slot_read last_read; /* its slot */
    unsigned reads, messages, ends;
    uint64_t bytes, sequence;
    kb_pe sender;
    bool keeps_slots;
    bool withdraws_itself;             /* with its first slot */
    void (*then)(struct taker *taker); /* when it has ended; may be NULL */
} taker;

static inline void on_ended(ipcq_receive *receive)
{
    taker *t = (taker *)receive;
    assert_false(receive->waits);
    assert_int_equal(receive->reads, 0);
    t->ends++;
    if (t->then)
        t->then(t);
}

static inline void on_matched(ipcq_receive *receive, ipcq_message *message)
{
    taker *t = (taker *)receive;
    assert_false(receive->waits);
    assert_int_equal(message->to_arrive, 0);
    t->messages++;
    t->bytes += message->bytes;
    t->sequence = message->sequence;
    t->sender = ipcq_end_pe(message->from);
    if (receive->reads == 0)
        on_ended(receive);
}

static inline void on_read(ipcq_receive *receive, const ipcq_slot_read *read)
{
    taker *t = (taker *)receive;
    t->last_read = *read;
    t->reads++;
    if (!t->keeps_slots)
        ipcq_slot_was_read(receive, read->number);
    if (t->withdraws_itself)
        ipcq_withdraw(receive);
}

static const ipcq_receive_ops taker_ops = {on_matched, on_read, on_ended};

/* `end` NULL: for any of PE n. */
static inline taker taker_of(rig *r, uint32_t n, ipcq_end *end)
{
    return (taker){.receive = {.ops = &taker_ops, .end = end}, .r = r, .pe = n};
}

static inline void post_in(ipcq_set *set, taker *t)
{
    if (t->receive.end)
        ipcq_post(&t->receive);
    else
        ipcq_post_any(set, pe(t->pe), &t->receive);
}

static inline void post(taker *t)
{
    post_in(t->r->set, t);
}

/* Takes what is there; false if it has to wait, and then it no longer does. */
static inline bool take_now(rig *r, ipcq_end *end)
{
    taker t = taker_of(r, 0, end);
    post(&t);
    ipcq_withdraw(&t.receive);
    return t.messages == 1;
}

static inline void expect_text(kb_text *text, const char *expected)
{
    assert_string_equal(kb_text_peek(text), expected);
    kb_text_fini(text);
}

#endif
