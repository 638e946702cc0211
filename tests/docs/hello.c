/* hello.c: around the kernel of the guide to collectives. */
#include "ring_mock.h"

/* @KERNEL@ */

static void arguments(void *self, uint32_t rank, uint64_t address, kb_ccl_arguments *args)
{
    (void)self;
    (void)rank;
    kb_ccl_add_address(args, address);
    kb_ccl_add_integer(args, ELEMENTS);
    kb_ccl_add_integer(args, KB_F32);
}

int main(void)
{
    return ring_mock(&hello_send, arguments);
}
