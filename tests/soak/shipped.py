#!/usr/bin/env python3
"""shipped.py: everything that ships gives the same figures in two builds.

A case is a command: a bench with some of its parameters on some machine, a collective with one
algorithm and size, another command that runs transfers, or a program of examples/. With --against
DIR it runs in both builds, and exit code, messages, document and trace must be the same, but for
times of the host and what tells how a run was executed. Without --against, the build is compared
with itself: observers (trace, profile) change no figure.

Other than in random attacks the commands are always the same: --case N runs the command N, --list
lists them.
"""
import glob
import itertools
import os
import shlex
import subprocess
import sys

import builds
import harness

MACHINES = {
    "default": (),
    "odd": ("system.sips.count=3", "sip.cube_mesh.w=3", "sip.cube_mesh.h=1", "cube.noc.w=3",
            "cube.noc.h=2", "cube.pe_layout.pe_per_corner=1"),
    "tight": ("system.sips.count=2", "sip.cube_mesh.w=2", "sip.cube_mesh.h=2",
              "cube.pe_cpu.queue_depth=1", "cube.pe_dma.channels=1", "cube.pe_tcm.bw_gbs=32",
              "ccl.defaults.backpressure=poll", "ccl.defaults.n_slots=1"),
    "torus": ("system.sips.count=4", "system.sips.topology=torus_2d", "sip.cube_mesh.w=2",
              "sip.cube_mesh.h=1", "cube.pe_math.lanes=7", "cube.pe_gemm.fill=per_fold"),
}

MODEL = "hidden=96 ffn=192 heads=24 kv_heads=12 head_dim=16 vocab=96"
# Parameters that a bench is run with. "" has the defaults.
BENCHES = {
    "gemm_single_pe": ("m=70 k=33 n=65", "m=128 k=512 n=64", ""),
    "qkv_gemm": ("tokens=5 width=96", "tokens=40 width=200"),
    "qkv_gemm_multi_pe": ("tokens=5 width=96", "tokens=16 width=512"),
    "va_offset_verify": ("rows=17 columns=29", "rows=100 columns=333"),
    "halo": ("rows=61 columns=24 steps=3", "rows=200 columns=96 steps=6"),
    "launch_chain": ("launches=5 order=host", "launches=12 order=stream",
                     "launches=20 order=graph"),
    "matmul_composite": ("m=40 k=24 n=33 dtype=bf16", "m=100 k=300 n=80 dtype=i8",
                         "m=64 k=64 n=200 dtype=f8e4m3 operands=load_load"),
    "pe2pe": ("max_bytes=512", "min_bytes=100 max_bytes=3000 factor=3 memory=hbm"),
    "tp_mlp": ("batch=3 width=96 hidden=192", "batch=8 width=200 hidden=240 activation=silu"),
    "gqa_llama70b": ("context=24 prompt=8 heads=4 kv_heads=2 head_dim=16",
                     "context=64 prompt=40 heads=4 kv_heads=2 head_dim=16 n_slots=1 round=half"),
    "gqa_prefill": ("prompt=12 heads=4 kv_heads=2 head_dim=16 ragged=yes",
                    "prompt=40 cached=30 heads=4 kv_heads=1 head_dim=32 page_tokens=8 window=20"),
    "gqa_decode": ("context=40 heads=4 kv_heads=2 head_dim=16 ragged=yes",
                   "context=200 heads=8 kv_heads=2 head_dim=32 layout=shuffled page_tokens=16"),
    "llama70b_layer": (f"{MODEL} context=9", f"{MODEL} phase=prefill prompt=12 layers=2"),
    "llama70b_decode": (f"{MODEL} layers=2 context=9 steps=3 batch=2",),
    "llama70b_prefill": (f"{MODEL} layers=2 prompt=9 ragged=yes batch=2 steps=2",),
    "ccl_allreduce": ("", "min_bytes=1024 max_bytes=4096 dtype=f32"),
    "ipcq_allreduce": ("",),
}
COLLECTIVE_SIZES = ("max_bytes=3072", "min_bytes=100KiB max_bytes=100KiB")
ALL_REDUCES = ("auto", "intercube_allreduce", "ring_allreduce_tcm", "ring_allreduce_hbm",
               "ring_allreduce_sram", "mesh_allreduce_4", "tree_allreduce_7",
               "hierarchical_allreduce", "hello_send", "ring_rsag", "trees", "streams", "one_shot",
               "ring_rsag_pes")
OTHERS = ("probe", "probe --load --transfers 100 --case pe-sram",
          "ccl tune --min 1KiB --max 4KiB --collective all_gather",
          "ccl tune --min 64KiB --max 64KiB --collective all_reduce",
          "traffic --level system --rate 0.4 --measure-ns 300 --seed 5")
