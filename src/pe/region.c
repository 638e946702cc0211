/*
 * region.c: from the array that a kernel names to the rectangles that a DMA moves.
 *
 * Axes but the last are rows, and neighbouring ones that step evenly are one axis; so what is left
 * of most arrays is one block of rows with one stride. Of a block, as many rows as an extent has
 * become one rectangle at a time, so the work is in the number of extents, not of rows. A row that
 * an extent ends in is cut there. Rectangles that continue each other are made one.
 *
 * With a mask, rows that leave out the same elements are a block, and each run of elements that are
 * left in is one after the other taken through it; likewise each element, if they are not next to
 * each other. Addresses of what is left out do not matter.
 *
 * All that is touched has to be of one tensor. The tensor is looked up with the first address, and
 * its bounds are compared with each extent: so an access costs one search more.
 *
 * Addresses are computed in 128 bits: dims and strides say what they like, and nothing wraps.
 */
#include "region.h"

#include <inttypes.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

/* Rows of the packed array, evenly spaced in virtual memory. */
typedef struct block {
    wide address;
    wide stride;
    uint64_t row, rows;
} block;

typedef struct axis {
    uint64_t count;
    wide stride; /* bytes */
} axis;

/* How an array's elements lie. */
typedef struct layout {
    axis axes[KB_MAX_DIMS]; /* of the rows */
    size_t axis_count;
    uint64_t row_elements;
    wide element_stride; /* in a row, in bytes */
} layout;

typedef struct resolver {
    const mem_mmu *mmu;
    const mem_memories *memories;
    kb_pe pe;
    const char *who;
    const pe_region *region;
    pe_rects *rects;
    size_t first; /* of this region, in the list */

    /* The extent that was used last: what is at these addresses is there. */
    uint64_t from;
    wide to;
    kb_location there;

    bool has_tensor; /* it is known what the first address belongs to: */
    mem_mapped tensor;
} resolver;

/* ---- Rectangles -------------------------------------------------------------------------- */

/* Makes `below`, which begins a row where `above` ends, a part of it. False if that cannot be. */
static bool join_rows(mem_rect *above, const mem_rect *below)
{
    if (above->column != below->column || above->bytes != below->bytes ||
        above->row + above->rows != below->row || !mem_same_memory(&above->at, &below->at) ||
        below->at.offset < above->at.offset)
        return false;
    uint64_t distance = below->at.offset - above->at.offset;
    uint64_t stride = above->rows > 1 ? above->stride : distance;
    if (distance != above->rows * stride || (below->rows > 1 && below->stride != stride))
        return false;
    above->stride = stride;
    above->rows += below->rows;
    return true;
}

/* The same for two parts of a row. */
static bool join_columns(mem_rect *left, const mem_rect *right)
{
    if (left->rows != 1 || right->rows != 1 || left->row != right->row ||
        left->column + left->bytes != right->column || !mem_same_memory(&left->at, &right->at) ||
        left->at.offset + left->bytes != right->at.offset)
        return false;
    left->bytes += right->bytes;
    return true;
}

static kb_error *add_rect(resolver *r, const mem_rect *rect)
{
    kb_error *err =
        mem_memories_check(r->memories, &rect->at, mem_rect_end(rect) - rect->at.offset);
    if (err)
        return kb_error_wrap(err, "%s on %s", r->who, topo_pe_name(r->pe).text);
    if (!kb_vec_push(r->rects, *rect))
        return kb_error_nomem();
    while (r->rects->count - r->first > 1) {
        mem_rect *last = &r->rects->items[r->rects->count - 1];
        if (!join_columns(last - 1, last) && !join_rows(last - 1, last))
            break;
        r->rects->count--;
    }
    return NULL;
}

/* ---- Translation ------------------------------------------------------------------------- */

static kb_error *too_far(const resolver *r)
{
    return kb_error_new(KB_ERR_FAULT,
                        "%s on %s: the array at 0x%" PRIx64 " exceeds the 64-bit address space",
                        r->who, topo_pe_name(r->pe).text, r->region->va);
}

/* A fault of its own text. Takes the text over. */
static kb_error *fault_of(kb_text *text)
{
    kb_error *err =
        text->failed ? kb_error_nomem() : kb_error_new(KB_ERR_FAULT, "%s", kb_text_peek(text));
    kb_text_fini(text);
    return err;
}

static kb_error *wrong_dtype(const resolver *r, uint64_t va)
{
    kb_text text = KB_TEXT_INIT;
    mem_mapped_print(&r->tensor, &text);
    kb_text_printf(&text,
                   " is accessed as %s at 0x%" PRIx64 "; if that is intended, .reinterpret = true "
                   "says so",
                   kb_dtype_name(r->region->dtype), va);
    return fault_of(&text);
}

static kb_error *misaligned(const resolver *r, uint64_t va)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_printf(&text, "address 0x%" PRIx64 " is misaligned: its offset in ", va);
    mem_mapped_print(&r->tensor, &text);
    kb_text_printf(&text, " is 0x%" PRIx64 ", no multiple of the element size %" PRIu32,
                   va - r->tensor.va, r->region->element_bytes);
    return fault_of(&text);
}

