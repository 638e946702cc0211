/*
 * temporary.h: files with a text, for as long as a test keeps them.
 */
#ifndef TESTS_SUPPORT_TEMPORARY_H
#define TESTS_SUPPORT_TEMPORARY_H

#include "expect.h"

typedef struct temporary {
    char path[32];
} temporary;

static inline temporary file_of(const char *text)
{
    temporary file = {"/tmp/kb-test-XXXXXX"};
    int fd = mkstemp(file.path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
    return file;
}

static inline void remove_file(const temporary *file)
{
    assert_int_equal(unlink(file->path), 0);
}

#endif
