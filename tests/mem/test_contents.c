/*
 * test_contents.c: what is in a memory, against a plain array, and against a list of pages that
 * should be there.
 */
#include "mem/cases.h"
#include "support/expect.h"
#include "support/failing_alloc.h"
#include "support/seed.h"

#include "mem/mem.h"

#define PAGE ((uint64_t)MEM_PAGE_BYTES)

/* ---- What must always hold --------------------------------------------------------------- */

/* Pages are counted, there is none twice, and the table is neither full nor too large. */
static void expect_sound(const mem_contents *c)
{
    size_t pages = 0;
    for (size_t i = 0; i < c->slot_count; i++)
        pages += c->slots[i].bytes != NULL;
    assert_int_equal(pages, c->page_count);
    assert_int_equal(c->slots != NULL, c->slot_count > 0);
    assert_int_equal(c->page_count == 0, c->slot_count == 0);
    assert_int_equal(c->slot_count & (c->slot_count - 1), 0);
    assert_true(c->page_count <= c->slot_count - c->slot_count / 4);
    assert_int_equal(mem_contents_bytes(c),
                     c->page_count * MEM_PAGE_BYTES + c->slot_count * sizeof(mem_page_slot));
}

static void must_write(mem_contents *c, uint64_t offset, const void *data, uint64_t bytes)
{
    expect_ok(mem_contents_write(c, offset, data, bytes));
    expect_sound(c);
}

static void must_discard(mem_contents *c, uint64_t offset, uint64_t bytes)
{
    mem_contents_discard(c, offset, bytes);
    expect_sound(c);
}

static unsigned char byte_at(const mem_contents *c, uint64_t offset)
{
    unsigned char byte = 0xEE;
    mem_contents_read(c, offset, &byte, 1);
    return byte;
}

/* ---- By hand ----------------------------------------------------------------------------- */

static void what_nobody_wrote_is_zero_and_takes_no_space(void **state)
{
    (void)state;
    size_t before = failing_alloc_live();
    mem_contents c = {0};
    unsigned char bytes[100];
    memset(bytes, 0xEE, sizeof bytes);
    mem_contents_read(&c, UINT64_MAX - 99, bytes, 100);
    for (size_t i = 0; i < sizeof bytes; i++)
        assert_int_equal(bytes[i], 0);
    mem_contents_discard(&c, 0, UINT64_MAX);
    expect_ok(mem_contents_fill(&c, 5, (uint64_t)1 << 40, &(uint32_t){0}, 4));
    expect_ok(mem_contents_write(&c, 5, NULL, 0));
    expect_ok(mem_contents_copy(&c, 0, &c, (uint64_t)1 << 20, (uint64_t)1 << 20));
    assert_int_equal(mem_contents_bytes(&c), 0);
    assert_int_equal(failing_alloc_live(), before);
    expect_sound(&c);
    mem_contents_fini(&c);
}

static void what_was_written_is_read(void **state)
{
    (void)state;
    mem_contents c = {0};
    must_write(&c, 4090, "0123456789", 10); /* over the end of page 0 */
    assert_int_equal(c.page_count, 2);
    char back[13] = "............";
    mem_contents_read(&c, 4089, back, 12);
    assert_memory_equal(back,
                        "\0"
                        "0123456789\0",
                        12);
    must_write(&c, 4092, "xyz", 3);
    mem_contents_read(&c, 4090, back, 10);
    assert_memory_equal(back, "01xyz56789", 10);
    must_write(&c, UINT64_MAX - 2, "end", 3); /* the very last bytes */
    mem_contents_read(&c, UINT64_MAX - 2, back, 3);
    assert_memory_equal(back, "end", 3);
    assert_int_equal(c.page_count, 3);
    mem_contents_fini(&c);
    assert_int_equal(mem_contents_bytes(&c), 0);
    assert_int_equal(byte_at(&c, 4092), 0);
}

