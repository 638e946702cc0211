/*
 * propagate.c: chooses a rule for each dimension of the mesh, such that redistributing the operands
 * costs the least. Placements that fit a rule cost nothing, so they win. All ranks choose alike,
 * because costs depend on global shapes alone.
 */
#include "propagate.h"

#include "redistribute.h"

/* Placements that rules allow together. */
typedef struct candidate {
    kb_placements a, b, result;
    dt_cost cost;
} candidate;

typedef struct search {
    const dt_problem *problem;
    const dt_value *a, *b; /* b may be NULL */
    bool found;
    candidate best;
} search;

static void add_cost(const dt_value *value, kb_placements to, dt_cost *cost)
{
    dt_steps plan =
        dt_choose_steps(value->mesh, &value->shape, value->dtype, value->placements, to);
    cost->sent += plan.cost.sent;
    cost->moved += plan.cost.moved;
}

/* Called when all dimensions of the mesh have a rule. */
static void consider(search *s, candidate c)
{
    bool legal = dt_ops_commute(c.a) && dt_ops_commute(c.b) && dt_ops_commute(c.result);
    if (!legal)
        return;
    c.cost = (dt_cost){0};
    add_cost(s->a, c.a, &c.cost);
    if (s->b)
        add_cost(s->b, c.b, &c.cost);
    if (!s->found || dt_costs_less(c.cost, s->best.cost)) {
        s->best = c;
        s->found = true;
    }
}

/* Tensors of integers cannot be Partial(avg), and so on. */
static bool dtype_allows(const dt_value *value, kb_placement placement)
{
    bool whole = mem_is_integer(value->dtype);
    return !whole || !dt_is_partial(placement) || placement.op != KB_AVG;
}

/* Tries all rules for dimension `dim` of the mesh and the following ones. */
static void try_rules(search *s, candidate c, uint32_t dim)
{
    if (dim == s->a->mesh->ndim) {
        consider(s, c);
        return;
    }
    for (size_t i = 0; i < dt_rule_count; i++) {
        const dt_rule *rule = &dt_rules[i];
        dt_choice choice;
        bool fits;
        if (!(rule->classes >> s->problem->class & 1))
            continue;
        for (uint32_t index = 0; dt_apply_rule(rule, s->problem, index, &choice, &fits); index++) {
            if (!fits || !dtype_allows(s->a, choice.a) || (s->b && !dtype_allows(s->b, choice.b)))
                continue;
            c.a.items[dim] = choice.a;
            c.b.items[dim] = choice.b;
            c.result.items[dim] = choice.result;
            try_rules(s, c, dim + 1);
        }
    }
}

static void note(const dt_frame *frame, const char *op, const dt_value *value, kb_placements to)
{
    char had[KB_PLACEMENTS_BYTES], gets[KB_PLACEMENTS_BYTES];
    kb_placements_print(value->placements, had);
    kb_placements_print(to, gets);
    dt_steps plan =
        dt_choose_steps(value->mesh, &value->shape, value->dtype, value->placements, to);
    rt_note(frame->ctx,
            "dtensor: no rule of %s fits: operand '%s' is redistributed from %s to %s, %.0f bytes "
            "sent by each rank",
            op, value->name, had, gets, plan.cost.sent);
}

static kb_error *redistribute_operand(dt_frame *frame, const char *op, dt_value *value,
                                      kb_placements to, uint32_t index, kb_dtensor_report *report)
{
    report->from[index] = value->placements;
    report->to[index] = to;
    report->redistributed[index] = !dt_same_placements(value->placements, to);
    if (!report->redistributed[index])
        return NULL;
    note(frame, op, value, to);
    return dt_redistribute(frame, value, to);
}

kb_error *dt_propagate(dt_frame *frame, const char *op, const dt_problem *problem, dt_value *a,
                       dt_value *b, kb_placements *result, kb_dtensor_report *report)
{
    search s = {.problem = problem, .a = a, .b = b};
    candidate none = {
        .a.count = a->mesh->ndim, .b.count = a->mesh->ndim, .result.count = a->mesh->ndim};
    try_rules(&s, none, 0);
    KB_ASSERT(s.found); /* each operation has a rule for replicated operands */
    *report = (kb_dtensor_report){.operands = b ? 2 : 1, .bytes = (uint64_t)s.best.cost.sent};
    KB_TRY(redistribute_operand(frame, op, a, s.best.a, 0, report));
    if (b)
        KB_TRY(redistribute_operand(frame, op, b, s.best.b, 1, report));
    *result = s.best.result;
    return NULL;
}
