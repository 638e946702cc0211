/* new_texts.h: the files of templates as text; made by CMake. */
#ifndef KB_CLI_NEW_TEXTS_H
#define KB_CLI_NEW_TEXTS_H

extern const char new_bench_text[];
extern const char new_python_bench_text[];
extern const char new_collective_text[];
extern const char new_collective_yaml[];

#endif
