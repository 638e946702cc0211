/*
 * test_faults.c: every mistake that a kernel can make, and what is said of it.
 */
#include "tl_rig.h"

static tl_tensor strange; /* of an earlier kernel */
static tl_future strange_future;

typedef void mistake_fn(tl_context *tl, tl_ptr memory);

/* The mistake in hand: a kernel cannot be given a function. */
static mistake_fn *mistake;

KB_KERNEL(careless, tl_ptr memory)
{
    mistake(tl, memory);
}

#define MISTAKE(name) static void name(tl_context *tl, __attribute__((unused)) tl_ptr memory)

static tl_tensor some(tl_context *tl, int64_t rows, int64_t columns)
{
    return tl_full(tl_shape(rows, columns), TL_F16, 1);
}

/* ---- Handles ----------------------------------------------------------------------------- */

MISTAKE(no_tensor)
{
    ignore(tl_add((tl_tensor){0}, 1));
}

static int freed_at; /* line */

MISTAKE(freed)
{
    tl_tensor x = some(tl, 2, 2);
    freed_at = __LINE__ + 1;
    tl_free(x);
    ignore(tl_exp(x));
}

MISTAKE(freed_twice)
{
    tl_tensor x = some(tl, 2, 2);
    tl_free(x);
    some(tl, 2, 2); /* in the same slot */
    tl_free(x);
}

MISTAKE(out_of_scope)
{
    tl_tensor x = {0};
    freed_at = __LINE__ + 1;
    TL_SCOPE {
        x = some(tl, 2, 2);
    }
    tl_store(memory, x);
}

MISTAKE(assigned_away)
{
    tl_tensor x = some(tl, 2, 2), was = x, y = some(tl, 2, 2);
    freed_at = __LINE__ + 1;
    tl_assign(&x, y);
    tl_store(memory, was);
}

MISTAKE(used_up)
{
    tl_tensor a = some(tl, 2, 2), acc = some(tl, 2, 2);
    freed_at = __LINE__ + 1;
    ignore(tl_dot(a, a, .acc = acc));
    tl_wait(acc);
}

MISTAKE(leave_something)
{
    strange = some(tl, 2, 2);
    strange_future = tl_store(memory, strange);
}

MISTAKE(of_another_kernel)
{
    some(tl, 2, 2);
    ignore(tl_add(strange, 1));
}

MISTAKE(future_of_another_kernel)
{
    tl_wait(strange_future);
}

MISTAKE(assign_nothing)
{
    tl_tensor x = some(tl, 1, 1);
    tl_assign(&x, (tl_tensor){0});
}

MISTAKE(too_many_values)
{
    for (;;)
        tl_ref(memory, tl_shape(1), TL_F16);
}

MISTAKE(sum_of_a_number)
{
    ignore(tl_sum(tl_scalar(1), 0));
}

/* ---- Shapes and types -------------------------------------------------------------------- */

MISTAKE(negative_dimension)
{
    tl_zeros(tl_shape(4, -1), TL_F16);
}

MISTAKE(huge_dimensions)
{
    tl_load(memory, tl_shape(1ll << 40, 1ll << 40, 0), TL_F16);
}

MISTAKE(huge_broadcast)
{
    tl_tensor row = tl_zeros(tl_shape(1ll << 30, 0), TL_F16);
    ignore(tl_add(tl_reshape(row, tl_shape(1ll << 50, 1, 0)),
                  tl_reshape(row, tl_shape(1, 1ll << 50, 0))));
}

MISTAKE(rank_of_five)
{
    tl_zeros(((tl_dims){.rank = 5}), TL_F16);
}

MISTAKE(no_such_dtype)
{
    tl_cast(some(tl, 1, 1), (kb_dtype)77);
}

MISTAKE(no_such_dtype_of_a_load)
{
    tl_load(memory, tl_shape(1), KB_DTYPES);
}

MISTAKE(no_broadcast)
{
    ignore(tl_add(some(tl, 4, 8), some(tl, 3, 8)));
}

MISTAKE(no_broadcast_of_three)
{
    ignore(tl_where(some(tl, 4, 8), 1, some(tl, 2, 4)));
}

MISTAKE(f8)
{
    ignore(tl_mul(tl_zeros(tl_shape(4), TL_F8E5M2), 2));
}

MISTAKE(two_numbers)
{
    ignore(tl_maximum(1, 2.5));
}

