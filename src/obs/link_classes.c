/* link_classes.c: groups links by the kinds of their ends, bandwidth and length. */
#include "link_classes.h"

static bool connects(const link_class *c, topo_kind a, topo_kind b, bool service)
{
    return c->service == service && ((c->a == a && c->b == b) || (c->a == b && c->b == a));
}

/* A class with only this link. */
static link_class class_of(const topo_graph *graph, uint32_t number)
{
    const topo_link *link = &graph->links.items[number];
    return (link_class){
        .a = (topo_kind)graph->nodes.items[link->from].kind,
        .b = (topo_kind)graph->nodes.items[link->to].kind,
        .service = link->from == link->to,
        .rate = topo_link_rate(graph, number),
        .wire_fs = link->wire_fs,
        .count = 1,
    };
}

/* The index of the class, or the count if it does not exist. Searches from the newest: links of a
 * class are mostly consecutive. */
static size_t find(const link_classes *classes, const link_class *fresh)
{
    for (size_t i = classes->all.count; i-- > 0;) {
        const link_class *known = &classes->all.items[i];
        if (connects(known, fresh->a, fresh->b, fresh->service) && known->rate == fresh->rate &&
            known->wire_fs == fresh->wire_fs)
            return i;
    }
    return classes->all.count;
}

kb_error *link_classes_init(link_classes *classes, const topo_machine *machine)
{
    const topo_graph *graph = topo_machine_graph(machine);
    *classes = (link_classes){0};
    for (uint32_t i = 0; i < graph->links.count; i++) {
        link_class fresh = class_of(graph, i);
        size_t index = find(classes, &fresh);
        if (index < classes->all.count) {
            classes->all.items[index].count++;
        } else if (!kb_vec_push(&classes->all, fresh)) {
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

size_t link_classes_index(const link_classes *classes, const topo_machine *machine, uint32_t link)
{
    link_class c = class_of(topo_machine_graph(machine), link);
    size_t index = find(classes, &c);
    KB_ASSERT(index < classes->all.count);
    return index;
}

const link_class *link_classes_find(const link_classes *classes, topo_kind a, topo_kind b,
                                    bool service)
{
    for (size_t i = 0; i < classes->all.count; i++)
        if (connects(&classes->all.items[i], a, b, service))
            return &classes->all.items[i];
    return NULL;
}

void link_class_name(const link_class *c, kb_text *text)
{
    kb_text_puts(text, topo_kind_name(c->a));
    if (!c->service)
        kb_text_printf(text, " - %s", topo_kind_name(c->b));
}
