/*
 * tl.h: the language that kernels are written in. It is C with operations that look like Triton's:
 *
 *     #include <kernbench/tl.h>
 *
 *     KB_KERNEL(scale, tl_ptr x, int n, float factor)
 *     {
 *         tl_ptr mine = x + (tl_program_id(1) * tl_num_programs(0) + tl_program_id(0)) * n * 2;
 *         tl_tensor v = tl_load(mine, tl_shape(n), TL_F16);
 *         tl_store(mine, tl_mul(v, factor));
 *     }
 *
 * and the host runs it, on every PE that has a part of a tensor that it is given, with
 *
 *     KB_TRY(kb_launch(ctx, "scale", &scale, x, 256, 0.5));
 *
 * Here x is in f16 and laid out row-wise over cubes and column-wise over PEs: one row for each
 * cube, of which each PE has n elements. tl_program_id(1) is the cube and tl_program_id(0) the PE
 * in it, so no two PEs touch the same bytes.
 *
 * A kernel runs once on each of these PEs. Every operation is a command to a unit of the PE: the
 * pe_cpu issues them in the order of the program, one after the other, and goes on; a unit begins
 * a command when it is free and the command's operands are there. So loads, matrix products and
 * vector operations overlap as far as they do not depend on each other, and the program still
 * means what it says: it reads as if each operation were done at once. A kernel is over when all
 * that it issued is done.
 *
 * A tensor of a kernel is a value in the PE's TCM. It never changes. It holds its space there until
 * it is freed, its TL_SCOPE ends or the kernel ends; if there is no room for a new one the pe_cpu
 * waits for what was freed but is still in use, and if that does not suffice the kernel fails.
 *
 * Mistakes (shapes that do not fit, an address that is not mapped, a value that was freed) stop the
 * kernel with a message that has its name, the PE, the simulated time and the line.
 *
 * The operations are macros that pass on `tl`, the kernel's context, which every kernel has, and
 * the location in the source. A function of one's own that calls them takes the context as a
 * parameter of that name:
 *
 *     static tl_tensor relu(tl_context *tl, tl_tensor x) { return tl_maximum(x, 0); }
 *
 * This header is for C alone. Shapes and strides are in elements; only addresses count bytes.
 */
#ifndef KERNBENCH_TL_H
#define KERNBENCH_TL_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/detail/preprocessor.h>
#include <kernbench/kernbench.h>

typedef struct tl_context tl_context;

/* A virtual address, in bytes. */
typedef int64_t tl_ptr;

/*
 * A value, or a location in memory (tl_ref), or a plain number (tl_scalar). Only the kernel that
 * made it can use it. All zeros is no tensor.
 */
typedef struct tl_tensor {
    uint64_t id;
    double number;
} tl_tensor;

/* Something under way that can be waited for. All zeros is done. */
typedef struct tl_future {
    uint64_t id;
    uint64_t kernel; /* whose it is */
    uint32_t after;  /* for the race check */
} tl_future;

enum { TL_MAX_DIMS = 4 };

typedef struct tl_dims {
    int rank;
    int64_t dims[TL_MAX_DIMS];
} tl_dims;

/* tl_shape(4, 8) is a shape; tl_strides(8, 1) says how far it is along each axis from one element
 * to the next. */
#define tl_shape(...)                                                                              \
    ((tl_dims){.rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                  \
               .dims = {__VA_ARGS__}})
#define tl_strides(...) tl_shape(__VA_ARGS__)

#define TL_F16 KB_F16
#define TL_BF16 KB_BF16
#define TL_F32 KB_F32
#define TL_F8E4M3 KB_F8E4M3
#define TL_F8E5M2 KB_F8E5M2
#define TL_I8 KB_I8
#define TL_I32 KB_I32

/* ---- Kernels ----------------------------------------------------------------------------- */

/* A number that a kernel was given: wide enough for every integer of 64 bits and every double. */
typedef long double tl_arg;

struct kb_kernel {
    const char *name;
    const char *parameters; /* as they are written: "tl_ptr x, int n" */
    size_t parameter_count;
    const char *file;
    int line;
    void (*run)(tl_context *tl, const tl_arg *args);
    void *user; /* for kernels that are not made by KB_KERNEL: see tl_user() */
};

