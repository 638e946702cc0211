/*
 * test_barrier_table.c: the table of calls that take a tensor (src/rt/calls.c). It has all that the
 * public header declares; each call waits for the caller's work if the table says that it shows
 * contents, and else does not; and each says so if the tensor is gone.
 *
 * A call that is new in the header fails here until it is in the table, and one that is new in the
 * table until it has a function below that makes it.
 *
 * Checks H1.
 */
#include "tensors.h"

#include <ctype.h>

#include "rt/rt.h"
#include "rt/runtime.h"

/* ---- The public header ------------------------------------------------------------------- */

/* A parameter of a public function that hands in a tensor. */
typedef struct taker {
    char function[64];
    char parameter[64];
} taker;

typedef struct takers {
    taker items[256];
    size_t count;
} takers;

/* Comments become blanks. */
static void blank_comments(char *text)
{
    for (char *at = strstr(text, "/*"); at; at = strstr(at, "/*")) {
        char *end = strstr(at, "*/");
        assert_non_null(end);
        memset(at, ' ', (size_t)(end + 2 - at));
    }
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Copies the word that ends before `end`, whatever blanks and brackets come between. */
static void word_before(const char *start, const char *end, char into[64])
{
    while (end > start && !is_word(end[-1]))
        end--;
    const char *first = end;
    while (first > start && is_word(first[-1]))
        first--;
    size_t length = (size_t)(end - first);
    assert_true(length > 0 && length < 64);
    memcpy(into, first, length);
    into[length] = '\0';
}

static const char *find_word(const char *start, const char *end, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = start; at + length <= end; at++) {
        bool alone = (at == start || !is_word(at[-1])) && !is_word(at[length]);
        if (alone && strncmp(at, word, length) == 0)
            return at;
    }
    return NULL;
}

/* A pointer to a tensor is where a new one is put; a pointer to constant ones hands some in. */
static bool hands_in(const char *start, const char *end)
{
    const char *type = find_word(start, end, "kb_tensor");
    if (!type)
        return false;
    bool pointer = memchr(type, '*', (size_t)(end - type)) != NULL;
    return !pointer || find_word(start, end, "const");
}

/* One declaration, from KB_API to before its semicolon. */
static void read_declaration(const char *start, const char *end, takers *into)
{
    const char *open = memchr(start, '(', (size_t)(end - start));
    if (!open)
        return;
    const char *close = memchr(open, ')', (size_t)(end - open));
    assert_non_null(close);
    for (const char *from = open + 1, *to; from < close; from = to + 1) {
        to = memchr(from, ',', (size_t)(close - from));
        if (!to)
            to = close;
        if (!hands_in(from, to))
            continue;
        assert_true(into->count < sizeof into->items / sizeof *into->items);
        taker *t = &into->items[into->count++];
        word_before(start, open, t->function);
        word_before(from, to, t->parameter);
    }
}

static void read_declarations(char *text, takers *into)
{
    blank_comments(text);
    for (const char *at = strstr(text, "KB_API "); at; at = strstr(at + 1, "KB_API ")) {
        const char *line = at;
        while (line > text && line[-1] != '\n')
            line--;
        if (*line == '#')
            continue; /* its definition */
        const char *end = strchr(at, ';');
        assert_non_null(end);
        read_declaration(at, end, into);
    }
}