static void discarding_gives_whole_pages_back_and_clears_parts(void **state)
{
    (void)state;
    mem_contents c = {0};
    unsigned char ones[5 * MEM_PAGE_BYTES];
    memset(ones, 1, sizeof ones);
    must_write(&c, 0, ones, sizeof ones);
    assert_int_equal(c.page_count, 5);
    must_discard(&c, PAGE - 1, 2 * PAGE + 2); /* a byte of 0, all of 1 and 2, a byte of 3 */
    assert_int_equal(c.page_count, 3);
    assert_int_equal(byte_at(&c, PAGE - 2), 1);
    for (uint64_t at = PAGE - 1; at < 3 * PAGE + 1; at++)
        assert_int_equal(byte_at(&c, at), 0);
    assert_int_equal(byte_at(&c, 3 * PAGE + 1), 1);
    must_discard(&c, 0, PAGE - 1); /* all but a byte: it stays */
    assert_int_equal(c.page_count, 3);
    must_discard(&c, 0, 0);
    must_discard(&c, 0, PAGE);
    assert_int_equal(c.page_count, 2);
    must_discard(&c, 3 * PAGE, 2 * PAGE);
    assert_int_equal(mem_contents_bytes(&c), 0); /* the table went too */
}

static void discarding_a_huge_range_looks_at_what_is_there_alone(void **state)
{
    (void)state;
    mem_contents c = {0};
    const uint64_t far = (uint64_t)1 << 50;
    must_write(&c, 99, "a", 1);
    must_write(&c, far, "bb", 2);
    must_write(&c, 2 * far + 1, "cc", 2);
    must_write(&c, 2 * far + PAGE, "d", 1);
    must_discard(&c, 100, 2 * far - 98); /* up to the first c: at once, or it takes years */
    assert_int_equal(byte_at(&c, 99), 'a');
    assert_int_equal(byte_at(&c, far), 0);
    assert_int_equal(byte_at(&c, 2 * far + 1), 0);
    assert_int_equal(byte_at(&c, 2 * far + 2), 'c');
    assert_int_equal(byte_at(&c, 2 * far + PAGE), 'd');
    assert_int_equal(c.page_count, 3);
    must_discard(&c, 0, UINT64_MAX);
    /* The last page is not wholly inside, but there is none. */
    assert_int_equal(mem_contents_bytes(&c), 0);
}

