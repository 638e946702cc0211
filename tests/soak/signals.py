#!/usr/bin/env python3
"""signals.py: signals at random moments of runs that write files and compile benches.

Afterwards the file that was there is whole, or the new one is; no temporary file, no compiler and
none of its files is left; the exit status is by the signal, unless the run was over before. After
SIGKILL only files of temporary names may be left. SIGSTOP and SIGCONT change nothing.
"""
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import time

import harness

HOSTILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hostile")
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGPIPE",
           "SIGKILL", "SIGSTOP")
OLD = '{"old": true}\n'
SMALL = ["--set", "sip.cube_mesh.w=1", "--set", "sip.cube_mesh.h=1"]
COMMANDS = (
    ["run", "--bench", "gemm_single_pe", "--trace", "out.json"],
    ["run", "--bench", "qkv_gemm_multi_pe", "--timing-only", "--trace", "out.json"],
    ["run", "--bench", "./plain.c", "--trace", "out.json"],
    ["run", "--bench", "./plain.c", "--json", "--trace", "out.json"],
    ["ccl", "tune", "--max", "64KiB", "--output", "out.json", *SMALL],
    ["topo", "--svg", "out.json"],
)


def make_folder(attack):
    folder = os.path.join(attack.scratch, "case")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(os.path.join(folder, "tmp"))
    shutil.copyfile(os.path.join(HOSTILE, "harmless.c"), os.path.join(folder, "plain.c"))
    with open(os.path.join(folder, "out.json"), "w", encoding="utf-8") as file:
        file.write(OLD)
    return folder


def prepare():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in SIGNALS:
        if name not in ("SIGKILL", "SIGSTOP"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)


def start(attack, command, folder):
    return subprocess.Popen([attack.program, *command], cwd=folder, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            start_new_session=True, preexec_fn=prepare,
                            env={**os.environ, "TMPDIR": os.path.join(folder, "tmp")})


def processes_of(session):
    """Processes of the session that still run, by their commands."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                head, _, rest = file.read().rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(head.partition("(")[2])
    return found


def setup(attack):
    """Learns how long each command takes, and which file it writes."""
    attack.lengths = []
    attack.whole = []
    for command in COMMANDS:
        folder = make_folder(attack)
        began = time.monotonic()
        child = start(attack, command, folder)
        _, err = child.communicate(timeout=300)
        attack.lengths.append(time.monotonic() - began)
        if child.returncode != 0:
            attack.finding(shlex.join(command), f"exit code {child.returncode}: {err.decode()}")
        with open(os.path.join(folder, "out.json"), encoding="utf-8") as file:
            attack.whole.append(file.read())


def strike(child, number, to_group):
    try:
        if to_group:
            os.killpg(child.pid, number)
        else:
            os.kill(child.pid, number)
    except ProcessLookupError:
        pass


def is_whole(text, command, whole):
    if "--trace" not in command:
        return text == whole
    try:
        return "traceEvents" in json.loads(text)
    except ValueError:
        return False


def check_file(attack, shown, folder, command, whole, code):
    path = os.path.join(folder, "out.json")
    if not os.path.exists(path):
        attack.finding(shown, "the file that was there is gone")
        return
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if text != OLD and not is_whole(text, command, whole):
        attack.finding(shown, f"the file is neither the old one nor whole ({len(text)} bytes)")
    elif code == 0 and text == OLD:
        attack.finding(shown, "exit code 0, but the file was not written")


def case(attack, rng, number):
    which = number % len(COMMANDS)
    command = COMMANDS[which]
    name = rng.choice(SIGNALS)
    moment = rng.uniform(0, 1.1 * attack.lengths[which])
    to_group = rng.random() < 0.3
    folder = make_folder(attack)
    shown = f"{name} after {moment:.4f} s: {shlex.join(command)}"
    child = start(attack, command, folder)
    time.sleep(moment)
    strike(child, getattr(signal, name), to_group)
    if name == "SIGSTOP":
        time.sleep(0.05)
        strike(child, signal.SIGCONT, to_group)
    try:
        _, err = child.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        harness.end_group(child.pid)
        child.communicate()
        attack.finding(shown, "did not end within 60 s")
        return None
    by_signal = 0 if name == "SIGSTOP" else -getattr(signal, name)
    if child.returncode not in (0, by_signal):
        attack.finding(shown, f"status {child.returncode}: {err.decode(errors='replace')}")
    check_file(attack, shown, folder, command, attack.whole[which], child.returncode)
    left = os.listdir(os.path.join(folder, "tmp"))
    left += sorted(set(os.listdir(folder)) - {"tmp", "plain.c", "out.json"})
    running = processes_of(child.pid)
    if name == "SIGKILL":
        left = [one for one in left if not one.lstrip(".").startswith(("kernbench-", "cc"))]
        running = []  # a compiler that is left behind ends by itself
    if left:
        attack.finding(shown, f"left behind: {' '.join(left)}")
    if running:
        attack.finding(shown, f"still running: {' '.join(running)}")
    return None


if __name__ == "__main__":
    harness.main("signals", case, __doc__, setup=setup)
