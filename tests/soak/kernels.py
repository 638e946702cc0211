#!/usr/bin/env python3
"""kernels.py: random kernels and host programs on random machines take the same time everywhere.

A case is a program of kernels/random_kernels.c: a seed, a size and a set of features, on a machine
with random figures. With --against DIR it runs in both builds, and all that the two tell of it must
be the same: each operation (PE, unit, start, end, line, values, bytes), launches, messages, what
kernels read of the clock and of data, contents of tensors, sums, warnings, faults with their times,
and reports of deadlocks. Without --against, the build is compared with itself: with and without
data, elided events, and observers (trace, profile, watched operations). Builds that let PEs run
ahead of the clock are run with several windows.

A difference is reduced to the smallest program that shows it. Features that the builds may treat
differently can be left out: --without full_tcm,copies; --only picks the features that are drawn.
"""
import itertools
import os
import shlex
import time

import builds
import harness

# The bits of kernels/program.h, in their order.
FEATURES = ("vector", "matrix", "composite", "index", "queues", "any", "sync", "scopes", "masks",
            "streams", "graphs", "large", "alike", "races", "full_tcm", "copies", "faults",
            "deadlocks", "leftovers", "late_faults")
# Those that end a program early, or give it another character, are drawn with this chance.
RARE = {"races": 0.15, "full_tcm": 0.15, "copies": 0.2, "faults": 0.1, "deadlocks": 0.06,
        "leftovers": 0.08, "late_faults": 0.06, "large": 0.3, "graphs": 0.3, "any": 0.4,
        "alike": 0.5}
FAILING = {"faults", "late_faults", "deadlocks"}
SIZES = (4, 10, 20, 20, 40, 80)

# The machine of the command line, where the program has a context of its own.
SMALLEST = ("system.sips.count=1", "sip.cube_mesh.w=1", "sip.cube_mesh.h=1")

# Figures and their values, of which a machine has some.
FIGURES = {
    "cube.pe_cpu.queue_depth": (1, 1, 2, 3, 5), "cube.pe_dma.channels": (1, 1, 2, 3),
    "cube.pe_tcm.bw_gbs": (1, 3.7, 16, 64, 100), "cube.pe_cpu.issue_ns": (0, 0.3, 2, 7, 50),
    "cube.pe_cpu.overhead_ns": (0, 1, 33.3), "cube.pe_dma.overhead_ns": (0, 1, 60),
    "cube.pe_gemm.rows": (1, 3, 8), "cube.pe_gemm.columns": (1, 5, 16),
    "cube.pe_gemm.cycle_ns": (0.7, 4), "cube.pe_gemm.fill": ("per_fold",),
    "cube.pe_math.lanes": (1, 7, 16), "cube.pe_math.cycle_ns": (0.9, 3),
    "cube.pe_math.latency_cycles": (0, 20), "cube.hbm_ctrl.latency_ns": (0, 1, 400),
    "cube.hbm_ctrl.efficiency": (0.1, 1), "cube.sram.latency_ns": (0, 50),
    "cube.pe_to_noc_bw_gbs": (1, 20.5), "cube.pe_to_xbar_bw_gbs": (2, 64),
    "cube.noc.bw_gbs": (4, 33.3), "cube.xbar.overhead_ns": (0, 9), "cube.m_cpu.overhead_ns": (0, 1),
    "sip.io.io_cpu.overhead_ns": (0, 1), "sip.io.pcie_ep.overhead_ns": (0, 1),
    "sip.ucie.bw_gbs": (5, 64), "sip.ucie.overhead_ns": (0, 100),
    "fabric.packet_bytes": (16, 64, 1000), "fabric.vcs": (1, 3), "fabric.ports": ("serial",),
    "fabric.depth_bytes": (0, 256), "system.ns_per_mm": (0,),
    "ccl.defaults.backpressure": ("poll",), "ccl.defaults.ipcq_credit_size_bytes": (1, 4000),
}
# Everything takes a whole number of nanoseconds, mostly the same: many events at one instant.
EVEN = {**{key: 1 for key in FIGURES if key.endswith(("overhead_ns", "latency_ns", "cycle_ns"))},
        **{key: 64 for key in FIGURES if key.endswith("bw_gbs")},
        "cube.pe_math.latency_cycles": 1, "cube.hbm_ctrl.efficiency": 1, "system.ns_per_mm": 0,
        "cube.xbar_to_hbm_bw_gbs": 64, "cube.noc_to_xbar_bw_gbs": 64, "sip.io.io_noc.bw_gbs": 64,
        "fabric.packet_bytes": 64}


