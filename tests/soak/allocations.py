#!/usr/bin/env python3
"""allocations.py: the program when memory runs out.

Each command of COMMANDS is run with its n-th allocation failing, once or from then on, for n from 1
to the number of allocations that it makes (libfailing.so, made from failing.c, does that), and with
an address space of a few sizes. For a few commands that includes the allocations of constructors,
before main(). The rule: exit code 71 and a message, or the same result as without
the failure. A command that fails anyway may keep its exit code. Before main(), the dynamic linker may
end the process with 127. Never a crash, and never an exit
code of 0 with another output.

With --stride a fixed sample, however long it takes, of cases that are spread evenly over all places
it is the test soak-allocations. Without it, all cases until --seconds are over:
first one allocation of each place in the program (of the same calls
on the stack), then the others, both in a random order that the seed gives.
"""
import concurrent.futures
import itertools
import os
import random
import re
import shutil
import signal
import sys

import harness

# A machine of 2 SIPs of 2 cubes of 4 PEs: runs take milliseconds.
SMALL = ["--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1", "--set", "cube.noc.w=2",
         "--set", "cube.noc.h=2", "--set", "cube.pe_layout.pe_per_corner=1"]
GEMM = ["run", "--bench", "gemm_single_pe", "--param", "m=48", "--param", "k=40", "--param", "n=33",
        *SMALL]
HALO = ["run", "--bench", "halo", "--param", "rows=24", "--param", "columns=16", "--param",
        "steps=2", *SMALL]
TRAFFIC = ["traffic", "--warmup-ns", "50", "--measure-ns", "200", *SMALL]
TUNE = ["ccl", "tune", "--min", "1KiB", "--max", "1KiB", *SMALL]