/* The access began in one tensor and is in another one now. */
static kb_error *crossing(const resolver *r, const mem_mapped *other, uint64_t va)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_puts(&text, "the access leaves ");
    mem_mapped_print(&r->tensor, &text);
    kb_text_printf(&text, ": its address 0x%" PRIx64 " is in ", va);
    mem_mapped_print(other, &text);
    return fault_of(&text);
}

/* What the first address belongs to has to fit the access. */
static kb_error *check_first(const resolver *r, uint64_t va)
{
    if (!r->tensor.has_dtype)
        return NULL;
    if (!r->region->reinterpret && r->region->dtype != r->tensor.dtype)
        return wrong_dtype(r, va);
    return (va - r->tensor.va) % r->region->element_bytes != 0 ? misaligned(r, va) : NULL;
}

/* The address is mapped: it has to be in the tensor that the access began in. */
static kb_error *check_tensor(resolver *r, uint64_t va)
{
    if (r->has_tensor && va >= r->tensor.va && va < r->tensor.end)
        return NULL;
    mem_mapped here;
    bool is_mapped = mem_mmu_get_mapped(r->mmu, va, &here);
    KB_ASSERT(is_mapped);
    if (r->has_tensor && (r->tensor.has_dtype || here.has_dtype))
        return crossing(r, &here, va);
    r->tensor = here;
    if (r->region->is_index)
        *r->region->is_index = here.is_index;
    if (r->has_tensor)
        return NULL;
    r->has_tensor = true;
    return check_first(r, va);
}

/* Makes the extent in hand the one that has the address. */
static kb_error *aim(resolver *r, wide address)
{
    if (address >= r->from && address < r->to)
        return NULL;
    if (address > UINT64_MAX)
        return too_far(r);
    uint64_t va = (uint64_t)address, bytes;
    if (!mem_mmu_translate(r->mmu, r->pe.cube, r->pe.pe, va, &r->there, &bytes))
        return mem_mmu_fault(r->mmu, r->who, r->pe.cube, r->pe.pe, va);
    r->from = va;
    r->to = address + bytes;
    return check_tensor(r, va);
}

/* The extent in hand has the first byte of it. */
static mem_rect rect_at(const resolver *r, wide address)
{
    mem_rect rect = {.at = r->there};
    rect.at.offset += (uint64_t)address - r->from;
    return rect;
}

/* A row that an extent ends in, in parts. */
static kb_error *add_cut_row(resolver *r, wide address, uint64_t row, uint64_t column,
                             uint64_t bytes)
{
    while (bytes > 0) {
        KB_TRY(aim(r, address));
        mem_rect part = rect_at(r, address);
        part.row = row;
        part.rows = 1;
        part.column = column;
        part.bytes = r->to - address < bytes ? (uint64_t)(r->to - address) : bytes;
        KB_TRY(add_rect(r, &part));
        address += part.bytes;
        column += part.bytes;
        bytes -= part.bytes;
    }
    return NULL;
}

/* The same bytes of each row of a block, which are next to each other. */
static kb_error *add_columns(resolver *r, block b, uint64_t column, uint64_t bytes)
{
    while (b.rows > 0) {
        KB_TRY(aim(r, b.address));
        wide left = r->to - b.address;
        uint64_t rows = 1;
        if (left < bytes) {
            KB_TRY(add_cut_row(r, b.address, b.row, column, bytes));
        } else {
            wide fit = b.stride > 0 ? (left - bytes) / b.stride + 1 : b.rows;
            rows = fit < b.rows ? (uint64_t)fit : b.rows;
            mem_rect rect = rect_at(r, b.address);
            rect.stride = (uint64_t)b.stride; /* of one row alone it means nothing */
            rect.row = b.row;
            rect.rows = rows;
            rect.column = column;
            rect.bytes = bytes;
            KB_TRY(add_rect(r, &rect));
        }
        b.address += rows * b.stride;
        b.row += rows;
        b.rows -= rows;
    }
    return NULL;
}

/* ---- Blocks of rows ---------------------------------------------------------------------- */

/* Elements [first, end) of each row of a block. */
static kb_error *add_elements(resolver *r, const layout *is, const block *b, uint64_t first,
                              uint64_t end)
{
    uint64_t size = r->region->element_bytes;
    uint64_t step = is->element_stride == size ? end - first : 1;
    for (uint64_t e = first; e < end; e += step) {
        block here = *b;
        here.address += e * is->element_stride;
        KB_TRY(add_columns(r, here, e * size, step * size));
    }
    return NULL;
}

/* Rows that leave out the same. */
static kb_error *add_masked_rows(resolver *r, const layout *is, const block *b,
                                 const unsigned char *mask)
{
    uint64_t e = 0;
    while (e < is->row_elements) {
        uint64_t first = e;
        while (e < is->row_elements && mask[e])
            e++;
        KB_TRY(add_elements(r, is, b, first, e));
        while (e < is->row_elements && !mask[e])
            e++;
    }
    return NULL;
}

