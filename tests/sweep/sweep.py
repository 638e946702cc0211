#!/usr/bin/env python3
"""sweep.py BUILD: the command sweep as users see it: points that end in every way, stopping and
resuming, shards, limits, plans in files, mistakes. It reports as cmocka does (tools/run-tests)."""
import csv
import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback

BUILD = os.path.abspath(sys.argv[1])
KERNBENCH = os.path.join(BUILD, "kernbench")
HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as cache:
    SANITIZED = any("-fsanitize=" in line for line in cache)  # then crashes are told in other words
PATIENCE = 240  # seconds: for what must end by itself, on a loaded machine
CASES = []


def case(function):
    CASES.append(function)
    return function


def sweep(*words, status=0, env=None):
    """Runs the command in the working directory; its stdout."""
    done = subprocess.run([KERNBENCH, "sweep", *words], capture_output=True, text=True,
                          timeout=PATIENCE, env={**os.environ, **(env or {})}, check=False)
    assert done.returncode == status, f"status {done.returncode}: {done.stderr}"
    sweep.messages = done.stderr
    return done.stdout


def points(*words, status=0, env=None):
    return json.loads(sweep(*words, "--json", "--quiet", status=status, env=env))["points"]


def stored(query, database="kernbench.db"):
    connection = sqlite3.connect(database)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def count_runs(database="kernbench.db"):
    return stored("select count(*) from runs", database)[0][0]


def table(*words, status=0):
    """All figures but those of the host, as CSV."""
    rows = list(csv.reader(io.StringIO(sweep(*words, "--csv", "-", "--quiet", status=status))))
    keep = [i for i, name in enumerate(rows[0])
            if not name.endswith(("wall_s", "hops_per_s")) and name != "metrics.runs"]
    return [[row[i] for i in keep] for row in rows]


def make_modes():
    """The bench as a library, compiled once."""
    if not os.path.exists("modes.so"):
        include = os.path.join(HERE, "..", "..", "include")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-I", include,
                        os.path.join(HERE, "modes.c"), "-o", "modes.so"], check=True)
    return ["--bench", "./modes.so"]


GRID = ["--bench", "va_offset_verify", "--over", "rows=1..3", "--over", "sip.ucie.bw_gbs=128,256"]


@case
def runs_each_point_once():
    first = points(*GRID, "--workers", "2")
    assert [p["axes"] for p in first] == [{"rows": r, "sip.ucie.bw_gbs": b}
                                          for r in (1, 2, 3) for b in (128, 256)]
    assert all(p["status"] == "ok" for p in first)
    assert count_runs() == 6
    assert points(*GRID) == first
    assert count_runs() == 6
    points(*GRID, "--force")
    assert count_runs() == 12
    points(*GRID, "--over", "rows=2..4")
    assert count_runs() == 14


@case
def a_point_is_like_a_run():
    point = points(*GRID)[3]["figures"]
    alone = subprocess.run([KERNBENCH, "run", "--bench", "va_offset_verify", "--param", "rows=2",
                            "--set", "sip.ucie.bw_gbs=256", "--json", "--quiet"],
                           capture_output=True, text=True, check=True)
    document = json.loads(alone.stdout)
    assert point["sim_ns"] == document["sim_ns"]
    assert point["events"] == document["events"]
    command = stored("select command from runs where key like '%' order by rowid limit 1")[0][0]
    assert command.startswith("kernbench run --bench va_offset_verify "), command


@case
def one_machine_written_in_two_ways_is_one_point():
    points("--bench", "va_offset_verify", "--param", "rows=1", "--over", "sip.ucie.bw_gbs=128,256")
    points("--bench", "va_offset_verify", "--over", "rows=1,2", "--set", "sip.ucie.bw_gbs=128.0")
    assert count_runs() == 3
    points("--bench", "va_offset_verify", "--over", "columns=1001", "--param", "rows=1",
           "--set", "sip.ucie.bw_gbs=128")  # the default, given
    assert count_runs() == 3


@case
def points_may_fail_in_every_way():
    bench = make_modes()
    plan = [*bench, "--over", "mode=good,wrong,crash,exit,hang,memory,deadlock,fault",
            "--verify-data", "--timeout", "5", "--memory-per-point", "256MiB"]
    found = {p["axes"]["mode"]: p for p in points(*plan, status=1)}
    status = {mode: p["status"] for mode, p in found.items()}
    assert status == {"good": "ok", "wrong": "wrong", "crash": "crashed", "exit": "crashed",
                      "hang": "timeout", "memory": "no-memory", "deadlock": "deadlock",
                      "fault": "failed"}, status
    words = {"wrong": "elements are wrong", "crash": "segmentation fault", "exit": "called exit()",
             "hang": "--timeout", "memory": "--memory-per-point", "deadlock": "deadlock at",
             "fault": "0x"}
    if SANITIZED:
        del words["crash"]
    for mode, text in words.items():
        assert text in found[mode]["message"], found[mode]["message"]
    codes = dict(stored("select json_extract(parameters, '$.mode'), exit_code from runs"))
    assert codes["good"] == 0 and codes["wrong"] == 1 and codes["deadlock"] == 4
    assert codes["fault"] == 3 and (SANITIZED or codes["crash"] == 3)
    runs = count_runs()
    points(*plan, status=1)
    assert count_runs() == runs
    points(*plan, "--retry-failed", status=1)
    assert count_runs() == runs + 7


