/*
 * test_mutations.c: descriptions that were damaged at random are read or refused, and nothing worse
 * happens. Best run with the address sanitizer.
 */
#include "random_machines.h"
#include "support/seed.h"

static void damage_byte(kb_rng *rng, kb_text *text)
{
    static const char bytes[] = "0123456789.-: {}[],#\n\"'abcnwexyz_~&*|>\x80\xff\t";
    size_t at = kb_rng_below(rng, text->length);
    text->bytes[at] = bytes[kb_rng_below(rng, sizeof bytes - 1)];
}

/* Some lines are lost, or come twice, and a byte may be gone. */
static void damage_lines(kb_rng *rng, const char *source, kb_text *text)
{
    while (*source) {
        size_t length = strcspn(source, "\n") + 1;
        uint64_t fate = kb_rng_below(rng, 40);
        if (fate > 0)
            kb_text_append(text, source, length);
        if (fate == 1)
            kb_text_append(text, source, length);
        source += length;
    }
}

/* Comments and blank lines only make it slow. */
static char *without_comments(const char *source)
{
    kb_text text = KB_TEXT_INIT;
    while (*source) {
        size_t length = strcspn(source, "\n");
        size_t comment = strcspn(source, "#");
        size_t kept = comment < length ? comment : length;
        while (kept > 0 && source[kept - 1] == ' ')
            kept--;
        if (kept > 0) {
            kb_text_append(&text, source, kept);
            kb_text_puts(&text, "\n");
        }
        source += length + 1;
    }
    char *taken = kb_text_take(&text);
    assert_non_null(taken);
    return taken;
}

/* So large that making it takes long: left to other tests. */
static bool is_small(const topo_shape *shape)
{
    return shape->pe_count < 20000;
}

static void damaged_descriptions_are_read_or_refused(void **state)
{
    (void)state;
    char *source = without_comments(topo_builtins[0].text);
    kb_rng rng;
    kb_rng_init(&rng, test_seed(8));
    int loaded = 0, refused = 0;
    for (int round = 0; round < 4000; round++) {
        kb_text text = KB_TEXT_INIT;
        if (round % 3 == 0)
            kb_text_puts(&text, source);
        else
            damage_lines(&rng, source, &text);
        for (uint64_t i = kb_rng_below(&rng, 4); i > 0; i--)
            damage_byte(&rng, &text);
        topo_machine *m;
        kb_error *err = topo_machine_load(
            &(topo_source){.path = "f.yaml", .text = text.bytes, .length = text.length}, &m);
        if (err) {
            refused++;
            assert_null(m);
            assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
            assert_memory_equal(kb_error_message(err), "f.yaml", 6);
            kb_error_free(err);
        } else {
            loaded++;
            uint32_t *steps = kb_alloc_array(topo_machine_shape(m)->max_steps, sizeof *steps);
            assert_non_null(steps);
            if (is_small(topo_machine_shape(m))) {
                node_list ends = list_ends(m);
                for (int i = 0; i < 20; i++)
                    topo_route(m, ends.items[kb_rng_below(&rng, ends.count)],
                               ends.items[kb_rng_below(&rng, ends.count)], true, steps);
                kb_vec_fini(&ends);
            }
            free(steps);
            topo_machine_destroy(m);
        }
        kb_text_fini(&text);
    }
    free(source);
    assert_true(loaded > 300 && refused > 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_descriptions_are_read_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
