/* test_options.c: options from a table; tables of columns as text and as JSON. */
#include "support/expect.h"

#include "cli/cli.h"
#include "cli/columns.h"
#include "cli/terminal.h"

typedef struct test_args {
    cli_common common;
    bool flag;
    const char *text, *file;
    uint64_t count, bytes;
    double share;
    size_t colour;
} test_args;

static const char *const colours[] = {"red", "green"};

static const cli_option options[] = {
    CLI_OPTION("--flag", NULL, CLI_FLAG, test_args, flag, "a flag"),
    CLI_OPTION("--text", "S", CLI_STRING, test_args, text, "t"),
    CLI_OPTION("--file", "[F]", CLI_OPTIONAL, test_args, file, "f", .by_default = "here"),
    CLI_OPTION("--count", "N", CLI_UINT, test_args, count, "c", .min = 1, .max = 10),
    CLI_OPTION("--bytes", "N", CLI_SIZE, test_args, bytes, "b"),
    CLI_OPTION("--share", "X", CLI_DOUBLE, test_args, share, "s", .min = 0, .max = 1),
    CLI_OPTION("--colour", "C", CLI_ENUM, test_args, colour, "c", CLI_NAMES(colours)),
};

static const cli_command command = {.name = "test",
                                    .arguments = "",
                                    .summary = "",
                                    .help = "",
                                    .example = "",
                                    CLI_OPTIONS(options),
                                    .machine = CLI_MACHINE_OPTIONS,
                                    .max_words = 2};

/* options.c and diagnostics.c look these up. */
const cli_command *const cli_commands[] = {&command};
const size_t cli_command_count = 1;

/* Splits at spaces. The words stay in `line`. */
static kb_code parse(char *line, int *argc, char **argv, test_args *args)
{
    *argc = 0;
    argv[(*argc)++] = line;
    for (char *space = strchr(line, ' '); space; space = strchr(space, ' ')) {
        *space++ = '\0';
        argv[(*argc)++] = space;
    }
    return cli_parse(&command, argc, argv, args);
}

static void every_kind(void **state)
{
    (void)state;
    char line[] = "test --flag a --text=x=y --count 7 --bytes 4KiB --share=0.25 --colour green "
                  "--set a=1 --json --set=b=2 -- --flag";
    char *argv[32];
    int argc;
    test_args args = {0};
    assert_int_equal(parse(line, &argc, argv, &args), KB_OK);
    assert_true(args.flag && args.common.json && !args.common.quiet);
    assert_string_equal(args.text, "x=y");
    assert_int_equal(args.count, 7);
    assert_int_equal(args.bytes, 4096);
    assert_true(args.share == 0.25);
    assert_int_equal(args.colour, 1);
    assert_int_equal(args.common.settings.count, 2);
    assert_string_equal(args.common.settings.items[1], "b=2");
    assert_int_equal(argc, 3);
    assert_string_equal(argv[1], "a");
    assert_string_equal(argv[2], "--flag");
    cli_free_lists(&command, &args);
}

static void what_is_not_given_stays(void **state)
{
    (void)state;
    char line[] = "test";
    char *argv[4];
    int argc;
    test_args args = {.count = 3, .text = "t"};
    assert_int_equal(parse(line, &argc, argv, &args), KB_OK);
    assert_int_equal(args.count, 3);
    assert_string_equal(args.text, "t");
    assert_int_equal(argc, 1);
}

static const char *file_of(const char *words)
{
    char line[80], *argv[20];
    int argc;
    test_args args = {0};
    snprintf(line, sizeof line, "test %s", words);
    assert_int_equal(parse(line, &argc, argv, &args), KB_OK);
    static char file[40]; /* the words are gone when this returns */
    snprintf(file, sizeof file, "%s", args.file ? args.file : "none");
    return file;
}

