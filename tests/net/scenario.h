/*
 * scenario.h: a small machine, the traffic on it, and what came of it: what the tests of the
 * transport share.
 *
 *     scenario s;
 *     scenario_init(&s, (net_options){.fabric.packet_bytes = 256, .fabric.vcs = 1});
 *     uint32_t a = scenario_node(&s, 5 * KB_NS), b = scenario_node(&s, 0);
 *     uint32_t ab = scenario_link(&s, a, b, 256, 0);
 *     scenario_write(&s, 0, 4096, LINKS(ab));
 *     outcome *o = scenario_run(&s);
 *     ... o->completions[0] ...
 *     outcome_free(o);
 *     scenario_fini(&s);
 */
#ifndef TESTS_NET_SCENARIO_H
#define TESTS_NET_SCENARIO_H

#include "support/expect.h"

#include "base/base.h"
#include "net/net.h"

/* How many, and which. */
#define LINKS(...)                                                                                 \
    (uint32_t)(sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)), (uint32_t[])                 \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

enum { MAX_STEPS = 12, MAX_LOOKS = 4, AT_ONCE = UINT32_MAX };

typedef struct planned_message {
    uint32_t steps[MAX_STEPS];
    uint32_t count;
    uint64_t bytes;
} planned_message;

typedef struct planned {
    kb_time at;     /* submitted so long after `after` was done */
    uint32_t after; /* an earlier order, or AT_ONCE: after the start */
    uint32_t from;
    planned_message out, back;
    bool reply, forwarded;
} planned;

typedef struct scenario {
    topo_graph graph;
    net_options options;
    KB_VEC(planned) orders;
    bool submit_first; /* at one instant, submissions come before the net's events, else after */
    bool from_outside; /* after, and not by events but between short runs */
    kb_time looks[MAX_LOOKS]; /* when to look at the figures in between, in order */
    uint32_t look_count;
    kb_time watch_from; /* bookings are watched from then on: one of `looks`, or 0, or KB_FOREVER */
    bool finished;      /* the graph */
} scenario;

/* Bookings of a link follow each other in time; links follow each other by number. */
typedef struct outcome {
    uint32_t orders, links, count;
    net_completion *completions; /* by order */
    uint32_t *done;              /* orders, in the order in which they ended */
    uint32_t done_count;
    net_booking *bookings;
    uint32_t *first_of_link; /* index of the first booking of each link, and one more */
    net_link_stats *stats;
    net_link_stats *looks; /* figures of all links at each look, one after the other */
    uint64_t hops[MAX_LOOKS];
    uint32_t look_count;
    net_stats total;
    net_train_stats trains;
    uint64_t events;
} outcome;

void scenario_init(scenario *s, net_options options);
void scenario_fini(scenario *s);

uint32_t scenario_node(scenario *s, kb_time overhead_fs);
/* In GB/s, so that laws read well; wire in fs. */
uint32_t scenario_link(scenario *s, uint32_t from, uint32_t to, uint64_t gbs, kb_time wire_fs);
/* A node that is a memory; its service link is the newest link. */
uint32_t scenario_memory(scenario *s, kb_time latency_fs, uint64_t gbs);
uint32_t scenario_service(const scenario *s, uint32_t memory);

/* Orders; the result is good until the next one. Links are passed in phase TOPO_BEFORE. */
planned *scenario_write(scenario *s, kb_time at, uint64_t bytes, uint32_t count,
                        const uint32_t *links);
planned *scenario_read(scenario *s, kb_time at, uint64_t bytes, uint32_t count,
                       const uint32_t *links, uint32_t back_count, const uint32_t *back_links);

net_order order_of(const planned *p);

/* Of channels in a port: five if there are rings, else four. */
uint32_t scenario_classes(const scenario *s);
/* And the one that a step of a way takes. */
uint32_t scenario_class(uint32_t step, bool reply);

/* Creates a simulator and a net, submits all orders, and runs to the end. All must end. */
outcome *scenario_run(scenario *s);

/* The same with and without elision, which must make no difference. */
outcome *scenario_run_both(scenario *s);

/* An empty one, for who fills it in otherwise. */
outcome *outcome_new(uint32_t orders, uint32_t links);
void outcome_add_booking(outcome *o, const net_booking *booking);
void outcome_sort(outcome *o); /* brings bookings in order by link */
void outcome_free(outcome *o);

/* The booking of one packet on one link; there must be one. */
const net_booking *outcome_booking(const outcome *o, uint64_t order, uint32_t packet,
                                   uint32_t link);

kb_time outcome_start(const outcome *o, uint64_t order, uint32_t packet, uint32_t link);

/* Every completion, every booking and every figure of links is the same. */
void outcomes_are_equal(const outcome *a, const outcome *b, const char *what);

/* ---- By chance --------------------------------------------------------------------------- */

typedef struct chance {
    bool ties;    /* all times are multiples of a few: much happens at one instant */
    bool chained; /* some orders wait for others */
    bool serial;  /* serial_ports */
    bool large;   /* many links, most of them unused */
    bool streams; /* many packets, long latencies, and routes that are used again and again */
    uint32_t most_orders;
} chance;

/* So many cases, or fewer where the program is slow: with a sanitizer, and much fewer in valgrind.
 */
uint64_t scenario_cases(uint64_t count);

/*
 * A graph without cycles of channels: links go up or down in the order of nodes, a way goes only up
 * or only down, requests up and answers down. Some nodes are memories, where routes begin with the
 * service or end, and some are ports between dies, which have two neighbours and where no way ends.
 */
void scenario_random(scenario *s, kb_rng *rng, const chance *how);

void scenario_print(const scenario *s);

#endif
