/*
 * test_validate.c: the model is inside the bars that `kernbench validate` shows, with shorter
 * windows than there; and two load points to the last digit, so that no change goes unnoticed.
 */
#include "support/expect.h"

#include "measure/validate.h"

static uint64_t steps, total_steps;

static void count_step(void *self, uint64_t done, uint64_t total)
{
    (void)self;
    assert_int_equal(done, ++steps);
    assert_true(done <= total);
    total_steps = total;
}

static void expect_all_inside(const validate_report *r)
{
    uint32_t judged = 0;
    for (size_t i = 0; i < r->forms.count; i++, judged++) {
        const validate_form *form = &r->forms.items[i];
        if (!form->inside)
            fail_msg("%s, %s: expected %.6f, found %.6f", form->group, form->name, form->expected,
                     form->ours);
    }
    for (size_t i = 0; i < r->points.count; i++) {
        const validate_point *p = &r->points.items[i];
        judged += p->judged;
        if (p->judged && !p->inside)
            fail_msg("%u x %u, %u flits, rate %.2f: expected %.2f, found %.2f", p->k, p->k,
                     p->flits, p->rate, p->reference, p->ours);
    }
    for (size_t i = 0; i < r->doublings.count; i++, judged++) {
        const validate_doubling *d = &r->doublings.items[i];
        if (!d->inside)
            fail_msg("%u x %u, %u flits, doubling rate: expected %.3f, found %.3f", d->k, d->k,
                     d->flits, d->reference, d->ours);
    }
    assert_int_equal(r->judged, judged);
    assert_int_equal(r->inside, judged);
}

static const validate_point *find(const validate_report *r, uint32_t k, uint32_t flits, double rate)
{
    for (size_t i = 0; i < r->points.count; i++) {
        const validate_point *p = &r->points.items[i];
        if (p->k == k && p->flits == flits && p->rate > rate - 1e-6 && p->rate < rate + 1e-6)
            return p;
    }
    fail_msg("no such point");
    return NULL;
}

static void everything_is_inside(void **state)
{
    (void)state;
    validate_report r;
    steps = 0;
    expect_ok(validate_run(&(validate_options){.transfers = 2000, .progress = count_step}, &r));
    assert_int_equal(steps, total_steps);
    assert_int_equal(r.points.count, 50);
    assert_int_equal(r.doublings.count, 6);
    assert_int_equal(r.packets.count, 32);
    expect_all_inside(&r);
    assert_true(r.worst <= 0.10);

    /* The sum of whole ns over the count of transfers. */
    assert_true(find(&r, 8, 4, 0.3)->ours == 41.85879120879121);
    assert_true(find(&r, 4, 16, 0.4)->ours == 59.027437530622244);
    validate_report_fini(&r);
}

static void a_quick_check(void **state)
{
    (void)state;
    validate_report r;
    steps = 0;
    expect_ok(validate_run(&(validate_options){.quick = true, .progress = count_step}, &r));
    assert_int_equal(steps, total_steps);
    assert_int_equal(r.doublings.count, 0);
    expect_all_inside(&r);
    validate_report_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_inside),
        cmocka_unit_test(a_quick_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
