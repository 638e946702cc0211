"""ring.py ELEMENTS STYLE: the plain ring all-reduce over 256 PEs in SimPy; STYLE: process, lean.

Prints nanoseconds of CPU time per message. Each PE sends its value to the next PE, then 254 times
the value that it has received, and adds up what comes: 65,280 messages. Four may be under way
between two PEs.

The machine is that of machines/default.yaml, simplified: 2 SIPs of 4 x 4 cubes, 4 x 4 routers and 8
PEs a cube, XY routing. A message crosses a link as a whole.

process: a message is a process that requests, holds and releases each link; DMA channels, the
vector engine and credits are modelled alike. lean: a link is the time from which it is free; a
message is booked on its whole route at once, and is one event. A PE is a process in both.

Times are in femtoseconds. The sums must be right, and both styles end at the same time.
"""

import heapq
import sys
import time

import simpy

NS = 1_000_000
SIPS, CUBES, PES = 2, 16, 8
SIDE = 4  # cubes of a SIP, and routers of a cube, in a row
CORNERS = [(0, 0), (3, 0), (0, 3), (3, 3)]  # routers with two PEs each
SLOTS, CHANNELS = 4, 4
ISSUE_TIME, DMA_TIME = 1 * NS, 5 * NS


class Link:
    """A one-way link: how long a message occupies it, and how long it then travels."""

    def __init__(self, env, message_bytes, gb_per_s, latency_ns):
        self.occupied = round(message_bytes * NS / gb_per_s)
        self.latency = round(latency_ns * NS)
        self.free_at = 0
        self.turns = simpy.Resource(env)


class Machine:
    """The links, made when a route first needs them."""

    def __init__(self, env, message_bytes):
        self.env, self.message_bytes, self.links = env, message_bytes, {}

    def link(self, source, target, gb_per_s, latency_ns):
        key = source, target
        if key not in self.links:
            self.links[key] = Link(self.env, self.message_bytes, gb_per_s, latency_ns)
        return self.links[key]

    def mesh_route(self, sip, start, end):
        """From router to router: first along x, then along y."""
        links, here = [], start
        while here != end:
            axis = 0 if here[0] != end[0] else 1
            step = 1 if end[axis] > here[axis] else -1
            there = (here[0] + step, here[1]) if axis == 0 else (here[0], here[1] + step)
            if here[axis] // SIDE == there[axis] // SIDE:
                links.append(self.link((sip, here), (sip, there), 256, 1.025))
            else:  # two UCIe ports
                links.append(self.link((sip, here), (sip, there), 512, 17.1))
            here = there
        return links

    def route(self, source, target):
        (sip, start), (other, end) = router_of(source), router_of(target)
        links = [self.link(source, (sip, start), 256, 1)]
        if sip == other:
            links += self.mesh_route(sip, start, end)
        else:  # PCIe endpoint, switch, PCIe endpoint
            links += self.mesh_route(sip, start, (0, 0))
            links.append(self.link((sip, "out"), "switch", 64, 56))
            links.append(self.link("switch", (other, "in"), 64, 51))
            links += self.mesh_route(other, (0, 0), end)
        return links + [self.link((other, end), target, 256, 1)]


def router_of(pe):
    sip, cube, corner = pe // (CUBES * PES), pe // PES % CUBES, CORNERS[pe % PES // 2]
    return sip, (cube % SIDE * SIDE + corner[0], cube // SIDE * SIDE + corner[1])


class Pe:
    """A PE, and the queue to the next one."""

    def __init__(self, env, machine, index, count):
        self.value = index + 1
        self.route = machine.route(index, (index + 1) % count)
        self.queue = simpy.Store(env)
        self.credits = simpy.Container(env, SLOTS, SLOTS)
        self.credit_time = sum(link.latency for link in self.route)
        self.channels = simpy.Resource(env, CHANNELS)
        self.channels_free_at = [0] * CHANNELS  # a heap
        self.vector_engine = simpy.Resource(env)


class ProcessStyle:
    """Whatever takes time is a process, and whatever takes turns a resource."""

    @staticmethod
    def message(env, pe, value):
        with pe.channels.request() as channel:
            yield channel
            yield env.timeout(DMA_TIME)
            for link in pe.route:
                with link.turns.request() as turn:
                    yield turn
                    yield env.timeout(link.occupied)
                yield env.timeout(link.latency)
        pe.queue.put(value)

    @staticmethod
    def credit(env, pe):
        yield env.timeout(pe.credit_time)
        pe.credits.put(1)

    def send(self, env, pe, value):
        env.process(self.message(env, pe, value))

    def return_credit(self, env, pe):
        env.process(self.credit(env, pe))

    @staticmethod
    def add(env, pe, duration):
        with pe.vector_engine.request() as turn:
            yield turn
            yield env.timeout(duration)


class LeanStyle:
    """Links and channels are times; a message and a credit are one event each."""

    @staticmethod
    def send(env, pe, value):
        at = max(env.now, pe.channels_free_at[0]) + DMA_TIME
        for link in pe.route:
            at = link.free_at = max(at, link.free_at) + link.occupied
            at += link.latency
        heapq.heapreplace(pe.channels_free_at, at)
        env.timeout(at - env.now).callbacks.append(lambda _: pe.queue.put(value))

    @staticmethod
    def return_credit(env, pe):
        env.timeout(pe.credit_time).callbacks.append(lambda _: pe.credits.put(1))

    @staticmethod
    def add(env, pe, duration):
        yield env.timeout(duration)  # one operation at a time: the engine is free


def pe_program(env, style, pe, before, steps, add_time):
    value = pe.value
    for _ in range(steps):
        yield env.timeout(ISSUE_TIME)
        yield pe.credits.get(1)
        style.send(env, pe, value)
        yield env.timeout(ISSUE_TIME)
        value = yield before.queue.get()
        style.return_credit(env, before)
        pe.value += value
        yield env.timeout(ISSUE_TIME)
        yield from style.add(env, pe, add_time)


def all_reduce(elements, style):
    """The end in femtoseconds."""
    count = SIPS * CUBES * PES
    env = simpy.Environment()
    machine = Machine(env, 2 * elements)
    pes = [Pe(env, machine, index, count) for index in range(count)]
    add_time = (5 + elements // 64) * NS
    for index, pe in enumerate(pes):
        env.process(pe_program(env, style, pe, pes[index - 1], count - 1, add_time))
    env.run()
    if any(pe.value != count * (count + 1) // 2 for pe in pes):
        sys.exit("ring.py: wrong sums")
    return env.now


def main():
    elements, style = int(sys.argv[1]), sys.argv[2]
    start = time.process_time()
    end = all_reduce(elements, ProcessStyle() if style == "process" else LeanStyle())
    took = time.process_time() - start
    if style == "process" and end != all_reduce(elements, LeanStyle()):
        sys.exit("ring.py: the styles do not end at the same time")
    count = SIPS * CUBES * PES
    print(took * 1e9 / (count * (count - 1)))


if __name__ == "__main__":
    main()
