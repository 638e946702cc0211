/* hello.c: what a user of the installed library writes first. C11 and C++. */
#include <stdio.h>

#include <kernbench/kernbench.h>

int main(void)
{
    printf("hello from kernbench %s\n", kb_version());
    return 0;
}