static void filling_repeats_the_pattern_from_where_it_starts(void **state)
{
    (void)state;
    static const unsigned char pattern[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (size_t size = 1; size <= 8; size *= 2)
        for (uint64_t start = 0; start < 10; start++) {
            mem_contents c = {0};
            uint64_t offset = PAGE - start, bytes = 2 * PAGE + 16;
            must_write(&c, offset - 1, "<", 1);
            must_write(&c, offset + bytes, ">", 1);
            expect_ok(mem_contents_fill(&c, offset, bytes, pattern, size));
            expect_sound(&c);
            for (uint64_t i = 0; i < bytes; i++)
                if (byte_at(&c, offset + i) != pattern[i % size])
                    fail_msg("size %zu, start %d, byte %d", size, (int)start, (int)i);
            assert_int_equal(byte_at(&c, offset - 1), '<');
            assert_int_equal(byte_at(&c, offset + bytes), '>');
            /* With zeros, all that goes which nobody else needs. */
            expect_ok(mem_contents_fill(&c, offset, bytes, &(uint64_t){0}, size));
            expect_sound(&c);
            for (uint64_t i = 0; i < bytes; i++)
                assert_int_equal(byte_at(&c, offset + i), 0);
            assert_int_equal(byte_at(&c, offset - 1), '<');
            assert_int_equal(byte_at(&c, offset + bytes), '>');
            assert_int_equal(c.page_count, 2);
            mem_contents_fini(&c);
        }
    mem_contents c = {0};
    expect_ok(mem_contents_fill(&c, 7, 0, pattern, 4));
    assert_int_equal(mem_contents_bytes(&c), 0);
}

static void a_pattern_that_begins_with_zeros_is_kept(void **state)
{
    (void)state;
    for (size_t size = 2; size <= 8; size *= 2) {
        mem_contents c = {0};
        unsigned char pattern[8] = {0};
        pattern[size - 1] = 9;
        expect_ok(mem_contents_fill(&c, 0, 2 * PAGE, pattern, size));
        for (uint64_t i = 0; i < 2 * PAGE; i++)
            assert_int_equal(byte_at(&c, i), pattern[i % size]);
        mem_contents_fini(&c);
    }
}

static void bad_size(void)
{
    mem_contents c = {0};
    kb_error_free(mem_contents_fill(&c, 0, 6, "1234", 4));
}

static void filling_wants_whole_patterns(void **state)
{
    (void)state;
    expect_abort(bad_size, "bytes % size == 0");
}

static void a_copy_takes_no_space_for_what_nobody_wrote(void **state)
{
    (void)state;
    mem_contents a = {0}, b = {0};
    must_write(&a, 3 * PAGE + 5, "x", 1);
    must_write(&b, 10, "old", 3);
    must_write(&b, 100 * PAGE, "old", 3);
    expect_ok(mem_contents_copy(&b, 0, &a, 0, 101 * PAGE));
    expect_sound(&b);
    assert_int_equal(b.page_count, 1);
    assert_int_equal(byte_at(&b, 3 * PAGE + 5), 'x');
    assert_int_equal(byte_at(&b, 10), 0);
    mem_contents_fini(&a);
    mem_contents_fini(&b);
}

/*
 * Within one memory a page can be the end of the target and the beginning of the source. Here it is
 * made for the target's last byte, after its part of the source was found to be absent.
 */
static void a_copy_to_a_page_that_is_also_read(void **state)
{
    (void)state;
    mem_contents c = {0};
    const uint64_t from = 10 * PAGE + 2000, bytes = 10 * PAGE, to = 1000;
    must_write(&c, from + bytes - 1, "z", 1);
    expect_ok(mem_contents_copy(&c, to, &c, from, bytes));
    expect_sound(&c);
    assert_int_equal(byte_at(&c, to + bytes - 1), 'z');
    assert_int_equal(byte_at(&c, from + bytes - 1), 'z');
    mem_contents_discard(&c, to + bytes - 1, 1);
    mem_contents_discard(&c, from + bytes - 1, 1);
    for (uint64_t at = 0; at < 21 * PAGE; at += 7)
        assert_int_equal(byte_at(&c, at), 0);
    mem_contents_fini(&c);
}

/* ---- By chance --------------------------------------------------------------------------- */

enum { FLAT_PAGES = 24, FLAT_BYTES = FLAT_PAGES * MEM_PAGE_BYTES };

/* A part of a memory, from `base` on, as an array. */
typedef struct flat {
    mem_contents contents;
    uint64_t base;
    unsigned char bytes[FLAT_BYTES];
    bool page[FLAT_PAGES]; /* which ones should be there; with copies, which ones may */
} flat;

static void expect_same(const flat *f, bool exact)
{
    static unsigned char found[FLAT_BYTES];
    memset(found, 0xEE, sizeof found);
    mem_contents_read(&f->contents, f->base, found, FLAT_BYTES);
    assert_memory_equal(found, f->bytes, FLAT_BYTES);
    expect_sound(&f->contents);
    size_t pages = 0;
    for (size_t i = 0; i < FLAT_PAGES; i++)
        pages += f->page[i];
    if (exact)
        assert_int_equal(f->contents.page_count, pages);
    else
        assert_true(f->contents.page_count <= pages);
}

/* Marks the pages that the range touches, or unmarks those that are wholly inside. */
static void mark(flat *f, size_t offset, size_t bytes, bool there)
{
    for (size_t i = 0; i < FLAT_PAGES; i++) {
        size_t start = i * PAGE, end = start + PAGE;
        bool touched = offset < end && offset + bytes > start && bytes > 0;
        bool inside = offset <= start && offset + bytes >= end;
        if (there ? touched : inside)
            f->page[i] = there;
    }
}

/* Mostly short, at times long, often with ends on pages. */
static size_t draw_bytes(kb_rng *rng, size_t most)
{
    size_t bytes = kb_rng_below(rng, kb_rng_below(rng, 3) == 0 ? FLAT_BYTES : 3 * PAGE);
    if (kb_rng_below(rng, 4) == 0)
        bytes -= bytes % PAGE;
    return bytes < most ? bytes : most;
}

static size_t draw_offset(kb_rng *rng)
{
    size_t offset = kb_rng_below(rng, FLAT_BYTES);
    return kb_rng_below(rng, 3) == 0 ? offset - offset % PAGE : offset;
}

static void change(kb_rng *rng, flat *f)
{
    static unsigned char data[FLAT_BYTES];
    size_t offset = draw_offset(rng), bytes = draw_bytes(rng, FLAT_BYTES - offset);
    size_t size = (size_t)1 << kb_rng_below(rng, 4);
    unsigned char pattern[8];
    for (size_t i = 0; i < 8; i++)
        pattern[i] = (unsigned char)(1 + kb_rng_below(rng, 255));
    switch (kb_rng_below(rng, 4)) {
    case 0:
        for (size_t i = 0; i < bytes; i++)
            f->bytes[offset + i] = data[i] = (unsigned char)kb_rng_u64(rng);
        expect_ok(mem_contents_write(&f->contents, f->base + offset, data, bytes));
        mark(f, offset, bytes, true);
        break;
    case 1:
        memset(f->bytes + offset, 0, bytes);
        mem_contents_discard(&f->contents, f->base + offset, bytes);
        mark(f, offset, bytes, false);
        break;
    case 2:
        bytes -= bytes % size;
        for (size_t i = 0; i < bytes; i++)
            f->bytes[offset + i] = pattern[i % size];
        expect_ok(mem_contents_fill(&f->contents, f->base + offset, bytes, pattern, size));
        mark(f, offset, bytes, true);
        break;
    default:
        bytes -= bytes % size;
        memset(pattern, 0, sizeof pattern);
        memset(f->bytes + offset, 0, bytes);
        expect_ok(mem_contents_fill(&f->contents, f->base + offset, bytes, pattern, size));
        mark(f, offset, bytes, false);
        break;
    }
}

static const uint64_t bases[] = {0, PAGE * 1000003, ((uint64_t)1 << 37) - 3 * PAGE,
                                 UINT64_MAX - FLAT_BYTES + 1};

static flat *make_flat(uint64_t base)
{
    flat *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->base = base;
    return f;
}

static void free_flat(flat *f)
{
    mem_contents_fini(&f->contents);
    free(f);
}

static void changes_agree_with_an_array(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(4096));
    for (size_t b = 0; b < 4; b++) {
        flat *f = make_flat(bases[b]);
        for (uint64_t i = 0; i < cases(1000); i++) {
            change(&rng, f);
            expect_same(f, true);
        }
        free_flat(f);
    }
}