static void declarations_are_understood(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *found; /* "function parameter" of the first, or NULL */
        size_t count;
    } cases_of_text[] = {
        {"KB_API void kb_a(kb_context *ctx, kb_tensor x);", "kb_a x", 1},
        {"KB_API KB_MUST_USE kb_error *kb_b(kb_context *ctx,\n    kb_tensor\n x, int y);", "kb_b x",
         1},
        {"KB_API void kb_c(kb_context *ctx, kb_tensor *x);", NULL, 0},
        {"KB_API void kb_d(const kb_tensor *tensors, size_t count);", "kb_d tensors", 1},
        {"KB_API void kb_e(kb_tensor tensors[], size_t count);", "kb_e tensors", 1},
        {"KB_API void kb_f(const kb_tensor_spec *spec, kb_tensor *tensor);", NULL, 0},
        {"KB_API void kb_g(kb_tensor to, kb_tensor from);", "kb_g to", 2},
        {"/* KB_API void kb_h(kb_tensor x); */ KB_API void kb_i(void /* kb_tensor x */);", NULL, 0},
        {"#define KB_API kb_tensor x;\nKB_API void kb_j(const char *format, ...) KB_PRINTF(1, 2);",
         NULL, 0},
    };
    for (size_t i = 0; i < sizeof cases_of_text / sizeof *cases_of_text; i++) {
        char text[256];
        snprintf(text, sizeof text, "%s", cases_of_text[i].text);
        takers *found = calloc(1, sizeof *found);
        assert_non_null(found);
        read_declarations(text, found);
        assert_int_equal(found->count, cases_of_text[i].count);
        if (cases_of_text[i].found) {
            char first[130];
            snprintf(first, sizeof first, "%s %s", found->items[0].function,
                     found->items[0].parameter);
            assert_string_equal(first, cases_of_text[i].found);
        }
        free(found);
    }
}

static char *read_text(const char *header)
{
    enum { capacity = 1 << 20 };
    char path[512];
    snprintf(path, sizeof path, "%s/../include/kernbench/%s", KB_TEST_DIR, header);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = (char *)new_bytes(capacity);
    size_t length = fread(text, 1, capacity - 1, file);
    assert_true(length > 0 && length < capacity - 1);
    fclose(file);
    return text;
}

/* The declarations of every header that kernbench.h includes. */
static takers *read_headers(void)
{
    takers *found = calloc(1, sizeof *found);
    assert_non_null(found);
    char *umbrella = read_text("kernbench.h");
    blank_comments(umbrella);
    size_t headers = 0;
    static const char include[] = "#include <kernbench/";
    for (char *at = strstr(umbrella, include); at; at = strstr(at, include)) {
        const char *name = at + strlen(include);
        char *end = strchr(name, '>');
        assert_non_null(end);
        *end = '\0';
        char *text = read_text(name);
        read_declarations(text, found);
        free(text);
        headers++;
        at = end + 1;
    }
    free(umbrella);
    assert_true(headers >= 10);
    return found;
}

/* How many tensors the function takes. */
static size_t count_of(const takers *all, const char *function)
{
    size_t count = 0;
    for (size_t i = 0; i < all->count; i++)
        count += strcmp(all->items[i].function, function) == 0;
    return count;
}

static bool is_entry(const rt_call_entry *entry, const taker *t, size_t count)
{
    if (strcmp(entry->function, t->function) != 0)
        return false;
    return count == 1 ? !entry->argument
                      : entry->argument && strcmp(entry->argument, t->parameter) == 0;
}

/* Collectives are another layer's, and like launches they show nothing to the host. */
static bool is_collective(const char *function)
{
    return strncmp(function, "kb_distributed_", strlen("kb_distributed_")) == 0;
}

static void the_table_has_every_call_of_the_header(void **state)
{
    (void)state;
    takers *all = read_headers();
    assert_true(all->count >= 18);
    size_t others = 0;
    for (size_t i = 0; i < all->count; i++) {
        size_t found = 0;
        if (is_collective(all->items[i].function)) {
            others++;
            continue;
        }
        for (int call = 0; call < RT_CALLS; call++)
            found +=
                is_entry(&rt_calls[call], &all->items[i], count_of(all, all->items[i].function));
        if (found != 1)
            fail_msg("'%s' of %s() stands in rt_calls[] %zu times", all->items[i].parameter,
                     all->items[i].function, found);
    }
    assert_int_equal(all->count - others, RT_CALLS); /* so nothing else is in it */
    assert_true(others > 0);
    free(all);
}

/* ---- Making each call -------------------------------------------------------------------- */

typedef struct scene {
    kb_context *ctx;
    kb_tensor x;     /* four numbers, on a device */
    kb_tensor other; /* the same there */
    kb_tensor host;  /* the same of the host */
    kb_access access;
} scene;

