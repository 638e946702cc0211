/* test_drive.c: which points run, in which order, and what is kept, with a runner that only
 * pretends to run them. */
#include "support/expect.h"

#include "sweep/drive.h"
#include "sweep/frames.h"

#include <sys/mman.h>

enum { MAX = 64 };

/* Takes as long as the plan says: the value of its first axis, in seconds. */
typedef struct fake {
    const sweep_plan *plan;
    const sweep_keys *keys;
    size_t running[MAX], running_count;
    size_t started[MAX], started_count;
    size_t room;    /* of the host: start() fails beyond it */
    size_t crashes; /* this point crashes; SIZE_MAX: none */
    bool cancelled;
} fake;

static kb_error *start(void *self, size_t point)
{
    fake *f = self;
    if (f->running_count >= f->room)
        return kb_error_new(KB_ERR_HOST, "no room");
    f->running[f->running_count++] = point;
    f->started[f->started_count++] = point;
    return NULL;
}

/* What a child would send. */
static void compose(const fake *f, size_t index, child_result *result)
{
    sweep_point point = {0};
    sweep_key_frame key = {.machine = "00000000000000ab"};
    sweep_end_frame end = {.code = KB_OK};
    int fd = memfd_create("frames", 0);
    expect_ok(sweep_plan_point(f->plan, index, &point));
    end.wall_s = atof(point.cells[0]);
    int64_t value = atoi(point.cells[0]);
    sweep_hash hash = sweep_keys_key(f->keys, &point, 0xab, &value, 1);
    memcpy(key.key, hash.hex, sizeof key.key);
    assert_true(sweep_send_key(fd, &key, "fake") && sweep_send_machine(fd, "name: fake\n", 11));
    if (index != f->crashes)
        assert_true(sweep_send_document(fd, "{\"sim_ns\": 7}", 13) && sweep_send_end(fd, &end, ""));
    char bytes[4096];
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    ssize_t size = read(fd, bytes, sizeof bytes);
    assert_true(size > 0);
    kb_text_append(&result->bytes, bytes, (size_t)size);
    if (index == f->crashes) {
        result->status = 3;
        kb_text_puts(&result->messages, "noise\nkernbench: it crashed\nmore\n");
    }
    close(fd);
    sweep_point_fini(&point);
}

/* The point that was started first ends first. */
static bool wait_for_end(void *self, double seconds, child_result *result)
{
    fake *f = self;
    (void)seconds;
    assert_true(f->running_count > 0);
    size_t index = f->running[0];
    memmove(f->running, f->running + 1, --f->running_count * sizeof f->running[0]);
    *result = (child_result){.tag = index, .end = CHILD_EXITED, .peak_bytes = 1 << 20};
    compose(f, index, result);
    return true;
}

static void cancel(void *self)
{
    fake *f = self;
    f->cancelled = true;
    f->running_count = 0;
}

static void describe(void *self, const sweep_point *point, store_run *run, kb_text *texts)
{
    (void)self;
    kb_text_puts(texts, "kernbench run");
    run->bench = point->bench;
    run->command = kb_text_peek(texts);
}

/* A plan over one axis, with a store in a folder of its own. */
typedef struct rig {
    char folder[64], path[80];
    sweep_plan *plan;
    sweep_keys keys;
    store *store;
    sweep_known *known;
    fake fake;
} rig;

static void open_rig(rig *r, const char *over)
{
    expect_ok(sweep_plan_create(&r->plan));
    expect_ok(sweep_plan_bench(r->plan, "b"));
    expect_ok(sweep_plan_over(r->plan, over));
    expect_ok(sweep_plan_finish(r->plan));
    expect_ok(sweep_keys_init(&r->keys, r->plan, NULL));
    expect_ok(sweep_keys_add_bench(&r->keys, "b", NULL));
    expect_ok(store_open(r->path, STORE_WRITE, &r->store));
    expect_ok(sweep_known_create(&r->known));
    expect_ok(sweep_known_read(r->known, r->store));
    r->fake = (fake){.plan = r->plan, .keys = &r->keys, .room = MAX, .crashes = SIZE_MAX};
}

static void close_rig(rig *r)
{
    sweep_known_destroy(r->known);
    store_close(r->store);
    sweep_keys_fini(&r->keys);
    sweep_plan_destroy(r->plan);
}

static void make_folder(rig *r)
{
    *r = (rig){.folder = "/tmp/kernbench-drive-XXXXXX"};
    assert_non_null(mkdtemp(r->folder));
    snprintf(r->path, sizeof r->path, "%s/s.db", r->folder);
}

static void remove_folder(const rig *r)
{
    assert_int_equal(unlink(r->path), 0);
    assert_int_equal(rmdir(r->folder), 0);
}

static sweep_drive_options options_of(const rig *r)
{
    return (sweep_drive_options){.plan = r->plan,
                                 .keys = &r->keys,
                                 .store = r->store,
                                 .known = r->known,
                                 .describe = describe};
}

/* Drives it; what was started, as the values of the axis. */
static void expect_started(rig *r, const sweep_drive_options *options, size_t slots,
                           const char *expected)
{
    sweep_drive *drive;
    sweep_runner runner = {&r->fake, slots, start, wait_for_end, cancel};
    kb_text text = KB_TEXT_INIT;
    sweep_point point = {0};
    expect_ok(sweep_drive_create(options, &drive));
    expect_ok(sweep_drive_run(drive, &runner));
    for (size_t i = 0; i < r->fake.started_count; i++) {
        expect_ok(sweep_plan_point(r->plan, r->fake.started[i], &point));
        kb_text_printf(&text, "%s%s", i > 0 ? " " : "", point.cells[0]);
    }
    assert_string_equal(kb_text_peek(&text), expected);
    r->fake.started_count = 0;
    sweep_point_fini(&point);
    kb_text_fini(&text);
    sweep_drive_destroy(drive);
}

