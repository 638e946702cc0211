/*
 * interrupts.c: see interrupts.h. The handler is async-signal-safe. The actions of before are kept
 * and restored, so this works within programs that have their own, such as Python.
 */
#include "interrupts.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
enum { NUMBERS = sizeof numbers / sizeof numbers[0] };

static struct sigaction before[NUMBERS];
static bool is_held[NUMBERS];
static volatile sig_atomic_t came;
static int event = -1;

static void restore(void)
{
    for (int i = 0; i < NUMBERS; i++)
        if (is_held[i])
            (void)sigaction(numbers[i], &before[i], NULL);
}

static void on_signal(int number)
{
    const uint64_t one = 1;
    if (came != 0) {
        restore();
        (void)raise(number); /* delivered when this handler returns */
        return;
    }
    came = number;
    if (event >= 0)
        (void)!write(event, &one, sizeof one);
}

void interrupts_hold(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigemptyset(&action.sa_mask);
    came = 0;
    event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (int i = 0; i < NUMBERS; i++) {
        is_held[i] = sigaction(numbers[i], NULL, &before[i]) == 0 &&
                     before[i].sa_handler != SIG_IGN && sigaction(numbers[i], &action, NULL) == 0;
    }
}

int interrupts_signal(void)
{
    return came;
}

int interrupts_fd(void)
{
    return event;
}

void interrupts_forget(void)
{
    restore();
    for (int i = 0; i < NUMBERS; i++)
        is_held[i] = false;
    if (event >= 0)
        (void)close(event);
    event = -1;
    came = 0;
}

void interrupts_release(void)
{
    int number = came;
    interrupts_forget();
    if (number != 0)
        (void)raise(number);
}