/* In one memory, a page that is made for the target may be one of the source too. */
static void copy(flat *to, size_t to_offset, flat *from, size_t from_offset, size_t bytes)
{
    expect_ok(mem_contents_copy(&to->contents, to->base + to_offset, &from->contents,
                                from->base + from_offset, bytes));
    memmove(to->bytes + to_offset, from->bytes + from_offset, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (from->page[(from_offset + i) / PAGE])
            to->page[(to_offset + i) / PAGE] = true;
}

static void copies_between_memories_agree_with_arrays(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(7));
    flat *both[2] = {make_flat(bases[1]), make_flat(bases[2])};
    for (uint64_t i = 0; i < cases(1500); i++) {
        size_t to_offset = draw_offset(&rng), from_offset = draw_offset(&rng);
        size_t later = to_offset > from_offset ? to_offset : from_offset;
        flat *to = both[i % 2], *from = both[1 - i % 2];
        change(&rng, from);
        copy(to, to_offset, from, from_offset, draw_bytes(&rng, FLAT_BYTES - later));
        expect_same(to, false);
        expect_same(from, false);
    }
    free_flat(both[0]);
    free_flat(both[1]);
}

static void copies_within_a_memory_agree_with_an_array(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(8));
    flat *f = make_flat(bases[3]);
    for (uint64_t i = 0; i < cases(1500); i++) {
        size_t a = draw_offset(&rng), b = draw_offset(&rng);
        size_t low = a < b ? a : b, high = a < b ? b : a;
        size_t most = high - low < FLAT_BYTES - high ? high - low : FLAT_BYTES - high;
        change(&rng, f);
        if (i % 5 == 0) {
            mem_contents_discard(&f->contents, f->base, FLAT_BYTES);
            memset(f->bytes, 0, FLAT_BYTES);
            memset(f->page, 0, sizeof f->page);
            change(&rng, f);
        }
        copy(f, a, f, b, kb_rng_below(&rng, 2) ? most : draw_bytes(&rng, most));
        expect_same(f, false);
    }
    free_flat(f);
}