# What is run, by name.
COMMANDS = {
    "version": ["version"],
    "help": ["help"],
    "help of a command": ["help", "run"],
    "list": ["list"],
    "list as JSON": ["list", "--json"],
    "names only": ["list", "--quiet"],
    "list with a plugin": ["list", "--plugin", "./around.so", "--ccl", "around.yaml"],
    "new bench": ["new", "bench", "fresh"],
    "new collective": ["new", "collective", "fresh"],
    "new bench that exists": ["new", "bench", "mine"],
    "run": GEMM + ["--verify-data"],
    "run as JSON": GEMM + ["--verify-data", "--json"],
    "run with a profile": HALO + ["--profile"],
    "run with a profile as JSON": HALO + ["--profile", "--json", "--timing-only"],
    "run with a trace": HALO + ["--trace", "trace.json", "--verbose"],
    "run that looks for races": HALO + ["--check-races", "--quiet"],
    "all-reduce": ["run", "--bench", "ccl_allreduce", "--param", "warmup=0", "--verbose", *SMALL],
    "all-reduce with its messages": ["run", "--bench", "ccl_allreduce", "--param", "warmup=0",
                                     "--ccl-trace", *SMALL],
    "launches": ["run", "--bench", "launch_chain", "--param", "launches=4", *SMALL],
    "latencies": ["run", "--bench", "pe2pe", "--param", "max_bytes=256", *SMALL],
    "tensor parallel": ["run", "--bench", "tp_mlp", "--param", "batch=4", "--param", "width=64",
                        "--param", "hidden=96", *SMALL],
    "attention": ["run", "--bench", "gqa_decode", "--param", "batch=2", "--param", "context=16",
                  "--param", "heads=4", "--param", "kv_heads=2", "--param", "head_dim=8", *SMALL],
    "a layer of a model": ["run", "--bench", "llama70b_layer", "--param", "hidden=64", "--param",
                           "ffn=96", "--param", "heads=4", "--param", "kv_heads=2", "--param",
                           "head_dim=16", "--param", "vocab=64", "--param", "context=8", *SMALL],
    "a user's bench": ["run", "--bench", "./mine.so", *SMALL],
    "a user's bench from its source": ["run", "--bench", "./mine.c", *SMALL],
    "a user's collective": ["run", "--bench", "ccl_allreduce", "--param", "warmup=0", "--plugin",
                            "./around.so", "--ccl", "around.yaml", *SMALL],
    "a bench that does not compile": ["run", "--bench", "./wrong.c"],
    "a bench with a wrong result": ["run", "--bench", "./faults.so:wrong", "--verify-data", *SMALL],
    "a bench that faults": ["run", "--bench", "./faults.so:stray", *SMALL],
    "a bench with a race": ["run", "--bench", "./faults.so:race", *SMALL],
    "a bench with a deadlock": ["run", "--bench", "./faults.so:deadlock", *SMALL],
    "probe": ["probe", *SMALL],
    "probe of a case": ["probe", "--case", "pe-sram", "--verbose", *SMALL],
    "probe as JSON": ["probe", "--json", *SMALL],
    "probe of cases": ["probe", "--list"],
    "probe with load": ["probe", "--load", "--case", "pe-sram", "--transfers", "100", *SMALL],
    "probe with load as JSON": ["probe", "--load", "--case", "pe-sram", "--transfers", "100",
                                "--json", *SMALL],
    "topo": ["topo", *SMALL],
    "topo as JSON": ["topo", "--json", *SMALL],
    "topo of a mesh": ["topo", "--topology", "mesh-reference"],
    "topo --check": ["topo", "--check"],
    "topo --print": ["topo", "--print", "--set", "cube.noc.w=2"],
    "topo --effective": ["topo", "--print", "--effective", "--topology", "machine.yaml"],
    "topo --svg": ["topo", "--svg", "machine.svg", *SMALL],
    "topo --svg -": ["topo", "--svg", "-", *SMALL],
    "ccl plan": ["ccl", "plan", *SMALL],
    "ccl plan as JSON": ["ccl", "plan", "--json", *SMALL],
    "ccl plan of a ring": ["ccl", "plan", "--algorithm", "ring_rsag", "--limit", "2", *SMALL],
    "ccl print": ["ccl", "print"],
    "ccl tune": TUNE,
    "ccl tune as JSON": TUNE + ["--json"],
    "ccl tune to a file": TUNE + ["--output", "tuned.yaml"],
    "traffic": TRAFFIC,
    "traffic as JSON": TRAFFIC + ["--json", "--pattern", "hotspot", "--level", "sip"],
    "validate": ["validate", "--quick"],
    "validate as JSON": ["validate", "--quick", "--json"],
    "no command": [],
    "unknown command": ["topu"],
    "unknown option": ["topo", "--chekc"],
    "unknown bench": ["run", "--bench", "gemm_singel_pe"],
    "unknown parameter": ["run", "--bench", "gemm_single_pe", "--param", "mm=3"],
    "value out of range": ["run", "--bench", "gemm_single_pe", "--param", "m=0"],
    "unknown key": ["topo", "--check", "--set", "cube.nok.w=3"],
    "machine with problems": ["topo", "--check", "--topology", "wrong.yaml"],
    "machine that is no YAML": ["topo", "--topology", "broken.yaml"],
    "machine that is missing": ["topo", "--topology", "missing.yaml"],
    "ccl.yaml with problems": ["ccl", "plan", "--ccl", "wrong.yaml"],
    "output that cannot be written": ["topo", "--svg", "missing/machine.svg"],
}
# The exit codes without a failing allocation that are not 0.
CODES = {
    "new bench that exists": 2, "a bench that does not compile": 2, "a bench with a wrong result": 1,
    "a bench that faults": 3, "a bench with a deadlock": 4, "no command": 2, "unknown command": 2,
    "unknown option": 2, "unknown bench": 2, "unknown parameter": 2, "value out of range": 2,
    "unknown key": 2, "machine with problems": 2, "machine that is no YAML": 2,
    "machine that is missing": 2, "ccl.yaml with problems": 2, "output that cannot be written": 2,
}
SLOW = ("validate", "validate as JSON", "a user's bench from its source",
        "a bench that does not compile")  # a twentieth of a second and more
MESSAGE = re.compile(r"(?m)^kernbench: ")
ADDRESS_SPACES = [size * harness.MIB for size in (
    6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 80, 96, 112, 128, 160, 176, 192, 200, 208,
    216, 224, 240, 256, 320, 448)]
# Their allocations before main() fail, too.
FROM_START = ("version", "topo", "run", "a user's bench", "no command")
PLACES = 8  # of each command, in the sample
LOADER = 127  # the exit code of the dynamic linker without memory


