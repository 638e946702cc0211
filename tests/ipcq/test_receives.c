/*
 * test_receives.c: which receive gets what arrives: receives for a direction and for any, messages
 * of several segments, receives that are withdrawn, and what may be done while something is handed
 * out.
 */
#include "ipcq_rig.h"
#include "support/seed.h"

/* pe1 receives from pe0 by W, from pe2 by E and from pe3 by N. */
static rig star(const ipcq_settings *settings)
{
    const ipcq_edge edges[] = {edge(0, "E", 1), edge(1, "W", 0), edge(2, "W", 1),
                               edge(1, "E", 2), edge(3, "S", 1), edge(1, "N", 3)};
    return RIG(4, edges, settings);
}

static ipcq_end *to_west(rig *r)
{
    return end_of(r, 0, "E");
}

static ipcq_end *to_east(rig *r)
{
    return end_of(r, 2, "W");
}

static ipcq_end *to_north(rig *r)
{
    return end_of(r, 3, "S");
}

/* ---- Order ------------------------------------------------------------------------------- */

static void receives_of_an_end_are_served_in_order(void **state)
{
    (void)state;
    rig r = star(&mostly);
    taker takers[3];
    for (int i = 0; i < 3; i++) {
        takers[i] = taker_of(&r, 1, end_of(&r, 1, "W"));
        post(&takers[i]);
    }
    for (int i = 0; i < 3; i++) {
        assert_true(takers[i].receive.waits);
        send(&r, to_west(&r), 10 + (uint64_t)i);
        assert_false(takers[i].receive.waits);
        assert_int_equal(takers[i].bytes, 10 + i);
        assert_int_equal(takers[i].messages, 1);
    }
    rig_fini(&r);
}

/* A receive for the end comes before one for any, though that is older. */
static void a_receive_for_any_gets_what_no_other_waits_for(void **state)
{
    (void)state;
    rig r = star(&mostly);
    taker any = taker_of(&r, 1, NULL), west = taker_of(&r, 1, end_of(&r, 1, "W"));
    post(&any);
    post(&west);
    send(&r, to_west(&r), 1);
    assert_int_equal(west.messages, 1);
    assert_int_equal(any.messages, 0);
    assert_null(any.receive.end);
    send(&r, to_west(&r), 2);
    assert_int_equal(any.bytes, 2);
    assert_ptr_equal(any.receive.end, end_of(&r, 1, "W"));
    rig_fini(&r);
}

static void receives_for_any_are_served_in_order(void **state)
{
    (void)state;
    rig r = star(&mostly);
    taker first = taker_of(&r, 1, NULL), second = taker_of(&r, 1, NULL);
    post(&first);
    post(&second);
    send(&r, to_north(&r), 7);
    assert_int_equal(first.bytes, 7);
    assert_true(second.receive.waits);
    send(&r, to_east(&r), 8);
    assert_int_equal(second.bytes, 8);
    rig_fini(&r);
}

/* W, E and N have three, one and two messages. They take turns: W E N W N W. */
static void receives_for_any_take_turns_of_the_ends(void **state)
{
    (void)state;
    const char *const expected[] = {"W", "E", "N", "W", "N", "W"};
    for (int mock = 0; mock < 2; mock++) {
        ipcq_settings settings = mostly;
        settings.n_slots = mock ? 0 : 4;
        rig r = star(&settings);
        ipcq_end *const from[] = {to_west(&r),  to_west(&r),  to_west(&r),
                                  to_north(&r), to_north(&r), to_east(&r)};
        for (int i = 0; i < 6; i++) {
            if (mock)
                ipcq_hand_over(message_of(from[i], 1));
            else
                send(&r, from[i], 1);
        }
        for (int i = 0; i < 6; i++) {
            taker any = taker_of(&r, 1, NULL);
            post(&any);
            assert_string_equal(ipcq_direction(any.receive.end), expected[i]);
        }
        rig_fini(&r);
    }
}