/* Pages all over, so that they collide in every way and around the end of the table. */
static void far_pages_come_and_go(void **state)
{
    (void)state;
    enum { PAGES = 90 };
    kb_rng rng;
    kb_rng_init(&rng, test_seed(11));
    for (uint64_t round = 0; round < cases(150); round++) {
        mem_contents c = {0};
        uint64_t number[PAGES];
        unsigned char value[PAGES] = {0};
        size_t pages = 1 + kb_rng_below(&rng, PAGES);
        for (size_t i = 0; i < pages; i++)
            number[i] = kb_rng_below(&rng, ((uint64_t)1 << 52) / PAGES) * PAGES + i;
        for (int step = 0; step < 400; step++) {
            size_t i = kb_rng_below(&rng, pages);
            value[i] = kb_rng_below(&rng, 2) ? (unsigned char)(1 + i) : 0;
            if (value[i])
                must_write(&c, number[i] * PAGE + i, &value[i], 1);
            else
                must_discard(&c, number[i] * PAGE, PAGE);
            size_t there = 0;
            for (size_t j = 0; j < pages; j++) {
                there += value[j] != 0;
                if (byte_at(&c, number[j] * PAGE + j) != value[j])
                    fail_msg("page %zu of %zu", j, pages);
            }
            assert_int_equal(c.page_count, there);
        }
        must_discard(&c, 0, UINT64_MAX);
        expect_ok(mem_contents_fill(&c, UINT64_MAX - PAGE + 1, PAGE, &(uint8_t){0}, 1));
        assert_int_equal(mem_contents_bytes(&c), 0);
    }
}

/* The same with ranges that hold many of them. */
static void ranges_with_far_pages_are_discarded(void **state)
{
    (void)state;
    enum { PAGES = 60 };
    kb_rng rng;
    kb_rng_init(&rng, test_seed(12));
    for (uint64_t round = 0; round < cases(1000); round++) {
        mem_contents c = {0};
        uint64_t at[PAGES];
        for (size_t i = 0; i < PAGES; i++) {
            at[i] = kb_rng_below(&rng, (uint64_t)1 << 40);
            must_write(&c, at[i], "x", 1);
        }
        uint64_t start = kb_rng_below(&rng, (uint64_t)1 << 40);
        uint64_t bytes = kb_rng_below(&rng, (uint64_t)1 << 40);
        must_discard(&c, start, bytes);
        for (size_t i = 0; i < PAGES; i++) {
            bool gone = at[i] >= start && at[i] - start < bytes;
            assert_int_equal(byte_at(&c, at[i]), gone ? 0 : 'x');
        }
        mem_contents_fini(&c);
    }
}

