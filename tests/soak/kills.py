#!/usr/bin/env python3
"""kills.py: SIGKILL at random moments of runs that are saved, and of sweeps.

    save     the program that saves a run, again and again, in two processes at once
    worker   a point of a sweep
    parent   the program that runs a sweep
    rank     a rank of a sweep over MPI (4 ranks)
    rank0    the rank that writes the store
    mpirun   mpirun itself

Afterwards the store opens and is whole, each run in it is complete, and runs that were said to be
saved are there. The same command goes on: it runs no point again that was stored, and its table is
that of an undisturbed sweep, byte for byte but for wall times.
"""
import contextlib
import csv
import os
import shutil
import signal
import sqlite3
import subprocess
import time

import harness

KINDS = ("save", "worker", "parent")
MPI_KINDS = ("rank", "rank0", "mpirun")
RANKS = 4
# Points of some milliseconds: 48 of them.
SWEEP = ["sweep", "--bench", "gemm_single_pe", "--over", "m=128,256,384,512,640,768,896,1024",
         "--over", "k=128,256,512", "--over", "n=256,512", "--timing-only", "--quiet",
         "--store", "s.db", "--csv", "table.csv"]
SAVE = ["run", "--bench", "va_offset_verify", "--param", "rows=1", "--quiet", "--save", "s.db"]
WALL = ("wall_s", "cpu_s", "peak_bytes", "hops_per_s")


def find_mpirun(attack):
    has_component = os.path.exists(os.path.join(attack.build, "kernbench-mpi.so"))
    return shutil.which("mpirun") if has_component else None


def make_folder(attack):
    folder = os.path.join(attack.scratch, "case")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


def command_of(attack, kind):
    if kind in MPI_KINDS:
        return [attack.mpirun, "--allow-run-as-root", "--oversubscribe", "-n", str(RANKS),
                attack.program, *SWEEP]
    return [attack.program, *SWEEP, "--workers", "2"]


def start(command, folder):
    return subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            start_new_session=True)


