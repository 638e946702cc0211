/*
 * test_report.c: what people are told: the trace, who waits for whom, their pointers, and what
 * nobody received.
 */
#include "ipcq_rig.h"

/* ---- Trace ------------------------------------------------------------------------------- */

static void each_message_is_two_lines(void **state)
{
    (void)state;
    const ipcq_edge edges[] = {edge(0, "global_E", 1), edge(1, "global_W", 0)};
    ipcq_settings settings = {KB_TCM, false, 2, 100, 16};
    rig r = RIG(2, edges, &settings);
    ipcq_end *east = end_of(&r, 0, "global_E"), *west = end_of(&r, 1, "global_W");
    go_to(&r, 1234567);
    send(&r, east, 64);
    taker t = taker_of(&r, 1, west);
    post(&t);
    go_to(&r, 2 * KB_US);
    /* Of a message in segments: when its first slot is taken, and when its last is received. */
    ipcq_message *message = message_of(east, 150);
    send_next(message);
    post(&t);
    go_to(&r, 3 * KB_US);
    send_next(message);
    expect_text(r.trace,
                "       1.235 ns  sip0.cube0.pe0    send  global_E          64 bytes  #0       "
                "to sip0.cube0.pe1\n"
                "       1.235 ns  sip0.cube0.pe1    recv  global_W          64 bytes  #0       "
                "from sip0.cube0.pe0\n"
                "    2000.000 ns  sip0.cube0.pe0    send  global_E         150 bytes  #1       "
                "to sip0.cube0.pe1\n"
                "    3000.000 ns  sip0.cube0.pe1    recv  global_W         150 bytes  #1       "
                "from sip0.cube0.pe0\n");
    rig_fini(&r);
}

static void messages_without_rings_are_traced_too(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    ipcq_settings mock = {0};
    rig r = RIG(2, edges, &mock);
    ipcq_end *east = end_of(&r, 0, "E");
    ipcq_hand_over(message_of(east, 1));
    taker t = taker_of(&r, 1, end_of(&r, 1, "W"));
    post(&t);
    expect_text(r.trace,
                "       0.000 ns  sip0.cube0.pe0    send  E                  1 bytes  #0       "
                "to sip0.cube0.pe1\n"
                "       0.000 ns  sip0.cube0.pe1    recv  W                  1 bytes  #0       "
                "from sip0.cube0.pe0\n");
    rig_fini(&r);
}

/* ---- Waits ------------------------------------------------------------------------------- */

typedef struct sender {
    rig *r;
    ipcq_end *end;
} sender;

static void await(kb_co *co, void *arg)
{
    const sender *s = arg;
    await_credit(s->r, s->end, co);
}

/* A coroutine that waits for a credit in line 7 of a file. */
static void send_in_vain(rig *r, ipcq_end *end)
{
    while (has_credit(r, end))
        send(r, end, 1);
    kb_co *co;
    sender s = {r, end}; /* its coroutine reads it at once, and is not woken again */
    expect_ok(kb_co_spawn(r->sim, &(kb_co_options){.daemon = true}, await, &s, &co));
    kb_co_set_line(co, (kb_line){"kernels/ring.c", 7});
    go_to(r, kb_sim_now(r->sim) + 1);
}

static taker receive_in_vain(rig *r, uint32_t n, const char *direction)
{
    taker t = taker_of(r, n, direction ? end_of(r, n, direction) : NULL);
    t.receive.file = "ring.c";
    t.receive.line = 10 + (int)n;
    return t;
}

static void expect_waits(rig *r, const char *expected)
{
    kb_text text = KB_TEXT_INIT;
    assert_int_equal(ipcq_print_waits(r->queues, &text), expected[0] != '\0');
    expect_text(&text, expected);
}

static void nobody_waits_at_first(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    rig r = RIG(2, edges, &mostly);
    expect_waits(&r, "");
    rig_fini(&r);
}

static rig ring_of_four(const ipcq_settings *settings)
{
    ipcq_edge edges[8];
    for (uint32_t n = 0; n < 4; n++) {
        edges[n] = edge(n, "E", (n + 1) % 4);
        edges[4 + n] = edge(n, "W", (n + 3) % 4);
    }
    return RIG(4, edges, settings);
}

