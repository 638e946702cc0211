/*
 * description_print.c: a description as settings, each value in the unit of its key and exact.
 *
 * Left out: settings of components that do not ship, which are known to these components alone.
 */
#include "description.h"

#include <inttypes.h>
#include <string.h>

#include "machine_private.h"

/* Digits after the point: of values in 10^-9 (bytes a second in GB/s) and 10^-6 (fs in ns). */
enum { nano_digits = 9, micro_digits = 6 };

typedef struct printer {
    const topo_description *d;
    kb_text *text;
} printer;

static void put_decimal(const printer *p, const char *key, uint64_t value, int digits)
{
    kb_text_printf(p->text, "%s=", key);
    kb_decimal_print((int64_t)value, digits, p->text);
    kb_text_puts(p->text, "\n");
}

static void put_count(const printer *p, const char *key, uint32_t value)
{
    kb_text_printf(p->text, "%s=%" PRIu32 "\n", key, value);
}

static void put_word(const printer *p, const char *key, const char *word)
{
    kb_text_printf(p->text, "%s=%s\n", key, word);
}

static void put_time(const printer *p, const char *key, kb_time time_fs)
{
    put_decimal(p, key, (uint64_t)time_fs, micro_digits);
}

static void put_rate(const printer *p, const char *key, uint64_t bytes_per_s)
{
    put_decimal(p, key, bytes_per_s, nano_digits);
}

static void put_length(const printer *p, const char *key, uint64_t length_nm)
{
    put_decimal(p, key, length_nm, micro_digits);
}

/* In units of 2^unit_bits bytes. Exact, as the bytes were read from nine digits at most. */
static void put_bytes(const printer *p, const char *key, uint64_t bytes, unsigned unit_bits)
{
    __extension__ typedef unsigned __int128 wide;
    static const wide parts = 1000000000;
    put_decimal(p, key, (uint64_t)(((wide)bytes * parts) >> unit_bits), nano_digits);
}

/* The implementation, if it is not the built-in one, and the component's time. */
static void put_part(const printer *p, topo_kind kind, const char *mapping, const char *time_key)
{
    const topo_part *part = &p->d->parts[kind];
    kb_text key = KB_TEXT_INIT;
    if (part->impl != topo_component_builtin(kind)) {
        kb_text_printf(&key, "%s.impl", mapping);
        put_word(p, kb_text_peek(&key), part->impl->name);
        kb_text_fini(&key);
    }
    kb_text_printf(&key, "%s.%s", mapping, time_key);
    put_time(p, kb_text_peek(&key), part->is.overhead_fs);
    p->text->failed |= key.failed;
    kb_text_fini(&key);
}

static void put_sips(const printer *p)
{
    const topo_description *d = p->d;
    put_count(p, "system.sips.count", d->sips);
    put_word(p, "system.sips.topology", topo_sip_pattern_name(d->sip_pattern));
    if (d->sip_pattern != TOPO_RING_1D) {
        put_count(p, "system.sips.w", d->sip_w);
        put_count(p, "system.sips.h", d->sip_h);
    }
    if (d->sip_links) {
        put_rate(p, "system.sips.link.bw_gbs", d->sip_to_sip.bytes_per_s);
        put_length(p, "system.sips.link.length_mm", d->sip_to_sip.length_nm);
        put_time(p, "system.sips.link.overhead_ns", d->parts[TOPO_SIP_PORT].is.overhead_fs);
    }
}

static void put_control(const printer *p, topo_kind kind, const char *mapping)
{
    const topo_parameters *is = &p->d->parts[kind].is;
    kb_text key = KB_TEXT_INIT;
    put_part(p, kind, mapping, "overhead_ns");
    kb_text_printf(&key, "%s.count_ns", mapping);
    put_time(p, kb_text_peek(&key), is->count_fs);
    p->text->failed |= key.failed;
    kb_text_fini(&key);
    kb_text_printf(&key, "%s.trigger_ns", mapping);
    put_time(p, kb_text_peek(&key), is->trigger_fs);
    p->text->failed |= key.failed;
    kb_text_fini(&key);
}

static void put_system(const printer *p)
{
    const topo_description *d = p->d;
    put_decimal(p, "system.ns_per_mm", d->wire_delay, nano_digits);
    put_sips(p);
    put_part(p, TOPO_HOST, "system.components.host", "attrs.overhead_ns");
    put_part(p, TOPO_SWITCH, "system.components.switch", "attrs.overhead_ns");
    put_rate(p, "system.host_to_switch.bw_gbs", d->host_to_switch.bytes_per_s);
    put_length(p, "system.host_to_switch.length_mm", d->host_to_switch.length_nm);
    put_rate(p, "system.sip_to_switch.bw_gbs", d->sip_to_switch.bytes_per_s);
    put_length(p, "system.sip_to_switch.length_mm", d->sip_to_switch.length_nm);
    put_count(p, "fabric.packet_bytes", d->packet_bytes);
    put_count(p, "fabric.vcs", d->vcs);
    put_count(p, "fabric.depth_bytes", d->depth_bytes);
    put_word(p, "fabric.ports", d->serial_ports ? "serial" : "parallel");
}

static void put_sip(const printer *p)
{
    const topo_description *d = p->d;
    put_count(p, "sip.cube_mesh.w", d->cube_w);
    put_count(p, "sip.cube_mesh.h", d->cube_h);
    put_length(p, "sip.cube_pitch_mm", d->cube_pitch_nm);
    put_part(p, TOPO_UCIE, "sip.ucie", "overhead_ns");
    put_rate(p, "sip.ucie.bw_gbs", d->ucie_bandwidth);
    put_part(p, TOPO_PCIE_EP, "sip.io.pcie_ep", "overhead_ns");
    put_control(p, TOPO_IO_CPU, "sip.io.io_cpu");
    put_part(p, TOPO_IO_NOC, "sip.io.io_noc", "overhead_ns");
    put_rate(p, "sip.io.io_noc.bw_gbs", d->io.bytes_per_s);
    put_length(p, "sip.io.io_noc.length_mm", d->io.length_nm);
}

