/*
 * mesh_reference.c: reads the values of reference/mesh-uniform.yaml, which are part of the program.
 */
#include "validate_private.h"

/* False without memory, as read_curve(). */
static bool read_point(reference_mesh *mesh, kb_config_node *node)
{
    kb_config_node *map = kb_config_mapping(node);
    reference_point point = {
        .rate_ppb = (uint64_t)kb_config_decimal(kb_config_need(map, "rate"), 9, 1,
                                                (int64_t)TRAFFIC_RATE_ONE, 1),
        .latency = kb_config_double(kb_config_need(map, "latency"), kb_above(0), 1),
        .ci95 = kb_config_double(kb_config_need(map, "ci95"), kb_at_least(0), 0),
    };
    return kb_vec_push(&mesh->points, point);
}

static bool read_curve(reference_mesh *mesh, kb_config_node *node)
{
    kb_config_node *map = kb_config_mapping(node);
    reference_curve curve = {
        .k = (uint32_t)kb_config_int(kb_config_need(map, "k"), 1, 64, 1),
        .flits = (uint32_t)kb_config_int(kb_config_need(map, "flits"), 1, 1024, 1),
        .doubling_ppb = (uint64_t)kb_config_decimal(kb_config_need(map, "doubling_rate"), 9, 1,
                                                    (int64_t)TRAFFIC_RATE_ONE, 1),
        .first = mesh->points.count,
    };
    kb_config_node *points = kb_config_sequence(kb_config_need(map, "points"));
    for (kb_config_node *p = kb_config_first(points); p; p = kb_config_next(p))
        if (!read_point(mesh, p))
            return false;
    curve.count = mesh->points.count - curve.first;
    return kb_vec_push(&mesh->curves, curve);
}

kb_error *reference_load(reference_mesh *mesh)
{
    *mesh = (reference_mesh){0};
    kb_config *config;
    KB_TRY(kb_config_load_text("mesh-uniform.yaml", reference_mesh_text, reference_mesh_length,
                               &config));
    kb_config_node *curves = kb_config_sequence(kb_config_need(kb_config_root(config), "curves"));
    bool has_memory = true;
    for (kb_config_node *c = kb_config_first(curves); c && has_memory; c = kb_config_next(c))
        has_memory = read_curve(mesh, c);
    kb_error *err = has_memory ? kb_config_finish(config) : kb_error_nomem();
    kb_config_destroy(config);
    return err;
}

void reference_fini(reference_mesh *mesh)
{
    kb_vec_fini(&mesh->points);
    kb_vec_fini(&mesh->curves);
}
