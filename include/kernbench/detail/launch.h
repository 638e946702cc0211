/*
 * launch.h: how kb_launch() makes a kb_arg of each of its arguments. Not for programs.
 */
#ifndef KERNBENCH_DETAIL_LAUNCH_H
#define KERNBENCH_DETAIL_LAUNCH_H

#include <kernbench/detail/preprocessor.h>
#include <kernbench/launch.h>

#ifdef __cplusplus
extern "C" {
#endif

static inline kb_arg kb_arg_same(kb_arg arg)
{
    return arg;
}

#define KB_DETAIL_ARGS(...)                                                                        \
    (const kb_arg[]){KB_DETAIL_JOIN(KB_DETAIL_EACH_, KB_DETAIL_COUNT(__VA_ARGS__))(KB_DETAIL_ARG,  \
                                                                                   __VA_ARGS__)},  \
        KB_DETAIL_COUNT(__VA_ARGS__)
#define KB_DETAIL_ARG(x)                                                                           \
    _Generic((x), kb_tensor                                                                        \
             : kb_arg_tensor, kb_arg                                                               \
             : kb_arg_same, float                                                                  \
             : kb_arg_real, double                                                                 \
             : kb_arg_real, unsigned long                                                          \
             : kb_arg_unsigned, unsigned long long                                                 \
             : kb_arg_unsigned, default                                                            \
             : kb_arg_integer)(x)

#ifdef __cplusplus
}
#endif

#endif