/* Makes one call with `x` as the tensor that the entry is about. */
typedef kb_error *driver_fn(scene *s, kb_tensor x);

static kb_error *call_free(scene *s, kb_tensor x)
{
    return kb_tensor_free(s->ctx, x);
}

static kb_error *call_shape(scene *s, kb_tensor x)
{
    return kb_tensor_shape(s->ctx, x, &(kb_shape){0});
}

static kb_error *call_dtype(scene *s, kb_tensor x)
{
    return kb_tensor_dtype(s->ctx, x, &(kb_dtype){0});
}

static kb_error *call_name(scene *s, kb_tensor x)
{
    const char *name;
    return kb_tensor_name(s->ctx, x, &name);
}

static kb_error *call_device(scene *s, kb_tensor x)
{
    return kb_tensor_device(s->ctx, x, &(uint32_t){0});
}

static kb_error *call_va(scene *s, kb_tensor x)
{
    return kb_tensor_va(s->ctx, x, &(uint64_t){0});
}

static kb_error *call_shard_count(scene *s, kb_tensor x)
{
    return kb_tensor_shard_count(s->ctx, x, &(size_t){0});
}

static kb_error *call_shard(scene *s, kb_tensor x)
{
    return kb_tensor_shard(s->ctx, x, 0, &(kb_shard){0});
}

static kb_error *call_shard_location(scene *s, kb_tensor x)
{
    return kb_tensor_shard_location(s->ctx, x, 0, &(kb_location){0});
}

static kb_error *call_copy_to(scene *s, kb_tensor x)
{
    return kb_tensor_copy(s->ctx, x, s->host, s->access);
}

static kb_error *call_copy_from(scene *s, kb_tensor x)
{
    return kb_tensor_copy(s->ctx, s->other, x, s->access);
}

static kb_error *call_to_host(scene *s, kb_tensor x)
{
    unsigned char bytes[4];
    return kb_tensor_to_host(s->ctx, x, s->access, bytes, sizeof bytes);
}

static kb_error *call_get(scene *s, kb_tensor x)
{
    double value;
    return kb_tensor_get(s->ctx, x, s->access, &KB_INDEX(1), &value);
}

static kb_error *call_set(scene *s, kb_tensor x)
{
    return kb_tensor_set(s->ctx, x, s->access, &KB_INDEX(1), 5);
}

static kb_error *call_get_slice(scene *s, kb_tensor x)
{
    unsigned char bytes[2];
    return kb_tensor_get_slice(s->ctx, x, s->access, &KB_SLICE({1, 3}), bytes, sizeof bytes);
}

static kb_error *call_set_slice(scene *s, kb_tensor x)
{
    return kb_tensor_set_slice(s->ctx, x, s->access, &KB_SLICE({1, 3}), "ab", 2);
}

static kb_error *call_fill_slice(scene *s, kb_tensor x)
{
    return kb_tensor_fill_slice(s->ctx, x, s->access, &KB_SLICE({1, 3}), 5);
}

static kb_error *call_repr(scene *s, kb_tensor x)
{
    char *text = NULL;
    kb_error *err = kb_tensor_repr(s->ctx, x, s->access, &text);
    free(text);
    return err;
}

static kb_error *call_stream_copy_to(scene *s, kb_tensor x)
{
    return kb_stream_copy(s->ctx, KB_DEFAULT_STREAM, x, s->other, NULL);
}

static kb_error *call_stream_copy_from(scene *s, kb_tensor x)
{
    return kb_stream_copy(s->ctx, KB_DEFAULT_STREAM, s->other, x, NULL);
}

/* A bench that verifies a tensor, which it finds here. */
static kb_tensor to_verify;

static kb_error *verify_anything(kb_bench *bench)
{
    return kb_bench_verify(bench, to_verify, (const double[4]){0}, 0, 1e9);
}

static kb_error *call_bench_verify(scene *s, kb_tensor x)
{
    static const kb_bench_spec spec = {.name = "b", .summary = "", .run = verify_anything};
    kb_bench *bench;
    to_verify = x;
    KB_TRY(rt_bench_create(&spec, &(rt_bench_options){.verify = true}, &bench));
    kb_error *err = rt_bench_run(bench, s->ctx);
    rt_bench_destroy(bench);
    return err;
}

