#!/usr/bin/env python3
"""check_trace.py TRACE RESULTS [path]: checks a trace as a tool that knows only the format would read it.

Slices of a thread nest; arrows begin and end in slices; counters are not negative, and the
bandwidths add up to the bytes that the document of `kernbench run --json` has for each kind of link;
loads and stores name their tensor; the critical path, if it is there, is a chain from 0 to the end
of the run, and what its steps were spent at adds up to them; from each operation of a kernel, what determined its times leads
to a launch.
"""
import bisect
import collections
import decimal
import json
import sys


def fail(text):
    sys.exit(f"check_trace.py: {text}")


def fs(us):
    return int(us.scaleb(9))


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file, parse_float=decimal.Decimal, parse_int=decimal.Decimal)


def check_nesting(events):
    """Returns the slices by thread, as (start, end)."""
    threads = collections.defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            start = fs(e["ts"])
            threads[e["pid"], e["tid"]].append((start, start + fs(e["dur"])))
    for thread, slices in threads.items():
        slices.sort(key=lambda s: (s[0], -s[1]))
        open_ends = []
        for start, end in slices:
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            if open_ends and end > open_ends[-1]:
                fail(f"slices of thread {thread} overlap at {start} fs")
            open_ends.append(end)
    return threads


def is_in_slice(slices, time):
    at = bisect.bisect_right(slices, (time, float("inf"))) - 1
    return at >= 0 and (slices[at][0] == time or slices[at][1] > time)


def check_arrows(events, threads):
    ends = collections.defaultdict(dict)
    for e in events:
        if e["ph"] in "sf":
            if e["bp"] != "e" or not is_in_slice(threads[e["pid"], e["tid"]], fs(e["ts"])):
                fail(f"an end of arrow {e['id']} is in no slice")
            ends[e["id"]][e["ph"]] = fs(e["ts"])
    for arrow, times in ends.items():
        if set(times) != {"s", "f"} or times["s"] > times["f"]:
            fail(f"arrow {arrow} is not one")
    return len(ends)


def integrate(events):
    """The integral of each counter by name, in units times nanoseconds, summed over places."""
    tracks = collections.defaultdict(list)
    for e in events:
        if e["ph"] == "C":
            (value,) = e["args"].values()
            if value < 0:
                fail(f"counter {e['name']} is negative")
            tracks[e["pid"], e["name"]].append((fs(e["ts"]), value))
    sums = collections.defaultdict(decimal.Decimal)
    for (_, name), points in tracks.items():
        if points != sorted(points, key=lambda p: p[0]):
            fail(f"counter {name} goes back in time")
        for (start, value), (end, _) in zip(points, points[1:]):
            sums[name] += value * (end - start) / 1000000
    return sums


def check_bytes(sums, results):
    expected = collections.Counter()
    for kind in results["link_kinds"]:
        a, b = kind["between"]
        name = a if kind["service"] else f"{a} - {b}"
        expected[f"link bandwidth: {name}"] += int(kind["bytes"])
    expected["HBM bandwidth"] = expected["link bandwidth: hbm_ctrl"]
    for name, count in expected.items():
        if abs(sums[name] - count) > decimal.Decimal("0.001") + count * decimal.Decimal("1e-12"):
            fail(f"{name} adds up to {sums[name]} bytes, but {count} were carried")
    links = sum(value for name, value in sums.items() if name.startswith("link bandwidth: "))
    if abs(links - results["link_bytes"]) > 1:
        fail(f"links carried {results['link_bytes']} bytes, in the trace {links}")


def check_tensors(events):
    for e in events:
        if e["ph"] == "X" and e["cat"] in ("pe_dma_read", "pe_dma_write"):
            names = [access["tensor"] for access in e["args"].get("tensors", [])]
            if e["name"].split(" ")[0] in ("load", "store") and not names:
                fail(f"a slice '{e['name']}' does not say of which tensor")
            if any(name not in e["name"] for name in names):
                fail(f"a slice '{e['name']}' accesses {names}")


OWN_TIME = ("transfer", "tcm", "work")


def parse_reason(text):
    """"message of record 17": its kind and the number of the record; 0 if it has none."""
    kind, _, record = (text or "none").partition(" of record ")
    return kind, int(record or 0)


def walk(records, record, known):
    """Along the reasons of times (docs/decisions/0032-causes-of-times.md) to a launch, or to a time
    of a record from which a walk has led to one."""
    time = records[record][1]
    passed = set()
    while (record, time) not in passed:
        if (record, time) in known:
            break
        passed.add((record, time))
        start, end, begun_by, ended_by = records[record]
        at_end = time == end and ended_by[0] not in OWN_TIME
        kind, record = ended_by if at_end else begun_by
        time = time if at_end else start
        if kind == "launch":
            break
        if kind == "none" or record not in records:
            fail(f"no record {record} for a reason '{kind}' of {start} to {end} fs")
        time = min(time, records[record][1])
        if time < records[record][0]:
            fail(f"record {record} is the reason of a time before it")
    else:
        fail("reasons lead in a circle")
    known |= passed


def check_reasons(events):
    records = {}
    for e in events:
        if e["ph"] == "X" and "record" in e["args"] and e["cat"] not in (
                "host", "unfinished", "path"):
            start = fs(e["ts"])
            by = [parse_reason(e["args"].get(key)) for key in ("begun_by", "ended_by")]
            records[int(e["args"]["record"])] = (start, start + fs(e["dur"]), *by)
    if not records:
        fail("operations have no numbers")
    known = set()
    for record in records:
        walk(records, record, known)


def check_path(events, results):
    """Returns the number of steps."""
    threads = [(e["pid"], e["tid"]) for e in events
               if e["ph"] == "M" and e["name"] == "thread_name" and
               e["args"]["name"] == "critical path"]
    steps = [e for e in events if e["ph"] == "X" and e["cat"] == "path"]
    time = 0
    for e in steps:
        if [(e["pid"], e["tid"])] != threads or fs(e["ts"]) != time:
            fail(f"the step '{e['name']}' begins at {fs(e['ts'])} fs, the one before ends at {time}")
        if sum(v for k, v in e["args"].items() if k != "record") != fs(e["dur"]):
            fail(f"the parts of the step '{e['name']}' do not add up to it")
        time += fs(e["dur"])
    if steps and time != fs(decimal.Decimal(results["sim_ns"]) / 1000):
        fail(f"the critical path ends at {time} fs, the run at {results['sim_ns']} ns")
    return len(steps)


def main(trace, results, wants_path=""):
    decimal.getcontext().prec = 50
    events = read(trace)["traceEvents"]
    threads = check_nesting(events)
    arrows = check_arrows(events, threads)
    check_bytes(integrate(events), read(results))
    check_tensors(events)
    check_reasons(events)
    if (check_path(events, read(results)) > 0) != bool(wants_path):
        fail("the critical path is there without being asked for, or the other way around")
    print(f"{sum(map(len, threads.values()))} slices, {arrows} arrows")


if __name__ == "__main__":
    main(*sys.argv[1:])
