"""Benches, the command line in process and as a program."""

import json
import subprocess
import sys

import pytest
import yaml

from kernbench.cli.main import main
from kernbench.runtime_api.bench_runner import run_bench
from kernbench.runtime_api.types import resolve_device
from kernbench.sim_engine.engine import GraphEngine
from kernbench.topology.builder import resolve_topology
from support import BUILD, MACHINE, PROGRAM, ROOT, environment, python

MINE = """
from kernbench.policy.placement.dp import DPPolicy


def run(torch):
    x = torch.zeros((1, 64), dtype="f16", dp=DPPolicy(num_cubes=1, num_pes=1), name="x")

    def kernel(p, tl):
        tl.store(p, tl.load(p, shape=(64,), dtype="f16") + 1)

    torch.launch("mine", kernel, x)
    print("sum", float(x.numpy().sum()))
"""


@pytest.fixture
def fresh_benches(monkeypatch):
    """benches.* is imported anew."""
    for name in [n for n in sys.modules if n == "benches" or n.startswith("benches.")]:
        monkeypatch.delitem(sys.modules, name)


def run(*args):
    return main(["run", "--topology", str(MACHINE), *args])


class TestAllReduceBench:
    @pytest.mark.parametrize(
        "algorithm, count, topology, line",
        [
            ("intercube_allreduce", 2, "ring_1d", "intercube_allreduce (ws=2): 32 OK"),
            ("intercube_allreduce", 4, "torus_2d", "intercube_allreduce (ws=4): 64 OK"),
            ("intercube_allreduce", 4, "mesh_2d_no_wrap", "intercube_allreduce (ws=4): 64 OK"),
            ("ring_allreduce_tcm", 2, "ring_1d", "ring_allreduce_tcm (ws=2): 2 OK"),
            ("mesh_allreduce_4", 2, "ring_1d", "mesh_allreduce_4 (ws=4): 4 OK"),
            ("tree_allreduce_7", 2, "ring_1d", "tree_allreduce_7 (ws=7): 7 OK"),
        ],
    )
    def test_lines(self, write_ccl, machine_file, capsys, fresh_benches, algorithm, count,
                   topology, line):
        write_ccl(algorithm)
        path = machine_file(count, topology)
        assert main(["run", "--topology", path, "--bench", "ccl_allreduce", "--verify-data"]) == 0
        out = capsys.readouterr().out
        assert line in out and "FAIL" not in out

    @pytest.mark.parametrize("buffer", ["tcm", "hbm", "sram"])
    def test_ranks_are_pes(self, write_ccl, capsys, fresh_benches, buffer):
        name = f"ring_allreduce_{buffer}"
        write_ccl(name, {name: {"world_size": 8, "n_elem": 32}})
        assert run("--bench", "ccl_allreduce") == 0
        out = capsys.readouterr().out
        assert f"{name} (ws=8): 8 OK" in out and "FAIL" not in out

    def test_ring_over_256(self, write_ccl, capsys, fresh_benches):
        write_ccl("ring_allreduce_tcm", {"ring_allreduce_tcm": {"world_size": 256}})
        assert run("--bench", "ccl_allreduce") == 0
        assert "ring_allreduce_tcm (ws=256): 256 OK" in capsys.readouterr().out

    def test_imported_from_an_empty_folder(self, write_ccl, capsys, fresh_benches):
        write_ccl("intercube_allreduce")
        import benches.ccl_allreduce as bench

        r = run_bench(
            topology=resolve_topology(str(MACHINE)), bench_fn=bench.run,
            device=resolve_device("all"),
            engine_factory=lambda t, d: GraphEngine(getattr(t, "topology_obj", t),
                                                    enable_data=True),
        )
        assert r.completion.ok
        assert "intercube_allreduce (ws=2): 32 OK" in capsys.readouterr().out
        assert any(t["name"] == "intercube_allreduce" for t in r.traces)

    def test_import_module(self, write_ccl, fresh_benches):
        write_ccl("intercube_allreduce")
        import importlib

        assert callable(importlib.import_module("benches.ccl_allreduce").run)

    def test_the_folder_is_a_namespace(self):
        assert not (ROOT / "python" / "benches" / "__init__.py").exists()

    def test_one_device(self, write_ccl, capsys, fresh_benches):
        write_ccl("intercube_allreduce")
        assert run("--bench", "ccl_allreduce", "--device", "sip:1") == 0
        assert "(ws=1): 16 OK" in capsys.readouterr().out


