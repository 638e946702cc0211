/* verify_all.h: for scaffolds whose tensor has the same value everywhere. */
#include <stdlib.h>

#include <kernbench/kernbench.h>

/* Compares every element with the value, exactly. */
static inline kb_error *verify_all(kb_bench *bench, kb_tensor tensor, double value)
{
    kb_shape shape;
    KB_TRY(kb_tensor_shape(kb_bench_context(bench), tensor, &shape));
    size_t count = 1;
    for (uint32_t axis = 0; axis < shape.rank; axis++)
        count *= (size_t)shape.dims[axis];
    double *expected = malloc(count * sizeof *expected);
    if (!expected)
        return kb_error_new(KB_ERR_HOST, "out of memory");
    for (size_t i = 0; i < count; i++)
        expected[i] = value;
    kb_error *err = kb_bench_verify(bench, tensor, expected, 0, 0);
    free(expected);
    return err;
}
