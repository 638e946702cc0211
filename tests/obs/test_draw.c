/*
 * test_draw.c: drawings of machines of all shapes. The SVG is read back: no two components overlap,
 * everything is inside its die and its SIP, and every label fits into its box.
 */
#include "topo/random_machines.h"

#include "obs/draw_svg.h"

#include <stdio.h>
#include <stdlib.h>

#include "mem/cases.h"
#include "support/seed.h"

/* ---- Reading ----------------------------------------------------------------------------- */

typedef struct box {
    char class[16];
    double x, y, w, h;
    int labels;
} box;

typedef struct label {
    char class[16], anchor[16], text[256];
    double x, y, size;
} label;

typedef struct drawing {
    double w, h;
    KB_VEC(box) boxes;
    KB_VEC(label) texts;
} drawing;

/* The value of an attribute in the line; "" if there is none. */
static const char *attribute(const char *line, const char *name, char into[static 64])
{
    char key[32];
    snprintf(key, sizeof key, " %s=\"", name);
    const char *at = strstr(line, key);
    into[0] = '\0';
    if (at)
        sscanf(at + strlen(key), "%63[^\"]", into);
    return into;
}

static double number(const char *line, const char *name)
{
    char value[64], *end;
    attribute(line, name, value);
    double result = strtod(value, &end);
    if (end == value || *end != '\0')
        fail_msg("no number %s in: %s", name, line);
    return result;
}

static void add_box(drawing *d, const char *class, double x, double y, double w, double h)
{
    box b = {.x = x, .y = y, .w = w, .h = h};
    snprintf(b.class, sizeof b.class, "%s", class);
    assert_true(w > 0 && h > 0);
    assert_true(kb_vec_push(&d->boxes, b));
}

/* The crossbar is a ring: four bands. */
static void add_ring(drawing *d, const char *line, double dx, double dy)
{
    double x, y, w, h, back, inner_x, inner_y;
    const char *path = strstr(line, " d=\"M");
    assert_non_null(path);
    int found = sscanf(path, " d=\"M%lf %lfh%lfv%lfh%lfzM%lf %lf", &x, &y, &w, &h, &back, &inner_x,
                       &inner_y);
    assert_int_equal(found, 7);
    double band = inner_x - x;
    add_box(d, "xbar", dx + x, dy + y, w, band);
    add_box(d, "xbar", dx + x, dy + y + h - band, w, band);
    add_box(d, "xbar", dx + x, dy + y + band, band, h - 2 * band);
    add_box(d, "xbar", dx + x + w - band, dy + y + band, band, h - 2 * band);
}

static void add_text(drawing *d, const char *line, double dx, double dy)
{
    char value[64];
    label l = {.x = dx + number(line, "x"),
               .y = dy + number(line, "y"),
               .size = number(line, "font-size")};
    snprintf(l.class, sizeof l.class, "%s", attribute(line, "class", value));
    snprintf(l.anchor, sizeof l.anchor, "%s", attribute(line, "text-anchor", value));
    const char *start = strchr(line, '>'), *end = start ? strstr(start, "</text>") : NULL;
    assert_non_null(end);
    assert_true(end - start <= (ptrdiff_t)sizeof l.text);
    snprintf(l.text, sizeof l.text, "%.*s", (int)(end - start - 1), start + 1);
    assert_true(kb_vec_push(&d->texts, l));
}

static void add_element(drawing *d, const char *line, double dx, double dy)
{
    char class[64];
    attribute(line, "class", class);
    if (strncmp(line, "<rect class", 11) == 0)
        add_box(d, class, dx + number(line, "x"), dy + number(line, "y"), number(line, "width"),
                number(line, "height"));
    else if (strncmp(line, "<path class=\"xbar\"", 18) == 0)
        add_ring(d, line, dx, dy);
    else if (strncmp(line, "<text", 5) == 0)
        add_text(d, line, dx, dy);
}