class TestUsersBenches:
    def test_in_the_working_folder(self, tmp_path, monkeypatch, capsys, fresh_benches):
        (tmp_path / "benches").mkdir()
        (tmp_path / "benches" / "mine.py").write_text(MINE)
        monkeypatch.chdir(tmp_path)
        assert run("--bench", "mine") == 0
        assert "sum 64.0" in capsys.readouterr().out

    def test_before_ours(self, tmp_path, monkeypatch, capsys, fresh_benches):
        (tmp_path / "benches").mkdir()
        (tmp_path / "benches" / "ccl_allreduce.py").write_text(MINE)
        monkeypatch.chdir(tmp_path)
        assert run("--bench", "ccl_allreduce") == 0
        assert "sum 64.0" in capsys.readouterr().out

    def test_on_the_path(self, tmp_path, monkeypatch, capsys, fresh_benches):
        (tmp_path / "lib" / "benches").mkdir(parents=True)
        (tmp_path / "lib" / "benches" / "elsewhere.py").write_text(MINE)
        (tmp_path / "work").mkdir()
        monkeypatch.chdir(tmp_path / "work")
        monkeypatch.syspath_prepend(str(tmp_path / "lib"))
        assert run("--bench", "elsewhere") == 0
        assert "sum 64.0" in capsys.readouterr().out

    def test_beside_a_package_of_that_name(self, tmp_path, monkeypatch, capsys, fresh_benches):
        """A folder benches/ with an __init__.py hides ours from `import`, not from --bench."""
        (tmp_path / "benches").mkdir()
        (tmp_path / "benches" / "__init__.py").write_text("")
        (tmp_path / "benches" / "mine.py").write_text(MINE)
        (tmp_path / "nothing.py").write_text(
            "def kernel_args(world_size, n_elem):\n    return (n_elem,)\n"
            "def kernel(t_ptr, n_elem, tl):\n    pass\n")
        (tmp_path / "ccl.yaml").write_text(
            "defaults: { algorithm: idle }\n"
            "algorithms: { idle: { module: nothing, topology: ring_1d, world_size: 4, n_elem: 8 } }"
            "\n")
        monkeypatch.chdir(tmp_path)
        try:
            assert run("--bench", "mine") == 0
            assert "sum 64.0" in capsys.readouterr().out
            assert run("--bench", "ccl_allreduce") == 1  # in Python: it knows the module
            line = "[FAIL] idle (ws=4): got mean=1.000, expected=10.000"
            assert line in capsys.readouterr().out
        finally:
            for name in [n for n in sys.modules if n.split(".")[0] == "benches"]:
                del sys.modules[name]

    def test_by_its_file(self, tmp_path, monkeypatch, capsys, fresh_benches):
        (tmp_path / "mine.py").write_text(MINE)
        monkeypatch.chdir(tmp_path)
        assert run("--bench", "./mine.py") == 0
        assert "sum 64.0" in capsys.readouterr().out

    def test_device(self, tmp_path, monkeypatch, capsys, fresh_benches):
        (tmp_path / "mine.py").write_text(MINE.replace('print("sum"', "print('sip', x._handle."
                                                       'shards[0].sip, "sum"'))
        monkeypatch.chdir(tmp_path)
        assert run("--bench", "./mine.py", "--device", "sip:1") == 0
        assert "sip 1 sum" in capsys.readouterr().out

    def test_an_exception_is_reported(self, tmp_path, monkeypatch, capfd, fresh_benches):
        (tmp_path / "mine.py").write_text("def run(torch):\n    raise ValueError('broken')\n")
        monkeypatch.chdir(tmp_path)
        try:
            code = run("--bench", "./mine.py")
        except ValueError as e:
            assert "broken" in str(e)
            return
        assert code != 0
        assert "broken" in capfd.readouterr().err

    def test_one_that_is_not_there(self, tmp_path, monkeypatch, capsys, fresh_benches):
        monkeypatch.chdir(tmp_path)
        assert run("--bench", "no_such_bench") == 2
        assert "no_such_bench" in capsys.readouterr().err

    def test_without_run(self, tmp_path, monkeypatch, capsys, fresh_benches):
        (tmp_path / "mine.py").write_text("x = 1\n")
        monkeypatch.chdir(tmp_path)
        assert run("--bench", "./mine.py") == 2
        assert "no function run(torch)" in capsys.readouterr().err

    @pytest.mark.parametrize("text, reason", [
        ("def run(torch:\n", "SyntaxError"),
        ("x = 1\nimport no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
    ])
    def test_one_that_cannot_be_loaded(self, tmp_path, monkeypatch, capsys, fresh_benches, text,
                                       reason):
        (tmp_path / "benches").mkdir()
        (tmp_path / "benches" / "mine.py").write_text(text)
        monkeypatch.chdir(tmp_path)
        for name in ("mine", "./benches/mine.py"):
            assert run("--bench", name) == 2
            err = capsys.readouterr().err
            assert f"kernbench: cannot load {name}: {reason}" in err
            assert "mine.py\", line" in err and "importlib" not in err and "main.py" not in err

    def test_of_a_folder_that_was_left(self, tmp_path, monkeypatch, capsys):
        """Each run looks where the program is then."""
        for folder, text in (("one", "first"), ("two", "second"), ("none", None)):
            (tmp_path / folder / "benches").mkdir(parents=True)
            if text:
                (tmp_path / folder / "benches" / "mine.py").write_text(
                    f"def run(torch):\n    print('{text}')\n")
            monkeypatch.chdir(tmp_path / folder)
            code = run("--bench", "mine")
            captured = capsys.readouterr()
            if text:
                assert code == 0 and text in captured.out
            else:
                assert code == 2 and "mine" in captured.err


class TestCommandsInProcess:
    def test_a_bench_in_c(self, capsys, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert run("--bench", "va_offset_verify", "--verify-data") == 0
        captured = capsys.readouterr()
        assert "ns" in captured.out

    def test_probe(self, capsys):
        assert main(["probe", "--topology", str(MACHINE)]) == 0
        assert "pe-local-hbm" in capsys.readouterr().out

    def test_one_case_of_probe(self, capsys):
        assert main(["probe", "--topology", str(MACHINE), "--case", "h2d-near"]) == 0
        out = capsys.readouterr().out
        assert "h2d-near" in out and "ns" in out

    def test_json(self, capsys, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert run("--bench", "gemm_single_pe", "--json") == 0
        result = json.loads(capsys.readouterr().out)
        assert result["bench"] == "gemm_single_pe" and result["sim_ns"] > 0

    def test_bad_usage(self, capsys):
        assert main(["no_such_command"]) == 2
        assert "no_such_command" in capsys.readouterr().err
        assert main(["run", "--topology", "/nowhere.yaml", "--bench", "gemm_single_pe"]) == 2
        assert "nowhere.yaml" in capsys.readouterr().err

    def test_help(self, capsys):
        assert main(["--help"]) == 0
        assert "run" in capsys.readouterr().out
        assert main(["run", "--help"]) == 0
        assert "--bench" in capsys.readouterr().out

    def test_list(self, capsys):
        assert main(["list"]) == 0
        assert "ccl_allreduce" in capsys.readouterr().out

    def test_again_and_again(self, capsys):
        texts = set()
        for _ in range(5):
            assert main(["probe", "--topology", str(MACHINE), "--case", "h2d-near"]) == 0
            texts.add(capsys.readouterr().out)
        assert len(texts) == 1

    def test_the_program_prints_the_same(self, capsys):
        if not PROGRAM.exists():
            pytest.skip("the program is not built")
        args = ["probe", "--topology", str(MACHINE), "--case", "pe-remote-cube-far"]
        assert main(args) == 0
        done = subprocess.run([str(PROGRAM), *args], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout == capsys.readouterr().out

    def test_output_reaches_sys_stdout_of_that_moment(self):
        import contextlib
        import io

        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            assert main(["list"]) == 0
        assert "ccl_allreduce" in text.getvalue()

    def test_a_stdout_that_fails(self):
        import contextlib

        class Broken:
            def write(self, text):
                raise OSError("the stream is broken")

            def flush(self):
                pass

        with contextlib.redirect_stdout(Broken()):
            try:
                code = main(["list"])
            except OSError:
                code = -1
        assert code != 0


class TestAsPrograms:
    def test_python_m_kernbench(self, tmp_path):
        (tmp_path / "ccl.yaml").write_text(yaml.dump({
            "defaults": {"algorithm": "intercube_allreduce"},
            "algorithms": {"intercube_allreduce": {
                "module": "kernbench.ccl.algorithms.intercube_allreduce", "topology": "none",
                "n_elem": 8}},
        }))
        done = python("-m", "kernbench", "run", "--topology", MACHINE, "--bench", "ccl_allreduce",
                      cwd=tmp_path)
        assert "intercube_allreduce (ws=2): 32 OK" in done.stdout and "FAIL" not in done.stdout

    def test_exit_codes(self, tmp_path):
        assert python("-m", "kernbench", "run", "--bench", "nothing", cwd=tmp_path,
                      check=False).returncode == 2
        assert python("-m", "kernbench", "list", cwd=tmp_path).returncode == 0
        deadlock = """
from kernbench.policy.placement.dp import DPPolicy


def run(torch):
    torch.install_ipcq(algorithm="ring_allreduce_tcm", world_size_override=8)
    x = torch.zeros((1, 64), dtype="f16", dp=DPPolicy(num_cubes=1, pe="column_wise"))
    torch.launch("waits", lambda p, tl: tl.recv(dir="W"), x)
"""
        (tmp_path / "stuck.py").write_text(deadlock)
        done = python("-m", "kernbench", "run", "--bench", "./stuck.py", cwd=tmp_path, check=False)
        assert done.returncode == 4, done.stdout + done.stderr
        (tmp_path / "fault.py").write_text(MINE.replace("tl.load(p,", "tl.load(p + (1 << 40),"))
        done = python("-m", "kernbench", "run", "--bench", "./fault.py", cwd=tmp_path, check=False)
        assert done.returncode == 3, done.stdout + done.stderr
        assert "fault.py" in done.stderr

    @pytest.mark.skipif(not PROGRAM.exists(), reason="the program is not built")
    def test_a_python_bench_from_the_program(self, tmp_path):
        (tmp_path / "mine.py").write_text(MINE)
        done = subprocess.run([str(PROGRAM), "run", "--bench", "./mine.py"], cwd=tmp_path,
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert "sum 64.0" in done.stdout

    @pytest.mark.skipif(not PROGRAM.exists(), reason="the program is not built")
    def test_a_new_python_bench(self, tmp_path):
        done = subprocess.run([str(PROGRAM), "new", "bench", "mine", "--python"], cwd=tmp_path,
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "mine.py").exists()
        done = subprocess.run([str(PROGRAM), "run", "--bench", "./mine.py", "--verify-data"],
                              cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

    @pytest.mark.skipif(not PROGRAM.exists(), reason="the program is not built")
    def test_kb_python_keeps_the_working_folder(self, tmp_path):
        if BUILD != ROOT / "build" or "no work to do" not in subprocess.run(
            ["ninja", "-C", str(BUILD), "-n", "kernbench_cli", "kernbench_python"],
            capture_output=True, text=True).stdout:
            pytest.skip("kb would build something first")
        link = tmp_path / "kb-link"
        link.symlink_to(ROOT / "kb")
        code = "import os, kernbench; print(os.getcwd())"
        done = subprocess.run([str(link), "python", "-c", code], cwd=tmp_path, capture_output=True,
                              text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == str(tmp_path)

    def test_broken_pipe(self, tmp_path):
        done = subprocess.run(f"{sys.executable} -m kernbench list | head -1", shell=True,
                              env=environment(), capture_output=True, text=True, timeout=60)
        assert "Traceback" not in done.stderr