/*
 * Defines a kernel: KB_KERNEL(name, parameters...) { ... }. Parameters are numbers of any kind;
 * those of type tl_ptr are given tensors (or addresses). At least one, 16 at most.
 */
#define KB_KERNEL(kernel, ...)                                                                     \
    static void kernel##_body_(tl_context *tl, __VA_ARGS__);                                       \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wconversion\"")              \
        _Pragma("GCC diagnostic ignored \"-Wfloat-conversion\"") static void kernel##_run_(        \
            tl_context *tl, const tl_arg *kb_args_)                                                \
    {                                                                                              \
        kernel##_body_(tl, KB_DETAIL_EACH_INDEX(KB_DETAIL_ARGUMENT, __VA_ARGS__));                 \
    }                                                                                              \
    _Pragma("GCC diagnostic pop") static const kb_kernel kernel = {                                \
        #kernel,       #__VA_ARGS__, KB_DETAIL_COUNT(__VA_ARGS__), __FILE__, __LINE__,             \
        kernel##_run_, NULL,                                                                       \
    };                                                                                             \
    static void kernel##_body_(__attribute__((unused)) tl_context *tl, __VA_ARGS__)

/* ---- Grid -------------------------------------------------------------------------------- */

/* Axis 0: the PE in its cube; axis 1: the cube in its SIP. */
#define tl_program_id(axis) tl_program_id_(tl, TL_DETAIL_HERE, (axis))

/* How many PEs of a cube, and how many cubes, run the kernel: the most there are of the first. */
#define tl_num_programs(axis) tl_num_programs_(tl, TL_DETAIL_HERE, (axis))

/* How often b goes into a, rounded up; b is at least 1. */
static inline int64_t tl_cdiv(int64_t a, int64_t b)
{
    return a / b + (a % b > 0);
}

/*
 * What a policy gives to part `index` when it splits n rows or columns into `parts`: where that
 * begins and how many they are. Sizes need not divide.
 */
static inline int64_t tl_part_begin(int64_t n, int64_t parts, int64_t index)
{
    return n / parts * index + (index < n % parts ? index : n % parts);
}

static inline int64_t tl_part_size(int64_t n, int64_t parts, int64_t index)
{
    return n / parts + (index < n % parts);
}

/* ---- Memory ------------------------------------------------------------------------------ */

/*
 * Reads memory into the TCM: tl_load(ptr, shape, dtype), and after these by name
 *     .strides = tl_strides(1024, 1)   how far apart elements are in memory; without it they are
 *                                      packed row by row
 *     .mask = m, .other = 0            elements where m is 0 are not read: they are `other`
 *     .reinterpret = true              the tensor there has another dtype: its bytes are taken as
 *                                      this one. Without it that is a fault
 * All elements that are read have to be elements of one tensor, and addresses are multiples of the
 * element size from its beginning.
 *
 * A mask has the shape of what it masks, or broadcasts to it. One that is made of tl_arange(),
 * tl_full() and numbers alone is known before anything runs: what it leaves out need not be mapped
 * and is not moved. With any other mask everything is moved (the time must not depend on the data)
 * and has to be mapped.
 */
#define tl_load(...) tl_load_takes_ptr_shape_dtype_(__VA_ARGS__, )

/* What follows the arguments that a call must have is given by name. What is not, meets a member of
 * this type, which takes nothing: the compiler refuses it. */
typedef struct tl_options_have_names tl_options_have_names;

typedef struct tl_load_options {
    kb_dtype dtype;
    tl_options_have_names *options_have_names;
    tl_dims strides;
    tl_tensor mask;
    double other;
    bool reinterpret;
} tl_load_options;

/*
 * Writes a value to memory: tl_store(ptr, value), and by name .strides, .mask and .reinterpret as
 * for tl_load(): the value's dtype has to be the tensor's.
 * Returns a future; there is mostly no need to wait for it: later loads of the same PE see what was
 * stored before, and a kernel is not over before its stores are.
 */
#define tl_store(...) tl_store_takes_ptr_value_(__VA_ARGS__, )