/* It is served by an arrival in E: next time it begins at N. */
static void a_turn_counts_also_if_it_was_waited_for(void **state)
{
    (void)state;
    rig r = star(&mostly);
    taker any = taker_of(&r, 1, NULL);
    post(&any);
    send(&r, to_east(&r), 1);
    assert_int_equal(any.messages, 1);
    send(&r, to_west(&r), 1);
    send(&r, to_east(&r), 1);
    send(&r, to_north(&r), 1);
    const char *const expected[] = {"N", "W", "E"};
    for (int i = 0; i < 3; i++) {
        taker next = taker_of(&r, 1, NULL);
        post(&next);
        assert_string_equal(ipcq_direction(next.receive.end), expected[i]);
    }
    rig_fini(&r);
}

/* ---- At random --------------------------------------------------------------------------- */

enum { ENDS = 3, TAKERS = 12, STEPS = 20000 };

/* The same with counts alone. */
typedef struct model {
    uint64_t sent[ENDS], taken[ENDS];
    struct {
        int end; /* -1: any */
        bool waits;
        uint64_t posted; /* when, in steps */
    } receives[TAKERS];
    int turn;
} model;

/* The oldest that waits for the end (-1: any); -1 if none does. */
static int oldest(const model *m, int end)
{
    int found = -1;
    for (int i = 0; i < TAKERS; i++)
        if (m->receives[i].waits && m->receives[i].end == end &&
            (found < 0 || m->receives[i].posted < m->receives[found].posted))
            found = i;
    return found;
}

/* The receive gets the next message of the end. */
static void expect_taken(model *m, taker *takers, int number, int end)
{
    taker *t = &takers[number];
    assert_false(t->receive.waits);
    assert_int_equal(t->messages, 1);
    assert_int_equal(t->sequence, m->taken[end]);
    assert_ptr_equal(t->receive.end, end_of(t->r, 1, (const char *[]){"W", "E", "N"}[end]));
    m->taken[end]++;
    if (m->receives[number].end < 0)
        m->turn = (end + 1) % ENDS;
    m->receives[number].waits = false;
}

static void post_one(model *m, taker *takers, int number, int end, uint64_t step)
{
    rig *r = takers[number].r;
    const char *const names[] = {"W", "E", "N"};
    takers[number] = taker_of(r, 1, end < 0 ? NULL : end_of(r, 1, names[end]));
    m->receives[number].end = end;
    m->receives[number].waits = true;
    m->receives[number].posted = step;
    post(&takers[number]);
    int from = end;
    for (int i = 0; i < ENDS && from < 0; i++) {
        int next = (m->turn + i) % ENDS;
        from = m->taken[next] < m->sent[next] ? next : -1;
    }
    if (from >= 0 && m->taken[from] < m->sent[from])
        expect_taken(m, takers, number, from);
}

static void send_one(model *m, taker *takers, int end)
{
    rig *r = takers[0].r;
    ipcq_end *const from[] = {to_west(r), to_east(r), to_north(r)};
    if (!has_credit(r, from[end]))
        return;
    send(r, from[end], 1);
    m->sent[end]++;
    int number = oldest(m, end);
    if (number < 0)
        number = oldest(m, -1);
    if (number >= 0)
        expect_taken(m, takers, number, end);
}

static void random_receives_get_what_is_theirs(void **state)
{
    (void)state;
    rig r = star(&mostly);
    model m = {0};
    taker takers[TAKERS];
    for (int i = 0; i < TAKERS; i++)
        takers[i] = taker_of(&r, 1, NULL);
    kb_rng rng;
    kb_rng_init(&rng, test_seed(11));
    for (uint64_t step = 0; step < STEPS; step++) {
        int number = (int)kb_rng_below(&rng, TAKERS), end = (int)kb_rng_below(&rng, ENDS);
        unsigned what = (unsigned)kb_rng_below(&rng, 8);
        if (what < 4) {
            send_one(&m, takers, end);
        } else if (!m.receives[number].waits) {
            post_one(&m, takers, number, what == 4 ? -1 : end, step);
        } else if (what == 7) {
            ipcq_withdraw(&takers[number].receive);
            m.receives[number].waits = false;
        }
        for (int i = 0; i < TAKERS; i++)
            assert_int_equal(takers[i].receive.waits, m.receives[i].waits);
        go_to(&r, kb_sim_now(r.sim) + 5 * KB_NS);
    }
    for (int i = 0; i < ENDS; i++)
        assert_true(m.taken[i] > STEPS / 20);
    rig_fini(&r);
}

