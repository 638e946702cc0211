/* test_run_once.c: one program, opened once, is run many times, in this process and in children. */
#include "support/expect.h"

#include <sys/wait.h>

#include "cli/crash.h"
#include "cli/json.h"
#include "cli/run_once.h"

static const collectives_args no_collectives;

/* What done() keeps of a run. */
typedef struct kept {
    int calls;
    kb_code code;
    char message[200];
    json_t *document;
    char printed[200];
    unsigned ops;
    bool was_ready;
} kept;

static void keep_line(void *self, const char *line)
{
    kept *k = self;
    snprintf(k->printed, sizeof k->printed, "%s", line);
}

static void count_op(void *self, const kb_op *op)
{
    kept *k = self;
    (void)op;
    assert_true(k->was_ready);
    k->ops++;
}

static kb_error *note_ready(void *self, kb_context *ctx)
{
    kept *k = self;
    assert_int_equal(kb_context_now(ctx), 0);
    k->was_ready = true;
    return NULL;
}

static kb_code keep(void *self, const run_outcome *outcome)
{
    kept *k = self;
    k->calls++;
    k->code = kb_error_code(outcome->error);
    snprintf(k->message, sizeof k->message, "%s", kb_error_message(outcome->error));
    k->document = outcome->view ? run_document(outcome->view) : NULL;
    assert_true(outcome->wall_s > 0);
    return k->code;
}

static void open_program(run_program *program, const char *bench)
{
    assert_int_equal(run_program_open(program, bench, &no_collectives), KB_OK);
}

static kb_code run_with(const run_program *program, const char *setting, const char *param, kept *k)
{
    cli_list settings = {.items = &setting, .count = setting ? 1 : 0};
    cli_list params = {.items = &param, .count = param ? 1 : 0};
    *k = (kept){0};
    return run_once(program, &(run_options){
                                 .settings = &settings,
                                 .params = &params,
                                 .verify = true,
                                 .print = keep_line,
                                 .op = count_op,
                                 .ready = note_ready,
                                 .done = keep,
                                 .self = k,
                             });
}

static double sim_ns(const json_t *document)
{
    const json_t *value = json_object_get(document, "sim_ns");
    assert_true(json_is_real(value));
    return json_real_value(value);
}

/* Runs it in a child, and returns the simulated time that it sends back. */
static double run_in_child(const run_program *program, const char *param)
{
    int ends[2], status;
    double result = 0;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        kept k;
        crash_enter_child();
        kb_code code = run_with(program, NULL, param, &k);
        result = sim_ns(k.document);
        bool sent = write(ends[1], &result, sizeof result) == sizeof result;
        crash_exit(sent ? (int)code : 70);
    }
    assert_true(child > 0);
    close(ends[1]);
    assert_int_equal(read(ends[0], &result, sizeof result), sizeof result);
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return result;
}

static void children_run_the_same(void **state)
{
    (void)state;
    run_program program;
    kept k;
    open_program(&program, "gemm_single_pe");
    double of_64 = run_in_child(&program, "m=64"), of_128 = run_in_child(&program, "m=128");
    assert_true(of_64 > 0 && of_128 > of_64);
    assert_true(run_in_child(&program, "m=64") == of_64);
    assert_int_equal(run_with(&program, NULL, "m=128", &k), KB_OK);
    assert_true(sim_ns(k.document) == of_128);
    json_decref(k.document);
    assert_int_equal(run_with(&program, NULL, "m=64", &k), KB_OK);
    assert_true(sim_ns(k.document) == of_64);
    json_decref(k.document);
    run_program_close(&program);
}

static void hooks_are_called(void **state)
{
    (void)state;
    run_program program;
    kept k;
    open_program(&program, "gemm_single_pe");
    assert_int_equal(run_with(&program, NULL, "m=64", &k), KB_OK);
    assert_int_equal(k.calls, 1);
    assert_true(k.ops > 0);
    assert_non_null(strstr(k.printed, "on one PE"));
    assert_true(json_is_true(json_object_get(k.document, "verified")));
    json_decref(k.document);
    run_program_close(&program);
}

/* Errors reach done(), with a document if there is a context; nothing is printed. */
static void errors_are_outcomes(void **state)
{
    (void)state;
    run_program program;
    kept k;
    open_program(&program, "gemm_single_pe");
    assert_int_equal(run_with(&program, "cube.noc.w=0", NULL, &k), KB_ERR_INPUT);
    assert_int_equal(k.calls, 1);
    assert_non_null(strstr(k.message, "noc"));
    assert_null(k.document);
    assert_int_equal(run_with(&program, NULL, "m=0", &k), KB_ERR_INPUT);
    assert_non_null(strstr(k.message, "parameter m"));
    assert_int_equal(run_with(&program, "ccl.xyzzy=1", NULL, &k), KB_ERR_INPUT);
    assert_non_null(strstr(k.message, "xyzzy"));
    assert_int_equal(run_with(&program, NULL, "m=64", &k), KB_OK);
    json_decref(k.document);
    run_program_close(&program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(children_run_the_same), /* first: nothing was run here before */
        cmocka_unit_test(hooks_are_called),
        cmocka_unit_test(errors_are_outcomes),
    };
    return cmocka_run_group_tests_name("cli-run-once", tests, NULL, NULL);
}
