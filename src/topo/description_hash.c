/*
 * description_hash.c: one number for all that a description says: FNV-1a over its values, each as
 * eight bytes with the lowest first, so that it is the same on every computer.
 */
#include "description.h"

typedef struct hash {
    uint64_t state;
} hash;

static void add_byte(hash *h, unsigned char byte)
{
    static const uint64_t prime = 0x100000001b3;
    h->state = (h->state ^ byte) * prime;
}

static void add(hash *h, uint64_t figure)
{
    for (unsigned shift = 0; shift < 64; shift += 8)
        add_byte(h, (unsigned char)(figure >> shift));
}

static void add_text(hash *h, const char *text)
{
    do
        add_byte(h, (unsigned char)*text);
    while (*text++ != '\0');
}

static void add_wire(hash *h, const topo_wire *wire)
{
    add(h, wire->bytes_per_s);
    add(h, wire->length_nm);
}

static void add_system(hash *h, const topo_description *d)
{
    add(h, d->wire_delay);
    add(h, d->sips);
    add(h, d->sip_w);
    add(h, d->sip_h);
    add(h, d->sip_pattern);
    add(h, d->sip_links);
    add_wire(h, &d->host_to_switch);
    add_wire(h, &d->sip_to_switch);
    add_wire(h, &d->sip_to_sip);
    add(h, d->packet_bytes);
    add(h, d->vcs);
    add(h, d->depth_bytes);
    add(h, d->serial_ports);
    add(h, d->cube_w);
    add(h, d->cube_h);
    add(h, d->cube_pitch_nm);
    add_wire(h, &d->io);
    add(h, d->ucie_bandwidth);
}

static void add_cube(hash *h, const topo_description *d)
{
    add(h, d->noc_w);
    add(h, d->noc_h);
    add_wire(h, &d->noc);
    add(h, d->pe_per_router);
    if (!d->pe_per_router) {
        add(h, d->pe_per_corner);
        add(h, d->corner_count);
        for (uint32_t i = 0; i < d->corner_count; i++)
            add(h, d->corners[i]);
    }
    add(h, d->xbar_length_nm);
    add(h, d->ucie_to_noc);
    add(h, d->pe_to_noc);
    add(h, d->pe_to_xbar);
    add(h, d->noc_to_xbar);
    add(h, d->xbar_to_hbm);
    add(h, d->xbar_to_sram);
    add(h, d->hbm_bytes);
    add(h, d->tcm_bytes);
    add(h, d->tcm_reserved_bytes);
}

static void add_pe(hash *h, const topo_pe_params *pe)
{
    add(h, (uint64_t)pe->cpu_overhead_fs);
    add(h, (uint64_t)pe->cpu_issue_fs);
    add(h, pe->queue_depth);
    add(h, pe->dma_channels);
    add(h, pe->gemm_rows);
    add(h, pe->gemm_columns);
    add(h, (uint64_t)pe->gemm_cycle_fs);
    add(h, pe->gemm_fill_per_fold);
    add(h, pe->math_lanes);
    add(h, (uint64_t)pe->math_cycle_fs);
    for (int i = 0; i < TOPO_MATH_CLASSES; i++)
        add(h, pe->math_cycles[i]);
    add(h, pe->math_latency_cycles);
    add(h, pe->tcm_bytes_per_s);
}

uint64_t topo_description_hash(const topo_description *d)
{
    static const uint64_t offset_basis = 0xcbf29ce484222325;
    hash h = {offset_basis};
    add_system(&h, d);
    add_cube(&h, d);
    add_pe(&h, &d->pe);
    for (int kind = 0; kind < TOPO_KINDS; kind++) {
        const topo_part *part = &d->parts[kind];
        add_text(&h, part->impl ? part->impl->name : "");
        add(&h, (uint64_t)part->is.overhead_fs);
        add(&h, (uint64_t)part->is.count_fs);
        add(&h, (uint64_t)part->is.trigger_fs);
        add(&h, part->is.bytes_per_s);
        add(&h, part->is.bytes);
    }
    return h.state;
}