typedef struct tl_store_options {
    tl_tensor value;
    tl_options_have_names *options_have_names;
    tl_dims strides;
    tl_tensor mask;
    bool reinterpret;
} tl_store_options;

/*
 * A location in memory as an operand: tl_ref(ptr, shape, dtype), and by name .strides and
 * .reinterpret. What is there is looked at when an operation uses it. tl_composite() streams it
 * through the TCM piece by piece; other operations load it as a whole first.
 */
#define tl_ref(...) tl_ref_takes_ptr_shape_dtype_(__VA_ARGS__, )

/* ---- Matrices ---------------------------------------------------------------------------- */

/*
 * a (m, k) times b (k, n): tl_dot(a, b), and by name
 *     .acc = c          adds it to c (m, n), which it takes over: c is used up, and the result has
 *                       its space, its dtype and its scope: acc = tl_dot(a, b, .acc = acc).
 *                       c has the type that the result would have without it, or f32
 *     .out_f32 = true   the result is f32; without it, it has the type in which the inputs meet
 *                       (see Vectors), and f32 if one of them is f8
 * Sums are made in f32 (in i32 for integers, whose result is i32 always) and rounded once.
 *
 * A chain of products that each take the one before as .acc pays for the fill of the matrix engine
 * in every step: a product begins when the one before is out of the array. Products that do not
 * depend on each other follow without a gap, so several chains, interleaved, keep the engine busy.
 * Measured on the default machine with m = k = n = 64 (64 cycles in the array, 190 of fill) and 16
 * steps: one chain reaches 25 % of peak, two 50 %, four 96 %; four chains of 256 steps, 99.7 %.
 * With m = 256, two suffice (98 %). A tl_composite() fills the engine once for all of its tiles.
 *
 * Begin a chain with tl_dot(a, b, .out_f32 = true), not with tl_zeros(): that is a command to the
 * vector unit, and may have to wait there for the end of the last tile (see Vectors).
 */
#define tl_dot(...) tl_dot_takes_a_b_(__VA_ARGS__, )

typedef struct tl_dot_options {
    tl_tensor b;
    tl_options_have_names *options_have_names;
    tl_tensor acc;
    bool out_f32;
} tl_dot_options;

typedef enum tl_composite_op { TL_GEMM } tl_composite_op;

/*
 * A whole matrix product that the scheduler cuts into tiles and runs while the kernel goes on:
 * tl_composite(TL_GEMM, a, b, out) makes out = a * b. out is a tl_ref(), a and b are refs, which
 * stay in memory and are streamed, or values. Sums are made in f32 and rounded once to out's dtype
 * (in i32 for integers, and then out is i32). Returns a future, as tl_store() does. Later
 * operations of the same PE see what it writes. A message that is sent later does not wait for it:
 * before one that tells another PE to use `out`, or to overwrite a or b, tl_wait() for the future;
 * else it is a data race, which is reported.
 */
#define tl_composite(op, a, b, out) tl_composite_(tl, TL_DETAIL_HERE, (op), (a), (b), (out))

/* ---- Vectors ----------------------------------------------------------------------------- */

/*
 * A unit takes its commands in the order of the program, one after the other. So what waits for its
 * operands holds up what comes after it: a tl_zeros() for the next tile, issued behind the
 * tl_cast() of a sum, begins when the sum is there and no sooner.
 *
 * Element by element. Shapes broadcast: they are aligned at their last axes, and an axis of 1 is
 * repeated. Types meet: floating point wins over integers, the wider one over the narrower, f16 and
 * bf16 make f32; f8 has to be cast first. Each result is rounded to its type; integers wrap around.
 *
 * Operands are tensors, or numbers beside a tensor. A number has the tensor's type, but a number
 * that an integer type cannot hold does not become another one: it is i32 or f32, and so is the
 * result.
 */
#define tl_add(a, b) TL_DETAIL_BINARY(ADD, a, b)
#define tl_sub(a, b) TL_DETAIL_BINARY(SUB, a, b)
#define tl_mul(a, b) TL_DETAIL_BINARY(MUL, a, b)
#define tl_div(a, b) TL_DETAIL_BINARY(DIV, a, b) /* integers: towards 0, and 0 for x / 0 */
#define tl_maximum(a, b) TL_DETAIL_BINARY(MAXIMUM, a, b)
#define tl_minimum(a, b) TL_DETAIL_BINARY(MINIMUM, a, b)