MISTAKE(one_number)
{
    ignore(tl_exp(1));
}

MISTAKE(cast_of_a_number)
{
    tl_cast(tl_scalar(1), TL_F16);
}

MISTAKE(no_such_axis)
{
    ignore(tl_sum(some(tl, 2, 3), 2));
}

MISTAKE(no_such_axis_from_the_end)
{
    ignore(tl_softmax(some(tl, 2, 3), -3));
}

MISTAKE(maximum_of_nothing)
{
    ignore(tl_max(some(tl, 2, 0), 1));
}

MISTAKE(transpose_a_row)
{
    tl_transpose(tl_arange(0, 4));
}

MISTAKE(reshape_to_more)
{
    tl_reshape(some(tl, 2, 3), tl_shape(7));
}

MISTAKE(count_down)
{
    tl_arange(4, 3);
}

MISTAKE(count_too_far)
{
    tl_arange(0, 1ll << 32);
}

/* ---- Memory ------------------------------------------------------------------------------ */

MISTAKE(not_mapped)
{
    tl_load(memory - 16, tl_shape(8), TL_F32);
}

MISTAKE(beyond_the_end)
{
    tl_store(memory + (tl_ptr)MEMORY_BYTES - 4, tl_zeros(tl_shape(2), TL_F32));
}

MISTAKE(beyond_the_end_by_a_stride)
{
    ignore(tl_add(tl_ref(memory, tl_shape(2), TL_F32, .strides = tl_strides(1ll << 60)), 1));
}

MISTAKE(negative_stride)
{
    tl_load(memory, tl_shape(4, 4), TL_F32, .strides = tl_strides(-4, 1));
}

MISTAKE(too_few_strides)
{
    tl_ref(memory, tl_shape(4, 4), TL_F32, .strides = tl_strides(4));
}

MISTAKE(store_on_one_place)
{
    tl_store(memory, some(tl, 2, 2), .strides = tl_strides(0, 1));
}

MISTAKE(mask_of_another_shape)
{
    tl_load(memory, tl_shape(4), TL_F32, .mask = some(tl, 2, 4));
}

MISTAKE(mask_of_f8)
{
    tl_store(memory, some(tl, 2, 2), .mask = tl_zeros(tl_shape(2), TL_F8E4M3));
}

MISTAKE(mask_of_data_beyond_the_end)
{
    tl_tensor mask = tl_load(memory, tl_shape(8), TL_I8);
    tl_load(memory + (tl_ptr)MEMORY_BYTES - 4, tl_shape(8), TL_I8, .mask = mask);
}

MISTAKE(mask_of_a_place)
{
    tl_ref(memory, tl_shape(2), TL_F32, .mask = tl_arange(0, 2));
}

MISTAKE(store_a_number)
{
    tl_store(memory, tl_scalar(1));
}

/* ---- Matrices ---------------------------------------------------------------------------- */

MISTAKE(no_matrices)
{
    ignore(tl_dot(some(tl, 2, 3), some(tl, 2, 3)));
}

MISTAKE(no_matrix)
{
    ignore(tl_dot(tl_arange(0, 4), some(tl, 4, 4)));
}

MISTAKE(acc_of_another_shape)
{
    ignore(tl_dot(some(tl, 2, 3), some(tl, 3, 2), .acc = some(tl, 2, 3)));
}

MISTAKE(acc_of_another_type)
{
    ignore(tl_dot(some(tl, 2, 2), some(tl, 2, 2), .acc = tl_zeros(tl_shape(2, 2), TL_BF16)));
}

MISTAKE(acc_of_floats_for_integers)
{
    tl_tensor a = tl_zeros(tl_shape(2, 2), TL_I8);
    ignore(tl_dot(a, a, .acc = tl_zeros(tl_shape(2, 2), TL_F32)));
}

MISTAKE(acc_is_an_operand)
{
    tl_tensor a = some(tl, 2, 2);
    ignore(tl_dot(a, a, .acc = a));
}

MISTAKE(acc_is_shared)
{
    tl_tensor acc = some(tl, 2, 2);
    tl_reshape(acc, tl_shape(4));
    ignore(tl_dot(some(tl, 2, 2), some(tl, 2, 2), .acc = acc));
}

