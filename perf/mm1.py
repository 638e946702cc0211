"""mm1.py OBJECTS: the M/M/1 queue in SimPy, two processes and a store. Prints objects per second.

Time is in nanoseconds: arrivals at a rate of 0.9, service at a rate of 1.
"""

import random
import sys
import time

import simpy


def arrivals(env, store, objects, rng):
    for _ in range(objects):
        yield env.timeout(rng.expovariate(0.9))
        yield store.put(env.now)


def server(env, store, objects, rng, total):
    for _ in range(objects):
        arrived = yield store.get()
        yield env.timeout(rng.expovariate(1.0))
        total[0] += env.now - arrived


def main():
    objects = int(sys.argv[1])
    rng = random.Random(1)
    total = [0.0]
    env = simpy.Environment()
    store = simpy.Store(env)
    env.process(arrivals(env, store, objects, rng))
    env.process(server(env, store, objects, rng, total))

    start = time.process_time()
    env.run()
    took = time.process_time() - start

    mean = total[0] / objects
    if not 8 < mean < 12:  # theory: 1 / (1 - 0.9) = 10
        sys.exit(f"mm1.py: {mean:.2f} ns in the system; theory says 10")
    print(objects / took)


if __name__ == "__main__":
    main()