static driver_fn *const drivers[RT_CALLS] = {
    [RT_TENSOR_FREE] = call_free,
    [RT_TENSOR_SHAPE] = call_shape,
    [RT_TENSOR_DTYPE] = call_dtype,
    [RT_TENSOR_NAME] = call_name,
    [RT_TENSOR_DEVICE] = call_device,
    [RT_TENSOR_VA] = call_va,
    [RT_TENSOR_SHARD_COUNT] = call_shard_count,
    [RT_TENSOR_SHARD] = call_shard,
    [RT_TENSOR_SHARD_LOCATION] = call_shard_location,
    [RT_TENSOR_COPY_TO] = call_copy_to,
    [RT_TENSOR_COPY_FROM] = call_copy_from,
    [RT_TENSOR_TO_HOST] = call_to_host,
    [RT_TENSOR_GET] = call_get,
    [RT_TENSOR_SET] = call_set,
    [RT_TENSOR_GET_SLICE] = call_get_slice,
    [RT_TENSOR_SET_SLICE] = call_set_slice,
    [RT_TENSOR_FILL_SLICE] = call_fill_slice,
    [RT_TENSOR_REPR] = call_repr,
    [RT_STREAM_COPY_TO] = call_stream_copy_to,
    [RT_STREAM_COPY_FROM] = call_stream_copy_from,
    [RT_BENCH_VERIFY] = call_bench_verify,
};

static void every_call_is_made_by_this_test(void **state)
{
    (void)state;
    for (int call = 0; call < RT_CALLS; call++)
        if (!drivers[call])
            fail_msg("nothing here makes the call %s", rt_calls[call].function);
}

/* Which calls show contents: what the host sees by them depends on what was written. */
static void the_table_says_which_calls_show_contents(void **state)
{
    (void)state;
    static const bool shows[RT_CALLS] = {
        [RT_TENSOR_COPY_FROM] = true, [RT_TENSOR_TO_HOST] = true, [RT_TENSOR_GET] = true,
        [RT_TENSOR_GET_SLICE] = true, [RT_TENSOR_REPR] = true,    [RT_BENCH_VERIFY] = true,
    };
    for (int call = 0; call < RT_CALLS; call++)
        assert_int_equal(rt_calls[call].shows_contents, shows[call]);
}

/* ---- Waiting ----------------------------------------------------------------------------- */

/* For transfers of the caller; what it has in streams is another matter. */
static bool waits(int call)
{
    return rt_calls[call].shows_contents || rt_calls[call].waits_for_transfers;
}

static scene make_scene(kb_context *ctx, kb_access access)
{
    scene s = {.ctx = ctx, .access = access};
    kb_tensor_spec spec = {.name = "x", .shape = KB_SHAPE(4), .dtype = KB_I8, .access = KB_UNTIMED};
    expect_ok(kb_empty(ctx, &spec, &s.x));
    expect_ok(kb_empty(ctx, &spec, &s.other));
    expect_ok(kb_from_host(ctx, &spec, "four", 4, &s.host));
    return s;
}

/* A write of the host to SIP `sip`, with a handle to ask how far it is. */
static kb_request write_somewhere(kb_context *ctx, uint32_t sip, uint64_t bytes)
{
    kb_message write = {
        .kind = KB_MEMORY_WRITE, .to = {.memory = KB_HBM, .pe = {.sip = sip}}, .bytes = bytes};
    kb_request request;
    expect_ok(kb_request_submit(ctx, &write, &request));
    return request;
}

static bool is_done(kb_context *ctx, kb_request request)
{
    bool done;
    expect_ok(kb_request_test(ctx, request, &done));
    return done;
}

/* What must not change in a call that does not wait. */
typedef struct moment {
    kb_time now;
    uint64_t events, resumes;
} moment;

static moment moment_of(kb_context *ctx)
{
    kb_sim_stats stats = kb_sim_get_stats(kb_context_sim(ctx));
    return (moment){kb_context_now(ctx), stats.events + stats.elided, stats.resumes};
}