/* ---- Segments ---------------------------------------------------------------------------- */

/* Not in TCM: so receives see their segments. */
static const ipcq_settings small_slots = {
    .buffer = KB_HBM, .n_slots = 2, .slot_bytes = 100, .credit_bytes = 16};

static void send_segment(rig *r, ipcq_message *message, uint64_t bytes)
{
    uint64_t before = message->unsent;
    assert_true(has_credit(r, message->from));
    ipcq_segment segment = ipcq_take_slot(message);
    assert_int_equal(before - message->unsent, bytes);
    assert_int_equal(segment.bytes, bytes);
    arrive(&segment);
}

static void later(rig *r)
{
    go_to(r, kb_sim_now(r->sim) + KB_US);
}

/* 450 bytes are five segments, more than the ring has slots. */
static void a_large_message_goes_in_segments(void **state)
{
    (void)state;
    rig r = star(&small_slots);
    taker t = taker_of(&r, 1, end_of(&r, 1, "W"));
    ipcq_message *message = message_of(to_west(&r), 450);
    assert_int_equal(message->to_arrive, 5);
    send_segment(&r, message, 100);
    send_segment(&r, message, 100);
    assert_false(has_credit(&r, to_west(&r)));
    post(&t);
    assert_int_equal(t.reads, 2);
    uint64_t base = t.last_read.slot.offset - 100;
    for (unsigned i = 2; i < 4; i++) {
        later(&r);
        send_segment(&r, message, 100);
        assert_int_equal(t.reads, i + 1);
        assert_int_equal(t.messages, 0);
        assert_int_equal(t.last_read.slot.offset, base + i % 2 * 100);
        assert_int_equal(t.last_read.bytes, 100);
    }
    assert_true(t.receive.waits);
    send_segment(&r, message, 50);
    assert_int_equal(t.messages, 1);
    assert_int_equal(t.bytes, 450);
    assert_int_equal(t.last_read.bytes, 50);
    assert_int_equal(t.ends, 1);
    rig_fini(&r);
}

/* Its sender is told with the segment that arrives last, whichever that is. */
static void a_message_is_delivered_with_its_last_arrival(void **state)
{
    (void)state;
    rig r = star(&small_slots);
    ipcq_message *message = message_of(to_west(&r), 150);
    message->delivery = 77;
    ipcq_segment first = ipcq_take_slot(message), second = ipcq_take_slot(message);
    uint64_t delivered = 1;
    expect_ok(ipcq_arrive(&second, &delivered));
    assert_int_equal(delivered, 0);
    expect_ok(ipcq_arrive(&first, &delivered));
    assert_int_equal(delivered, 77);
    rig_fini(&r);
}

static void sizes_at_the_edge_of_a_slot(void **state)
{
    (void)state;
    rig r = star(&small_slots);
    const uint64_t bytes[] = {0, 1, 99, 100, 101, 200, 201};
    const uint32_t segments[] = {1, 1, 1, 1, 2, 2, 3};
    for (int i = 0; i < 7; i++) {
        ipcq_message *message = message_of(to_west(&r), bytes[i]);
        assert_int_equal(message->to_arrive, segments[i]);
        taker t = taker_of(&r, 1, end_of(&r, 1, "W"));
        post(&t);
        uint64_t left = bytes[i];
        do {
            uint64_t part = left < 100 ? left : 100;
            send_segment(&r, message, part);
            left -= part;
            later(&r);
        } while (left > 0);
        assert_int_equal(t.messages, 1);
        assert_int_equal(t.bytes, bytes[i]);
    }
    rig_fini(&r);
}

/* A receive for any that has begun with W gets all of it; N goes to the next. */
static void a_message_stays_with_its_receive(void **state)
{
    (void)state;
    rig r = star(&small_slots);
    taker any = taker_of(&r, 1, NULL), other = taker_of(&r, 1, NULL),
          west = taker_of(&r, 1, end_of(&r, 1, "W"));
    ipcq_message *message = message_of(to_west(&r), 300);
    post(&any);
    send_segment(&r, message, 100);
    assert_int_equal(any.reads, 1);
    post(&west); /* waits for the next message there */
    post(&other);
    send(&r, to_north(&r), 5);
    assert_int_equal(other.bytes, 5);
    later(&r);
    send_segment(&r, message, 100);
    send_segment(&r, message, 100);
    assert_int_equal(any.bytes, 300);
    assert_int_equal(any.messages, 1);
    assert_int_equal(west.reads + west.messages, 0);
    later(&r);
    send(&r, to_west(&r), 9);
    assert_int_equal(west.bytes, 9);
    rig_fini(&r);
}

