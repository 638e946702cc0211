/*
 * test_table.c: objects that are named by number: a number whose object is gone names nothing, for
 * ever, whatever is put in its place. The model is a list of all numbers that ever were.
 */
#include "programs.h"

#include "rt/handle_table.h"
#include "support/seed.h"

typedef struct thing {
    uint64_t value;
    uint64_t more[3];
} thing;

enum { MOST = 20000 };

static uint32_t place_of(uint64_t id)
{
    return (uint32_t)id & ((1 << RT_PLACE_BITS) - 1);
}

typedef struct model {
    uint64_t ids[MOST];
    thing *things[MOST]; /* NULL when it is gone */
    size_t count, live;
} model;

static void add(rt_table *table, model *m)
{
    uint64_t id;
    thing *t = rt_table_add(table, &id);
    assert_non_null(t);
    assert_int_equal(t->value + t->more[0] + t->more[1] + t->more[2], 0); /* cleared */
    t->value = id;
    t->more[2] = UINT64_MAX;
    m->ids[m->count] = id;
    m->things[m->count++] = t;
    m->live++;
}

static void check_one(const rt_table *table, const model *m, size_t which)
{
    assert_ptr_equal(rt_table_get(table, m->ids[which]), m->things[which]);
    if (m->things[which])
        assert_int_equal(m->things[which]->value, m->ids[which]);
}

static void check_all(const rt_table *table, const model *m)
{
    for (size_t i = 0; i < m->count; i++)
        check_one(table, m, i);
    size_t walked = 0;
    uint32_t last = 0;
    for (uint64_t id = rt_table_next(table, 0); id; id = rt_table_next(table, id), walked++) {
        assert_int_equal(((thing *)rt_table_get(table, id))->value, id);
        assert_true(place_of(id) > last); /* by place */
        last = place_of(id);
    }
    assert_int_equal(walked, m->live);
}

static void numbers_name_what_they_were_given_for(void **state)
{
    (void)state;
    static model m;
    m = (model){0};
    rt_table table;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(7));
    rt_table_init(&table, sizeof(thing), 5);
    assert_int_equal(rt_table_next(&table, 0), 0);
    size_t most = fewer_if_slow(MOST);
    for (size_t step = 0; m.count < most; step++) {
        bool grow = step / 2000 % 2 == 0;
        if (m.live == 0 || kb_rng_below(&rng, 10) < (grow ? 7 : 4)) {
            add(&table, &m);
        } else {
            size_t which = (size_t)kb_rng_below(&rng, m.count);
            if (m.things[which]) {
                rt_table_remove(&table, m.ids[which]);
                m.things[which] = NULL;
                m.live--;
            }
        }
        check_one(&table, &m, (size_t)kb_rng_below(&rng, m.count));
        if (step % 5000 == 0)
            check_all(&table, &m);
    }
    check_all(&table, &m);
    rt_table_fini(&table);
}

static void nonsense_names_nothing(void **state)
{
    (void)state;
    rt_table table;
    uint64_t id;
    rt_table_init(&table, sizeof(thing), 5);
    assert_null(rt_table_get(&table, 0));
    assert_null(rt_table_get(&table, UINT64_MAX));
    assert_non_null(rt_table_add(&table, &id));
    assert_true(id != 0);
    for (int bit = 0; bit < 64; bit++)
        assert_null(rt_table_get(&table, id ^ (uint64_t)1 << bit));
    rt_table_fini(&table);
}

/* A place whose numbers are used up is not used again. */
static void numbers_do_not_come_round(void **state)
{
    (void)state;
    rt_table table;
    uint64_t first, last, next;
    rt_table_init(&table, sizeof(thing), 5);
    assert_non_null(rt_table_add(&table, &first));
    uint32_t place = place_of(first);
    rt_table_remove(&table, first);
    /* As if 2^19 - 1 objects had been there: the next one has the last number. */
    table.generations.items[place] = (1 << RT_GENERATION_BITS) - 2;
    assert_non_null(rt_table_add(&table, &last));
    assert_int_equal(place_of(last), place);
    assert_non_null(rt_table_get(&table, last));
    rt_table_remove(&table, last);
    for (int i = 0; i < 100; i++) {
        assert_non_null(rt_table_add(&table, &next));
        assert_true(place_of(next) != place);
        assert_null(rt_table_get(&table, first));
        assert_null(rt_table_get(&table, last));
    }
    rt_table_fini(&table);
}

/* The same places and generations in two contexts. */
static void numbers_of_another_context_name_nothing(void **state)
{
    (void)state;
    rt_table one, two;
    uint64_t of_one, of_two;
    rt_table_init(&one, sizeof(thing), 1);
    rt_table_init(&two, sizeof(thing), RT_MAX_CONTEXT);
    assert_non_null(rt_table_add(&one, &of_one));
    assert_non_null(rt_table_add(&two, &of_two));
    assert_int_equal(place_of(of_one), place_of(of_two));
    assert_non_null(rt_table_get(&one, of_one));
    assert_non_null(rt_table_get(&two, of_two));
    assert_null(rt_table_get(&one, of_two));
    assert_null(rt_table_get(&two, of_one));
    assert_int_equal(rt_table_next(&two, 0), of_two);
    rt_table_fini(&one);
    rt_table_fini(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_name_what_they_were_given_for),
        cmocka_unit_test(nonsense_names_nothing),
        cmocka_unit_test(numbers_do_not_come_round),
        cmocka_unit_test(numbers_of_another_context_name_nothing),
    };
    return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