/* First some from all over the plan; then, as their times tell little of others, the order of the
 * plan. */
static void runs_all_points_once(void **state)
{
    (void)state;
    rig r;
    make_folder(&r);
    open_rig(&r, "m=1..10");
    sweep_drive_options o = options_of(&r);
    expect_started(&r, &o, 2, "1 2 3 4 6 7 8 10 9 5");
    expect_started(&r, &o, 2, "");
    close_rig(&r);
    open_rig(&r, "m=9..12");
    o = options_of(&r);
    expect_started(&r, &o, 1, "11 12");
    close_rig(&r);
    remove_folder(&r);
}

/* The second axis makes points longer: what is known of its values orders the others. */
static void long_points_come_first(void **state)
{
    (void)state;
    rig r;
    make_folder(&r);
    open_rig(&r, "m=1..12");
    sweep_drive_options o = options_of(&r);
    expect_started(&r, &o, 1, "1 2 4 5 7 8 10 12 9 3 6 11");
    o.force = true; /* now all times are known */
    expect_started(&r, &o, 1, "12 11 10 9 8 7 6 5 4 3 2 1");
    close_rig(&r);
    remove_folder(&r);
}

static void keeps_points_that_crash(void **state)
{
    (void)state;
    rig r;
    make_folder(&r);
    open_rig(&r, "m=1..3");
    r.fake.crashes = 1;
    sweep_drive *drive;
    sweep_runner runner = {&r.fake, 3, start, wait_for_end, cancel};
    sweep_drive_options o = options_of(&r);
    expect_ok(sweep_drive_create(&o, &drive));
    assert_int_equal(sweep_drive_left(drive), 3);
    expect_ok(sweep_drive_run(drive, &runner));
    assert_int_equal(sweep_drive_left(drive), 0);
    assert_int_equal(sweep_drive_outcome(drive, 0)->status, STORE_OK);
    assert_int_equal(sweep_drive_outcome(drive, 1)->status, STORE_CRASHED);
    assert_float_equal(sweep_drive_outcome(drive, 2)->wall_s, 3, 0);
    sweep_drive_destroy(drive);
    r.fake.crashes = SIZE_MAX;
    r.fake.started_count = 0;
    expect_started(&r, &o, 3, "");
    o.retry_failed = true;
    expect_started(&r, &o, 3, "2");
    close_rig(&r);
    remove_folder(&r);
}

static void waits_if_the_host_has_no_room(void **state)
{
    (void)state;
    rig r;
    make_folder(&r);
    open_rig(&r, "m=1..5");
    r.fake.room = 1;
    sweep_drive_options o = options_of(&r);
    expect_started(&r, &o, 4, "1 2 3 4 5");
    r.fake.room = 0;
    o.force = true;
    sweep_drive *drive;
    sweep_runner runner = {&r.fake, 4, start, wait_for_end, cancel};
    expect_ok(sweep_drive_create(&o, &drive));
    expect_error(sweep_drive_run(drive, &runner), KB_ERR_HOST, "no room");
    sweep_drive_destroy(drive);
    close_rig(&r);
    remove_folder(&r);
}

static void estimates_from_some_points(void **state)
{
    (void)state;
    rig r;
    make_folder(&r);
    open_rig(&r, "m=2..9");
    sweep_drive_options o = options_of(&r);
    sweep_drive *drive;
    sweep_runner runner = {&r.fake, 1, start, wait_for_end, cancel};
    double seconds;
    o.max_points = 8;
    expect_ok(sweep_drive_create(&o, &drive));
    expect_ok(sweep_drive_estimate(drive, 2, &seconds));
    assert_true(seconds < 0); /* nothing is known */
    expect_ok(sweep_drive_run(drive, &runner));
    expect_ok(sweep_drive_estimate(drive, 1, &seconds));
    assert_true(seconds > 30 && seconds < 50); /* 44 in truth; few points count less */
    double halved;
    expect_ok(sweep_drive_estimate(drive, 2, &halved));
    assert_float_equal(halved, seconds / 2, 1e-9);
    sweep_drive_destroy(drive);
    close_rig(&r);
    remove_folder(&r);
}

/* Every beginning of what a child sends is read without harm. */
static void reads_frames_that_are_cut_off(void **state)
{
    (void)state;
    rig r;
    make_folder(&r);
    open_rig(&r, "m=1");
    child_result result = {0};
    compose(&r.fake, 0, &result);
    for (size_t length = 0; length <= result.bytes.length; length++) {
        sweep_frames frames;
        char *part = malloc(length + 1);
        memcpy(part, result.bytes.bytes, length);
        sweep_read_frames(part, length, &frames);
        assert_int_equal(frames.has_end, length == result.bytes.length);
        assert_true(!frames.document || frames.has_key);
        free(part);
    }
    child_result_fini(&result);
    close_rig(&r);
    remove_folder(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_all_points_once),
        cmocka_unit_test(long_points_come_first),
        cmocka_unit_test(keeps_points_that_crash),
        cmocka_unit_test(waits_if_the_host_has_no_room),
        cmocka_unit_test(estimates_from_some_points),
        cmocka_unit_test(reads_frames_that_are_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