static void values_may_be_optional(void **state)
{
    (void)state;
    assert_string_equal(file_of("--flag"), "none");
    assert_string_equal(file_of("--file"), "here");
    assert_string_equal(file_of("--file --flag"), "here");
    assert_string_equal(file_of("--file there --flag"), "there");
    assert_string_equal(file_of("--file=there word"), "there");
    assert_string_equal(file_of("--file=-"), "-");
}

static void mistakes_are_refused(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "test --flga",       "test --flag=1",     "test --text",        "test --count 0",
        "test --count 11",   "test --count x",    "test --count -1",    "test --count 1.5",
        "test --count=",     "test --bytes 4Kib", "test --bytes -4",    "test --bytes 1e3",
        "test --share 1.01", "test --share nan",  "test --share 0x1p1", "test --colour blue",
        "test a b c",        "test -x",           "test --set",         "test --count 1 --count 99",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char *line = strdup(lines[i]), *argv[8];
        int argc;
        test_args args = {0};
        assert_non_null(line);
        if (parse(line, &argc, argv, &args) != KB_ERR_INPUT)
            fail_msg("taken: %s", lines[i]);
        cli_free_lists(&command, &args);
        free(line);
    }
}

static void numbers_are_printed_alike(void **state)
{
    (void)state;
    assert_string_equal(obs_ns(135250 * KB_PS).text, "135.250");
    assert_string_equal(obs_ns(1499).text, "0.001");
    assert_string_equal(obs_ns(1500).text, "0.002");
    assert_string_equal(obs_bytes(4096).text, "4 KiB");
    assert_string_equal(obs_bytes(1536).text, "1.5 KiB");
    assert_string_equal(obs_bytes(100).text, "100 B");
    assert_string_equal(obs_bytes(48ull << 30).text, "48 GiB");
    assert_string_equal(obs_bytes(47ull << 27).text, "5.875 GiB");
    assert_string_equal(obs_bytes(4097).text, "4097 B");
    assert_string_equal(obs_bytes((5 << 20) + 1024).text, "5121 KiB");
    assert_string_equal(obs_bytes(0).text, "0 B");
    assert_string_equal(obs_bytes(1023).text, "1023 B");
    assert_string_equal(obs_bytes(UINT64_MAX).text, "18446744073709551615 B");
    assert_string_equal(obs_bytes((uint64_t)1 << 63).text, "8192 PiB");
    assert_string_equal(obs_rate(204800000000).text, "204.8");
    assert_string_equal(obs_rate(1).text, "0.000000001");
    assert_string_equal(obs_count(1234567).text, "1,234,567");
    assert_string_equal(obs_count(123).text, "123");
    assert_string_equal(obs_percent(0.5).text, "50.0");
    assert_true(obs_bandwidth(4096, 16 * KB_NS) == 256);
    assert_true(obs_bandwidth(4096, 0) == 0);
}

static void widths_are_those_of_a_terminal(void **state)
{
    (void)state;
    assert_int_equal(cli_text_width("abc", 3), 3);
    assert_int_equal(cli_text_width("\303\251", 2), 1);         /* e with an accent */
    assert_int_equal(cli_text_width("e\314\201", 3), 1);        /* the same, of two characters */
    assert_int_equal(cli_text_width("\346\274\242", 3), 2);     /* a Chinese character */
    assert_int_equal(cli_text_width("\360\237\230\200", 4), 2); /* a smiley */
}

static void tables_are_aligned(void **state)
{
    (void)state;
    static const cli_column columns[] = {CLI_TEXT("name", CLI_WORD), CLI_JSON("hidden", CLI_COUNT),
                                         CLI_COLUMN("ns", "ns", CLI_FIGURE)};
    cli_table table;
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    assert_non_null(file);
    cli_table_init(&table, CLI_COLUMNS(columns));
    CLI_ROW(&table, {.text = "\303\251t\303\251"}, {.n = 1},
            {.text = "5"}); /* 5 bytes, 3 letters */
    CLI_ROW(&table, {.text = "a\nb"}, {.n = 2}, {.text = "12.5"});
    assert_int_equal(cli_table_print(&table, file), KB_OK);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, "  name    ns\n"
                              "  \303\251t\303\251      5\n"
                              "  a\\nb  12.5\n");
    free(text);
}

