/* descriptors.c: stdin, stdout and stderr at the start of the program: see descriptors.h. */
#include "descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COUNT = 3 };

static bool was_closed[COUNT];
static struct stat expected[COUNT];
static FILE *stdout_at_start;

/* open() returns the lowest free number. */
static void replace(int descriptor)
{
    static const int modes[COUNT] = {O_WRONLY, O_RDONLY, O_WRONLY};
    if (open("/dev/null", modes[descriptor]) < 0)
        (void)open("/", O_RDONLY | O_DIRECTORY); /* writing fails as well */
}

void descriptors_open(void)
{
    stdout_at_start = stdout;
    for (int i = 0; i < COUNT; i++) {
        was_closed[i] = fcntl(i, F_GETFD) < 0 && errno == EBADF;
        if (was_closed[i])
            replace(i);
    }
    descriptors_adopt();
}

void descriptors_adopt(void)
{
    for (int i = 0; i < COUNT; i++)
        (void)fstat(i, &expected[i]);
}

bool descriptors_was_closed(int descriptor)
{
    return descriptor >= 0 && descriptor < COUNT && was_closed[descriptor];
}

int descriptors_replaced(void)
{
    if (stdout_at_start && stdout != stdout_at_start)
        return STDOUT_FILENO;
    for (int i = STDOUT_FILENO; stdout_at_start && i < COUNT; i++) {
        struct stat now;
        if (fstat(i, &now) != 0 || now.st_dev != expected[i].st_dev ||
            now.st_ino != expected[i].st_ino)
            return i;
    }
    return 0;
}