/* Comparisons give 1 or 0, as TL_I8. */
#define tl_lt(a, b) TL_DETAIL_BINARY(LT, a, b)
#define tl_le(a, b) TL_DETAIL_BINARY(LE, a, b)
#define tl_gt(a, b) TL_DETAIL_BINARY(GT, a, b)
#define tl_ge(a, b) TL_DETAIL_BINARY(GE, a, b)
#define tl_eq(a, b) TL_DETAIL_BINARY(EQ, a, b)
#define tl_ne(a, b) TL_DETAIL_BINARY(NE, a, b)

#define tl_fma(a, b, c) TL_DETAIL_TERNARY(FMA, a, b, c) /* a * b + c */
#define tl_clamp(x, low, high) TL_DETAIL_TERNARY(CLAMP, x, low, high)

/* a where the condition is not 0, else b. If both are numbers the result is f32. */
#define tl_where(condition, a, b) TL_DETAIL_TERNARY(WHERE, condition, a, b)

/* Of integers these are f32; but tl_abs and tl_neg keep the type. */
#define tl_exp(x) TL_DETAIL_UNARY(EXP, x)
#define tl_log(x) TL_DETAIL_UNARY(LOG, x)
#define tl_sqrt(x) TL_DETAIL_UNARY(SQRT, x)
#define tl_rsqrt(x) TL_DETAIL_UNARY(RSQRT, x)
#define tl_abs(x) TL_DETAIL_UNARY(ABS, x)
#define tl_neg(x) TL_DETAIL_UNARY(NEG, x)
#define tl_sigmoid(x) TL_DETAIL_UNARY(SIGMOID, x)
#define tl_tanh(x) TL_DETAIL_UNARY(TANH, x)
#define tl_cos(x) TL_DETAIL_UNARY(COS, x)
#define tl_sin(x) TL_DETAIL_UNARY(SIN, x)
#define tl_gelu(x) TL_DETAIL_UNARY(GELU, x) /* x * (1 + erf(x / sqrt(2))) / 2 */
#define tl_silu(x) TL_DETAIL_UNARY(SILU, x) /* x * sigmoid(x) */

/* Along an axis, of which 1 is left: (n, m) and axis 1 gives (n, 1). Axis -1 is the last. Sums are
 * made in f32 and rounded once; of integers they are i32. */
#define tl_sum(x, axis) TL_DETAIL_ALONG(SUM, x, axis)
#define tl_max(x, axis) TL_DETAIL_ALONG(MAX, x, axis)
#define tl_min(x, axis) TL_DETAIL_ALONG(MIN, x, axis)

/*
 * The index of the largest or smallest along an axis, as TL_I32; the axis stays with length 1. Of
 * equal ones the lowest index; if there is a NaN, the index of the first one, as in PyTorch. Takes
 * two passes: one compares, one keeps the index.
 */
#define tl_argmax(x, axis) TL_DETAIL_ALONG(ARGMAX, x, axis)
#define tl_argmin(x, axis) TL_DETAIL_ALONG(ARGMIN, x, axis)

/* exp(x - max) / sum(exp(x - max)) along an axis. */
#define tl_softmax(x, axis) TL_DETAIL_ALONG(SOFTMAX, x, axis)

/*
 * Element i is the sum of elements 0 to i along an axis. The running sum is not rounded: each
 * element is rounded once, as tl_sum() is; of integers they are i32.
 *
 * Along the last axis (axes of 1 behind it do not count) it takes ceil(log2(min(length, lanes)))
 * passes within rows of lanes, and one more to add what came before if it is longer than a row;
 * along any other axis, one.
 */
#define tl_cumsum(x, axis) TL_DETAIL_ALONG(CUMSUM, x, axis)

/*
 * The k largest along an axis, the largest first, and their indices: two tensors that have k in
 * place of the axis' length. NaN counts as larger than any number; of equal ones the lowest index
 * comes first. All of them (k is the length) is a sort in descending order; the smallest are those
 * of tl_neg(x).
 *
 *     tl_topk_result best = tl_topk(scores, 8, -1);
 *
 * Takes 3 * min(k, s * (s + 1) / 2) passes over x, where 2^s is the length, rounded up, and at
 * least one round: k times finding the largest, keeping its index and taking it out; or all steps
 * of a bitonic sort.
 */