class Commands:
    """The commands with their input files, their results without a failure, and their numbers of
    allocations."""

    def __init__(self, attack):
        self.attack = attack
        self.library = os.path.join(attack.build, "tests", "libfailing.so")
        self.inputs = os.path.join(attack.scratch, "inputs")
        self.numbers = itertools.count()
        self.references = {}
        self.counts = {}
        self.sites = {}
        self.before_main = {}  # by command: the number of allocations

    def make_inputs(self):
        os.mkdir(self.inputs)
        folder = self.inputs
        for kind, name in (("bench", "mine"), ("collective", "around")):
            self.must(harness.run([self.attack.program, "new", kind, name], cwd=folder))
        write(folder, "wrong.c", "int main(void) { return undeclared; }\n")
        faults = os.path.join(self.attack.source, "tests", "cli", "benches", "faults.c")
        shutil.copyfile(faults, os.path.join(folder, "faults.c"))
        include = os.path.join(self.attack.source, "include")
        for name in ("mine", "around", "faults"):
            self.must(harness.run(["cc", "-shared", "-fPIC", "-O1", f"-I{include}", f"{name}.c",
                                   "-o", f"{name}.so"], cwd=folder))
        default = os.path.join(self.attack.source, "machines", "default.yaml")
        shutil.copyfile(default, os.path.join(folder, "machine.yaml"))
        with open(default, encoding="utf-8") as machine:
            text = machine.read()
        wrong = text.replace("w:", "q:").replace("overhead_ns: ", "overhead_ns: x")
        write(folder, "wrong.yaml", wrong)
        write(folder, "broken.yaml", text + "a: [1, \"2\n")

    def must(self, outcome):
        if outcome.code != 0:
            sys.exit(f"allocations: {outcome.command}: {outcome.ended()}\n{outcome.err}")

    def run(self, name, env, **limits):
        """Runs a command in a folder of its own: its outcome, the files that it made, and the
        numbers in the files count and sites."""
        folder = os.path.join(self.attack.scratch, str(next(self.numbers)))
        os.mkdir(folder)
        inputs = os.listdir(self.inputs)
        for file in inputs:
            os.symlink(os.path.join(self.inputs, file), os.path.join(folder, file))
        outcome = self.attack.run(COMMANDS[name], cwd=folder, env=env, timeout=60, **limits)
        made = {}
        for file in sorted(set(os.listdir(folder)) - set(inputs)):
            with open(os.path.join(folder, file), "rb") as content:
                made[file] = mask(content.read())
        found = {file: [int(word) for word in made.pop(file).split()]
                 for file in ("count", "sites") if file in made}
        shutil.rmtree(folder)
        outcome.where = "".join(f"{key}={value} " for key, value in env.items())
        return outcome, made, found

    def learn(self, name):
        """Runs a command without a failure."""
        env = {"LD_PRELOAD": self.library, "KB_FAIL_COUNT": "count", "KB_FAIL_SITES": "sites"}
        outcome, made, found = self.run(name, env)
        if outcome.code != CODES.get(name, 0) or len(found) != 2:
            self.attack.finding(outcome, f"{name}, without a failure: {outcome.ended()}")
            found = {"count": [0], "sites": []}
        self.references[name] = (outcome, made)
        self.counts[name] = found["count"][0]
        self.sites[name] = found["sites"]
        if name in FROM_START:
            env = {"LD_PRELOAD": self.library, "KB_FAIL_COUNT": "count", "KB_FAIL_FROM": "start"}
            all_of_them = self.run(name, env)[2]["count"][0]
            self.before_main[name] = all_of_them - self.counts[name]

    def judge(self, name, outcome, made, may_not_start=False):
        """What is wrong with a run, or None."""
        reference, reference_made = self.references[name]
        if may_not_start and outcome.code == LOADER and not outcome.stdout and outcome.err:
            return None
        found = harness.problems(outcome, timeout_is_finding=True)
        if found:
            return "; ".join(found)
        if outcome.code == harness.HOST:
            return None if MESSAGE.search(outcome.err) else "exit code 71 without a message"
        if outcome.code != reference.code:
            return f"exit code {outcome.code}; without the failure {reference.code}"
        if outcome.code != 0:
            return None if outcome.err else f"exit code {outcome.code} without a word"
        if mask(outcome.stdout) != mask(reference.stdout):
            return "exit code 0 with another stdout"
        if mask(outcome.stderr) != mask(reference.stderr) and "out of memory" not in outcome.err:
            return "exit code 0 with another stderr"  # a warning must not go unnoticed
        if made != reference_made:
            return "exit code 0 with other files"
        return None

    def failing(self, name, number, mode, start=False):
        env = {"LD_PRELOAD": self.library, "KB_FAIL_AT": str(number), "KB_FAIL_MODE": mode}
        if start:
            env["KB_FAIL_FROM"] = "start"
        outcome, made, _ = self.run(name, env)
        where = " from the start" if start else ""
        return (f"{name}, allocation {number} {mode}{where}", outcome,
                self.judge(name, outcome, made, may_not_start=start))

    def limited(self, name, size):
        outcome, made, _ = self.run(name, {}, address_space=size)
        outcome.where = f"ulimit -v {size >> 10}; "
        return f"{name}, {size // harness.MIB} MiB", outcome, self.judge(name, outcome, made, True)