# In turn: what is recorded beside.
RECORDS = ([], ["--trace", "TRACE"], ["--profile"], ["--timing-only"], ["--verify-data"],
           ["--timing-only", "--trace", "TRACE"], ["--check-races"])


def run_words(bench, params, machine):
    words = ["run", "--bench", bench]
    for param in params.split():
        words += ["--param", param]
    for setting in MACHINES[machine]:
        words += ["--set", setting]
    return words


def commands(build):
    """All commands, as lists of words."""
    outcome = build.run(["list", "--json"])
    names = [bench["name"] for bench in harness.read_json(outcome.out)["benches"]]
    machines = itertools.cycle(MACHINES)
    for name in names:
        sizes = COLLECTIVE_SIZES if name.startswith("ccl_") else ()
        for params in BENCHES.get(name, ()) + sizes or ("",):
            for machine in ("odd", "tight", "torus"):
                yield run_words(name, params, machine)
        yield run_words(name, (BENCHES.get(name, ("",)) + sizes)[0], "default")
    for algorithm in ALL_REDUCES:
        for params in ("", *COLLECTIVE_SIZES):
            words = run_words("ccl_allreduce", params, next(machines))
            yield words + ["--set", f"ccl.defaults.algorithm={algorithm}"]
    for command in OTHERS:
        yield command.split() + ["--set", "system.sips.count=2"]


def run(attack, build, words, variant=None):
    """Runs a command; returns the outcome and its trace."""
    trace = os.path.join(attack.scratch, "trace.json")
    if os.path.exists(trace):
        os.remove(trace)
    words = [trace if word == "TRACE" else word for word in words]
    outcome = build.run(words, env=variant, timeout=attack.options.timeout, cwd=attack.scratch)
    try:
        with open(trace, encoding="utf-8") as file:
            return outcome, file.read()
    except FileNotFoundError:
        return outcome, ""


def compare_builds(attack, words):
    reference = run(attack, attack.second, words)
    for variant in attack.first.variants:
        changed = run(attack, attack.first, words, variant)
        found = builds.compare_traces(reference, changed)
        if found or changed[0].timed_out:
            break
    return found, changed[0]


def compare_itself(attack, words):
    plain, _ = run(attack, attack.first, [word for word in words if word != "--verify-data"])
    changed, _ = run(attack, attack.first, [*words, "--trace", "TRACE"])
    return builds.compare_figures(plain, changed), changed


def compare_example(attack, source):
    """A program of examples/ prints the same with the library of either build."""
    outcomes = []
    for build in (attack.second, attack.first):
        program = os.path.join(attack.scratch, "example")
        library = os.path.join(build.directory, "libkernbench.a")
        if not os.path.exists(library):
            return
        subprocess.run(["cc", "-std=gnu17", "-O1", "-I", os.path.join(build.source(), "include"),
                        "-o", program, source, library, "-lyaml", "-pthread", "-lm", "-ldl"],
                       check=True)
        outcomes.append(harness.run([program], timeout=attack.options.timeout))
    for line in builds.compare_outputs(*outcomes):
        attack.finding(source, line)


def one_case(attack, rng, number):
    del rng
    if number >= len(attack.commands) + len(attack.examples):
        return "done"
    if number >= len(attack.commands):
        compare_example(attack, attack.examples[number - len(attack.commands)])
        return None
    words = attack.commands[number]
    if words[0] == "run":
        words = [*words, "--json", *RECORDS[number % len(RECORDS)]]
    if attack.second:
        found, outcome = compare_builds(attack, words)
    elif words[0] != "run" or "--trace" in words:
        return None
    else:
        found, outcome = compare_itself(attack, words)
    if outcome.timed_out:
        attack.unfinished += 1
        return None
    if not attack.second:
        attack.judge(outcome)
    if found:
        attack.finding(outcome, found[0])
        for line in found[1:]:
            print(f"  {line}", flush=True)
    return None


def setup(attack):
    builds.setup(attack)
    attack.commands = list(commands(attack.first))
    attack.examples = sorted(glob.glob(os.path.join(attack.source, "examples", "*.c")))
    if not attack.second:
        attack.examples = []
    if attack.options.list:
        for number, words in enumerate(attack.commands + [[path] for path in attack.examples]):
            print(number, shlex.join(words))
        sys.exit(0)


def add_options(parser):
    builds.add_option(parser)
    parser.add_argument("--list", action="store_true", help="list the commands")
    parser.add_argument("--timeout", type=float, default=60.0, help="of a run, in seconds (60)")


if __name__ == "__main__":
    harness.main("shipped", one_case, description=__doc__, add_options=add_options, setup=setup)