#define tl_topk(x, k, axis) tl_topk_(tl, TL_DETAIL_HERE, (x), (k), (axis))

typedef struct tl_topk_result {
    tl_tensor values, indices;
} tl_topk_result;

#define tl_cast(x, dtype) tl_cast_(tl, TL_DETAIL_HERE, (x), (dtype))
#define tl_transpose(x) tl_transpose_(tl, TL_DETAIL_HERE, (x)) /* swaps the last two axes */

/* The same elements in another shape. Takes no time; x can still be used, and shares its space. */
#define tl_reshape(x, shape) tl_reshape_(tl, TL_DETAIL_HERE, (x), (shape))

/*
 * A part along an axis: the elements from begin to before end, which must be there. If they follow
 * each other in the TCM (along the first axis, or if all axes before it are 1) they stay where they
 * are, which takes no time, and x holds its space as long as the part does. Otherwise they are
 * moved to space of their own: one pass over the part.
 */
#define tl_slice(x, axis, begin, end) tl_slice_(tl, TL_DETAIL_HERE, (x), (axis), (begin), (end))

/*
 * Slices that together are all of x, into an array:
 *
 *     tl_tensor part[3];
 *     tl_split(x, 0, part, 3);                 parts as tl_part_begin() has them: 7 is 3, 2, 2
 *     tl_split_sizes(x, 0, part, 4, 2, 1);     sizes that add up to the axis' length
 */