def mask(output):
    """The output without times of the host."""
    rates = rb'in [0-9.]+ s: [0-9.]+ [a-z ]*hops/s|"hops_per_s": [0-9.e+-]+'
    return re.sub(rates, b"", harness.mask_wall_times(output))


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def failing_cases(commands, name, numbers, start=False):
    for number in numbers:
        for mode in ("once", "onwards"):
            yield lambda i=number, m=mode: commands.failing(name, i, m, start)


def start_cases(commands, stride=1):
    """The allocations before main(), and the first few of main()."""
    for name, count in commands.before_main.items():
        yield from failing_cases(commands, name, range(1, count + 10, stride), True)


def sample(commands):
    """A fixed sample: of each command some allocations that have a place in the program of their
    own, and a few address spaces."""
    yield from start_cases(commands, 8)
    for name in FROM_START:
        for size in ADDRESS_SPACES[::6]:
            yield lambda n=name, s=size: commands.limited(n, s)
    for name, sites in commands.sites.items():
        most = 1 if name in SLOW else PLACES
        yield from failing_cases(commands, name, sites[::-(-len(sites) // most) or 1])


def all_cases(commands, rng):
    """First an allocation of each place in the program and all address spaces, then the rest. A
    compiler does not tell that it has no memory: it gets enough."""
    places, rest = list(start_cases(commands)), []
    for name, sites in commands.sites.items():
        others = set(range(1, commands.counts[name] + 1)) - set(sites)
        places.extend(failing_cases(commands, name, sites))
        rest.extend(failing_cases(commands, name, sorted(others)))
        places.extend(lambda n=name, s=size: commands.limited(n, s) for size in ADDRESS_SPACES
                      if size >= 192 * harness.MIB or not name.endswith("from its source"))
    rng.shuffle(places)
    rng.shuffle(rest)
    return itertools.chain(places, rest)


def attack_all(attack, cases, limited_time):
    """Runs the cases, two at a time, until they or the time are over."""
    shown = {}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waiting = set()
        try:
            for case in cases:
                if limited_time and attack.seconds_left() <= 0:
                    return
                waiting.add(pool.submit(case))
                if len(waiting) >= 4:
                    done, waiting = concurrent.futures.wait(
                        waiting, return_when=concurrent.futures.FIRST_COMPLETED)
                    report(attack, done, shown)
        finally:
            done, _ = concurrent.futures.wait(waiting)
            report(attack, done, shown)
    for key, count in shown.items():
        if count > 3:
            print(f"and {count - 3} more like this: {key}")


def report(attack, done, shown):
    for future in done:
        result = future.result()
        if result is None:
            continue
        attack.cases += 1
        title, outcome, problem = result
        if problem:
            key = f"{title.split(',')[0]}: {problem}"
            shown[key] = shown.get(key, 0) + 1
            if shown[key] <= 3:
                attack.finding(outcome, f"{title}: {problem}")
            else:
                attack.findings += 1
    attack.progress()


def add_options(parser):
    parser.add_argument("--stride", action="store_true", help="a fixed sample of all cases")
    parser.add_argument("--counts", action="store_true", help="print allocations by command")
    parser.add_argument("--only", help="only commands whose name contains this")


def main():
    signal.signal(signal.SIGTERM, harness.stop)
    options = harness.parse("allocations", __doc__, add_options)
    attack = harness.Attack("allocations", options)
    if attack.sanitized:
        print("allocations: a sanitizer has an allocator of its own: nothing to do")
        sys.exit(attack.close())
    commands = Commands(attack)
    try:
        commands.make_inputs()
        names = [name for name in COMMANDS if not options.only or options.only in name]
        if options.stride:
            # It takes 2 s, and makes nearly the same allocations as validate.
            names = [name for name in names if name != "validate as JSON"]
        for name in names:
            commands.learn(name)
        if options.counts:
            for name, count in commands.counts.items():
                print(f"{count:6} allocations, {len(commands.sites[name]):5} places, {commands.references[name][0].ended()},"
                      f" {commands.references[name][0].seconds:.3f} s: {name}")
        if options.stride:
            attack_all(attack, sample(commands), False)
        else:
            attack_all(attack, all_cases(commands, random.Random(options.seed)), True)
    except KeyboardInterrupt:
        print("allocations: interrupted")
    sys.exit(attack.close())


if __name__ == "__main__":
    main()