MISTAKE(acc_is_a_place)
{
    ignore(tl_dot(some(tl, 2, 2), some(tl, 2, 2), .acc = tl_ref(memory, tl_shape(2, 2), TL_F16)));
}

MISTAKE(acc_is_a_number)
{
    ignore(tl_dot(some(tl, 2, 2), some(tl, 2, 2), .acc = tl_scalar(0)));
}

static tl_tensor place(tl_context *tl, tl_ptr memory, int64_t rows, int64_t columns, kb_dtype dtype)
{
    return tl_ref(memory, tl_shape(rows, columns), dtype);
}

MISTAKE(no_such_composite)
{
    tl_tensor a = place(tl, memory, 2, 2, TL_F16);
    tl_composite((tl_composite_op)5, a, a, a);
}

MISTAKE(composite_of_other_shapes)
{
    tl_tensor a = place(tl, memory, 2, 3, TL_F16);
    tl_composite(TL_GEMM, a, a, a);
}

MISTAKE(composite_into_another_shape)
{
    tl_tensor a = place(tl, memory, 2, 2, TL_F16);
    tl_composite(TL_GEMM, a, a, place(tl, memory, 2, 3, TL_F16));
}

MISTAKE(composite_into_a_value)
{
    tl_tensor a = place(tl, memory, 2, 2, TL_F16);
    tl_composite(TL_GEMM, a, a, some(tl, 2, 2));
}

MISTAKE(composite_into_integers)
{
    tl_tensor a = place(tl, memory, 2, 2, TL_F16);
    tl_composite(TL_GEMM, a, a, place(tl, memory, 2, 2, TL_I32));
}

MISTAKE(composite_over_nothing)
{
    tl_composite(TL_GEMM, place(tl, memory, 2, 0, TL_F16), place(tl, memory, 0, 3, TL_F16),
                 place(tl, memory, 2, 3, TL_F16));
}

MISTAKE(composite_that_is_not_mapped)
{
    tl_tensor a = place(tl, memory, 2, 2, TL_F16);
    tl_composite(TL_GEMM, a, place(tl, 16, 2, 2, TL_F16), a);
}

/* ---- Control ----------------------------------------------------------------------------- */

MISTAKE(no_such_grid_axis)
{
    (void)tl_num_programs(-1);
}

MISTAKE(item_of_two)
{
    (void)tl_item(some(tl, 1, 2));
}

MISTAKE(raised)
{
    tl_raise("length %d of sequence '%s'", -3, "b");
}

/* ---- All of them ------------------------------------------------------------------------- */

#define UNMAPPED(address) "the MMU on sip0.cube0.pe0: address " address " is not mapped: it is "
#define BEFORE " before the start of tensor 'memory' (0x100000000 to 0x102000000)"
#define PAST " past the end of tensor 'memory' (0x100000000 to 0x102000000)"

/* ---- Indices and pieces ------------------------------------------------------------------ */

static tl_tensor of_f8(tl_context *tl, kb_dtype dtype)
{
    return tl_full(tl_shape(2, 2), dtype, 1);
}

static tl_tensor zeros(tl_context *tl, int64_t rows, int64_t columns)
{
    return tl_zeros(tl_shape(rows, columns), TL_I32);
}

MISTAKE(arg_of_nothing)
{
    ignore(tl_argmax(some(tl, 0, 2), 0));
}

MISTAKE(arg_of_f8)
{
    ignore(tl_argmin(of_f8(tl, TL_F8E4M3), 0));
}

MISTAKE(axis_of_cumsum)
{
    ignore(tl_cumsum(some(tl, 2, 2), -3));
}

MISTAKE(top_of_more)
{
    ignore(tl_topk(some(tl, 2, 2), 3, -1).values);
}

MISTAKE(top_of_less)
{
    ignore(tl_topk(some(tl, 2, 2), -1, 0).values);
}

MISTAKE(top_of_f8)
{
    ignore(tl_topk(of_f8(tl, TL_F8E5M2), 1, 0).values);
}

MISTAKE(top_of_number)
{
    ignore(tl_topk(tl_scalar(1), 1, 0).values);
}

MISTAKE(slice_backwards)
{
    tl_slice(some(tl, 2, 2), 0, 2, 1);
}

MISTAKE(slice_beyond)
{
    tl_slice(some(tl, 2, 2), -1, 0, 3);
}

MISTAKE(slice_before)
{
    tl_slice(some(tl, 2, 2), 1, -1, 1);
}