@case
def globals_are_new_in_each_point():
    found = points(*make_modes(), "--over", "n=1..5", "--workers", "1")
    assert [p["figures"]["metrics.runs"] for p in found] == [1] * 5


@case
def settings_that_make_no_machine_are_points_that_failed():
    found = points("--bench", "va_offset_verify", "--param", "rows=1",
                   "--over", "sip.ucie.bw_gbs=0,256", status=1)
    assert [p["status"] for p in found] == ["failed", "ok"]
    assert "found '0'" in found[0]["message"]
    assert count_runs() == 2


@case
def without_a_figure_the_failures_are_shown():
    out = sweep("--bench", "va_offset_verify", "--over", "rows=1,2", "--set", "cube.noc.w=99",
                "--value", "sim_ns", "--best", "sim_ns:min", status=1)
    assert "rows = 2: failed" in out and "found '99'" in out, out


@case
def failed_points_are_retried_on_request():
    plan = [*make_modes(), "--over", "mode=good,later"]
    environment = {"MODES_FILE": os.path.abspath("now")}
    assert [p["status"] for p in points(*plan, status=1, env=environment)] == ["ok", "failed"]
    open("now", "w", encoding="utf-8").close()
    points(*plan, status=1, env=environment)
    assert count_runs() == 2
    assert [p["status"] for p in points(*plan, "--retry-failed", env=environment)] == ["ok", "ok"]
    assert count_runs() == 3


