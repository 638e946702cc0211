# kb_add_test(name SOURCES ... ${FAILING_ALLOC_SOURCES} LINK_OPTIONS ${FAILING_ALLOC_LINK_OPTIONS})
set(FAILING_ALLOC_SOURCES ${CMAKE_CURRENT_LIST_DIR}/failing_alloc.c)
set(FAILING_ALLOC_LINK_OPTIONS
    -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=free)