static kb_error *add_block(resolver *r, const layout *is, block b)
{
    if (!r->region->mask)
        return add_elements(r, is, &b, 0, is->row_elements);
    while (b.rows > 0) {
        const unsigned char *mask = r->region->mask + b.row * is->row_elements;
        block same = b;
        same.rows = 1;
        while (same.rows < b.rows &&
               memcmp(mask, mask + same.rows * is->row_elements, is->row_elements) == 0)
            same.rows++;
        KB_TRY(add_masked_rows(r, is, &same, mask));
        b.address += same.rows * b.stride;
        b.row += same.rows;
        b.rows -= same.rows;
    }
    return NULL;
}

/* ---- Axes -------------------------------------------------------------------------------- */

/* Whether its elements can be counted and the way to the last one computed. */
static bool is_within_reason(const pe_region *region)
{
    uint64_t elements = 1, bytes;
    wide reach = region->va, way;
    for (uint32_t d = 0; d < region->rank; d++)
        if (__builtin_mul_overflow(elements, region->dims[d], &elements) ||
            __builtin_mul_overflow((wide)region->strides[d] * region->element_bytes,
                                   region->dims[d], &way) ||
            __builtin_add_overflow(reach, way, &reach))
            return false;
    return !__builtin_mul_overflow(elements, region->element_bytes, &bytes);
}

static bool is_empty(const pe_region *region)
{
    for (uint32_t d = 0; d < region->rank; d++)
        if (region->dims[d] == 0)
            return true;
    return false;
}

static layout find_layout(const pe_region *region)
{
    uint64_t size = region->element_bytes;
    layout is = {.row_elements = 1, .element_stride = size};
    for (uint32_t d = 0; d < region->rank; d++) {
        axis next = {.count = region->dims[d], .stride = (wide)region->strides[d] * size};
        if (next.count == 1)
            continue;
        if (d + 1 == region->rank) {
            is.row_elements = next.count;
            is.element_stride = next.stride;
            continue;
        }
        axis *outer = is.axis_count > 0 ? &is.axes[is.axis_count - 1] : NULL;
        if (outer && outer->stride == next.count * next.stride)
            *outer = (axis){.count = outer->count * next.count, .stride = next.stride};
        else
            is.axes[is.axis_count++] = next;
    }
    return is;
}

/* Goes through all blocks: the innermost axis makes one, the others are counted through. */
static kb_error *add_blocks(resolver *r)
{
    layout is = find_layout(r->region);
    uint64_t at[KB_MAX_DIMS] = {0};
    size_t outer = is.axis_count > 0 ? is.axis_count - 1 : 0;
    axis rows = is.axis_count > 0 ? is.axes[outer] : (axis){.count = 1};
    block b = {.address = r->region->va, .stride = rows.stride, .rows = rows.count};
    for (;;) {
        KB_TRY(add_block(r, &is, b));
        b.row += b.rows;
        size_t a = outer;
        while (a > 0 && ++at[a - 1] == is.axes[a - 1].count) {
            b.address -= (at[a - 1] - 1) * is.axes[a - 1].stride;
            at[a - 1] = 0;
            a--;
        }
        if (a == 0)
            return NULL;
        b.address += is.axes[a - 1].stride;
    }
}

/* One row of elements that are next to each other, as most arrays are. */
static bool is_run(const pe_region *region)
{
    return region->rank == 1 && region->strides[0] == 1 && !region->mask;
}

kb_error *pe_region_resolve(const mem_mmu *mmu, const mem_memories *memories, kb_pe pe,
                            const char *who, const pe_region *region, pe_rects *rects)
{
    KB_ASSERT(region->rank <= KB_MAX_DIMS && region->element_bytes > 0);
    resolver r = {.mmu = mmu,
                  .memories = memories,
                  .pe = pe,
                  .who = who,
                  .region = region,
                  .rects = rects,
                  .first = rects->count};
    if (is_empty(region))
        return NULL;
    if (!is_within_reason(region))
        return too_far(&r);
    if (KB_UNLIKELY(!is_run(region)))
        return add_blocks(&r);
    block row = {.address = region->va, .rows = 1};
    return add_columns(&r, row, 0, region->dims[0] * region->element_bytes);
}

void pe_translations_note(pe_translations *known, const mem_mmu *mmu, kb_pe pe, uint64_t va)
{
    pe_translation *is = &known->entries[known->next];
    uint64_t bytes;
    mem_mapped tensor;
    if (!mem_mmu_translate(mmu, pe.cube, pe.pe, va, &is->there, &bytes) ||
        !mem_mmu_get_mapped(mmu, va, &tensor)) {
        is->to = is->from; /* `there` may have changed */
        return;
    }
    is->from = va;
    is->to = va + bytes;
    is->changes = mem_mmu_changes(mmu);
    is->tensor_va = tensor.va;
    is->has_dtype = tensor.has_dtype;
    is->is_index = tensor.is_index;
    is->dtype = tensor.dtype;
    known->next = (known->next + 1) % PE_TRANSLATIONS;
}