/* ---- Withdrawn --------------------------------------------------------------------------- */

static void receives_that_are_withdrawn_get_nothing(void **state)
{
    (void)state;
    rig r = star(&mostly);
    taker takers[6];
    for (int i = 0; i < 6; i++) {
        takers[i] = taker_of(&r, 1, i < 3 ? end_of(&r, 1, "W") : NULL);
        post(&takers[i]);
    }
    for (int i = 0; i < 6; i += 3) { /* the first, the one in the middle, and then the last */
        ipcq_withdraw(&takers[i + 1].receive);
        ipcq_withdraw(&takers[i].receive);
        ipcq_withdraw(&takers[i].receive); /* nothing more happens */
    }
    send(&r, to_west(&r), 1);
    assert_int_equal(takers[2].messages, 1);
    ipcq_withdraw(&takers[5].receive);
    send(&r, to_west(&r), 2);
    for (int i = 0; i < 6; i++)
        assert_int_equal(takers[i].messages, i == 2);
    assert_true(take_now(&r, end_of(&r, 1, "W")));
    rig_fini(&r);
}

/* The rest of its message is dropped as it comes, and the next one is whole. */
static void the_rest_of_a_message_is_dropped(void **state)
{
    (void)state;
    for (int stored = 0; stored < 2; stored++) { /* it has got the second segment, too */
        rig r = star(&small_slots);
        taker t = taker_of(&r, 1, end_of(&r, 1, "W")), next = t;
        ipcq_message *message = message_of(to_west(&r), 300);
        expect_ok(data_full(r.store, KB_I8, &KB_SHAPE(300), 1, &message->data));
        t.keeps_slots = true;
        post(&t);
        send_segment(&r, message, 100);
        if (!stored)
            ipcq_withdraw(&t.receive);
        send_segment(&r, message, 100);
        assert_int_equal(t.reads, stored ? 2 : 1);
        ipcq_withdraw(&t.receive);
        assert_int_equal(t.ends, 0); /* until its slots have been read */
        for (unsigned i = 0; i < t.reads; i++)
            ipcq_slot_was_read(&t.receive, i);
        assert_int_equal(t.ends, 1);
        later(&r);
        post(&next);
        send_segment(&r, message, 100);
        assert_int_equal(data_get_stats(r.store).live_values, 0);
        assert_int_equal(next.reads + next.messages, 0);
        send(&r, to_west(&r), 7);
        assert_int_equal(next.bytes, 7);
        rig_fini(&r);
    }
}

static void a_reset_frees_what_came_in_part(void **state)
{
    (void)state;
    for (int handed = 0; handed < 3; handed++) {
        rig r = star(&small_slots);
        taker t = taker_of(&r, 1, end_of(&r, 1, "W"));
        ipcq_message *message = message_of(to_west(&r), 300);
        expect_ok(data_full(r.store, KB_I8, &KB_SHAPE(300), 1, &message->data));
        t.keeps_slots = true;
        if (handed > 0)
            post(&t);
        send_segment(&r, message, 100);
        if (handed > 1)
            send_segment(&r, message, 100);
        assert_int_equal(t.reads, handed);
        ipcq_set_reset(r.set);
        assert_false(t.receive.waits);
        assert_int_equal(data_get_stats(r.store).live_values, 0);
        send(&r, to_west(&r), 1);
        assert_true(take_now(&r, end_of(&r, 1, "W")));
        rig_fini(&r);
    }
}

/* ---- While something is handed out ------------------------------------------------------- */

static taker *other_taker;

static void post_again(taker *t)
{
    if (t->messages < 3) {
        t->receive.end = NULL;
        post(t);
    }
}