static void expect_same_moment(moment before, moment after)
{
    assert_int_equal(after.now, before.now);
    assert_int_equal(after.events, before.events);
    assert_int_equal(after.resumes, before.resumes);
}

static uint32_t under_way(kb_context *ctx)
{
    return rt_caller_of(ctx)->under_way;
}

static void call_with_work_under_way(kb_context *ctx, rt_call call, kb_access access)
{
    scene s = make_scene(ctx, access);
    kb_request request = write_somewhere(ctx, 1, 4096);
    assert_int_equal(under_way(ctx), 1);
    moment before = moment_of(ctx);
    expect_ok(drivers[call](&s, s.x));
    if (!waits((int)call)) {
        expect_same_moment(before, moment_of(ctx));
        assert_false(is_done(ctx, request));
        return;
    }
    assert_true(is_done(ctx, request));
    assert_true(kb_context_now(ctx) > before.now);
    kb_completion completion;
    expect_ok(kb_request_wait(ctx, request, &completion));
    bool in_stream = rt_calls[call].waits_for_transfers;
    bool untimed = access == KB_UNTIMED || call == RT_BENCH_VERIFY; /* which has no other */
    if (untimed || in_stream || call == RT_TENSOR_COPY_FROM)        /* not a moment longer */
        assert_int_equal(kb_context_now(ctx), completion.ended);
    else
        assert_true(kb_context_now(ctx) > completion.ended);
    bool sends = in_stream || (call == RT_TENSOR_COPY_FROM && access == KB_TIMED);
    assert_int_equal(under_way(ctx), sends ? 1 : 0);
}

/* With nothing to wait for, what takes no time does not even yield. */
static void call_with_nothing_under_way(kb_context *ctx, rt_call call, kb_access access)
{
    scene s = make_scene(ctx, access);
    moment before = moment_of(ctx);
    expect_ok(drivers[call](&s, s.x));
    bool reads = rt_calls[call].shows_contents && call != RT_TENSOR_COPY_FROM &&
                 call != RT_BENCH_VERIFY; /* which never takes time */
    if (access == KB_UNTIMED || !reads)
        expect_same_moment(before, moment_of(ctx));
    else
        assert_true(kb_context_now(ctx) > before.now);
}

/* The error names the call and which of its tensors is meant, and comes without waiting. */
static void call_with_a_tensor_that_is_gone(kb_context *ctx, rt_call call, kb_access access)
{
    scene s = make_scene(ctx, access);
    kb_request request = write_somewhere(ctx, 1, 4096);
    expect_ok(kb_tensor_free(ctx, s.x));
    moment before = moment_of(ctx);
    const rt_call_entry *entry = &rt_calls[call];
    char message[160];
    snprintf(message, sizeof message, "%s: %s%sinvalid or freed tensor handle", entry->function,
             entry->argument ? entry->argument : "", entry->argument ? ": " : "");
    expect_error(drivers[call](&s, s.x), KB_ERR_FAULT, message);
    expect_same_moment(before, moment_of(ctx));
    assert_false(is_done(ctx, request));
}

typedef void check_fn(kb_context *ctx, rt_call call, kb_access access);

typedef struct task {
    check_fn *check;
    rt_call call;
    kb_access access;
} task;

static kb_error *work(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)rank;
    const task *t = arg;
    t->check(ctx, t->call, t->access);
    return NULL;
}

/* Every call, timed and untimed, by a worker and outside workers. */
static void check_all(check_fn *check)
{
    for (int n = 0; n < RT_CALLS * 4; n++) {
        task t = {check, (rt_call)(n / 4), (kb_access)(n % 2)};
        kb_context *ctx = open_machine(THREE_SIPS);
        if (n / 2 % 2)
            expect_ok(kb_spawn(ctx, work, &t, 1));
        else
            check(ctx, t.call, t.access);
        kb_context_destroy(ctx);
    }
}

static void calls_that_show_contents_wait_and_no_others_do(void **state)
{
    (void)state;
    check_all(call_with_work_under_way);
}

