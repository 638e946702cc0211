/* test_log.c: levels, sinks, the clock, one line a message; behaviour without memory. */
#include "support/expect.h"
#include "support/failing_alloc.h"

#include "base/base.h"

typedef struct lines {
    kb_text text;
    int count;
    kb_log_level last;
} lines;

static void collect(void *context, kb_log_level level, const char *line)
{
    lines *to = context;
    to->count++;
    to->last = level;
    kb_text_printf(&to->text, "%s|", line);
}

static kb_time read_clock(const void *context)
{
    return *(const kb_time *)context;
}

static int evaluated;

static int evaluate(void)
{
    return ++evaluated;
}

static void levels_filter(void **state)
{
    (void)state;
    static const char *const expected[] = {
        "error: 0|",
        "error: 0|warn: 1|",
        "error: 0|warn: 1|info: 2|",
        "error: 0|warn: 1|info: 2|debug: 3|",
        "error: 0|warn: 1|info: 2|debug: 3|trace: 4|",
    };
    for (int level = KB_LOG_ERROR; level <= KB_LOG_TRACE; level++) {
        lines got = {0};
        kb_log log;
        kb_log_init(&log, (kb_log_level)level, collect, &got);
        kb_log_error(&log, "%d", 0);
        kb_log_warn(&log, "%d", 1);
        kb_log_info(&log, "%d", 2);
        kb_log_debug(&log, "%d", 3);
        kb_log_trace(&log, "%d", 4);
        assert_string_equal(kb_text_peek(&got.text), expected[level]);
        assert_int_equal(got.count, level + 1);
        assert_int_equal(got.last, level);
        kb_text_fini(&got.text);
    }
}

static void a_filtered_message_evaluates_nothing(void **state)
{
    (void)state;
    lines got = {0};
    kb_log log;
    kb_log_init(&log, KB_LOG_WARN, collect, &got);
    kb_log_debug(&log, "%d", evaluate());
    assert_int_equal(evaluated, 0);
    kb_log_warn(&log, "%d", evaluate());
    assert_int_equal(evaluated, 1);
    kb_text_fini(&got.text);
}

static void lines_carry_the_time(void **state)
{
    (void)state;
    lines got = {0};
    kb_log log;
    kb_time now = 12345678;
    kb_log_init(&log, KB_LOG_INFO, collect, &got);
    kb_log_set_clock(&log, read_clock, &now);
    kb_log_warn(&log, "full");
    now = 5 * KB_US;
    kb_log_info(&log, "done");
    assert_string_equal(kb_text_peek(&got.text),
                        "[12.345678 ns] warn: full|[5000.000000 ns] info: done|");
    kb_text_fini(&got.text);
}

static void a_message_is_one_line(void **state)
{
    (void)state;
    lines got = {0};
    kb_log log;
    kb_log_init(&log, KB_LOG_INFO, collect, &got);
    kb_log_info(&log, "a%sb", "\n\x1b");
    assert_string_equal(kb_text_peek(&got.text), "info: a\\n\\x1bb|");
    kb_text_fini(&got.text);
}

static void the_default_sink_writes_lines(void **state)
{
    (void)state;
    char *content = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&content, &size);
    assert_non_null(file);
    kb_log log;
    kb_log_init(&log, KB_LOG_INFO, kb_log_to_file, file);
    kb_log_info(&log, "one");
    kb_log_error(&log, "two");
    fclose(file);
    assert_string_equal(content, "info: one\nerror: two\n");
    free(content);
}

static void levels_are_parsed(void **state)
{
    (void)state;
    for (int level = KB_LOG_ERROR; level <= KB_LOG_TRACE; level++) {
        kb_log_level parsed;
        expect_ok(kb_log_level_parse(kb_log_level_name((kb_log_level)level), &parsed));
        assert_int_equal(parsed, level);
    }
    kb_log_level parsed = KB_LOG_INFO;
    expect_error(kb_log_level_parse("loud", &parsed), KB_ERR_INPUT,
                 "unknown log level 'loud': expected error, warn, info, debug or trace");
    assert_int_equal(parsed, KB_LOG_INFO);
}

static void count_only(void *context, kb_log_level level, const char *line)
{
    (void)level;
    ++*(int *)context;
    assert_true(strcmp(line, "warn: value\\n 42") == 0 || strcmp(line, "value%s %d") == 0);
}

static void log_without_memory(void)
{
    int count = 0;
    kb_log log;
    kb_log_init(&log, KB_LOG_WARN, count_only, &count);
    kb_log_warn(&log, "value%s %d", "\n", 42);
    assert_int_equal(count, 1); /* the message is never lost altogether */
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    failing_alloc_try_all(log_without_memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_filter),
        cmocka_unit_test(a_filtered_message_evaluates_nothing),
        cmocka_unit_test(lines_carry_the_time),
        cmocka_unit_test(a_message_is_one_line),
        cmocka_unit_test(the_default_sink_writes_lines),
        cmocka_unit_test(levels_are_parsed),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