/* Lines of the symbol are kept, and added where it is used. */
static drawing read_drawing(char *svg)
{
    drawing d = {0};
    KB_VEC(char *) cube = {0};
    bool in_cube = false;
    for (char *line = strtok(svg, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "<svg", 4) == 0) {
            d.w = number(line, "width");
            d.h = number(line, "height");
        } else if (strstr(line, "<g id=\"cube\">")) {
            in_cube = true;
        } else if (strstr(line, "</g></defs>")) {
            in_cube = false;
        } else if (in_cube) {
            assert_true(kb_vec_push(&cube, line));
        } else if (strncmp(line, "<use", 4) == 0) {
            for (size_t i = 0; i < cube.count; i++)
                add_element(&d, cube.items[i], number(line, "x"), number(line, "y"));
        } else {
            add_element(&d, line, 0, 0);
        }
    }
    kb_vec_fini(&cube);
    return d;
}

static const char *drawn; /* the machine */

#define wrong(format, ...) fail_msg(format "; of\n%s", __VA_ARGS__, drawn)

/* ---- Checking ---------------------------------------------------------------------------- */

static bool is_container(const box *b)
{
    return strcmp(b->class, "sip") == 0 || strcmp(b->class, "die") == 0;
}

static bool is_port(const box *b)
{
    return strcmp(b->class, "port") == 0 || strcmp(b->class, "sipport") == 0;
}

static int by_x(const void *a, const void *b)
{
    const box *x = a, *y = b;
    return (x->x > y->x) - (x->x < y->x);
}

static bool overlap(const box *a, const box *b)
{
    static const double touch = 1e-3; /* numbers have six digits */
    return a->x + touch < b->x + b->w && b->x + touch < a->x + a->w && a->y + touch < b->y + b->h &&
           b->y + touch < a->y + a->h;
}

static bool contains(const box *outer, const box *inner)
{
    return inner->x >= outer->x && inner->y >= outer->y &&
           inner->x + inner->w <= outer->x + outer->w && inner->y + inner->h <= outer->y + outer->h;
}

/* Components with each other, dies with each other, SIPs with each other. Ports are on the edges of
 * dies. Sorted, so that most pairs need not be looked at. */
static void expect_no_overlap(drawing *d)
{
    qsort(d->boxes.items, d->boxes.count, sizeof *d->boxes.items, by_x);
    for (size_t i = 0; i < d->boxes.count; i++) {
        const box *a = &d->boxes.items[i];
        for (size_t k = i + 1; k < d->boxes.count; k++) {
            const box *b = &d->boxes.items[k];
            if (b->x >= a->x + a->w)
                break;
            bool same_level = is_container(a) ? strcmp(a->class, b->class) == 0 : !is_container(b);
            if (same_level && overlap(a, b))
                wrong("%s at (%g, %g) and %s at (%g, %g) overlap", a->class, a->x, a->y, b->class,
                      b->x, b->y);
        }
    }
}

static bool is_on(const drawing *d, const box *b, const char *class)
{
    for (size_t i = 0; i < d->boxes.count; i++)
        if (strcmp(d->boxes.items[i].class, class) == 0 && contains(&d->boxes.items[i], b))
            return true;
    return false;
}

static void expect_inside(const drawing *d)
{
    const box page = {.w = d->w, .h = d->h};
    for (size_t i = 0; i < d->boxes.count; i++) {
        const box *b = &d->boxes.items[i];
        bool alone = strcmp(b->class, "sip") == 0 || strcmp(b->class, "switch") == 0;
        bool on_die = !alone && !is_port(b) && strcmp(b->class, "die") != 0;
        bool is_host = strcmp(b->class, "cpu") == 0 && !is_on(d, b, "sip");
        if (!contains(&page, b))
            wrong("%s at (%g, %g) is not on the page", b->class, b->x, b->y);
        if (strcmp(b->class, "die") == 0 && !is_on(d, b, "sip"))
            wrong("a die at (%g, %g) is on no SIP", b->x, b->y);
        if (on_die && !is_host && !is_on(d, b, "die"))
            wrong("%s at (%g, %g) is on no die", b->class, b->x, b->y);
    }
}