static void with_nothing_under_way_there_is_no_yield(void **state)
{
    (void)state;
    check_all(call_with_nothing_under_way);
}

static void every_call_knows_a_tensor_that_is_gone(void **state)
{
    (void)state;
    check_all(call_with_a_tensor_that_is_gone);
}

/* ---- Whose work -------------------------------------------------------------------------- */

typedef struct two {
    rt_call call;
    bool own_work;
    kb_request long_work;
    bool checked;
} two;

/* Rank 0 has a PE send 1 MiB; rank 1 makes the call, with or without a little of its own. */
static kb_error *work_of_two(kb_context *ctx, uint32_t rank, void *arg)
{
    two *t = arg;
    if (rank == 0) {
        kb_message dma = {
            .kind = KB_PE_DMA, .to = {.memory = KB_HBM, .pe = {.sip = 2}}, .bytes = 1 << 20};
        expect_ok(kb_request_submit(ctx, &dma, &t->long_work));
        return NULL;
    }
    scene s = make_scene(ctx, KB_UNTIMED);
    kb_request own = {0};
    if (t->own_work)
        own = write_somewhere(ctx, 1, 64);
    moment before = moment_of(ctx);
    expect_ok(drivers[t->call](&s, s.x));
    if (t->own_work)
        assert_int_equal(is_done(ctx, own), waits((int)t->call));
    else
        expect_same_moment(before, moment_of(ctx));
    assert_false(is_done(ctx, t->long_work));
    t->checked = true;
    return NULL;
}

static void the_work_of_others_is_not_waited_for(void **state)
{
    (void)state;
    for (int n = 0; n < RT_CALLS * 2; n++) {
        two t = {.call = (rt_call)(n / 2), .own_work = n % 2};
        kb_context *ctx = open_machine(THREE_SIPS);
        expect_ok(kb_spawn(ctx, work_of_two, &t, 2));
        assert_true(t.checked);
        kb_context_destroy(ctx);
    }
}

/* ---- Freed meanwhile --------------------------------------------------------------------- */

typedef struct shared {
    scene s;
    rt_call call;
    kb_time delay; /* until it is freed */
    bool waited;
    kb_error *err;
} shared;

/* Rank 0 makes the call, and has to wait; rank 1 frees the tensor while it does. */
static kb_error *work_on_shared(kb_context *ctx, uint32_t rank, void *arg)
{
    shared *sh = arg;
    if (rank == 0) {
        (void)write_somewhere(ctx, 1, 4096);
        sh->err = drivers[sh->call](&sh->s, sh->s.x);
        sh->waited = kb_context_now(ctx) > sh->delay;
        return NULL;
    }
    kb_co_sleep(kb_context_worker(ctx), sh->delay);
    return kb_tensor_free(ctx, sh->s.x);
}

/*
 * The write takes a little more than 217 ns: 151 of overhead, 2.19 of wire, 64 of drain. Freed
 * before it has ended, there is nothing to be seen; afterwards, while the contents are on their
 * way, they may be seen or not.
 */
static void a_tensor_may_be_freed_while_it_is_waited_for(void **state)
{
    (void)state;
    for (int n = 0; n < RT_CALLS * 4; n++) {
        rt_call call = (rt_call)(n / 4);
        if (!rt_calls[call].shows_contents)
            continue;
        kb_context *ctx = open_machine(THREE_SIPS);
        shared sh = {.call = call, .delay = n & 1 ? 260 * KB_NS : 100 * KB_NS};
        sh.s = make_scene(ctx, n & 2 ? KB_UNTIMED : KB_TIMED);
        kb_error *err = kb_spawn(ctx, work_on_shared, &sh, 2);
        expect_ok(err);
        if (!(n & 1)) {
            assert_true(sh.waited);
            assert_non_null(sh.err);
        }
        if (sh.err) {
            assert_int_equal(kb_error_code(sh.err), KB_ERR_FAULT);
            assert_non_null(strstr(kb_error_message(sh.err), "invalid or freed"));
        }
        kb_error_free(sh.err);
        kb_context_destroy(ctx);
    }
}