MISTAKE(slice_of_no_axis)
{
    tl_slice(tl_full(tl_shape(), TL_F16, 1), 0, 0, 0);
}

MISTAKE(split_into_none)
{
    tl_tensor parts[1];
    tl_split(some(tl, 2, 2), 0, parts, 0);
}

MISTAKE(split_too_little)
{
    tl_tensor parts[2];
    tl_split_sizes(some(tl, 2, 2), 1, parts, 1, 0);
}

MISTAKE(split_too_much)
{
    tl_tensor parts[2];
    tl_split_sizes(some(tl, 2, 2), 1, parts, 1, 2);
}

MISTAKE(split_negative)
{
    tl_tensor parts[2];
    tl_split_sizes(some(tl, 2, 2), 1, parts, -1, 3);
}

MISTAKE(concat_of_shapes)
{
    ignore(tl_concat(1, some(tl, 2, 2), some(tl, 3, 2)));
}

MISTAKE(concat_of_ranks)
{
    ignore(tl_concat(0, some(tl, 2, 2), tl_zeros(tl_shape(2), TL_F16)));
}

MISTAKE(concat_of_types)
{
    ignore(tl_concat(0, some(tl, 2, 2), tl_zeros(tl_shape(2, 2), TL_F32)));
}

MISTAKE(concat_of_number)
{
    ignore(tl_concat(0, some(tl, 2, 2), tl_scalar(1)));
}

MISTAKE(index_of_floats)
{
    ignore(tl_gather(some(tl, 2, 2), some(tl, 2, 2), 0));
}

MISTAKE(index_of_other_rank)
{
    ignore(tl_gather(some(tl, 2, 2), tl_arange(0, 2), 0));
}

MISTAKE(index_too_wide)
{
    ignore(tl_scatter(some(tl, 2, 2), zeros(tl, 2, 3), 0, 1));
}

MISTAKE(index_out_of_range)
{
    ignore(tl_scatter_add(some(tl, 2, 2), tl_sub(zeros(tl, 2, 2), 1), 1, 1));
}

MISTAKE(source_of_other_type)
{
    ignore(tl_scatter(some(tl, 2, 2), zeros(tl, 2, 2), 0, tl_zeros(tl_shape(2, 2), TL_I8)));
}

MISTAKE(source_too_small)
{
    ignore(tl_scatter(some(tl, 2, 2), zeros(tl, 2, 2), 0, some(tl, 2, 1)));
}

MISTAKE(source_is_no_integer)
{
    ignore(tl_scatter(zeros(tl, 2, 2), zeros(tl, 2, 2), 0, 0.5));
}

MISTAKE(sums_of_f8)
{
    ignore(tl_scatter_add(of_f8(tl, TL_F8E4M3), zeros(tl, 2, 2), 0, 1));
}

MISTAKE(acc_is_a_slice)
{
    tl_tensor x = some(tl, 3, 2), acc = tl_slice(x, 0, 1, 3);
    tl_free(x);
    ignore(tl_dot(some(tl, 2, 2), some(tl, 2, 2), .acc = acc));
}