def table_of(folder):
    """The table of a sweep without wall times."""
    with open(os.path.join(folder, "table.csv"), newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    kept = [i for i, name in enumerate(rows[0]) if name.split(".")[-1] not in WALL]
    return [[row[i] for i in kept] for row in rows]


def complete(attack, command, folder):
    """Runs the command to its end; its table."""
    child = start(command, folder)
    try:
        _, err = child.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        harness.end_group(child.pid)
        child.communicate()
        attack.finding(" ".join(command), "did not end within 300 s")
        return None
    if child.returncode != 0:
        attack.finding(" ".join(command), f"status {child.returncode}: {err.decode()[-500:]}")
        return None
    return table_of(folder)


def sweeps_among(kinds):
    """Those that run sweeps as these do."""
    if any(kind in MPI_KINDS for kind in kinds):
        return ["parent", "rank"]
    return ["parent"] if kinds != ("save",) else []


def setup(attack):
    attack.mpirun = find_mpirun(attack)
    attack.kinds = KINDS + (MPI_KINDS if attack.mpirun else ())
    if attack.options.kinds:
        attack.kinds = tuple(attack.options.kinds.split(","))
    attack.lengths = {}
    attack.table = None
    for kind in sweeps_among(attack.kinds):
        folder = make_folder(attack)
        began = time.monotonic()
        table = complete(attack, command_of(attack, kind), folder)
        attack.lengths[kind] = time.monotonic() - began
        if attack.table is not None and table != attack.table:
            attack.finding(" ".join(command_of(attack, kind)), "another table than without MPI")
        attack.table = attack.table or table
    attack.killed = dict.fromkeys(attack.kinds, 0)
    attack.stored = []
    attack.locked_up = 0


# ---- The store ---------------------------------------------------------------------------------

def read_store(attack, shown, folder):
    """The keys and ids of the runs, after checking that all is whole; None if there is no store."""
    path = os.path.join(folder, "s.db")
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return {}
    # Through the program first: it recovers the journal, as any other would.
    outcome = attack.run(["runs", "--store", "s.db", "--json"], cwd=folder)
    if outcome.code != 0:
        if "it is empty" in outcome.err:
            return {}
        attack.finding(shown, f"the store does not open: {outcome.err.strip()}")
        return {}
    with contextlib.closing(sqlite3.connect(path)) as store:
        state = store.execute("PRAGMA integrity_check").fetchall()
        if state != [("ok",)]:
            attack.finding(shown, f"integrity_check: {state[:3]}")
        half = store.execute(
            "SELECT count(*) FROM runs WHERE status = 'ok' AND (machine IS NULL"
            " OR NOT EXISTS (SELECT 1 FROM machines WHERE machine = runs.machine)"
            " OR NOT EXISTS (SELECT 1 FROM documents WHERE run = number AND json_valid(json))"
            " OR NOT EXISTS (SELECT 1 FROM figure_values WHERE run = number))").fetchone()[0]
        if half:
            attack.finding(shown, f"{half} runs are not complete")
        return dict(store.execute("SELECT id, status FROM runs"))


# ---- The cases ---------------------------------------------------------------------------------

def children_of(parent):
    """Processes whose parent it is, by their numbers."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(pid))
    return sorted(found)


def rank_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            for entry in file.read().split(b"\0"):
                if entry.startswith(b"OMPI_COMM_WORLD_RANK="):
                    return int(entry.partition(b"=")[2])
    except OSError:
        pass
    return None


def victim_of(kind, child, rng):
    """The process to kill; None if there is none now."""
    if kind in ("parent", "mpirun"):
        return child.pid
    if kind == "worker":
        points = children_of(child.pid)
        return rng.choice(points) if points else None
    ranks = [(rank_of(pid), pid) for pid in children_of(child.pid)]
    ranks = [(rank, pid) for rank, pid in ranks if rank is not None
             and (rank == 0) == (kind == "rank0")]
    return rng.choice(ranks)[1] if ranks else None


def strike(kind, child, rng):
    """Kills; looks for a while for something to kill."""
    for _ in range(200):
        if child.poll() is not None:
            return False
        pid = victim_of(kind, child, rng)
        if pid is not None:
            try:
                os.kill(pid, signal.SIGKILL)
                return True
            except ProcessLookupError:
                pass
        time.sleep(0.002)
    return False


def save_case(attack, rng, folder):
    """Two processes that save runs, each killed at random moments; then both once to their end."""
    saved = 0
    shown = f"SIGKILL of {' '.join(SAVE)}"
    command = [attack.program, *SAVE]
    for _ in range(10):
        children = [start(command, folder) for _ in range(2)]
        time.sleep(rng.uniform(0, 0.05))
        for child in children:
            if rng.random() < 0.7:
                child.kill()
        for child in children:
            _, err = child.communicate(timeout=120)
            saved += child.returncode == 0
            attack.killed["save"] += child.returncode == -signal.SIGKILL
            if child.returncode not in (0, -signal.SIGKILL):
                attack.finding(shown, f"status {child.returncode}: {err.decode()[-300:]}")
    runs = read_store(attack, shown, folder)
    if len(runs) < saved:
        attack.finding(shown, f"{saved} runs were saved, the store has {len(runs)}")


def wait_for_end(attack, kind, shown, child):
    """Until it has ended. mpirun of OpenMPI 4.1 may lock itself up while it ends, when all ranks
    have: once in about a hundred kills of a rank that was starting (PMIx_server_finalize)."""
    try:
        child.communicate(timeout=30)
        return
    except subprocess.TimeoutExpired:
        pass
    if kind in MPI_KINDS and not children_of(child.pid):
        attack.locked_up += 1
    else:
        attack.finding(shown, "did not end within 30 s")
    harness.end_group(child.pid)
    child.communicate()


def count_runs(folder):
    path = os.path.join(folder, "s.db")
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
            return store.execute("SELECT count(*) FROM runs").fetchone()[0]
    except sqlite3.Error:
        return 0


def wait_for_moment(attack, kind, rng, folder, child):
    """At any time of a sweep; or when so many points are stored, as starting takes long."""
    if rng.random() < 0.4:
        length = attack.lengths["rank" if kind in MPI_KINDS else "parent"]
        time.sleep(rng.uniform(0, length))
        return
    wanted = rng.randrange(1, len(attack.table) - 1)
    while child.poll() is None and count_runs(folder) < wanted:
        time.sleep(0.001)


def sweep_case(attack, kind, rng, folder):
    command = command_of(attack, kind)
    shown = f"SIGKILL of {kind}: {' '.join(command)}"
    child = start(command, folder)
    wait_for_moment(attack, kind, rng, folder, child)
    attack.killed[kind] += strike(kind, child, rng)
    wait_for_end(attack, kind, shown, child)
    harness.end_group(child.pid)  # ranks whose mpirun is gone end by themselves: not all at once
    time.sleep(0.2 if kind in MPI_KINDS else 0)
    before = read_store(attack, shown, folder)
    attack.stored.append(len(before))
    good = {run for run, status in before.items() if status == "ok"}
    table = complete(attack, command + ["--retry-failed"], folder)
    after = read_store(attack, shown, folder)
    if not good <= set(after):
        attack.finding(shown, f"{len(good - set(after))} finished runs are lost")
    points = len(attack.table) - 1
    if len(after) != points + len(before) - len(good):
        attack.finding(shown, f"{len(after)} runs after {len(before)} ({len(good)} good) of"
                              f" {points} points: points that were stored have run again")
    if table is not None and table != attack.table:
        attack.finding(shown, "the table is not that of an undisturbed sweep")


def case(attack, rng, number):
    kind = attack.kinds[number % len(attack.kinds)]
    folder = make_folder(attack)
    if kind == "save":
        save_case(attack, rng, folder)
    else:
        sweep_case(attack, kind, rng, folder)


def close(attack):
    kills = ", ".join(f"{count} of {kind}" for kind, count in attack.killed.items())
    if attack.locked_up:
        attack.summary.append(f"mpirun locked itself up {attack.locked_up} times, after its ranks"
                              " had ended")
    stored = sorted(attack.stored)
    attack.summary.append(f"kills: {kills}")
    if stored:
        attack.summary.append(f"points stored at the kill: {stored[0]} to {stored[-1]},"
                              f" median {stored[len(stored) // 2]} of {len(attack.table) - 1}")


def add_options(parser):
    parser.add_argument("--kinds", help="only these, such as rank,rank0,mpirun")


if __name__ == "__main__":
    harness.main("kills", case, __doc__, add_options, setup, close)
