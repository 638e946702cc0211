/* classes.c: groups links by the kinds of their ends, bandwidth and length. */
#include "classes.h"

static bool joins(const link_class *c, topo_kind a, topo_kind b, bool service)
{
    return c->service == service && ((c->a == a && c->b == b) || (c->a == b && c->b == a));
}

/* There are a few classes, and links of one stand together: the newest is the likeliest. */
static bool add(link_classes *classes, link_class fresh)
{
    for (size_t i = classes->all.count; i-- > 0;) {
        link_class *known = &classes->all.items[i];
        if (joins(known, fresh.a, fresh.b, fresh.service) && known->rate == fresh.rate &&
            known->wire_fs == fresh.wire_fs) {
            known->count++;
            return true;
        }
    }
    return kb_vec_push(&classes->all, fresh);
}

kb_error *link_classes_init(link_classes *classes, const topo_machine *machine)
{
    const topo_graph *graph = topo_machine_graph(machine);
    *classes = (link_classes){0};
    for (uint32_t i = 0; i < graph->links.count; i++) {
        const topo_link *link = &graph->links.items[i];
        link_class fresh = {
            .a = (topo_kind)graph->nodes.items[link->from].kind,
            .b = (topo_kind)graph->nodes.items[link->to].kind,
            .service = link->from == link->to,
            .rate = topo_link_rate(graph, i),
            .wire_fs = link->wire_fs,
            .count = 1,
        };
        if (!add(classes, fresh)) {
            link_classes_fini(classes);
            return kb_error_nomem();
        }
    }
    return NULL;
}

void link_classes_fini(link_classes *classes)
{
    kb_vec_fini(&classes->all);
}

const link_class *link_classes_find(const link_classes *classes, topo_kind a, topo_kind b,
                                    bool service)
{
    for (size_t i = 0; i < classes->all.count; i++)
        if (joins(&classes->all.items[i], a, b, service))
            return &classes->all.items[i];
    return NULL;
}

void link_class_name(const link_class *c, kb_text *text)
{
    kb_text_puts(text, topo_kind_name(c->a));
    if (!c->service)
        kb_text_printf(text, " - %s", topo_kind_name(c->b));
}