/* pe0 waits for pe3, that for pe2, that for pe1, and that for pe3. */
static void the_circle_is_found(void **state)
{
    (void)state;
    rig r = ring_of_four(&mostly);
    const ipcq_edge across[] = {edge(1, "x", 3), edge(3, "y", 1)};
    ipcq_set *ring = r.set;
    expect_ok(try_set(&r, across, 2, &mostly, &r.set)); /* of another set */
    taker one = receive_in_vain(&r, 1, "x");
    post(&one);
    r.set = ring;
    taker others[] = {receive_in_vain(&r, 0, "W"), receive_in_vain(&r, 2, "W"),
                      receive_in_vain(&r, 3, "W")};
    for (int i = 0; i < 3; i++)
        post(&others[i]);
    expect_waits(&r, "sip0.cube0.pe0 waits to receive by W from sip0.cube0.pe3, at ring.c:10\n"
                     "sip0.cube0.pe2 waits to receive by W from sip0.cube0.pe1, at ring.c:12\n"
                     "sip0.cube0.pe3 waits to receive by W from sip0.cube0.pe2, at ring.c:13\n"
                     "sip0.cube0.pe1 waits to receive by x from sip0.cube0.pe3, at ring.c:11\n"
                     "cycle: sip0.cube0.pe3 (W) > sip0.cube0.pe2 (W) > sip0.cube0.pe1 (x) > "
                     "sip0.cube0.pe3\n");
    rig_fini(&r);
}

/* Both send until their rings are full, and neither receives. */
static void senders_wait_for_each_other(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    rig r = RIG(2, edges, &mostly);
    send_in_vain(&r, end_of(&r, 0, "E"));
    expect_waits(&r, "sip0.cube0.pe0 waits to send by E: sip0.cube0.pe1 has no free slot, at "
                     "ring.c:7\n");
    send_in_vain(&r, end_of(&r, 1, "W"));
    expect_waits(&r, "sip0.cube0.pe0 waits to send by E: sip0.cube0.pe1 has no free slot, at "
                     "ring.c:7; it has 4 unread messages in E\n"
                     "sip0.cube0.pe1 waits to send by W: sip0.cube0.pe0 has no free slot, at "
                     "ring.c:7; it has 4 unread messages in W\n"
                     "cycle: sip0.cube0.pe0 (E) > sip0.cube0.pe1 (W) > sip0.cube0.pe0\n");
    rig_fini(&r);
}

/* A chain of waits, and one for any that closes nothing for sure. */
static void where_there_is_no_circle_none_is_shown(void **state)
{
    (void)state;
    rig r = ring_of_four(&mostly);
    taker takers[] = {receive_in_vain(&r, 1, "W"), receive_in_vain(&r, 2, "W"),
                      receive_in_vain(&r, 3, "W"), receive_in_vain(&r, 3, "E"),
                      receive_in_vain(&r, 0, NULL)};
    takers[1].receive.file = NULL;
    for (int i = 0; i < 5; i++)
        post(&takers[i]);
    expect_waits(&r, "sip0.cube0.pe0 waits to receive from any of E, W, at ring.c:10\n"
                     "sip0.cube0.pe1 waits to receive by W from sip0.cube0.pe0, at ring.c:11\n"
                     "sip0.cube0.pe2 waits to receive by W from sip0.cube0.pe1\n"
                     "sip0.cube0.pe3 waits to receive by E from sip0.cube0.pe0, at ring.c:13\n"
                     "sip0.cube0.pe3 waits to receive by W from sip0.cube0.pe2, at ring.c:13\n");
    rig_fini(&r);
}

/* The first of two segments has come: it waits for the other. */
static void a_message_that_is_not_whole_is_waited_for(void **state)
{
    (void)state;
    ipcq_settings settings = mostly;
    settings.slot_bytes = 10;
    rig r = ring_of_four(&settings);
    taker t = receive_in_vain(&r, 1, NULL);
    ipcq_end *east = end_of(&r, 0, "E");
    ipcq_message *message = message_of(east, 20);
    post(&t);
    send_next(message);
    expect_waits(&r, "sip0.cube0.pe1 waits to receive by W from sip0.cube0.pe0, at ring.c:11\n");
    ipcq_withdraw(&t.receive);
    expect_waits(&r, "");
    rig_fini(&r);
}

/* 4 segments of 10 bytes are there, and there is no room for the other 12. */
static void a_message_that_the_ring_cannot_hold_is_explained(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    ipcq_settings settings = mostly;
    settings.slot_bytes = 10;
    rig r = RIG(2, edges, &settings);
    ipcq_end *east = end_of(&r, 0, "E");
    ipcq_message *message = message_of(east, 160);
    for (int i = 0; i < 4; i++)
        send_next(message);
    send_in_vain(&r, east);
    expect_waits(&r, "sip0.cube0.pe0 waits to send by E: sip0.cube0.pe1 has no free slot, at "
                     "ring.c:7; its message of 160 bytes needs 16 slots, the queue has 4\n");
    rig_fini(&r);
}

