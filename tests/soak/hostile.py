#!/usr/bin/env python3
"""hostile.py: code of a user's that leaves, crashes, or changes the process that it runs in.

hostile/acts.h has the acts with the outcome of each, hostile/bad_bench.c and hostile/bad_collective.c the
places where they are done: a constructor, a kernel, a thread, a handler of exit(). Whatever they
do, exit code 0 means that the run was completed, nothing of theirs is called a bug in KernBench, the
trace that was there is whole, and no temporary file is left.
"""
import json
import os
import re
import shutil
import subprocess

import harness

HOSTILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hostile")
OUTCOME = re.compile(r'^(?:ACT|MISUSE)\((\w+), (S?\d+), "(.*)"\)', re.MULTILINE)

# Where an act has another outcome than its line says: (act, place) to the exit status.
LATE = ("atexit", "destructor")
DESCRIPTORS = ("fclose_stdout", "close_stdout", "close_stderr", "close_all", "replace_stdout",
               "assign_stdout")
ELSEWHERE = {
    **{(act, place): "0" for act in DESCRIPTORS for place in LATE},  # the results are out
    **{("rounding", place): "0" for place in (*LATE, "constructor", "describe", "thread")},
    **{("errx", place): "0" for place in LATE},  # keeps the status of the run, which is 0
    ("raw_exit", "thread"): "0",  # ends the thread alone
    ("pthread_exit", "thread"): "0",
}
# Their report is the sanitizer's.
CRASHES = ("null_pointer", "divide", "trap", "abort", "double_free", "recurse", "thread_crashes",
           "c11_thread_crashes", "raise_segv", "error_freed_twice", "error_from_nowhere",
           "no_context", "longjmp", "longjmp_and_on", "longjmp_nowhere")

PLACES = ("constructor", "describe", "host", "kernel", "thread", "atexit", "destructor")
FLAGS = ([], ["--json"], ["--profile"], ["--verify-data"])  # the last asks no bench about itself
SMALL = ["--set", "sip.cube_mesh.w=1", "--set", "sip.cube_mesh.h=1"]
PLUGIN_COMMANDS = {
    ("run", "--bench", "ccl_allreduce"): ("constructor", "host", "kernel", "thread", *LATE),
    ("ccl", "plan", "--algorithm", "hostile"): ("constructor", *LATE),
    ("ccl", "tune", "--max", "1KiB"): ("constructor", *LATE),
    ("list",): ("constructor", *LATE),
}
NAMES = ("@file.c", "-x.c", "a b.c", "new\nline.c", "quote'\".c", "%s%n.c", "-include.c", "@.c",
         "a;b.c", "$(x).c", "`b`.c", "*.c", "a\\b.c", "\u00fcn\u00ef.c", "#.c", "-.c", "\x1b[31m.c")


def outcomes(name):
    with open(os.path.join(HOSTILE, name), encoding="utf-8") as file:
        return {act: (status, words) for act, status, words in OUTCOME.findall(file.read())}


def compile_library(attack, name):
    library = os.path.join(attack.scratch, name + ".so")
    compiler = os.environ.get("CC", "cc").split()
    flags = ["-fsanitize=address,undefined"] if attack.sanitized else []
    subprocess.run([*compiler, "-std=gnu17", "-O1", "-g", "-shared", "-fPIC", "-w", *flags,
                    "-I" + os.path.join(attack.source, "include"), "-o", library,
                    os.path.join(HOSTILE, name + ".c")], check=True)
    return library


def setup(attack):
    acts, misuses = outcomes("acts.h"), outcomes("bad_bench.c")
    bench, plugin = (compile_library(attack, name) for name in ("bad_bench", "bad_collective"))
    attack.list = []
    for act, (status, words) in acts.items():
        for place in PLACES:
            attack.list.append((["run", "--bench", bench + ":acts"], act, place, status, words))
        for command, places in PLUGIN_COMMANDS.items():
            options = [*command, "--plugin", plugin]
            if command != ("list",):
                options += SMALL
            options += ["--ccl", os.path.join(HOSTILE, "collective.yaml")]
            for place in places:
                attack.list.append((options, act, place, status, words))
    for misuse, (status, words) in misuses.items():
        attack.list.append((["run", "--bench", f"{bench}:{misuse}"], misuse, None, status, words))
    attack.list += [("name", name) for name in NAMES]
    if attack.sanitized:
        attack.list = [one for one in attack.list if one[1] not in CRASHES]
    harness.random.Random(attack.seed).shuffle(attack.list)
    attack.undisturbed = {}