class Case:
    """A program and its machine."""

    def __init__(self, rng, options):
        drawn = options.only or FEATURES
        self.features = {name for name in FEATURES if name in drawn and name not in options.without
                         and (options.only or rng.random() < RARE.get(name, 0.85))}
        self.seed = rng.randrange(1 << 31)
        self.size = options.size or rng.choice(SIZES)
        self.timing_only = rng.random() < 0.35
        self.races = rng.choice(("warn", "warn", "fail", "off"))
        self.settings = random_settings(rng, self.features)
        given = {setting.split("=")[0] for setting in options.set}
        self.settings = [setting for setting in self.settings
                         if setting.split("=")[0] not in given] + options.set

    def bits(self):
        return sum(1 << bit for bit, name in enumerate(FEATURES) if name in self.features)

    def params(self):
        return (f"seed={self.seed}", f"size={self.size}", f"features={self.bits()}")

    def sized(self, size=None, without=None):
        """The same with another size, or without a feature."""
        other = object.__new__(Case)
        other.__dict__.update(self.__dict__)
        other.size = size or self.size
        other.features = self.features - {without}
        return other


# The settings that say how many PEs there are: a case keeps them when it is reduced.
SHAPE = ("system.sips.count", "sip.cube_mesh.w", "sip.cube_mesh.h", "cube.noc.w", "cube.noc.h",
         "cube.pe_layout.pe_per_corner")


def random_settings(rng, features):
    settings = {"system.sips.count": rng.choice((1, 1, 2, 3)),
                "sip.cube_mesh.w": rng.randint(1, 3), "sip.cube_mesh.h": rng.randint(1, 2),
                "cube.noc.w": rng.randint(1, 3), "cube.noc.h": rng.randint(1, 2),
                "cube.pe_layout.pe_per_corner": rng.randint(1, 2)}
    if "full_tcm" in features:
        settings.update({"cube.pe_tcm.capacity_mib": 2, "cube.pe_tcm.reserved_mib": 1.75})
    if rng.random() < 0.25:
        settings.update(EVEN)
    chance = rng.choice((0, 0.1, 0.25))
    for key, values in FIGURES.items():
        if rng.random() < chance:
            settings[key] = rng.choice(values)
    for key in ("cube.pe_cpu.queue_depth", "cube.pe_dma.channels", "ccl.defaults.backpressure"):
        if rng.random() < 0.3:
            settings[key] = rng.choice(FIGURES[key])
    return [f"{key}={value}" for key, value in settings.items()]


# ---- Runs ----------------------------------------------------------------------------------------

def words_of(flag, values):
    return list(itertools.chain.from_iterable((flag, str(value)) for value in values))


def name_source(attack, build, outcome):
    """By hand the program is compiled from its source."""
    plugin = attack.plugins[build]
    outcome.argv = [attack.bench if word == plugin else word for word in outcome.argv]
    outcome.stderr = outcome.stderr.replace(plugin.encode(), attack.bench.encode())


def record(attack, build, case, variant=None, **params):
    """Runs a case in a context of its own; returns the outcome and what was written."""
    given = {"timing_only": "yes" if case.timing_only else "no", "races": case.races,
             "record": "yes", **params}
    words = ["run", "--bench", attack.plugins[build], "--quiet", *words_of("--set", SMALLEST),
             *words_of("--param", case.params()),
             *words_of("--param", (f"{name}={value}" for name, value in given.items()))]
    path = os.path.join(attack.scratch, "record")
    if os.path.exists(path):
        os.remove(path)
    outcome = build.run(words, env={"KERNELS_SETTINGS": "\n".join(case.settings),
                                    "KERNELS_RECORD": path, **(variant or {})},
                        timeout=attack.options.timeout)
    name_source(attack, build, outcome)
    try:
        with open(path, encoding="utf-8", errors="backslashreplace") as file:
            return outcome, file.read()
    except FileNotFoundError:
        return outcome, ""


