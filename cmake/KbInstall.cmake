# What `cmake --install` puts where.
install(TARGETS kernbench_cli kernbench_shared kernbench_static)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/kernbench
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
# The built-in machines as files too, to start one's own from.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/machines
    DESTINATION ${CMAKE_INSTALL_DATADIR}/kernbench
    FILES_MATCHING PATTERN "*.yaml")
if(TARGET kernbench_mpi_component)
    install(TARGETS kernbench_mpi_component LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/kernbench)
endif()
# The plans of docs/studies.md.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/studies
    DESTINATION ${CMAKE_INSTALL_DATADIR}/kernbench
    FILES_MATCHING PATTERN "*.yaml")
# The package for Python, where src/cli/python.c looks for it.
if(TARGET kernbench_python)
    set(kb_python_dir ${CMAKE_INSTALL_LIBDIR}/python3/dist-packages)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/
        DESTINATION ${kb_python_dir}
        FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed"
        PATTERN "__pycache__" EXCLUDE PATTERN ".?*" EXCLUDE)
    install(TARGETS kernbench_python LIBRARY DESTINATION ${kb_python_dir}/kernbench)
endif()

# The prefix is found from where the .pc file lies, so an installed tree can be moved.
set(kb_pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH KB_PC_TO_PREFIX /${kb_pc_dir} /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/kernbench.pc.in kernbench.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/kernbench.pc DESTINATION ${kb_pc_dir})
