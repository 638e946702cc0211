"""hold.py PENDING EVENTS: the hold model in SimPy, a process per pending event.

Prints nanoseconds per event. The delays are those of hold_model.c in femtoseconds, drawn before
the clock starts; the processes share them and end when they are used up, so the number of events is
exact: a timeout for each delay, and for each process its start and its end. That the set fills and
drains on the clock is to SimPy's advantage.
"""

import random
import sys
import time

import simpy


def hardware_delay(rng):
    """A delay in femtoseconds of some part of the default machine."""
    part = rng.random()
    if part < 0.40:
        delay = 1_025_000  # router 1 ns, 2.5 mm of wire at 10 ps/mm
    elif part < 0.65:
        delay = 32 * rng.randint(1, 128) * 1_000_000 // 256  # 32 to 4096 bytes at 256 GB/s
    elif part < 0.80:
        delay = 8_100_000  # UCIe port 8 ns, 10 mm of wire
    elif part < 0.90:
        delay = 2_020_000  # crossbar 2 ns, 2 mm of wire
    else:  # HBM 76 ns, 64 to 4096 bytes at 204.8 GB/s
        delay = 76_000_000 + 64 * rng.randint(1, 64) * 10_000_000 // 2048
    return delay + rng.randrange(1024)


def component(env, delays):
    for delay in delays:
        yield env.timeout(delay)


def main():
    pending, events = int(sys.argv[1]), int(sys.argv[2])
    rng = random.Random(1)
    delays = iter([hardware_delay(rng) for _ in range(events)])
    env = simpy.Environment()
    for _ in range(pending):
        env.process(component(env, delays))

    start = time.process_time()
    env.run()
    print((time.process_time() - start) * 1e9 / (events + 2 * pending))


if __name__ == "__main__":
    main()