def command_line(attack, build, case, options, variant=None):
    """Runs a case in the context of the command line; returns the outcome and the trace."""
    trace = os.path.join(attack.scratch, "trace.json")
    words = ["run", "--bench", attack.plugins[build], *words_of("--set", case.settings),
             *words_of("--param", case.params()), *options]
    if "--verbose" not in words:  # which has all links, but only as text
        words.append("--json")
    if case.timing_only and "--timing-only" not in words:
        words.append("--timing-only")
    words = [trace if word == "TRACE" else word for word in words]
    if os.path.exists(trace):
        os.remove(trace)
    outcome = build.run(words, env=variant, timeout=attack.options.timeout, cwd=attack.scratch)
    name_source(attack, build, outcome)
    try:
        with open(trace, encoding="utf-8") as file:
            return outcome, file.read()
    except FileNotFoundError:
        return outcome, ""


# ---- Comparisons ---------------------------------------------------------------------------------

def sections(text, names):
    """The lines of a record that begin with one of these words."""
    return "\n".join(line for line in text.splitlines() if line.split(" ", 1)[0] in names)


WITHOUT_OBSERVERS = ("launch", "note", "data", "queue", "total", "end", "error", "warning")
WITHOUT_DATA = ("op", "launch", "note", "queue", "total", "end", "error", "message", "order")


def compare_records(attack, first, second, names=None):
    (outcome, text), (other, other_text) = first, second
    if names:
        text, other_text = sections(text, names), sections(other_text, names)
    if attack.options.any_order:
        text, other_text = ("\n".join(sorted(record.splitlines())) for record in
                            (text, other_text))
    text, other_text = builds.clean_text(text), builds.clean_text(other_text)
    return builds.compare_ends(outcome, other) + by_time(
        builds.differing_lines(text, other_text, most=10000))


def by_time(lines, most=12):
    """The earliest operations first, as a difference moves all that is behind it."""
    def begin(line):
        words = line.split(" has: op ")[-1].split()
        return int(words[1]) if words[2:3] == ["to"] else 1 << 62

    return sorted(lines, key=begin)[:most]


CLI_OPTIONS = (["--trace", "TRACE"], ["--trace", "TRACE", "--profile"], ["--profile"], [],
               ["--check-races"], ["--verbose"])


def check_builds(attack, case, way):
    """Differences between the two builds; and an outcome that shows them."""
    if way == "record":
        reference = record(attack, attack.second, case)
        for variant in attack.first.variants:
            changed = record(attack, attack.first, case, variant)
            found = compare_records(attack, reference, changed)
            if found:
                return found, changed[0]
    elif way == "unwatched":
        reference = record(attack, attack.second, case, watch="no")
        for variant in attack.first.variants:
            changed = record(attack, attack.first, case, variant, watch="no")
            found = compare_records(attack, reference, changed)
            if found:
                return found, changed[0]
    elif way == "tcm":
        reference = record(attack, attack.second, case, tcm="yes", watch="no")
        changed = record(attack, attack.first, case, tcm="yes", watch="no")
        return compare_records(attack, reference, changed), changed[0]
    else:
        reference = command_line(attack, attack.second, case, way)
        changed = command_line(attack, attack.first, case, way)
        return builds.compare_traces(reference, changed, attack.options.any_order), changed[0]
    attack.operations += reference[1].count("\nop ") * len(attack.first.variants)
    return [], reference[0]


def check_itself(attack, case, way):
    """Differences of a build from itself, if it is run in another way."""
    build = attack.first
    if way == "data":
        case = case.sized(without="late_faults")  # which depend on data
    reference = record(attack, build, case)
    attack.operations += reference[1].count("\nop ")
    if way == "data":
        case = case.sized()
        case.timing_only = not case.timing_only
        changed = record(attack, build, case)
        names = WITHOUT_DATA
    elif way == "unwatched":
        changed, names = record(attack, build, case, watch="no"), WITHOUT_OBSERVERS
    elif way == "no_elision":
        changed, names = record(attack, build, case, no_elision="yes"), None
    elif way == "again":
        changed, names = record(attack, build, case, tcm="yes"), (*WITHOUT_DATA, "data", "warning")
    else:
        plain = command_line(attack, build, case, [])
        changed = command_line(attack, build, case, way)
        return builds.compare_figures(plain[0], changed[0]), changed[0]
    found = compare_records(attack, reference, changed, names)
    if found:
        return found, changed[0]
    for variant in build.variants[1:]:
        other = record(attack, build, case, variant)
        found = compare_records(attack, changed if names is None else reference, other, names)
        if found:
            return found, other[0]
    return [], changed[0]


