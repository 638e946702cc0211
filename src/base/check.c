/* check.c: the end of the road for a failed assertion. */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

void kb_check_failed(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
    abort();
}