/* The longest run of slots that are in use, which is how far a search may have to go. */
static size_t longest_run(const mem_contents *c)
{
    size_t longest = 0, run = 0;
    for (size_t i = 0; i < 2 * c->slot_count; i++) {
        run = c->slots[i % c->slot_count].bytes ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    return longest;
}

/* Tensors are neighbouring pages, and shards of many are at the same distance of each other. */
static void pages_at_equal_distances_do_not_crowd(void **state)
{
    (void)state;
    static const uint64_t strides[] = {1, 2, 3, 16, 4096, 4097, 1 << 20, (uint64_t)1 << 38};
    for (size_t s = 0; s < sizeof strides / sizeof *strides; s++) {
        mem_contents c = {0};
        for (uint64_t i = 0; i < 3000; i++)
            expect_ok(mem_contents_write(&c, i * strides[s] * PAGE, "x", 1));
        expect_sound(&c);
        assert_in_range(longest_run(&c), 1, 100);
        mem_contents_fini(&c);
    }
}

/* ---- For a long time --------------------------------------------------------------------- */

static void writing_and_discarding_does_not_grow(void **state)
{
    (void)state;
    enum { LIVE = 40 };
    mem_contents c = {0};
    uint64_t live[LIVE];
    for (uint64_t i = 0; i < LIVE; i++) {
        live[i] = i;
        must_write(&c, i * PAGE, "x", 1);
    }
    size_t bytes = mem_contents_bytes(&c), blocks = failing_alloc_live();
    for (uint64_t i = 0; i < cases(200000); i++) { /* ever new pages */
        mem_contents_discard(&c, live[i % LIVE] * PAGE, PAGE);
        live[i % LIVE] = LIVE + i * 7919;
        expect_ok(mem_contents_write(&c, live[i % LIVE] * PAGE, "x", 1));
    }
    expect_sound(&c);
    assert_int_equal(mem_contents_bytes(&c), bytes);
    assert_int_equal(failing_alloc_live(), blocks);
    mem_contents_fini(&c);
}

/* ---- Without host memory ----------------------------------------------------------------- */

static size_t failures;

/* Whatever fails has changed no byte, and succeeds when it is tried again. */
static void change_with_failures(void)
{
    static unsigned char ones[20 * MEM_PAGE_BYTES];
    memset(ones, 1, sizeof ones);
    mem_contents c = {0};
    kb_error *err = mem_contents_write(&c, 100, ones, sizeof ones);
    if (err) {
        failures++;
        expect_error(err, KB_ERR_HOST, "out of memory");
        for (uint64_t i = 0; i < sizeof ones; i += 500)
            assert_int_equal(byte_at(&c, 100 + i), 0);
        failing_alloc_disarm();
        expect_ok(mem_contents_write(&c, 100, ones, sizeof ones));
    }
    const uint64_t second = 40 * PAGE;
    err = mem_contents_fill(&c, second, 3 * PAGE, "ab", 2);
    if (err) {
        failures++;
        expect_error(err, KB_ERR_HOST, "out of memory");
        assert_int_equal(byte_at(&c, second), 0);
        failing_alloc_disarm();
        expect_ok(mem_contents_fill(&c, second, 3 * PAGE, "ab", 2));
    }
    const uint64_t third = 90 * PAGE;
    err = mem_contents_copy(&c, third, &c, 0, 50 * PAGE);
    if (err) {
        failures++;
        expect_error(err, KB_ERR_HOST, "out of memory");
        assert_int_equal(byte_at(&c, third + 100), 0);
        failing_alloc_disarm();
        expect_ok(mem_contents_copy(&c, third, &c, 0, 50 * PAGE));
    }
    expect_sound(&c);
    assert_int_equal(c.page_count, 2 * (21 + 3));
    for (uint64_t i = 0; i < sizeof ones; i += 500)
        assert_int_equal(byte_at(&c, third + 100 + i), 1);
    assert_int_equal(byte_at(&c, third + second + 1), 'b');
    mem_contents_discard(&c, 0, third * 2);
    assert_int_equal(mem_contents_bytes(&c), 0);
}

static void without_host_memory_no_byte_changes(void **state)
{
    (void)state;
    size_t before = failing_alloc_live();
    for (long n = 1; n < 200; n++) {
        failures = 0;
        failing_alloc_arm(n, n % 2 ? FAIL_ONWARDS : FAIL_ONCE);
        change_with_failures();
        bool failed = failing_alloc_disarm();
        assert_int_equal(failing_alloc_live(), before);
        if (!failed && failures == 0) {
            assert_true(n > 48);
            return;
        }
    }
    fail();
}

static void discarding_needs_no_host_memory(void **state)
{
    (void)state;
    mem_contents c = {0};
    for (uint64_t i = 0; i < 100; i++)
        must_write(&c, i * PAGE, "x", 1);
    failing_alloc_arm(1, FAIL_ONWARDS);
    for (uint64_t i = 0; i < 100; i++)
        mem_contents_discard(&c, i * 37 % 100 * PAGE, PAGE);
    assert_false(failing_alloc_disarm());
    assert_int_equal(mem_contents_bytes(&c), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_nobody_wrote_is_zero_and_takes_no_space),
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(discarding_gives_whole_pages_back_and_clears_parts),
        cmocka_unit_test(discarding_a_huge_range_looks_at_what_is_there_alone),
        cmocka_unit_test(filling_repeats_the_pattern_from_where_it_starts),
        cmocka_unit_test(a_pattern_that_begins_with_zeros_is_kept),
        cmocka_unit_test(filling_wants_whole_patterns),
        cmocka_unit_test(a_copy_takes_no_space_for_what_nobody_wrote),
        cmocka_unit_test(a_copy_to_a_page_that_is_also_read),
        cmocka_unit_test(changes_agree_with_an_array),
        cmocka_unit_test(copies_between_memories_agree_with_arrays),
        cmocka_unit_test(copies_within_a_memory_agree_with_an_array),
        cmocka_unit_test(far_pages_come_and_go),
        cmocka_unit_test(ranges_with_far_pages_are_discarded),
        cmocka_unit_test(pages_at_equal_distances_do_not_crowd),
        cmocka_unit_test(writing_and_discarding_does_not_grow),
        cmocka_unit_test(without_host_memory_no_byte_changes),
        cmocka_unit_test(discarding_needs_no_host_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