/* One of 40 bytes fits: what is in the way is what was sent before it. */
static void a_message_that_the_ring_can_hold_is_not(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    ipcq_settings settings = mostly;
    settings.slot_bytes = 10;
    rig r = RIG(2, edges, &settings);
    ipcq_end *east = end_of(&r, 0, "E");
    send(&r, east, 1);
    ipcq_message *message = message_of(east, 40);
    for (int i = 0; i < 3; i++)
        send_next(message);
    send_in_vain(&r, east);
    expect_waits(&r, "sip0.cube0.pe0 waits to send by E: sip0.cube0.pe1 has no free slot, at "
                     "ring.c:7\n");
    rig_fini(&r);
}

/* A message in two segments is one; at pe1 as many as five directions have some. */
static void who_waits_is_told_what_he_has_not_read(void **state)
{
    (void)state;
    const ipcq_edge edges[] = {edge(0, "E", 1), edge(1, "W", 0), edge(0, "a", 1), edge(0, "b", 1),
                               edge(0, "c", 1), edge(0, "d", 1), edge(0, "e", 1)};
    ipcq_settings settings = mostly;
    settings.slot_bytes = 10;
    rig r = RIG(2, edges, &settings);
    taker t = receive_in_vain(&r, 1, "W");
    post(&t);
    ipcq_end *a = end_of(&r, 0, "a");
    ipcq_message *message = message_of(a, 15);
    send_next(message);
    send_next(message);
    expect_waits(&r, "sip0.cube0.pe1 waits to receive by W from sip0.cube0.pe0, at ring.c:11; it "
                     "has 1 unread message in a\n");
    send(&r, a, 1);
    static const char *const others[] = {"b", "c", "d", "e"};
    for (int i = 0; i < 4; i++)
        send(&r, end_of(&r, 0, others[i]), 1);
    expect_waits(&r, "sip0.cube0.pe1 waits to receive by W from sip0.cube0.pe0, at ring.c:11; it "
                     "has 2 unread messages in a, 1 in b, 1 in c, 1 in d, ...\n");
    rig_fini(&r);
}

/* ---- Pointers ---------------------------------------------------------------------------- */

#define TITLES                                                                                     \
    "PE              direction   to              from                    my_head  "                \
    "peer_tail_cache          my_tail  peer_head_cache  ring\n"

/*
 * pe0 has sent 3 to pe1, which has received all: at 20 ns one credit is there, and two are on their
 * way. pe2, which nobody answers, has sent 4 and waits; pe3 does not, and is not shown.
 */
static void pointers_of_those_who_wait_are_shown_with_their_rings(void **state)
{
    (void)state;
    const ipcq_edge edges[] = {edge(0, "child_left", 1), edge(1, "parent", 0), edge(2, "up", 1),
                               edge(3, "up", 2)};
    rig r = RIG(4, edges, &mostly);
    kb_text text = KB_TEXT_INIT;
    ipcq_print_pointers(r.set, &text);
    expect_text(&text, "");
    for (int i = 0; i < 3; i++)
        send(&r, end_of(&r, 0, "child_left"), 1);
    assert_true(take_now(&r, end_of(&r, 1, "parent")));
    go_to(&r, 10 * KB_NS);
    for (int i = 0; i < 2; i++)
        assert_true(take_now(&r, end_of(&r, 1, "parent")));
    go_to(&r, 20 * KB_NS);
    taker zero = receive_in_vain(&r, 0, "child_left"), one = receive_in_vain(&r, 1, "parent");
    post(&zero);
    post(&one);
    send_in_vain(&r, end_of(&r, 2, "up"));
    ipcq_print_pointers(r.set, &text);
    expect_text(&text,
                TITLES "sip0.cube0.pe0  child_left  sip0.cube0.pe1  sip0.cube0.pe1                "
                       "3                1                0                0  0x10000000 "
                       "(sip0.cube0.pe0.ipcq+0x0)\n"
                       "sip0.cube0.pe1  parent      sip0.cube0.pe0  sip0.cube0.pe0                "
                       "0                0                3                3  0x50000000 "
                       "(sip0.cube0.pe1.ipcq+0x0)\n"
                       "sip0.cube0.pe1  up          -               sip0.cube0.pe2                "
                       "-                -                0                4  0x50004000 "
                       "(sip0.cube0.pe1.ipcq+0x4000)\n"
                       "sip0.cube0.pe2  up          sip0.cube0.pe1  sip0.cube0.pe3                "
                       "4                0                0                0  0x90000000 "
                       "(sip0.cube0.pe2.ipcq+0x0)\n");
    rig_fini(&r);
}