/* Of DejaVu Sans, in thousandths of the size, from ' ' on. */
static const int advances[] = {
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361,  318, 337, 636, 636, 636,
    636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698, 770, 632,
    575, 775, 752, 295, 295, 656, 557, 863, 748, 787, 603, 787, 695, 635,  611, 732, 684, 989, 685,
    611, 685, 390, 337, 390, 838, 500, 500, 613, 635, 550, 635, 615, 352,  635, 634, 278, 278, 579,
    278, 974, 634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592,  525, 636, 337, 636, 838};

static double width_of(const label *l)
{
    double width = 0;
    for (const char *at = l->text; *at != '\0'; at++) {
        assert_true(*at >= ' ' && *at <= '~');
        width += advances[*at - ' '];
    }
    /* Names are bold. */
    return width / 1000 * l->size * (strcmp(l->class, "name") == 0 ? 1.1 : 1);
}

static bool is_label(const label *l)
{
    return strcmp(l->class, "label") == 0 || strcmp(l->class, "light") == 0;
}

static void expect_label_fits(drawing *d, const label *l)
{
    double w = width_of(l);
    /* Letters go up to 0.76 of the size above the base line, and 0.24 below it. */
    const box text = {.x = l->x - w / 2, .y = l->y - 0.76 * l->size, .w = w, .h = l->size};
    assert_string_equal(l->anchor, "middle");
    for (size_t i = 0; i < d->boxes.count; i++) {
        box *b = &d->boxes.items[i];
        if (!is_container(b) && contains(b, &text)) {
            b->labels++;
            return;
        }
    }
    wrong("'%s' at (%g, %g), %g wide, is in no box", l->text, l->x, l->y, w);
}

/* Routers, ports and the crossbar have no names; all others are labelled, once. */
static void expect_labels(drawing *d)
{
    for (size_t i = 0; i < d->texts.count; i++) {
        const label *l = &d->texts.items[i];
        if (is_label(l)) {
            expect_label_fits(d, l);
            continue;
        }
        double w = width_of(l), share = strcmp(l->anchor, "start") == 0    ? 0
                                        : strcmp(l->anchor, "middle") == 0 ? 0.5
                                                                           : 1;
        if (l->x - share * w < 0 || l->x + (1 - share) * w > d->w)
            wrong("'%s' at (%g, %g) is not on the page", l->text, l->x, l->y);
    }
    for (size_t i = 0; i < d->boxes.count; i++) {
        const box *b = &d->boxes.items[i];
        bool named = strcmp(b->class, "hbm") == 0 || strcmp(b->class, "pe") == 0 ||
                     strcmp(b->class, "sram") == 0 || strcmp(b->class, "cpu") == 0 ||
                     strcmp(b->class, "switch") == 0;
        if (named && b->labels != 1)
            wrong("%s at (%g, %g) has %d labels", b->class, b->x, b->y, b->labels);
    }
}

static size_t count_of(const drawing *d, const char *class)
{
    size_t count = 0;
    for (size_t i = 0; i < d->boxes.count; i++)
        count += strcmp(d->boxes.items[i].class, class) == 0;
    return count;
}