static const struct {
    mistake_fn *fn;
    const char *said;
} mistakes[] = {
    {no_tensor, "tl_add: invalid operand: not a tensor"},
    {freed_twice, "tl_free: use of a freed value: freed by tl_free, as .acc of tl_dot, by "
                  "tl_assign, or at the end of its TL_SCOPE"},
    {of_another_kernel, "tl_add: the value belongs to another kernel or PE"},
    {future_of_another_kernel, "tl_wait: the future belongs to another kernel or PE"},
    {assign_nothing, "tl_assign: invalid operand: not a tensor"},
    {too_many_values, "tl_ref: too many live values: the maximum is 262144"},
    {sum_of_a_number, "tl_sum: its operand is a plain number: use C for that"},

    {negative_dimension, "tl_full: shape (4, -1) has a negative dimension"},
    {huge_dimensions, "tl_load: shape (1099511627776, 1099511627776, 0) is too large"},
    {huge_broadcast, "tl_add: shape (1125899906842624, 1125899906842624, 0) is too large"},
    {rank_of_five, "tl_full: too many dimensions: 5, the maximum is 4"},
    {no_such_dtype, "tl_cast: invalid dtype 77"},
    {no_such_dtype_of_a_load, "tl_load: invalid dtype 7"},
    {no_broadcast, "tl_add: shapes (4, 8) and (3, 8) do not broadcast"},
    {no_broadcast_of_three, "tl_where: shapes (4, 8) and (2, 4) do not broadcast"},
    {f8, "tl_mul: f8e5m2 is for storage: cast it first"},
    {two_numbers, "tl_maximum: its operands are plain numbers: use C for that"},
    {one_number, "tl_exp: its operand is a plain number: use C for that"},
    {cast_of_a_number, "tl_cast: its operand is a plain number: use C for that"},
    {no_such_axis, "tl_sum: axis 2 of shape (2, 3)"},
    {no_such_axis_from_the_end, "tl_softmax: axis -3 of shape (2, 3)"},
    {maximum_of_nothing, "tl_max: axis 1 of shape (2, 0) is empty"},
    {transpose_a_row, "tl_transpose: shape (4) has no two axes to swap"},
    {reshape_to_more, "tl_reshape: shape (7) has other elements than (2, 3)"},
    {count_down, "tl_arange: from 4 to 3: these are no numbers of i32 that count up"},
    {count_too_far, "tl_arange: from 0 to 4294967296: these are no numbers of i32 that count up"},

    {not_mapped, "tl_load: " UNMAPPED("0xfffffff0") "0x10 bytes" BEFORE},
    {beyond_the_end, "tl_store: " UNMAPPED("0x102000000") "just" PAST},
    {beyond_the_end_by_a_stride,
     "tl_add: " UNMAPPED("0x4000000100000000") "0x3ffffffffe000000 bytes" PAST},
    {negative_stride, "tl_load: strides (-4, 1): none may be negative"},
    {too_few_strides, "tl_ref: 1 strides for shape (4, 4)"},
    {store_on_one_place, "tl_store: strides (0, 1) put several elements in one place"},
    {mask_of_another_shape, "tl_load: a mask of shape (2, 4) for shape (4)"},
    {mask_of_f8, "tl_store: a mask of f8e4m3: cast it first"},
    {mask_of_data_beyond_the_end, "tl_load: " UNMAPPED("0x102000000") "just" PAST},
    {mask_of_a_place, "tl_ref: a place in memory has no mask: load it with one"},
    {store_a_number, "tl_store: a plain number has no shape: make it a tensor with tl_full"},

    {no_matrices, "tl_dot: shapes (2, 3) and (2, 3): expected matrices (m, k) and (k, n)"},
    {no_matrix, "tl_dot: shapes (4) and (4, 4): expected matrices (m, k) and (k, n)"},
    {acc_of_another_shape, "tl_dot: acc has shape (2, 3), the product (2, 2)"},
    {acc_of_another_type, "tl_dot: acc is bf16, the product f16"},
    {acc_of_floats_for_integers, "tl_dot: acc is f32, the product i32"},
    {acc_is_an_operand, "tl_dot: acc is also an operand of the product"},
    {acc_is_shared,
     "tl_dot: acc shares memory with a value made by tl_reshape or tl_slice: free that first"},
    {acc_is_a_place, "tl_dot: acc is a memory reference: load it first"},
    {acc_is_a_number,
     "tl_dot: expected a tensor, found a plain number: make it a tensor with tl_full"},
    {no_such_composite, "tl_composite: invalid composite operation 5"},
    {composite_of_other_shapes,
     "tl_composite: shapes (2, 3) and (2, 3): expected matrices (m, k) and (k, n)"},
    {composite_into_another_shape, "tl_composite: out has shape (2, 3), the product (2, 2)"},
    {composite_into_a_value, "tl_composite: out must be a tl_ref: the result is written to "
                             "memory"},
    {composite_into_integers, "tl_composite: f16 times f16 cannot be i32"},
    {composite_over_nothing, "tl_composite: shapes (2, 0) and (0, 3): k is 0"},
    {composite_that_is_not_mapped, "tl_composite: " UNMAPPED("0x10") "0xfffffff0 bytes" BEFORE},

    {no_such_grid_axis,
     "tl_num_programs: invalid axis -1: expected 0 (PEs of a cube) or 1 (cubes of a SIP)"},
    {arg_of_nothing, "tl_argmax: axis 0 of shape (0, 2) is empty"},
    {arg_of_f8, "tl_argmin: f8e4m3 is for storage: cast it first"},
    {axis_of_cumsum, "tl_cumsum: axis -3 of shape (2, 2)"},
    {top_of_more, "tl_topk: k is 3, and axis -1 of shape (2, 2) has 2 elements"},
    {top_of_less, "tl_topk: k is -1, and axis 0 of shape (2, 2) has 2 elements"},
    {top_of_f8, "tl_topk: f8e5m2 is for storage: cast it first"},
    {top_of_number, "tl_topk: its operand is a plain number: use C for that"},
    {slice_backwards, "tl_slice: from 2 to 1 of axis 0 of shape (2, 2)"},
    {slice_beyond, "tl_slice: from 0 to 3 of axis -1 of shape (2, 2)"},
    {slice_before, "tl_slice: from -1 to 1 of axis 1 of shape (2, 2)"},
    {slice_of_no_axis, "tl_slice: axis 0 of shape ()"},
    {split_into_none, "tl_split: into 0 parts"},
    {split_too_little, "tl_split_sizes: sizes add up to 1, and axis 1 of shape (2, 2) has 2"},
    {split_too_much, "tl_split_sizes: sizes add up to more than the 2 of axis 1 of shape (2, 2)"},
    {split_negative, "tl_split_sizes: size -1 is negative"},
    {concat_of_shapes, "tl_concat: shapes (2, 2) and (3, 2) differ elsewhere than on axis 1"},
    {concat_of_ranks, "tl_concat: shapes (2, 2) and (2) differ elsewhere than on axis 0"},
    {concat_of_types, "tl_concat: dtypes f16 and f32: cast one first"},
    {concat_of_number,
     "tl_concat: expected a tensor, found a plain number: make it a tensor with tl_full"},
    {index_of_floats, "tl_gather: the index is f16; expected i32"},
    {index_of_other_rank, "tl_gather: an index of shape (2) does not fit axis 0 of shape (2, 2)"},
    {index_too_wide, "tl_scatter: an index of shape (2, 3) does not fit axis 0 of shape (2, 2)"},
    {index_out_of_range,
     "tl_scatter_add: index -1 at (0, 0) is out of range for axis 1 of shape (2, 2)"},
    {source_of_other_type, "tl_scatter: dtypes f16 and i8: cast one first"},
    {source_too_small, "tl_scatter: the source of shape (2, 1) is smaller than the index, (2, 2)"},
    {source_is_no_integer, "tl_scatter: 0.5 is no number of i32"},
    {sums_of_f8, "tl_scatter_add: f8e4m3 is for storage: cast it first"},
    {acc_is_a_slice, "tl_dot: acc is a slice of a larger value: copy it first, for example "
                     "with tl_add(acc, 0)"},
    {item_of_two, "tl_item: shape (1, 2); expected a single element"},
    {raised, "tl_raise: length -3 of sequence 'b'"},
};

