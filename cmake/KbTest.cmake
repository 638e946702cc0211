# kb_add_test(<name> SOURCES a.c ... [LABELS l ...] [LINK_OPTIONS o ...] [ARGS a ...] [TIMEOUT s])
# Builds a cmocka program that reaches the library's internals, and registers it with ctest. All
# sources but the first may be those of other tests too: they are compiled once.
#
# A test carries the name of its folder as a label, so `ctest -L sim` runs tests/sim, and the target
# `tests-sim` builds just that. Two more labels have a meaning in CI: `threads` runs under
# ThreadSanitizer, `valgrind` under memcheck. Without a TIMEOUT the one of tools/run-tests holds.
pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
if(NOT CMOCKA_FOUND)
    message(FATAL_ERROR
        "The tests need cmocka (Debian: libcmocka-dev). Install it or configure with -DKB_TESTS=OFF.")
endif()

# Registers a test in the targets that build one folder or one label of tests.
function(kb_label_test name target)
    get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
    set_tests_properties(${name} PROPERTIES LABELS "${folder};${ARGN}")
    foreach(label ${folder} ${ARGN})
        if(NOT TARGET tests-${label})
            add_custom_target(tests-${label})
        endif()
        add_dependencies(tests-${label} ${target})
    endforeach()
endfunction()

# kb_compile_as_test(<target>): tests are compiled often and run for seconds, so with few optimizations.
function(kb_compile_as_test target)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_compile_definitions(${target} PRIVATE KB_TEST_DIR="${PROJECT_SOURCE_DIR}/tests")
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
    target_link_libraries(${target} PRIVATE kernbench_static kernbench_flags PkgConfig::CMOCKA
        PkgConfig::YAML Threads::Threads m)
endfunction()

# kb_shared_object(<source> <variable>): the target that compiles a source which several tests have.
function(kb_shared_object source variable)
    get_filename_component(path ${source} ABSOLUTE)
    file(RELATIVE_PATH relative ${PROJECT_SOURCE_DIR} ${path})
    string(MAKE_C_IDENTIFIER "object-${relative}" target)
    if(NOT TARGET ${target})
        add_library(${target} OBJECT ${path})
        kb_compile_as_test(${target})
    endif()
    set(${variable} ${target} PARENT_SCOPE)
endfunction()

function(kb_add_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;LABELS;LINK_OPTIONS;ARGS")
    if(NOT arg_SOURCES OR arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "kb_add_test(${name}): wants SOURCES; got '${arg_UNPARSED_ARGUMENTS}'")
    endif()

    set(target test-${name})
    list(POP_FRONT arg_SOURCES own)
    add_executable(${target} ${own})
    set_target_properties(${target} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    kb_compile_as_test(${target})
    foreach(source IN LISTS arg_SOURCES)
        kb_shared_object(${source} part)
        target_sources(${target} PRIVATE $<TARGET_OBJECTS:${part}>)
    endforeach()
    target_link_options(${target} PRIVATE ${arg_LINK_OPTIONS})

    # tools/run-test puts $KB_TEST_RUNNER (valgrind, gdb --args) in front of the program.
    add_test(NAME ${name}
        COMMAND ${PROJECT_SOURCE_DIR}/tools/run-test $<TARGET_FILE:${target}> ${arg_ARGS})
    if(arg_TIMEOUT)
        set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT})
    endif()
    kb_label_test(${name} ${target} ${arg_LABELS})
endfunction()

# kb_add_script_test(<name> SCRIPT s.sh [TIMEOUT s])
# A POSIX sh script, run with the build directory as its argument.
function(kb_add_script_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "SCRIPT;TIMEOUT" "")
    add_test(NAME ${name} COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/${arg_SCRIPT} ${PROJECT_BINARY_DIR})
    if(arg_TIMEOUT)
        set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT})
    endif()
    kb_label_test(${name} kernbench_cli)
endfunction()
