/* first_program.c: what a user of the installed library writes first. C11 and C++. */
#include <stdio.h>

#include <kernbench/kernbench.h>

static void customer(kb_co *co, void *arg)
{
    kb_sem *desk = (kb_sem *)arg;
    kb_sem_acquire(co, desk, 1);
    kb_co_sleep(co, 3 * KB_NS);
    kb_sem_release(kb_co_sim(co), desk, 1);
}

int main(void)
{
    kb_sim *sim;
    kb_error *err = kb_sim_create(NULL, &sim);
    kb_sem desk;
    kb_sem_init(&desk, "desk", 2);
    for (uint32_t i = 0; i < 5 && !err; i++) {
        kb_co_options options = {"customer", i, false, NULL};
        err = kb_co_spawn(sim, &options, customer, &desk, NULL);
    }
    if (!err)
        err = kb_sim_run(sim, KB_FOREVER);
    if (err)
        fprintf(stderr, "%s\n", kb_error_message(err));
    else /* five customers at two desks: three rounds of 3 ns */
        printf("hello from kernbench %s: closed at %d ns\n", kb_version(),
               (int)(kb_sim_now(sim) / KB_NS));
    int status = (int)kb_error_code(err);
    kb_error_free(err);
    kb_sim_destroy(sim);
    return status;
}