def make_folder(attack):
    folder = os.path.join(attack.scratch, "case")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(os.path.join(folder, "tmp"))
    return folder


def mask(output):
    """Without the times of the host."""
    return re.sub(rb' in [0-9.]+ s: .*|"(?:wall_s|hops_per_s)": .*', b"", output)


def leftovers(folder):
    return [os.path.join(parent, name) for parent, folders, files in os.walk(folder)
            for name in (*folders, *files) if "kernbench-" in name]


def run_act(attack, words, act, place, folder):
    env = {"HOSTILE_ACT": act, "HOSTILE_PLACE": place, "TMPDIR": os.path.join(folder, "tmp")}
    return attack.run(words, cwd=folder, env=env, timeout=60)


def expected_output(attack, words):
    key = tuple(words)
    if key not in attack.undisturbed:
        folder = make_folder(attack)
        outcome = run_act(attack, words, "nothing", "host", folder)
        attack.judge(outcome, allowed=(0,))
        attack.undisturbed[key] = outcome.stdout
    return mask(attack.undisturbed[key])


def try_name(attack, name):
    """A bench in a file of an odd name is compiled and run."""
    folder = make_folder(attack)
    shutil.copyfile(os.path.join(HOSTILE, "harmless.c"), os.path.join(folder, name))
    outcome = attack.run(["run", "--bench", name], cwd=folder, timeout=60,
                         env={"TMPDIR": os.path.join(folder, "tmp")})
    attack.judge(outcome, allowed=(0,))
    if outcome.code == 0 and not outcome.out.startswith("plain\n"):
        attack.finding(outcome, "the bench did not run")
    for path in leftovers(folder):
        attack.finding(outcome, f"left behind: {path}")


def check_trace(attack, outcome, path):
    """It is the old one, or a whole new one."""
    if not os.path.exists(path):
        attack.finding(outcome, "the trace that was there is gone")
        return
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if text == "old":
        if outcome.code == 0:
            attack.finding(outcome, "exit code 0, but no trace was written")
        return
    try:
        json.loads(text)
    except ValueError as error:
        attack.finding(outcome, f"the trace is neither the old one nor whole: {error}")


def check_status(attack, outcome, status, words):
    wanted = -int(status[1:]) if status[0] == "S" else int(status)
    found = -outcome.signal if outcome.signal is not None else outcome.code
    if found != wanted:
        attack.finding(outcome, f"{outcome.ended()}, not {status}")
    elif words not in outcome.err:
        attack.finding(outcome, f"stderr does not say: {words}")
    if "bug in KernBench" in outcome.err:
        attack.finding(outcome, "the mistake of the user is called a bug in KernBench")


def case(attack, rng, number):
    if number >= len(attack.list):
        return "done"
    if attack.list[number][0] == "name":
        return try_name(attack, attack.list[number][1])
    words, act, place, status, said = attack.list[number]
    if (act, place) in ELSEWHERE:
        status, said = ELSEWHERE[act, place], ""
    words = list(words)
    has_trace = words[0] == "run"
    if has_trace:
        words += rng.choice(FLAGS[:-1] if place == "describe" else FLAGS)
        words += ["--trace", "trace.json"]
    expected = expected_output(attack, words) if status == "0" else None
    folder = make_folder(attack)
    trace = os.path.join(folder, "trace.json")
    if has_trace:
        with open(trace, "w", encoding="utf-8") as file:
            file.write("old")
    outcome = run_act(attack, words, act, place or "", folder)
    check_status(attack, outcome, status, said)
    if has_trace:
        check_trace(attack, outcome, trace)
    output = mask(outcome.stdout)
    if expected is not None and act != "child_returns" and output != expected:
        attack.finding(outcome, "the output differs from that of an undisturbed run")
    if act != "raise_kill":
        for path in leftovers(folder):
            attack.finding(outcome, f"left behind: {path}")
    return None


if __name__ == "__main__":
    harness.main("hostile", case, __doc__, setup=setup)