#define tl_split(x, axis, parts, count) tl_split_(tl, TL_DETAIL_HERE, (x), (axis), (parts), (count))
#define tl_split_sizes(x, axis, parts, ...)                                                        \
    tl_split_sizes_(tl, TL_DETAIL_HERE, (x), (axis), (parts), (const int64_t[]){__VA_ARGS__},      \
                    (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

/*
 * Tensors of one type one behind the other along an axis: tl_concat(axis, a, b, ...). On the other
 * axes they are alike. Moves all elements, in one pass: one command for the first six tensors, and
 * one for every five more.
 */
#define tl_concat(axis, ...)                                                                       \
    tl_concat_(tl, TL_DETAIL_HERE, (axis), (const tl_tensor[]){__VA_ARGS__},                       \
               sizeof((const tl_tensor[]){__VA_ARGS__}) / sizeof(tl_tensor))

/* ---- Elements that an index selects ------------------------------------------------------ */

/*
 * As torch.gather and torch.scatter. An index is TL_I32 and has as many axes as x; along the axis
 * it may have any length, along others at most that of x. Its element at (i, j, k) stands, if the
 * axis is 1, for the element (i, index[i, j, k], k) of x:
 *
 *     tl_gather(x, index, axis)             what is there, in the shape of the index
 *     tl_scatter(x, index, axis, src)       x with element (i, j, k) of src there instead. If
 *                                           several are for one element, the last one stays, in the
 *                                           order of the index, row by row
 *     tl_scatter_add(x, index, axis, src)   x with all of these added to what was there. Sums are
 *                                           made in f32 and rounded once; integers wrap around
 *
 * src has the type of x and along each axis at least the length of the index; or it is a number.
 * All types can be gathered and scattered; f8 cannot be added.
 *
 * An index out of range (there is no counting from the end) is a fault. One made of numbers alone
 * (see tl_load()) is checked by the call, in every run; any other when its command begins, which is
 * when its numbers are there: a run without data has none and checks nothing, and the time is the
 * same.
 *
 * The TCM's banks make these slower than moves (gather_cycles in the machine's file, 4 for 1). With
 * n = ceil(elements of the index / lanes), tl_gather takes n * gather_cycles; tl_scatter a pass
 * over x, to copy it, and n * gather_cycles; tl_scatter_add a pass over x and n * (2 *
 * gather_cycles + 1), as it fetches, adds and puts.
 */
#define tl_gather(x, index, axis) tl_gather_(tl, TL_DETAIL_HERE, (x), (index), (axis))
#define tl_scatter(x, index, axis, src)                                                            \
    tl_scatter_(tl, TL_DETAIL_HERE, (x), (index), (axis), TL_DETAIL_OPERAND(src), false)
#define tl_scatter_add(x, index, axis, src)                                                        \
    tl_scatter_(tl, TL_DETAIL_HERE, (x), (index), (axis), TL_DETAIL_OPERAND(src), true)

/* ---- Tensors of numbers alone ------------------------------------------------------------ */

#define tl_full(shape, dtype, number)                                                              \
    tl_full_(tl, TL_DETAIL_HERE, (shape), (dtype), (double)(number))
#define tl_zeros(shape, dtype) tl_full_(tl, TL_DETAIL_HERE, (shape), (dtype), 0)

/* begin, begin + 1, .., end - 1 as TL_I32. */
#define tl_arange(begin, end) tl_arange_(tl, TL_DETAIL_HERE, (begin), (end))

/* A plain number as a tensor, for functions of one's own; it takes no TCM. */
static inline tl_tensor tl_scalar(double number)
{
    tl_tensor t = {UINT64_MAX, number};
    return t;
}

/* ---- Queues ------------------------------------------------------------------------------ */

/*
 * A kernel of a collective talks to its neighbours by directions, such as "E" or "parent"; which
 * there are, and where they lead, is the plan's (kernbench/ccl.h). What is sent in one arrives in
 * the order of the sends.
 *
 * Sends a value, or what is at a tl_ref() when the DMA comes to it: tl_send(direction, value).
 * Waits until the peer has a free slot, and goes on as soon as the DMA has taken the value: what
 * arrives is the value that was given, whatever becomes of its memory. Returns a future that is
 * done when it has arrived; tl_send_sync() waits for that. A value larger than a slot goes in
 * several, and then waits until the last part has a slot.
 */
#define tl_send(direction, value) tl_send_(tl, TL_DETAIL_HERE, (direction), (value), false)
#define tl_send_sync(direction, value)                                                             \
    ((void)tl_send_(tl, TL_DETAIL_HERE, (direction), (value), true))

/*
 * Receives the next value that arrives in the direction, which must have that shape and type:
 * tl_recv(direction, shape, dtype), and by name
 *     .dst = ptr       stores it there; what is returned is then a tl_ref() to that location.
 *                      .reinterpret = true if the tensor there has another dtype
 *     .from = &name    says by which direction it came
 * TL_ANY receives what arrives first in any direction; if there is something in several, they take
 * turns. Waits for the value. tl_recv_async() does not: it returns the value that will have
 * arrived, and operations on it wait for it, as they do for a load; so does tl_wait().
 *
 * Messages also order what PEs do in memory that they share: what the sender issued before the send
 * comes before what the receiver issues after it has the value. Accesses to the same bytes that
 * nothing orders are a data race, and are reported (kb_context_options.races).
 */
#define tl_recv(...) tl_recv_takes_direction_shape_dtype_(true, __VA_ARGS__, )
#define tl_recv_async(...) tl_recv_takes_direction_shape_dtype_(false, __VA_ARGS__, )

#define TL_ANY ((const char *)0)

typedef struct tl_recv_options {
    kb_dtype dtype;
    tl_options_have_names *options_have_names;
    tl_ptr dst;        /* 0: stays in the TCM */
    const char **from; /* only with tl_recv() */
    bool reinterpret;  /* of .dst */
} tl_recv_options;

/* Whether this PE can send, or receive, in the direction. */
#define tl_can_send(direction) tl_can_send_(tl, TL_DETAIL_HERE, (direction))
#define tl_can_recv(direction) tl_can_recv_(tl, TL_DETAIL_HERE, (direction))

/* ---- Control ----------------------------------------------------------------------------- */

/* Waits until a value is there, or something under way is done. */
#define tl_wait(what)                                                                              \
    _Generic((what), tl_tensor                                                                     \
             : tl_wait_tensor_, tl_future                                                          \
             : tl_wait_future_)(tl, TL_DETAIL_HERE, (what))

/*
 * The number in a tensor of one element: waits for it. A run without data has it only if it is made
 * of numbers alone; else the kernel fails. tl_item_or() then gives the stand-in instead, after the
 * same time, and the run's summary says how often that was so: what the kernel does with it may
 * take another time than with data.
 */
#define tl_item(x) tl_item_(tl, TL_DETAIL_HERE, (x))
#define tl_item_or(x, stand_in) tl_item_or_(tl, TL_DETAIL_HERE, (x), (double)(stand_in))

/*
 * All numbers of a tensor of integers, row by row: tl_items(x, numbers, count) puts them into an
 * array of int64_t, after waiting for them. For lengths, page tables and token ids, from which the
 * kernel computes addresses. A run without data has those of index tensors
 * (kb_tensor_spec.is_index) as they were loaded, and fails for others.
 */
#define tl_items(x, numbers, count) tl_items_(tl, TL_DETAIL_HERE, (x), (numbers), (count))

/* Ends the kernel with an error that has this message, which is printed as printf() does: for what
 * is wrong with the numbers that it was given. */
#define tl_raise(...) tl_raise_(tl, TL_DETAIL_HERE, __VA_ARGS__)

/* What kb_kernel.user is: the object behind a kernel that another language supplies. */
#define tl_user() tl_user_(tl)

/*
 * For kernels in other languages, whose frames must not be skipped: an interpreter, or C++ with
 * destructors. An error ends a kernel inside the call that makes it, and none of the kernel's
 * frames returns. The same happens to a kernel that waits when it is stopped: because another PE of
 * its launch failed, or because the context is destroyed. tl_try() makes `call`, which contains the
 * operations, and returns such an error to its caller; NULL if there was none:
 *
 *     static void load(tl_context *tl, void *arg)
 *     {
 *         struct load *is = arg;
 *         is->result = tl_load(is->ptr, is->shape, is->dtype);
 *     }
 *     ...
 *     kb_error *err = tl_try(tl, load, &arguments);
 *     if (err)
 *         ... raise an exception, or return: up to the kernel's function, which returns
 *
 * - Only the frames between the operation and tl_try() are skipped: those of the library, of `call`
 *   and of what it calls. `call` itself ends by returning; a C++ exception or a longjmp() out of it
 *   is an error of the program. Cleanups that it pushed run first.
 * - `call` may enter the other language again, which makes its operations in a tl_try() of its own.
 *   That returns the error to the inner frames; when they have returned, the next operation of
 *   `call` ends it, and the outer tl_try() returns the error too, also if `call` makes none.
 * - The error is final. The kernel ends with it, with the same message at the same simulated time
 *   as without tl_try(), even if the caller ignores what was returned. Until then each further
 *   tl_try() returns it at once, without making its call, and nothing waits. An operation outside
 *   tl_try() ends the kernel at once, and skips the frames: so destructors use tl_try() too.
 *   tl_user() and tl_now() can be called at any time.
 * - Each error that is returned is the caller's to free.
 *
 * Only the kernel itself calls this. Its stack is that of kb_context_options.stack_bytes. The user
 * object must stay until the kernel has ended or the context is destroyed; the kb_kernel is copied.
 */
KB_API KB_MUST_USE kb_error *tl_try(tl_context *tl, void (*call)(tl_context *tl, void *arg),
                                    void *arg);

/* The simulated time. */
#define tl_now() tl_now_(tl)

/* Gives back the value's TCM when all that uses it is done. It cannot be used from here on. */
#define tl_free(x) tl_free_(tl, TL_DETAIL_HERE, (x))

/*
 * TL_SCOPE { ... } frees the values that were made in it, also when it is left by return, goto or
 * break (which, as in a loop, leaves the scope alone, not a loop around it).
 *
 * tl_assign(&acc, value) lets one survive: what acc was is freed, acc is the value, and it lives as
 * long as acc would have. If acc was no tensor yet, that is until the end of the scope around this
 * one.
 */
#define TL_SCOPE TL_DETAIL_SCOPE_AS(KB_DETAIL_JOIN(tl_scope_of_line_, __LINE__))
#define tl_assign(variable, value) tl_assign_(tl, TL_DETAIL_HERE, (variable), (value))

#include <kernbench/detail/tl.h>

#endif