/* Every format: its text, and its JSON value. */
static void add_formats(cli_table *table, const void *from)
{
    (void)from;
    CLI_ROW(table, {.text = "w"}, {.n = 1}, {.n = 12345}, {.n = 4096}, {.n = 1500000},
            {.n = 135250 * KB_PS}, {.n = 204800000000}, {.real = 28.314}, {.real = 0.5},
            {.real = -0.05}, {.real = 2.5}, {.none = true}, {.n = 0});
}

static void formats_of_columns(void **state)
{
    (void)state;
    static const cli_column columns[] = {
        CLI_COLUMN("word", "word", CLI_WORD),
        CLI_COLUMN("bool", "bool", CLI_BOOL),
        CLI_COLUMN("count", "count", CLI_COUNT),
        CLI_COLUMN("bytes", "bytes", CLI_BYTES),
        CLI_COLUMN("mflop", "flops", CLI_MFLOP),
        CLI_COLUMN("ns", "ns", CLI_NS),
        CLI_COLUMN("rate", "rate", CLI_RATE),
        CLI_COLUMN("gbs", "gbs", CLI_GBS),
        CLI_COLUMN("share", "share", CLI_SHARE),
        CLI_COLUMN("error", "error", CLI_ERROR),
        CLI_COLUMN("real", "real", CLI_REAL, .decimals = 2),
        CLI_COLUMN("none", "none", CLI_COUNT),
        CLI_COLUMN("zero", "zero", CLI_COUNT, .zero = "-"),
    };
    static const cli_rows rows = {CLI_COLUMNS(columns), add_formats};
    cli_table table;
    cli_table_init(&table, CLI_COLUMNS(columns));
    add_formats(&table, NULL);
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    assert_non_null(file);
    assert_int_equal(cli_table_print(&table, file), KB_OK);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(strchr(text, '\n') + 1,
                        "  w     yes   12,345  4 KiB  1.500  135.250  204.8  28.31   50.0   -5.0  "
                        "2.50           -\n");
    free(text);
    json_t *array = cli_rows_json(&rows, NULL, NULL);
    char *json = json_dumps(array, JSON_COMPACT | JSON_REAL_PRECISION(15));
    assert_string_equal(json, "[{\"word\":\"w\",\"bool\":true,\"count\":12345,\"bytes\":4096,"
                              "\"flops\":1500000,\"ns\":135.25,\"rate\":204.8,\"gbs\":28.314,"
                              "\"share\":0.5,\"error\":-0.05,\"real\":2.5,\"none\":null,"
                              "\"zero\":0}]");
    free(json);
    json_decref(array);
}

static void a_text_that_is_not_whole_is_remembered(void **state)
{
    (void)state;
    kb_text text = KB_TEXT_INIT;
    kb_text_puts(&text, "whole");
    assert_string_equal(cli_text(&text), "whole");
    assert_false(cli_text_was_lost());
    text.failed = true; /* as when memory runs out */
    assert_string_equal(cli_text(&text), "whole");
    kb_text_fini(&text);
    assert_string_equal(cli_text(&text), "");
    assert_true(cli_text_was_lost());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind),
        cmocka_unit_test(what_is_not_given_stays),
        cmocka_unit_test(values_may_be_optional),
        cmocka_unit_test(mistakes_are_refused),
        cmocka_unit_test(numbers_are_printed_alike),
        cmocka_unit_test(widths_are_those_of_a_terminal),
        cmocka_unit_test(tables_are_aligned),
        cmocka_unit_test(formats_of_columns),
        cmocka_unit_test(a_text_that_is_not_whole_is_remembered),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