/* ---- Large machines ---------------------------------------------------------------------- */

static unsigned lines_with(const char *text, const char *part)
{
    unsigned count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        count++;
    return count;
}

/*
 * All PEs of a ring wait for the one before them, and have a third direction. Of 17, 16 are shown;
 * these have 48 queue pairs, of which 32 are.
 */
static void reports_are_short(void **state)
{
    (void)state;
    enum { PES = 17 };
    ipcq_edge edges[3 * PES];
    taker takers[PES];
    for (uint32_t n = 0; n < PES; n++) {
        edges[n] = edge(n, "E", (n + 1) % PES);
        edges[PES + n] = edge(n, "W", (n + PES - 1) % PES);
        edges[2 * PES + n] = edge(n, "far", (n + 5) % PES);
    }
    ipcq_settings mock = {0}; /* rings have no addresses for so many PEs in a cube */
    rig r = RIG(PES, edges, &mock);
    kb_text text = KB_TEXT_INIT;
    for (uint32_t n = 0; n < PES; n++) {
        takers[n] = receive_in_vain(&r, n, "W");
        post(&takers[n]);
        if (n == 15) {
            assert_true(ipcq_print_waits(r.queues, &text));
            assert_int_equal(lines_with(kb_text_peek(&text), " waits to receive by W"), 16);
            assert_null(strstr(kb_text_peek(&text), "more"));
            kb_text_fini(&text);
        }
    }
    assert_true(ipcq_print_waits(r.queues, &text));
    assert_int_equal(lines_with(kb_text_peek(&text), " waits to receive by W"), 16);
    assert_non_null(strstr(kb_text_peek(&text), "\n"
                                                "and 1 more waits\n"
                                                "cycle: sip0.cube0.pe0 (W) > sip0.cube0.pe16 "
                                                "(W) > sip0.cube0.pe15 (W) > "));
    assert_non_null(strstr(kb_text_peek(&text), " > sip0.cube0.pe2 (W) > ... > sip0.cube0.pe0\n"));
    assert_int_equal(lines_with(kb_text_peek(&text), " (W) > "), 16);
    kb_text_fini(&text);
    ipcq_print_pointers(r.set, &text);
    assert_int_equal(lines_with(kb_text_peek(&text), "\n"), 1 + 32 + 1);
    assert_non_null(strstr(kb_text_peek(&text), "\nand 16 more\n"));
    kb_text_fini(&text);
    rig_fini(&r);
}

/* ---- Messages that nobody received ------------------------------------------------------- */

static void expect_unreceived(const rig *r, const char *expected)
{
    kb_text text = KB_TEXT_INIT;
    assert_int_equal(ipcq_print_unreceived(r->set, &text), expected[0] != '\0');
    expect_text(&text, expected);
}

static void messages_that_nobody_received_are_named(void **state)
{
    (void)state;
    ipcq_settings settings = mostly;
    settings.slot_bytes = 10;
    rig r = ring_of_four(&settings);
    expect_unreceived(&r, "");
    send(&r, end_of(&r, 0, "E"), 1);
    expect_unreceived(&r, "1 message was never received: sip0.cube0.pe1 has 1 in W from "
                          "sip0.cube0.pe0");
    assert_true(take_now(&r, end_of(&r, 1, "W")));
    expect_unreceived(&r, "");

    ipcq_end *west = end_of(&r, 0, "W");
    ipcq_message *message = message_of(west, 20);
    for (int i = 0; i < 2; i++)
        send_next(message);
    send(&r, west, 1);
    send(&r, end_of(&r, 1, "E"), 1);
    expect_unreceived(&r, "3 messages were never received: sip0.cube0.pe2 has 1 in W from "
                          "sip0.cube0.pe1, sip0.cube0.pe3 has 2 in E from sip0.cube0.pe0");
    for (uint32_t n = 0; n < 4; n++)
        send(&r, end_of(&r, n, "E"), 1);
    send(&r, end_of(&r, 1, "W"), 1);
    expect_unreceived(&r, "8 messages were never received: sip0.cube0.pe0 has 1 in E from "
                          "sip0.cube0.pe1, sip0.cube0.pe0 has 1 in W from sip0.cube0.pe3, "
                          "sip0.cube0.pe1 has 1 in W from sip0.cube0.pe0, sip0.cube0.pe2 has 2 in "
                          "W from sip0.cube0.pe1, and 3 more");
    ipcq_set_reset(r.set);
    expect_unreceived(&r, "");
    rig_fini(&r);
}

