#!/usr/bin/env python3
"""determinism.py: the same run gives the same results, whatever surrounds it.

A case is one run in changed surroundings: environment, locale, threads, memory layout, descriptors,
working directory, beside other runs, by a program that another compiler made. Its output and its
trace must be byte for byte those of the plain run, times of the host aside. With --trace, --profile
or --timing-only the simulated figures must be the same.

Other builds to compare with: --other DIR, or the variable KB_SOAK_OTHER_BUILDS (a list with colons).
"""
import ctypes
import copy
import os
import re
import resource
import shutil
import subprocess

import harness

MACHINE = """\
name: odd
system: { sips: { count: 3, link: { bw_gbs: 100, length_mm: 50, overhead_ns: 20 } } }
sip: { cube_mesh: { w: 2, h: 1 } }
cube:
  noc: { w: 3, h: 2 }
  pe_layout: { pe_per_corner: 1, corners: [NW, NE, SE] }
"""

RUNS = [["run", "--bench", name, *sum((["--param", param] for param in params), [])]
        for name, *params in (
            ("gemm_single_pe", "m=70", "k=33", "n=65"),
            ("qkv_gemm_multi_pe", "tokens=5", "width=96"),
            ("va_offset_verify", "rows=17", "columns=29"),
            ("halo", "rows=61", "columns=24", "steps=3"),
            ("launch_chain", "launches=5"),
            ("matmul_composite", "m=40", "k=24", "n=33", "dtype=bf16"),
            ("pe2pe", "max_bytes=512"),
            ("tp_mlp", "batch=3", "width=96", "hidden=192"),
            ("gqa_llama70b", "context=24", "prompt=8", "heads=4", "kv_heads=2", "head_dim=16"),
            ("gqa_prefill", "prompt=12", "heads=4", "kv_heads=2", "head_dim=16", "ragged=yes"),
            ("gqa_decode", "context=40", "heads=4", "kv_heads=2", "head_dim=16", "ragged=yes"),
            ("llama70b_layer", "hidden=96", "ffn=192", "heads=6", "kv_heads=3", "head_dim=16",
             "vocab=96", "context=9"),
            ("ccl_allreduce", "min_bytes=1024", "max_bytes=4096", "dtype=f32"),
            ("ccl_reduce_scatter", "min_bytes=1536", "max_bytes=1536", "op=avg"),
            ("ccl_all_to_all", "max_bytes=3072"))]
OTHERS = [["traffic", "--level", "system", "--rate", "0.4", "--measure-ns", "300", "--seed", "5"],
          ["probe", "--load", "--transfers", "100", "--case", "pe-sram"],
          ["ccl", "tune", "--min", "1KiB", "--max", "4KiB", "--collective", "all_gather"],
          ["ccl", "plan", "--algorithm", "ring_rsag"], ["topo", "--print", "--effective"]]

# What --trace and --profile add to the document of a run, the host's own times, and how the run was
# executed: kernels that are watched follow global time.
OWN_KEYS = ("wall_s", "hops_per_s", "trace", "profile", "timing_only", "verified", "stand_ins",
            "events", "execution")


def surroundings(attack, rng):
    """All changes of the surroundings: a name, and arguments of harness.run()."""
    def no_randomization():
        ctypes.CDLL(None).personality(0x0040000)

    def stack(size):
        return lambda: resource.setrlimit(resource.RLIMIT_STACK, (size, resource.getrlimit(
            resource.RLIMIT_STACK)[1]))

    threads = str(rng.randint(1, 4))
    locales = rng.choice(("C", "C.UTF-8", "de_DE.UTF-8", "tr_TR.UTF-8", "ar_SA", "xx_YY"))
    yield "again", {}
    yield "threads", {"env": {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}}
    yield "OpenMP", {"env": {"OMP_DYNAMIC": "true", "OMP_SCHEDULE": "guided,1",
                             "OMP_PROC_BIND": "spread"}}
    yield "locale", {"env": {"LC_ALL": locales, "LOCPATH": attack.locales}}
    yield "time zone", {"env": {"TZ": rng.choice(("Asia/Kathmandu", "UTC-14", ":nowhere", ""))}}
    yield "environment size", {"env": {"PADDING": "x" * rng.randrange(60000)}}
    yield "empty environment", {"env": {name: None for name in os.environ
                                        if not name.startswith(("ASAN", "UBSAN"))}}
    yield "fixed addresses", {"before": no_randomization}
    yield "allocator fill", {"env": {"MALLOC_PERTURB_": str(rng.randint(1, 255))}}
    yield "allocator", {"env": {"MALLOC_ARENA_MAX": "1", "MALLOC_TOP_PAD_": "1",
                                "MALLOC_MMAP_THRESHOLD_": str(rng.choice((64, 4096, 1 << 25)))}}
    yield "working directory", {"cwd": rng.choice(("/", "/proc/self"))}
    yield "stdin closed", {"closed": (0,)}
    yield "terminal width", {"env": {"COLUMNS": str(rng.choice((1, 40, 300))), "TERM": "xterm",
                                     "LINES": "3", "NO_COLOR": None}}
    yield "umask", {"before": lambda: os.umask(0o077)}
    yield "stack limit", {"before": stack(rng.choice((512 << 10, 64 << 20)))}
    yield "one processor", {"before": lambda: os.sched_setaffinity(
        0, {rng.choice(sorted(os.sched_getaffinity(0)))})}
    yield "low priority", {"before": lambda: os.nice(19)}
    yield "many descriptors", {"before": lambda: [os.open("/dev/null", os.O_RDONLY)
                                                  for _ in range(200)]}
    yield "beside others", {}


