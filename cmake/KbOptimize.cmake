# KbOptimize.cmake: link-time optimization (KB_LTO) and profiles (KB_PGO), both with gcc alone: clang
# before 17 cannot put machine code beside its intermediate code.
#
# KB_LTO: the folders of kb_lto_folders, which do the work of every event, are optimized across files
# in the program, the shared library and kb-bench. All of src would take three times as long to link,
# for 1 % fewer instructions. The object files hold machine code beside gcc's intermediate code, so
# they are compiled once: the static library has the machine code alone, and whoever links it, as the
# tests do, is as quick as without, and may use another compiler.
#
# KB_PGO: with `generate` a program writes a profile beside each object file when it ends, with `use`
# the compiler reads it. Both must be of the same sources in the same directory: see ./kb build --pgo.
set(kb_lto_folders base sim oplog topo net mem io ipcq pe tl)
set(kb_lto_flags "")
set(kb_pgo_flags "")

if(KB_LTO AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    # No program replaces functions of the shared library, so it may inline its own.
    set(kb_lto_flags -O3 -flto=auto -ffat-lto-objects -fno-semantic-interposition)
endif()

if(KB_PGO AND NOT CMAKE_C_COMPILER_ID STREQUAL "GNU")
    message(FATAL_ERROR "KB_PGO needs gcc; the compiler is ${CMAKE_C_COMPILER_ID}")
elseif(KB_PGO STREQUAL "generate")
    set(kb_pgo_flags -fprofile-generate)
elseif(KB_PGO STREQUAL "use")
    # A source that no training run reaches has no profile, and threads may lose counts. Where a
    # profile makes gcc inline more, it sees names that may be cut off, as they are meant to be.
    set(kb_pgo_flags -fprofile-use -fprofile-correction -Wno-missing-profile -Wno-format-truncation)
elseif(KB_PGO)
    message(FATAL_ERROR "KB_PGO: expected generate or use, found '${KB_PGO}'")
endif()

# kb_optimize_objects(<target>): an object library of which the program is made.
function(kb_optimize_objects target)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:${kb_pgo_flags}>)
    get_target_property(sources ${target} SOURCES)
    list(JOIN kb_lto_folders "|" folders)
    list(FILTER sources INCLUDE REGEX "^${PROJECT_SOURCE_DIR}/src/(${folders})/.*\\.c$")
    set_property(SOURCE ${sources} TARGET_DIRECTORY ${target}
        APPEND PROPERTY COMPILE_OPTIONS ${kb_lto_flags})
endfunction()

# kb_optimize_linked(<target>): a program or a shared library that is linked from those objects.
function(kb_optimize_linked target)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:${kb_pgo_flags}>)
    target_link_options(${target} PRIVATE ${kb_lto_flags} ${kb_pgo_flags})
endfunction()

# kb_keep_machine_code(<library>): removes gcc's intermediate code from a static library.
function(kb_keep_machine_code library)
    if(kb_lto_flags)
        add_custom_command(TARGET ${library} POST_BUILD
            COMMAND ${CMAKE_OBJCOPY} --wildcard
                --remove-section=.gnu.lto_* --remove-section=.gnu.debuglto_*
                $<TARGET_FILE:${library}>
            VERBATIM)
    endif()
endfunction()
