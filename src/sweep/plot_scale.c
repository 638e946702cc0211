/* plot_scale.c: see plot_scale.h. Ticks are multiples of 1, 2 or 5 times a power of ten. */
#include "plot_scale.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "format.h"

/* ---- Units ------------------------------------------------------------------------------- */

plot_unit plot_choose_unit(const char *name, double largest)
{
    static const struct {
        const char *unit;
        double at_least; /* of the largest number */
        plot_unit shown;
    } units[] = {
        {"ns", 1e9, {1e-9, "s"}},
        {"ns", 1e6, {1e-6, "ms"}},
        {"ns", 1e3, {1e-3, "us"}},
        {"us", 1e6, {1e-6, "s"}},
        {"us", 1e3, {1e-3, "ms"}},
        {"GB/s", 1e4, {1e-3, "TB/s"}},
        {"bytes", 1099511627776.0, {1 / 1099511627776.0, "TiB"}},
        {"bytes", 1073741824.0, {1 / 1073741824.0, "GiB"}},
        {"bytes", 1048576.0, {1 / 1048576.0, "MiB"}},
        {"bytes", 1024.0, {1 / 1024.0, "KiB"}},
    };
    const char *unit = sweep_unit(name);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(unit, units[i].unit) == 0 && largest >= units[i].at_least)
            return units[i].shown;
    return (plot_unit){1, unit};
}

/* ---- Ticks ------------------------------------------------------------------------------- */

static void add_tick(plot_scale *s, double value, double step)
{
    if (s->tick_count == PLOT_TICKS)
        return;
    plot_tick *tick = &s->ticks[s->tick_count++];
    tick->value = fabs(value) < step * 1e-9 ? 0 : value;
    /* As many digits as it takes to tell neighbours apart. */
    double size = fabs(tick->value);
    int decimals = step < 1 ? (int)ceil(-log10(step) - 1e-9) : 0;
    const char *suffix = "";
    double shown = tick->value;
    static const struct {
        double unit;
        const char *name;
    } large[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}};
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        if (size >= large[i].unit && decimals == 0) {
            shown /= large[i].unit;
            decimals = step < large[i].unit ? (int)ceil(log10(large[i].unit / step) - 1e-9) : 0;
            suffix = large[i].name;
            break;
        }
    }
    if (size >= 1e15 || (size > 0 && decimals > 6))
        snprintf(tick->label, sizeof tick->label, "%.0e", shown);
    else if (size >= 10000 && suffix[0] == '\0')
        snprintf(tick->label, sizeof tick->label, "%.0f,%03.0f", floor(shown / 1000),
                 fmod(shown, 1000));
    else
        snprintf(tick->label, sizeof tick->label, "%.*f%s", decimals, shown, suffix);
}

/* The smallest of 1, 2, 5, 10, ... times a power of ten that is at least so large. */
static double round_up(double step)
{
    double power = pow(10, floor(log10(step)));
    static const double factors[] = {1, 2, 5};
    for (size_t i = 0; i < 3; i++)
        if (factors[i] * power >= step * (1 - 1e-9))
            return factors[i] * power;
    return 10 * power;
}

static void make_linear(plot_scale *s, bool from_zero, int wanted)
{
    if (from_zero && s->min > 0)
        s->min = 0;
    if (!(s->max > s->min)) { /* one number: some room around it */
        double room = fabs(s->max) > 0 ? fabs(s->max) : 1;
        s->max += s->max < 0 ? 0 : room;
        s->min -= s->max < 0 || !from_zero ? room : 0;
    }
    double step = round_up((s->max - s->min) / wanted);
    s->min = step * floor(s->min / step + 1e-9);
    s->max = step * ceil(s->max / step - 1e-9);
    int count = (int)lround((s->max - s->min) / step);
    for (int i = 0; i <= count; i++)
        add_tick(s, s->min + i * step, step);
}

/* Ticks at 1, 2 and 5 of each decade if there are few, at 1 alone if there are many. */
static void make_log(plot_scale *s, int wanted)
{
    double decades = log10(s->max / s->min);
    static const double all[] = {1, 2, 5}, some[] = {1, 3}, one[] = {1};
    const double *factors = decades * 3 <= wanted ? all : decades * 2 <= wanted ? some : one;
    int count = factors == all ? 3 : factors == some ? 2 : 1;
    int every = (int)ceil(decades / (2.0 * wanted));
    int first = (int)floor(log10(s->min) + 1e-9), last = (int)ceil(log10(s->max) - 1e-9);
    double low = 0, high = 0;
    for (int e = first; e <= last; e += every < 1 ? 1 : every) {
        for (int i = 0; i < count; i++) {
            double value = factors[i] * pow(10, e);
            if (value <= s->min * (1 + 1e-9))
                low = value;
            if (value >= s->max * (1 - 1e-9) && !(high > 0))
                high = value;
        }
    }
    s->min = low > 0 ? low : s->min;
    s->max = high > 0 ? high : s->max;
    for (int e = first; e <= last; e += every < 1 ? 1 : every)
        for (int i = 0; i < count; i++) {
            double value = factors[i] * pow(10, e);
            if (value >= s->min * (1 - 1e-9) && value <= s->max * (1 + 1e-9))
                add_tick(s, value, value);
        }
}

void plot_scale_init(plot_scale *s, double min, double max, double spread, bool from_zero,
                     int wanted)
{
    *s = (plot_scale){.min = min, .max = max, .to = 1};
    s->is_log = min > 0 && max >= spread * min;
    if (s->is_log)
        make_log(s, wanted);
    else
        make_linear(s, from_zero, wanted);
}

double plot_at(const plot_scale *s, double value)
{
    double share = s->is_log ? log(value / s->min) / log(s->max / s->min)
                             : (value - s->min) / (s->max - s->min);
    return s->from + share * (s->to - s->from);
}