def setup(attack):
    attack.machine = os.path.join(attack.scratch, "odd.yaml")
    with open(attack.machine, "w", encoding="utf-8") as file:
        file.write(MACHINE)
    others = attack.options.other or os.environ.get("KB_SOAK_OTHER_BUILDS", "").split(":")
    attack.others = [os.path.join(other, "kernbench") for other in others if other]
    attack.plain = {}
    attack.locales = os.path.join(attack.scratch, "locales")
    os.mkdir(attack.locales)
    if shutil.which("localedef"):  # those with a decimal comma, and with another i
        for name in ("de_DE", "tr_TR"):
            subprocess.run(["localedef", "-i", name, "-f", "UTF-8",
                            os.path.join(attack.locales, name + ".UTF-8")],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def run(attack, words, program=None, **how):
    """Runs the command with a trace, if it can have one; returns outcome and trace."""
    trace = os.path.join(attack.scratch, "trace.json")
    if os.path.exists(trace):
        os.remove(trace)
    extra = ["--trace", trace] if words[0] == "run" else []
    how.setdefault("cwd", attack.scratch)  # a profile shows the source lines that are found there
    if program:
        how["timeout"] = 120.0
        outcome = harness.run([program, *words, *extra], **how)
    else:
        outcome = attack.run([*words, *extra], **how)
    data = None
    if os.path.exists(trace):
        with open(trace, "rb") as file:
            data = file.read()
    return outcome, data


def plain_run(attack, words):
    key = tuple(words)
    if key not in attack.plain:
        outcome, trace = run(attack, words)
        attack.judge(outcome, timeout_is_finding=True)
        if outcome.code != 0:
            attack.finding(outcome, f"the plain run: {outcome.ended()}")
        attack.plain[key] = outcome, trace
    return attack.plain[key]


# Of a call of a macro over several lines one compiler has the first line, another the last one.
LINE = re.compile(rb'(\.[ch]):\d+ *|"line": ?\d+')


def without_lines(plain_or_changed):
    outcome, trace = plain_or_changed
    outcome = copy.copy(outcome)
    outcome.stdout = LINE.sub(rb"\1:<line>", outcome.stdout)
    return outcome, trace and LINE.sub(rb"\1:<line>", trace)


def compare(attack, name, plain, changed):
    (first, trace), (outcome, other_trace) = plain, changed
    if outcome.timed_out:
        attack.unfinished += 1
        return
    if not attack.judge(outcome):
        return
    if outcome.code != first.code:
        attack.finding(outcome, f"{name}: {outcome.ended()}, plain {first.ended()}")
    elif harness.mask_wall_times(outcome.stdout) != harness.mask_wall_times(first.stdout):
        attack.finding(outcome, f"{name}: another output")
    elif trace != other_trace:
        attack.finding(outcome, f"{name}: another trace")


def compare_figures(attack, words, rng):
    """The figures of a run do not depend on what is recorded or computed beside it."""
    base = [word for word in words if word not in ("--verify-data", "--profile", "--json")]
    documents = []
    modes = [["--verify-data"], ["--timing-only"], ["--profile"], ["--check-races"],
             ["--trace", os.path.join(attack.scratch, "other.json")], ["--timing-only", "--profile"]]
    for mode in ([], rng.choice(modes)):
        outcome = attack.run([*base, "--json", "--quiet", *mode])
        if outcome.timed_out or not attack.judge(outcome):
            return
        if outcome.code != 0:
            attack.finding(outcome, outcome.ended())
            return
        document = harness.read_json(outcome.out)
        document["metrics"] = {name: value for name, value in document["metrics"].items()
                               if not name.startswith("wrong")}  # counted with data alone
        documents.append({key: value for key, value in document.items() if key not in OWN_KEYS})
    if documents[0] != documents[1]:
        keys = [key for key in sorted(documents[0].keys() | documents[1].keys())
                if documents[0].get(key) != documents[1].get(key)]
        attack.finding(outcome, f"{' '.join(mode)} changes {', '.join(keys)}")


def beside_others(attack, words):
    """Three runs of the same command at once; returns their outputs."""
    children = [subprocess.Popen([attack.program, *words], cwd=attack.scratch,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL)
                for _ in range(3)]
    return [child.communicate()[0] for child in children]


def one_case(attack, rng, number):
    words = list(rng.choice(RUNS if rng.random() < 0.8 else OTHERS))
    words += ["--topology", attack.machine]
    if words[0] == "run":
        words += rng.choice((["--verify-data"], ["--verify-data"], []))
        words += rng.choice(([], ["--profile"]))
        if rng.random() < 0.2:
            compare_figures(attack, words, rng)
            return
    words += rng.choice(([], ["--json"]))
    plain = plain_run(attack, words)
    if plain[0].code != 0:
        return
    # A profile is by lines, which compilers see differently.
    if attack.others and "--profile" not in words and rng.random() < 0.15:
        other = rng.choice(attack.others)
        changed = run(attack, words, program=other)
        compare(attack, "another build", without_lines(plain), without_lines(changed))
        return
    name, how = rng.choice(list(surroundings(attack, rng)))
    if name == "beside others":
        first = harness.mask_wall_times(run_without_trace(attack, words).stdout)
        for output in beside_others(attack, words):
            if harness.mask_wall_times(output) != first:
                attack.finding(plain[0], f"{name}: another output")
        return
    compare(attack, name, plain, run(attack, words, **how))


def run_without_trace(attack, words):
    outcome = attack.run(words, cwd=attack.scratch)
    attack.judge(outcome)
    return outcome


def add_options(parser):
    parser.add_argument("--other", action="append", help="another build directory to compare with")


if __name__ == "__main__":
    harness.main("determinism", one_case, description=__doc__, add_options=add_options,
                 setup=setup)
