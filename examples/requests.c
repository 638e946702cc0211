/*
 * requests.c: single transfers, and where their time goes.
 *
 * The host writes to the HBM of one PE. Another PE, in the opposite corner of the package, copies
 * the data through a virtual address that is mapped for it, and the host reads the copy. Then two
 * copies are submitted at once and queue for the same links, and one more after the address is
 * unmapped. Times are in ns; the total is the sum of the other four. Prints:
 *
 *                              total  overhead     wire    drain  queueing
 *     the host writes        218.215   152.000    2.215   64.000     0.000
 *     the address is mapped 1293.138  1286.000    5.700    1.438     0.000
 *     the far PE copies     1651.543  1622.000    7.980   21.562     0.000
 *     the host reads         347.650   278.000    5.400   64.250     0.000
 *     the copy is correct
 *     first of two copies   1651.543  1622.000    7.980   21.562     0.000
 *     second of two copies  1671.543  1622.000    7.980   21.562    20.000
 *     it is unmapped        1292.450  1286.000    5.700    0.750     0.000
 *     PE DMA on sip0.cube15.pe0: address 0x100000000 is not mapped: no tensor is mapped
 */
#include <stdio.h>
#include <string.h>
#include <kernbench/kernbench.h>

enum { BYTES = 4096 };

static kb_error *finish(kb_context *ctx, kb_request request, const char *what)
{
    kb_completion done;
    KB_TRY(kb_request_wait(ctx, request, &done));
    printf("%-21s %8.3f %9.3f %8.3f %8.3f %9.3f\n", what, kb_to_ns(done.ended - done.issued),
           kb_to_ns(done.overhead), kb_to_ns(done.wire), kb_to_ns(done.drain),
           kb_to_ns(done.queueing));
    return kb_request_free(ctx, request);
}

static kb_error *do_one(kb_context *ctx, const kb_message *message, const char *what)
{
    kb_request request;
    KB_TRY(kb_request_submit(ctx, message, &request));
    return finish(ctx, request, what);
}

static kb_error *run(kb_context *ctx)
{
    const kb_pe near = {.sip = 0, .cube = 0, .pe = 0};
    const kb_pe far = {.sip = 0, .cube = kb_context_machine(ctx).cubes - 1, .pe = 0};
    kb_location hbm, tcm, by_address = {.memory = KB_VIRTUAL};
    KB_TRY(kb_memory_alloc(ctx, near, KB_HBM, BYTES, 64, &hbm));
    KB_TRY(kb_memory_alloc(ctx, far, KB_TCM, BYTES, 64, &tcm));
    KB_TRY(kb_va_alloc(ctx, BYTES, &by_address.offset));

    char sent[BYTES], got[BYTES];
    for (int i = 0; i < BYTES; i++)
        sent[i] = (char)(i % 100);
    kb_message write = {.kind = KB_MEMORY_WRITE, .to = hbm, .data = sent, .bytes = BYTES};
    kb_message map = {
        .kind = KB_MMU_MAP, .pe = far, .va = by_address.offset, .to = hbm, .bytes = BYTES};
    kb_message fetch = {
        .kind = KB_PE_DMA, .pe = far, .from = by_address, .to = tcm, .bytes = BYTES};
    kb_message read = {.kind = KB_MEMORY_READ, .from = tcm, .into = got, .bytes = BYTES};
    printf("%-21s %8s %9s %8s %8s %9s\n", "", "total", "overhead", "wire", "drain", "queueing");
    KB_TRY(do_one(ctx, &write, "the host writes"));
    KB_TRY(do_one(ctx, &map, "the address is mapped"));
    KB_TRY(do_one(ctx, &fetch, "the far PE copies"));
    KB_TRY(do_one(ctx, &read, "the host reads"));
    printf("the copy is %s\n", memcmp(sent, got, BYTES) == 0 ? "correct" : "wrong");

    kb_request first, second;
    KB_TRY(kb_request_submit(ctx, &fetch, &first));
    KB_TRY(kb_request_submit(ctx, &fetch, &second));
    KB_TRY(finish(ctx, first, "first of two copies"));
    KB_TRY(finish(ctx, second, "second of two copies"));

    kb_message unmap = {.kind = KB_MMU_UNMAP, .pe = far, .va = by_address.offset};
    KB_TRY(do_one(ctx, &unmap, "it is unmapped"));
    kb_error *err = do_one(ctx, &fetch, "the far PE copies");
    printf("%s\n", kb_error_message(err));
    kb_error_free(err);
    KB_TRY(kb_va_free(ctx, by_address.offset));
    KB_TRY(kb_memory_free(ctx, tcm));
    return kb_memory_free(ctx, hbm);
}

int main(void)
{
    kb_context *ctx;
    kb_error *err = kb_context_create(NULL, &ctx);
    if (!err)
        err = run(ctx);
    if (err)
        fprintf(stderr, "%s\n", kb_error_message(err));
    int code = (int)kb_error_code(err);
    kb_error_free(err);
    kb_context_destroy(ctx);
    return code;
}