static void put_pe_layout(const printer *p)
{
    const topo_description *d = p->d;
    if (d->pe_per_router > 0) {
        kb_text_printf(p->text, "cube.pe_layout={ pe_per_router: %" PRIu32 " }\n",
                       d->pe_per_router);
        return;
    }
    kb_text_printf(p->text, "cube.pe_layout={ pe_per_corner: %" PRIu32 ", corners: [",
                   d->pe_per_corner);
    for (uint32_t i = 0; i < d->corner_count; i++)
        kb_text_printf(p->text, "%s%s", i > 0 ? ", " : "", topo_corner_names[d->corners[i]]);
    kb_text_puts(p->text, "] }\n");
}

static void put_memories(const printer *p)
{
    const topo_description *d = p->d;
    const topo_parameters *hbm = &d->parts[TOPO_HBM_CTRL].is, *sram = &d->parts[TOPO_SRAM].is;
    put_bytes(p, "cube.hbm_gib", d->hbm_bytes, 30);
    put_part(p, TOPO_HBM_CTRL, "cube.hbm_ctrl", "latency_ns");
    put_decimal(p, "cube.hbm_ctrl.efficiency", hbm->efficiency, nano_digits);
    if (hbm->raw_bytes_per_s != d->xbar_to_hbm)
        put_rate(p, "cube.hbm_ctrl.raw_gbs", hbm->raw_bytes_per_s);
    put_part(p, TOPO_SRAM, "cube.sram", "latency_ns");
    put_rate(p, "cube.sram.bw_gbs", sram->bytes_per_s);
    put_bytes(p, "cube.sram.capacity_mib", sram->bytes, 20);
    put_bytes(p, "cube.pe_tcm.capacity_mib", d->tcm_bytes, 20);
    put_bytes(p, "cube.pe_tcm.reserved_mib", d->tcm_reserved_bytes, 20);
    put_rate(p, "cube.pe_tcm.bw_gbs", d->pe.tcm_bytes_per_s);
}

static void put_cube(const printer *p)
{
    const topo_description *d = p->d;
    put_count(p, "cube.noc.w", d->noc_w);
    put_count(p, "cube.noc.h", d->noc_h);
    put_part(p, TOPO_ROUTER, "cube.noc.router", "overhead_ns");
    put_rate(p, "cube.noc.bw_gbs", d->noc.bytes_per_s);
    put_length(p, "cube.noc.length_mm", d->noc.length_nm);
    put_pe_layout(p);
    put_rate(p, "cube.ucie_to_noc_bw_gbs", d->ucie_to_noc);
    put_rate(p, "cube.pe_to_noc_bw_gbs", d->pe_to_noc);
    put_rate(p, "cube.pe_to_xbar_bw_gbs", d->pe_to_xbar);
    put_rate(p, "cube.noc_to_xbar_bw_gbs", d->noc_to_xbar);
    put_rate(p, "cube.xbar_to_hbm_bw_gbs", d->xbar_to_hbm);
    put_rate(p, "cube.xbar_to_sram_bw_gbs", d->xbar_to_sram);
    put_part(p, TOPO_XBAR, "cube.xbar", "overhead_ns");
    put_length(p, "cube.xbar.length_mm", d->xbar_length_nm);
    put_memories(p);
    put_control(p, TOPO_M_CPU, "cube.m_cpu");
}

static void put_pe(const printer *p)
{
    const topo_pe_params *pe = &p->d->pe;
    put_time(p, "cube.pe_cpu.overhead_ns", pe->cpu_overhead_fs);
    put_time(p, "cube.pe_cpu.issue_ns", pe->cpu_issue_fs);
    put_count(p, "cube.pe_cpu.queue_depth", pe->queue_depth);
    put_count(p, "cube.pe_gemm.rows", pe->gemm_rows);
    put_count(p, "cube.pe_gemm.columns", pe->gemm_columns);
    put_time(p, "cube.pe_gemm.cycle_ns", pe->gemm_cycle_fs);
    put_word(p, "cube.pe_gemm.fill", pe->gemm_fill_per_fold ? "per_fold" : "once");
    put_count(p, "cube.pe_math.lanes", pe->math_lanes);
    put_time(p, "cube.pe_math.cycle_ns", pe->math_cycle_fs);
    for (int i = 0; i < TOPO_MATH_CLASSES; i++)
        kb_text_printf(p->text, "cube.pe_math.%s=%" PRIu32 "\n", topo_math_class_keys[i],
                       pe->math_cycles[i]);
    put_count(p, "cube.pe_math.latency_cycles", pe->math_latency_cycles);
    put_part(p, TOPO_PE_DMA, "cube.pe_dma", "overhead_ns");
    put_count(p, "cube.pe_dma.channels", pe->dma_channels);
}

void topo_machine_print_settings(const topo_machine *machine, kb_text *text)
{
    const printer p = {.d = &machine->description, .text = text};
    size_t start = text->length;
    kb_text_printf(text, "name=%s", p.d->name);
    kb_text_escape_from(text, start); /* after a file's name, which may be any bytes */
    kb_text_puts(text, "\n");
    put_system(&p);
    put_sip(&p);
    put_cube(&p);
    put_pe(&p);
}