def interrupt(number):
    plan = [*make_modes(), "--over", "n=1..40", "--param", "wait_us=50000", "--workers", "2"]
    process = subprocess.Popen([KERNBENCH, "sweep", *plan], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + PATIENCE
    while not os.path.exists("kernbench.db") or not stored(
            "select name from sqlite_master where name = 'runs'") or count_runs() < 3:
        assert time.monotonic() < limit and process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    _, messages = process.communicate(timeout=PATIENCE)
    assert process.returncode == -number, process.returncode
    if number != signal.SIGKILL:
        assert "interrupted: " in messages and "the same command goes on" in messages, messages
    done = count_runs()
    assert 3 <= done < 40
    interrupted = table(*plan)
    assert count_runs() == 40
    os.remove("kernbench.db")
    assert table(*plan) == interrupted


@case
def goes_on_after_an_interrupt():
    interrupt(signal.SIGINT)


@case
def goes_on_after_a_termination():
    interrupt(signal.SIGTERM)


@case
def goes_on_after_a_kill():
    interrupt(signal.SIGKILL)


@case
def shards_are_the_sweep():
    plan = [*GRID, "--where", "rows != 2 or sip.ucie.bw_gbs > 128"]
    for shard in (1, 2, 3):
        points(*plan, "--shard", f"{shard}/3", "--store", f"{shard}.db")
    assert [count_runs(f"{s}.db") for s in (1, 2, 3)] == [2, 2, 1]
    sweep("merge", "all.db", "1.db", "2.db", "3.db")
    assert count_runs("all.db") == 5
    merged = table(*plan, "--store", "all.db")
    assert count_runs("all.db") == 5
    assert merged == table(*plan, "--store", "undivided.db")
    assert "0 runs added, 2 there already" in sweep("merge", "all.db", "1.db")


@case
def any_number_of_workers_gives_the_same_table():
    first = table(*GRID, "--workers", "1", "--store", "1.db")
    assert table(*GRID, "--workers", "5", "--store", "5.db") == first


@case
def reads_plans():
    with open("plan.yaml", "w", encoding="utf-8") as file:
        file.write("bench:\n"
                   "  va_offset_verify: {over: {rows: 1..2}}\n"
                   "  gemm_single_pe: {param: {m: 16, n: 16}, over: {k: [16, 32]}}\n"
                   "over: {topology: [default, odd.yaml]}\n"
                   "derived: {us: sim_ns / 1000}\n"
                   "timing_only: true\n"
                   "store: plan.db\n")
    shutil.copy(os.path.join(HERE, "..", "docs", "odd.yaml"), "odd.yaml")
    found = points("plan.yaml")
    assert len(found) == 8 and count_runs("plan.db") == 8
    assert found[0]["axes"] == {"bench": "va_offset_verify", "topology": "default", "rows": 1}
    assert found[7]["axes"] == {"bench": "gemm_single_pe", "topology": "odd.yaml", "k": 32}
    for point in found:
        assert abs(point["figures"]["us"] * 1000 - point["figures"]["sim_ns"]) < 1e-6
    with open("odd.yaml", "a", encoding="utf-8") as file:
        file.write("\n# the machine is the same, so its points are found again\n")
    assert points("plan.yaml") == found and count_runs("plan.db") == 8
    points("plan.yaml", "--set", "sip.ucie.bw_gbs=100")
    assert count_runs("plan.db") == 16


@case
def a_dry_run_changes_nothing():
    text = sweep(*GRID, "--dry-run")
    assert text.startswith("6 points, 0 stored, 6 to run:\n  rows=1  sip.ucie.bw_gbs=128\n"), text
    assert "with" in text.splitlines()[-1] and not os.path.exists("kernbench.db")
    points(*GRID, "--over", "rows=1")
    plan = json.loads(sweep(*GRID, "--dry-run", "--json", "--quiet"))
    assert plan["points"] == 6 and plan["stored"] == 2 and plan["estimated_s"] > 0
    assert count_runs() == 2


@case
def repetitions_are_points():
    found = points("--bench", "va_offset_verify", "--param", "rows=1", "--repeat", "3")
    assert [p["axes"] for p in found] == [{"repeat": r} for r in (1, 2, 3)]
    assert len({p["figures"]["sim_ns"] for p in found}) == 1 and count_runs() == 3


@case
def a_bench_whose_file_changes_is_run_again():
    make_modes()
    points("--bench", "./modes.so", "--over", "n=1,2")
    with open("modes.so", "ab") as file:
        file.write(b"\0")
    points("--bench", "./modes.so", "--over", "n=1,2")
    assert count_runs() == 4
    os.remove("modes.so")


@case
def mistakes_are_found_before_anything_runs():
    base = ["--bench", "va_offset_verify"]
    mistakes = {
        ("--over", "rwos=1..4"): "did you mean 'rows'?",
        ("--over", "rows=0,1"): "expected a whole number",
        ("--param", "rwos=1"): "did you mean 'rows'?",
        ("--over", "sip.uice.bw_gbs=1,2"): "did you mean 'sip.ucie'?",
        ("--set", "sip.uice.bw_gbs=1"): "did you mean 'sip.ucie'?",
        ("--over", "ccl.nothing=1,2"): "unknown key 'nothing'",
        ("--over", "topology=default,missing.yaml"): "missing.yaml",
        ("--over", "bench=va_offset_verify"): "fixed value",
        ("--over", "rows=2..1"): "ends before it begins",
        ("--where", "rwos > 1", "--over", "rows=1,2"): "did you mean 'rows'?",
        ("--where", "rows >", "--over", "rows=1,2"): "--where",
        ("--shard", "0/3", "--over", "rows=1,2"): "expected I/N",
        ("--zip", "rows,columns", "--over", "rows=1,2"): "'columns' is not an axis",
    }
    for words, message in mistakes.items():
        sweep(*base, *words, status=2)
        assert message in sweep.messages, (words, sweep.messages)
        assert sum(l.startswith("kernbench: ") for l in sweep.messages.splitlines()) == 1
    assert not os.path.exists("kernbench.db")
    sweep("merge", "only.db", status=2)
    sweep("merge", "all.db", "missing.db", status=2)


@case
def a_bench_in_python_is_a_program_of_its_own():
    if not os.path.exists(os.path.join(BUILD, "python", "kernbench")):
        return
    with open("bench.py", "w", encoding="utf-8") as file:
        file.write("def run(torch):\n"
                   "    pass\n")
    found = points("--bench", "./bench.py", "--over", "sip.ucie.bw_gbs=128,256")
    assert [p["status"] for p in found] == ["ok", "ok"], found
    points("--bench", "./bench.py", "--over", "sip.ucie.bw_gbs=128,256")
    assert count_runs() == 2
    with open("bench.py", "w", encoding="utf-8") as file:
        file.write("def run(torch):\n"
                   "    raise ValueError('no')\n")
    found = points("--bench", "./bench.py", "--over", "sip.ucie.bw_gbs=128,256", status=1)
    assert [p["status"] for p in found] == ["failed", "failed"], found


def main():
    chosen = sys.argv[2:]
    failed = 0
    ran = [function for function in CASES if not chosen or function.__name__ in chosen]
    for function in ran:
        name = function.__name__.replace("_", " ")
        print(f"[ RUN      ] {name}", flush=True)
        folder = tempfile.mkdtemp()
        os.chdir(folder)
        try:
            function()
            print(f"[       OK ] {name}", flush=True)
        except Exception:  # pylint: disable=broad-exception-caught
            traceback.print_exc()
            failed += 1
            print(f"[  FAILED  ] {name}", flush=True)
        os.chdir("/")
        shutil.rmtree(folder)
    print(f"[  PASSED  ] {len(ran) - failed} test(s).")
    if failed:
        print(f"[  FAILED  ] {failed} test(s).")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
