/* version.c: the library's version, given by the build. */
#include <kernbench/kernbench.h>

const char *kb_version(void)
{
    return KB_VERSION;
}