/* ---- Tensors of the host ----------------------------------------------------------------- */

/* As a source it is at hand; unless something is on its way into it, or it is read. */
static void a_source_of_the_host_is_not_waited_for(void **state)
{
    (void)state;
    for (int access = KB_TIMED; access <= KB_UNTIMED; access++) {
        kb_context *ctx = open_machine(THREE_SIPS);
        scene s = make_scene(ctx, (kb_access)access);
        kb_request request = write_somewhere(ctx, 1, 4096);
        moment before = moment_of(ctx);
        expect_ok(kb_tensor_copy(ctx, s.x, s.host, s.access));
        expect_same_moment(before, moment_of(ctx));
        assert_false(is_done(ctx, request));
        expect_ok(kb_synchronize(ctx));
        expect_ok(kb_tensor_copy(ctx, s.host, s.x, KB_TIMED)); /* on its way into it */
        kb_time now = kb_context_now(ctx);
        expect_ok(kb_tensor_copy(ctx, s.other, s.host, s.access));
        assert_true(kb_context_now(ctx) > now);
        expect_ok(kb_synchronize(ctx)); /* it has arrived */
        request = write_somewhere(ctx, 1, 4096);
        expect_ok(kb_tensor_copy(ctx, s.other, s.host, s.access));
        assert_false(is_done(ctx, request));
        kb_context_destroy(ctx);
    }
}

/* A fault of what was waited for is told by the call that waited. */
static void a_call_that_waits_tells_of_faults(void **state)
{
    (void)state;
    for (int call = 0; call < RT_CALLS; call++) {
        kb_context *ctx = open_machine(ONE_PE);
        scene s = make_scene(ctx, KB_UNTIMED);
        kb_message dma = {
            .kind = KB_PE_DMA, .from = at_va(0x200000000), .to = {.memory = KB_TCM}, .bytes = 1};
        kb_request request;
        expect_ok(kb_request_submit(ctx, &dma, &request));
        kb_error *err = drivers[call](&s, s.x);
        if (!waits(call)) {
            expect_ok(err);
            err = kb_synchronize(ctx);
        }
        assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
        assert_non_null(strstr(kb_error_message(err), "address 0x200000000 is not mapped"));
        kb_error_free(err);
        kb_context_destroy(ctx);
    }
}

/* ---- What is seen ------------------------------------------------------------------------ */

/* PE 0 writes "four" to a tensor of its own accord; who looks without waiting sees it. */
static void what_pes_do_is_seen(void **state)
{
    (void)state;
    for (int access = KB_TIMED; access <= KB_UNTIMED; access++) {
        kb_context *ctx = open_machine(THREE_SIPS);
        scene s = make_scene(ctx, (kb_access)access);
        kb_location source = {.memory = KB_TCM};
        uint64_t va;
        host_writes(ctx, source, "four", 4);
        expect_ok(kb_tensor_va(ctx, s.x, &va));
        kb_message dma = {.kind = KB_PE_DMA, .from = source, .to = at_va(va), .bytes = 4};
        kb_request request;
        expect_ok(kb_request_submit(ctx, &dma, &request));
        expect_contents(ctx, s.x, s.access, "four", 4);
        kb_context_destroy(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(declarations_are_understood),
        cmocka_unit_test(the_table_has_every_call_of_the_header),
        cmocka_unit_test(every_call_is_made_by_this_test),
        cmocka_unit_test(the_table_says_which_calls_show_contents),
        cmocka_unit_test(calls_that_show_contents_wait_and_no_others_do),
        cmocka_unit_test(with_nothing_under_way_there_is_no_yield),
        cmocka_unit_test(every_call_knows_a_tensor_that_is_gone),
        cmocka_unit_test(the_work_of_others_is_not_waited_for),
        cmocka_unit_test(a_tensor_may_be_freed_while_it_is_waited_for),
        cmocka_unit_test(a_source_of_the_host_is_not_waited_for),
        cmocka_unit_test(a_call_that_waits_tells_of_faults),
        cmocka_unit_test(what_pes_do_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