static void every_mistake_is_told_of(void **state)
{
    (void)state;
    rig r = rig_default();
    mistake = leave_something;
    (void)time_of(&r, careless, MEMORY);
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        mistake = mistakes[i].fn;
        expect_fault(&r, careless, mistakes[i].said, MEMORY);
        expect_tcm_free(&r);
        expect_ok(data_settle(r.store));
        assert_int_equal(data_get_stats(r.store).live_values, 0);
    }
    rig_fini(&r);
}

/* As long as the value's slot is not used again. */
static void a_freed_value_tells_what_freed_it(void **state)
{
    (void)state;
    static const struct {
        mistake_fn *fn;
        const char *said;
    } cases[] = {
        {freed, "tl_exp: use of a value that was freed by tl_free"},
        {out_of_scope, "tl_store: use of a value that was freed at the end of the "
                       "TL_SCOPE"},
        {assigned_away, "tl_store: use of a value that was freed by tl_assign"},
        {used_up, "tl_wait: use of a value that was freed as .acc of tl_dot"},
    };
    rig r = rig_default();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kb_text said = KB_TEXT_INIT;
        mistake = cases[i].fn;
        ending e = run(&r, careless, MEMORY);
        kb_text_printf(&said, "%s at test_faults.c:%d", cases[i].said, freed_at);
        expect_fault_of(&r, e, "careless", kb_text_peek(&said));
        kb_text_fini(&said);
    }
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mistake_is_told_of),
        cmocka_unit_test(a_freed_value_tells_what_freed_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
