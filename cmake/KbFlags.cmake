# kernbench_flags: how every C file of the project is compiled, tests included.
add_library(kernbench_flags INTERFACE)

set(kb_warnings
    -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wdouble-promotion
    -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wvla -Wformat=2 -Wundef
    -Wcast-qual -Wwrite-strings -Wpointer-arith -Wimplicit-fallthrough)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    list(APPEND kb_warnings -Wlogical-op -Wduplicated-cond)
endif()
if(KB_WERROR)
    list(APPEND kb_warnings -Werror)
endif()

target_compile_options(kernbench_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C>:${kb_warnings}>
    # Numbers are the same with every compiler: none may fuse a product and a sum on its own.
    $<$<COMPILE_LANGUAGE:C>:-ffp-contract=off>
    # Stack traces of debuggers and sanitizers are cheap and complete where speed is no matter.
    $<$<NOT:$<CONFIG:Release,RelWithDebInfo>>:-fno-omit-frame-pointer>)
target_include_directories(kernbench_flags INTERFACE
    ${PROJECT_SOURCE_DIR}/include
    ${PROJECT_SOURCE_DIR}/src)
target_compile_definitions(kernbench_flags INTERFACE
    _GNU_SOURCE
    $<$<BOOL:${KB_UCONTEXT}>:KB_UCONTEXT=1>)
