/* test_files.c: a file that is written is whole or not there, whatever happens meanwhile. */
#include "support/expect.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cleanup.h"
#include "cli/files.h"

static char folder[64], path[80];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/kb-files-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    assert_int_equal(rmdir(folder), 0); /* nothing else is left there */
    return 0;
}

static kb_error *write_text(const char *string)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_puts(&text, string);
    kb_error *err = cli_write_file(path, &text);
    kb_text_fini(&text);
    return err;
}

static void expect_text(const char *string)
{
    kb_text text = KB_TEXT_INIT;
    expect_ok(cli_read_file(path, &text));
    assert_string_equal(kb_text_peek(&text), string);
    kb_text_fini(&text);
}

static cli_output *begin(const char *string)
{
    cli_output *out;
    expect_ok(cli_output_open(path, &out));
    fputs(string, cli_output_file(out));
    fflush(cli_output_file(out));
    return out;
}

static void the_old_file_stays_until_the_new_one_is_whole(void **state)
{
    (void)state;
    expect_ok(write_text("old"));
    cli_output *out = begin("new");
    expect_text("old");
    expect_ok(cli_output_commit(out));
    expect_text("new");
    cli_output_discard(begin("newer"));
    expect_text("new");
    cli_output_discard(NULL);
}

static void cleanup_are_removed_by_whatever_ends_the_process(void **state)
{
    (void)state;
    expect_ok(write_text("old"));
    cli_output *out = begin("new");
    cleanup_remove(15);
    expect_text("old");
    kb_error *err = cli_output_commit(out);
    assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    kb_error_free(err);
    expect_text("old");
}

/* More files than one read of the directory returns. */
static void a_directory_goes_with_its_files(void **state)
{
    (void)state;
    enum { FILES = 300 };
    char directory[100], name[200];
    for (int by_discard = 0; by_discard < 2; by_discard++) {
        snprintf(directory, sizeof directory, "%s/many", folder);
        assert_int_equal(mkdir(directory, 0700), 0);
        assert_true(cleanup_add(directory, true));
        for (int i = 0; i < FILES; i++) {
            snprintf(name, sizeof name, "%s/file-with-a-long-name-%d", directory, i);
            FILE *file = fopen(name, "w");
            assert_non_null(file);
            fclose(file);
        }
        if (by_discard)
            cleanup_discard(directory);
        else
            cleanup_remove(15);
        assert_int_not_equal(access(directory, F_OK), 0);
    }
}

static void stdout_has_several_names(void **state)
{
    (void)state;
    static const char *const names[] = {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"};
    bool is_stdout = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        expect_ok(cli_is_stdout(names[i], &is_stdout));
        assert_true(is_stdout);
    }
    static const char *const others[] = {"/dev/stderr", "/dev/null", "no/such/folder/file", "file"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        expect_ok(cli_is_stdout(others[i], &is_stdout));
        assert_false(is_stdout);
    }
}

/* As code of the user's might do: the number is that of another file then. */
static void a_descriptor_that_was_replaced_is_noticed(void **state)
{
    (void)state;
    expect_ok(write_text("old"));
    cli_output *out = begin("new");
    int null = open("/dev/null", O_WRONLY);
    assert_true(dup2(null, fileno(cli_output_file(out))) >= 0);
    (void)close(null);
    fputs("lost", cli_output_file(out));
    char message[160];
    snprintf(message, sizeof message, "cannot write %s: Bad file descriptor", path);
    expect_error(cli_output_commit(out), KB_ERR_HOST, message);
    expect_text("old");
}

static void processes_of_fork_write_nothing(void **state)
{
    (void)state;
    cli_output *out;
    expect_ok(cli_output_open(path, &out));
    fputs("once", cli_output_file(out));
    pid_t child = fork();
    if (child == 0) {
        cleanup_remove(15); /* is the parent's */
        fflush(cli_output_file(out));
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    expect_ok(cli_output_commit(out));
    expect_text("once");
}

static void a_new_file_replaces_nothing(void **state)
{
    (void)state;
    char message[160];
    kb_text text = KB_TEXT_INIT;
    snprintf(message, sizeof message, "%s already exists: choose another name", path);
    assert_int_equal(symlink("nowhere", path), 0);
    expect_error(cli_create_file(path, &text), KB_ERR_INPUT, message);
    assert_int_equal(unlink(path), 0);
    expect_ok(cli_create_file(path, &text));
    expect_error(cli_create_file(path, &text), KB_ERR_INPUT, message);
    expect_text("");
    kb_text_fini(&text);
}

static void permissions_and_links_stay(void **state)
{
    (void)state;
    struct stat status;
    char target[80];
    snprintf(target, sizeof target, "%s/target", folder);
    assert_int_equal(symlink("target", path), 0);
    expect_ok(write_text("first")); /* makes the target */
    assert_int_equal(chmod(target, 0604), 0);
    expect_ok(write_text("second"));
    expect_text("second");
    assert_int_equal(stat(target, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0604);
    assert_int_equal(lstat(path, &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    assert_int_equal(unlink(target), 0);
}

static void what_cannot_be_written_is_an_error(void **state)
{
    (void)state;
    cli_output *out;
    expect_error(cli_output_open("/nonexistent/t.json", &out), KB_ERR_INPUT,
                 "cannot write /nonexistent/t.json: No such file or directory");
    assert_null(out);
    expect_error(cli_output_open("/", &out), KB_ERR_INPUT, "cannot write /: Is a directory");
    expect_ok(cli_output_open("/dev/full", &out));
    fputs("text", cli_output_file(out));
    expect_error(cli_output_commit(out), KB_ERR_HOST,
                 "cannot write /dev/full: No space left on device");
    assert_int_equal(access("/dev/full", F_OK), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(the_old_file_stays_until_the_new_one_is_whole),
        TEST(cleanup_are_removed_by_whatever_ends_the_process),
        TEST(a_directory_goes_with_its_files),
        TEST(stdout_has_several_names),
        TEST(a_descriptor_that_was_replaced_is_noticed),
        TEST(processes_of_fork_write_nothing),
        TEST(a_new_file_replaces_nothing),
        TEST(permissions_and_links_stay),
        TEST(what_cannot_be_written_is_an_error),
    };
    return cmocka_run_group_tests_name("files", tests, NULL, NULL);
}