/* W has two messages, E one: a receive for any that is posted again and again gets W, E, W. */
static void a_receive_may_be_posted_again_from_within(void **state)
{
    (void)state;
    rig r = star(&mostly);
    send(&r, to_west(&r), 1);
    send(&r, to_west(&r), 10);
    send(&r, to_east(&r), 100);
    taker t = taker_of(&r, 1, NULL);
    t.then = post_again;
    post(&t);
    assert_int_equal(t.messages, 3);
    assert_int_equal(t.bytes, 111);
    assert_string_equal(ipcq_direction(t.receive.end), "W");
    assert_int_equal(t.sequence, 1);
    rig_fini(&r);
}

static void withdraw_other(taker *t)
{
    (void)t;
    ipcq_withdraw(&other_taker->receive);
}

static void a_receive_may_be_withdrawn_from_within(void **state)
{
    (void)state;
    rig r = star(&mostly);
    ipcq_end *west = end_of(&r, 1, "W");
    taker a = taker_of(&r, 1, west), b = taker_of(&r, 1, west), c = taker_of(&r, 1, west);
    other_taker = &b;
    a.then = withdraw_other;
    post(&a);
    post(&b);
    post(&c);
    /* Both are there at once when the gap before them is filled. */
    ipcq_message *messages[2] = {message_of(to_west(&r), 1), message_of(to_west(&r), 2)};
    ipcq_segment first = ipcq_take_slot(messages[0]), second = ipcq_take_slot(messages[1]);
    arrive(&second);
    arrive(&first);
    assert_int_equal(a.bytes, 1);
    assert_int_equal(b.messages, 0);
    assert_int_equal(c.bytes, 2);
    rig_fini(&r);
}

/* It gets the first of two segments that are there, and no more. */
static void a_receive_may_withdraw_itself(void **state)
{
    (void)state;
    rig r = star(&small_slots);
    ipcq_message *message = message_of(to_west(&r), 200);
    send_segment(&r, message, 100);
    send_segment(&r, message, 100);
    taker t = taker_of(&r, 1, end_of(&r, 1, "W"));
    t.withdraws_itself = true;
    post(&t);
    assert_int_equal(t.reads, 1);
    later(&r);
    assert_true(has_credit(&r, to_west(&r)));
    send(&r, to_west(&r), 1);
    assert_true(take_now(&r, end_of(&r, 1, "W")));
    rig_fini(&r);
}

static void answer(taker *t)
{
    if (t->sequence < 50) {
        ipcq_end *back = t->receive.end;
        post(t);
        ipcq_hand_over(message_of(back, 1));
    }
}

/* Without rings two ends may answer each other from within, on and on. */
static void messages_may_be_sent_from_within(void **state)
{
    (void)state;
    const ipcq_edge edges[] = TWO_PES;
    ipcq_settings mock = {0};
    rig r = RIG(2, edges, &mock);
    taker a = taker_of(&r, 0, end_of(&r, 0, "E")), b = taker_of(&r, 1, end_of(&r, 1, "W"));
    a.then = b.then = answer;
    post(&a);
    post(&b);
    ipcq_hand_over(message_of(end_of(&r, 0, "E"), 1));
    assert_int_equal(b.messages, 51);
    assert_int_equal(a.messages, 50);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(receives_of_an_end_are_served_in_order),
        cmocka_unit_test(a_receive_for_any_gets_what_no_other_waits_for),
        cmocka_unit_test(receives_for_any_are_served_in_order),
        cmocka_unit_test(receives_for_any_take_turns_of_the_ends),
        cmocka_unit_test(a_turn_counts_also_if_it_was_waited_for),
        cmocka_unit_test(random_receives_get_what_is_theirs),
        cmocka_unit_test(a_large_message_goes_in_segments),
        cmocka_unit_test(a_message_is_delivered_with_its_last_arrival),
        cmocka_unit_test(sizes_at_the_edge_of_a_slot),
        cmocka_unit_test(a_message_stays_with_its_receive),
        cmocka_unit_test(receives_that_are_withdrawn_get_nothing),
        cmocka_unit_test(the_rest_of_a_message_is_dropped),
        cmocka_unit_test(a_reset_frees_what_came_in_part),
        cmocka_unit_test(a_receive_may_be_posted_again_from_within),
        cmocka_unit_test(a_receive_may_be_withdrawn_from_within),
        cmocka_unit_test(a_receive_may_withdraw_itself),
        cmocka_unit_test(messages_may_be_sent_from_within),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