/* What is being received is not among them: the rest of it will be, or is dropped. */
static void a_message_that_is_not_whole_was_not_left(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    ipcq_settings settings = mostly;
    settings.slot_bytes = 10;
    rig r = RIG(2, edges, &settings);
    ipcq_end *east = end_of(&r, 0, "E");
    taker t = taker_of(&r, 1, end_of(&r, 1, "W"));
    ipcq_message *message = message_of(east, 30);
    post(&t);
    send_next(message);
    ipcq_segment second = ipcq_take_slot(message);
    send_next(message); /* the third */
    expect_unreceived(&r, "");
    arrive(&second);
    expect_unreceived(&r, "");
    assert_int_equal(t.messages, 1);
    rig_fini(&r);
}

static void without_rings_they_are_named_too(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    ipcq_settings mock = {0};
    rig r = RIG(2, edges, &mock);
    ipcq_end *east = end_of(&r, 0, "E");
    for (int i = 0; i < 2; i++)
        ipcq_hand_over(message_of(east, 1));
    expect_unreceived(&r, "2 messages were never received: sip0.cube0.pe1 has 2 in W from "
                          "sip0.cube0.pe0");
    assert_true(take_now(&r, end_of(&r, 1, "W")));
    assert_true(take_now(&r, end_of(&r, 1, "W")));
    expect_unreceived(&r, "");
    rig_fini(&r);
}

/* ---- Deadlocks --------------------------------------------------------------------------- */

static void a_deadlock_is_explained(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    rig r = RIG(2, edges, &mostly);
    kb_error *err = kb_error_new(KB_ERR_DEADLOCK, "stuck");
    err = ipcq_explain_deadlock(r.queues, err);
    assert_string_equal(kb_error_message(err), "stuck");
    assert_string_equal(kb_error_detail(err), "");
    kb_error_add_detail(err, "two coroutines");
    taker takers[] = {receive_in_vain(&r, 0, "W"), receive_in_vain(&r, 1, "E")};
    for (int i = 0; i < 2; i++)
        post(&takers[i]);
    err = ipcq_explain_deadlock(r.queues, err);
    assert_non_null(strstr(kb_error_detail(err),
                           "two coroutines\n"
                           "sip0.cube0.pe0 waits to receive by W from sip0.cube0.pe1, at "
                           "ring.c:10\n"
                           "sip0.cube0.pe1 waits to receive by E from sip0.cube0.pe0, at "
                           "ring.c:11\n"
                           "cycle: sip0.cube0.pe0 (W) > sip0.cube0.pe1 (E) > sip0.cube0.pe0\n"
                           "PE "));
    assert_int_equal(lines_with(kb_error_detail(err), "\n"), 1 + 2 + 1 + 4);
    expect_error(err, KB_ERR_DEADLOCK,
                 "stuck: sip0.cube0.pe0 waits for sip0.cube0.pe1 (W), which waits for "
                 "sip0.cube0.pe0 (E)");
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_message_is_two_lines),
        cmocka_unit_test(messages_without_rings_are_traced_too),
        cmocka_unit_test(nobody_waits_at_first),
        cmocka_unit_test(the_circle_is_found),
        cmocka_unit_test(senders_wait_for_each_other),
        cmocka_unit_test(where_there_is_no_circle_none_is_shown),
        cmocka_unit_test(a_message_that_is_not_whole_is_waited_for),
        cmocka_unit_test(a_message_that_the_ring_cannot_hold_is_explained),
        cmocka_unit_test(a_message_that_the_ring_can_hold_is_not),
        cmocka_unit_test(who_waits_is_told_what_he_has_not_read),
        cmocka_unit_test(pointers_of_those_who_wait_are_shown_with_their_rings),
        cmocka_unit_test(reports_are_short),
        cmocka_unit_test(messages_that_nobody_received_are_named),
        cmocka_unit_test(a_message_that_is_not_whole_was_not_left),
        cmocka_unit_test(without_rings_they_are_named_too),
        cmocka_unit_test(a_deadlock_is_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