static void expect_good_drawing(const char *description)
{
    topo_machine *machine = machine_of(description);
    const topo_shape *shape = topo_machine_shape(machine);
    size_t cubes = (size_t)shape->sips * shape->cubes;
    kb_text svg = KB_TEXT_INIT;
    expect_ok(draw_svg(machine, &svg));
    char *text = kb_text_take(&svg);
    assert_non_null(text);
    drawn = description;
    drawing d = read_drawing(text);
    expect_no_overlap(&d);
    expect_inside(&d);
    expect_labels(&d);
    /* Everything is there: a PE and a pcie_ep look alike, and so do m_cpus, io_cpus and the host.
     */
    assert_int_equal(count_of(&d, "sip"), shape->sips);
    assert_int_equal(count_of(&d, "die"), cubes + shape->sips);
    assert_int_equal(count_of(&d, "hbm"), shape->pe_count);
    assert_int_equal(count_of(&d, "pe"), shape->pe_count + shape->sips);
    assert_int_equal(count_of(&d, "cpu"), cubes + shape->sips + 1);
    assert_int_equal(count_of(&d, "sram"), cubes);
    assert_int_equal(count_of(&d, "router"), cubes * shape->noc_w * shape->noc_h + shape->sips);
    kb_vec_fini(&d.boxes);
    kb_vec_fini(&d.texts);
    free(text);
    topo_machine_destroy(machine);
}

/* ---- Machines ---------------------------------------------------------------------------- */

static void the_default_machine_can_be_read(void **state)
{
    (void)state;
    expect_good_drawing("{}\n");
}

/* A description of few cubes: `pes` is a layout. */
static void expect_good_cube(uint32_t w, uint32_t h, const char *pes)
{
    char text[512];
    snprintf(text, sizeof text,
             "system: { sips: { count: 1 } }\n"
             "sip: { cube_mesh: { w: 2, h: 2 } }\n"
             "cube: { noc: { w: %u, h: %u }, pe_layout: { %s } }\n",
             w, h, pes);
    expect_good_drawing(text);
}

static void pes_at_every_router_leave_the_m_cpu_its_place(void **state)
{
    (void)state;
    expect_good_cube(4, 4, "pe_per_router: 1");
    for (uint32_t w = 1; w <= 5; w++)
        for (uint32_t h = 1; h <= 5; h++)
            expect_good_cube(w, h, "pe_per_router: 3");
    expect_good_cube(1, 1, "pe_per_router: 256");
    expect_good_cube(2, 7, "pe_per_router: 17");
}

static void pes_at_corners_have_rows(void **state)
{
    (void)state;
    static const char *const corners[] = {
        "NW", "NE", "SW", "SE", "NW, SE", "SE, SW, NE", "SE, NE, SW, NW"};
    static const uint32_t counts[] = {1, 2, 7, 40};
    for (size_t i = 0; i < sizeof corners / sizeof *corners; i++)
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            char layout[64];
            snprintf(layout, sizeof layout, "pe_per_corner: %u, corners: [%s]", counts[k],
                     corners[i]);
            expect_good_cube(1 + (uint32_t)(i + k) % 5, 1 + (uint32_t)(2 * i + k) % 4, layout);
        }
}

static void long_names_and_figures_fit(void **state)
{
    (void)state;
    expect_good_drawing("name: MMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMM\n"
                        "system:\n"
                        "  sips: { count: 1 }\n"
                        "  sip_to_switch: { bw_gbs: 123456.123456789 }\n"
                        "sip: { cube_mesh: { w: 1, h: 1 } }\n"
                        "cube:\n"
                        "  pe_to_xbar_bw_gbs: 100000.000000001\n"
                        "  hbm_ctrl: { raw_gbs: 100000.000000001 }\n"
                        "  sram: { bw_gbs: 100000.000000001 }\n"
                        "  pe_layout: { pe_per_router: 1 }\n");
}

static void machines_of_any_shape_can_be_read(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(17));
    for (uint64_t i = 0; i < cases(50); i++) {
        char *description = random_description(&rng);
        expect_good_drawing(description);
        free(description);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_machine_can_be_read),
        cmocka_unit_test(pes_at_every_router_leave_the_m_cpu_its_place),
        cmocka_unit_test(pes_at_corners_have_rows),
        cmocka_unit_test(long_names_and_figures_fit),
        cmocka_unit_test(machines_of_any_shape_can_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