# ---- Cases ---------------------------------------------------------------------------------------

def one_case(attack, rng, number):
    case = Case(rng, attack.options)
    if attack.second:
        check = check_builds
        draw = rng.random()
        way = ("record" if draw < 0.65 else "unwatched" if draw < 0.8
               else "tcm" if draw < 0.85 and attack.options.tcm else rng.choice(CLI_OPTIONS))
    else:
        check = check_itself
        way = rng.choice(("data", "unwatched", "no_elision", "again", rng.choice(CLI_OPTIONS[:3])))
        if way not in ("data", "no_elision", "again"):
            # A kernel that the failure of another one ends may have run ahead, unless it is watched.
            case.features -= FAILING
    found, outcome = check(attack, case, way)
    if outcome.timed_out:
        attack.unfinished += 1
        return
    if not attack.second:  # else what both builds do wrong is no difference
        attack.judge(outcome)
    if found:
        report(attack, case, way, check)


def report(attack, case, way, check):
    """Reduces a case that shows a difference, and prints it."""
    small = reduce(lambda other: bool(check(attack, other, way)[0]), case)
    found, outcome = check(attack, small, way)
    features = ",".join(sorted(small.features)) or "none"
    attack.finding(outcome, f"{way if isinstance(way, str) else ' '.join(way) or 'plain'} differs"
                            f" (size {small.size} of {case.size}, features {features})")
    for line in found:
        print(f"  {line}")
    print(f"  settings: {shlex.join(small.settings)}", flush=True)


def reduce(differs, case):
    """The smallest size at which it differs, and then the fewest features and settings."""
    for size in [size for size in (1, 2, 3, 4, 6, 8, 11, 15, 20, 28, 40, 60) if size < case.size]:
        if differs(case.sized(size)):
            case = case.sized(size)
            break
    for name in sorted(case.features):
        if differs(case.sized(without=name)):
            case = case.sized(without=name)
    for setting in case.settings:
        if setting.split("=")[0] in SHAPE:
            continue
        other = case.sized()
        other.settings = [item for item in case.settings if item != setting]
        if differs(other):
            case = other
    return case


def setup(attack):
    builds.setup(attack)
    attack.operations = 0
    attack.bench = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels",
                                "random_kernels.c")
    attack.plugins = {}
    for build in filter(None, (attack.first, attack.second)):
        attack.plugins[build] = os.path.join(attack.scratch, f"plugin{len(attack.plugins)}.so")
        build.compile(attack.bench, attack.plugins[build])
    attack.began = time.monotonic()  # compiling does not count
    if attack.options.any_order:
        attack.repeat_options += " --any-order"
    for name in ("without", "only"):
        value = getattr(attack.options, name)
        if value:
            attack.repeat_options += f" --{name} {','.join(sorted(value))}"
    for setting in attack.options.set:
        attack.repeat_options += f" --set {setting}"
    if attack.options.size:
        attack.repeat_options += f" --size {attack.options.size}"


def feature_list(text):
    names = frozenset(text.split(","))
    unknown = names - set(FEATURES)
    if unknown:
        raise ValueError(f"no feature: {unknown}")
    return names


def add_options(parser):
    builds.add_option(parser)
    parser.add_argument("--without", type=feature_list, default=frozenset(), metavar="NAME,...",
                        help="features to leave out, of " + ", ".join(FEATURES))
    parser.add_argument("--only", type=feature_list, metavar="NAME,...",
                        help="programs have all of these features, and no others")
    parser.add_argument("--size", type=int, help="of all programs")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="a setting that all machines have; repeatable")
    parser.add_argument("--any-order", action="store_true",
                        help="with --against: what happens at the same time may be told in another"
                             " order, and be in other lanes of a trace")
    parser.add_argument("--tcm", action="store_true",
                        help="with --against: compare the use of the TCM over time too")
    parser.add_argument("--timeout", type=float, default=20.0, help="of a run, in seconds (20)")


def close(attack):
    attack.summary.append(f"{attack.operations} operations compared")


if __name__ == "__main__":
    harness.main("kernels", one_case, description=__doc__, add_options=add_options, setup=setup,
                 close=close)
