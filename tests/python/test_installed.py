"""The package under a prefix, as `./kb install` puts it there, without the source tree."""

import os
import shutil
import subprocess
import sys

import pytest

from support import BUILD

if not (BUILD / "cmake_install.cmake").exists() or not shutil.which("cmake"):
    pytest.skip("there is no build directory to install from", allow_module_level=True)

BENCH = """
from kernbench.policy.placement.dp import DPPolicy


def run(torch):
    x = torch.zeros((1, 64), dtype="f16", dp=DPPolicy(num_cubes=1, num_pes=1), name="x")
    torch.launch("k", lambda p, tl: tl.store(p, tl.load(p, shape=(64,), dtype="f16") + 1), x)
    print("sum", float(x.numpy().sum()))
"""


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prefix")
    done = subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(folder)],
                          capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not everything is built: " + done.stderr[-300:])
    return folder


def run(prefix, cwd, *command):
    """Runs a command with nothing of the build in its environment."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("KB_", "PYTHON"))}
    env["PYTHONPATH"] = str(prefix / "lib" / "python3" / "dist-packages")
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=env, capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_import(prefix, tmp_path):
    out = run(prefix, tmp_path, sys.executable, "-c",
              "import kernbench as kb; print(kb.__file__); print(kb.run('gemm_single_pe').sim_ns)")
    assert out.splitlines()[0].startswith(str(prefix))
    assert float(out.splitlines()[-1]) > 0


def test_benches_of_ours(prefix, tmp_path):
    out = run(prefix, tmp_path, sys.executable, "-m", "kernbench", "run", "--bench",
              "ccl_allreduce")
    assert "intercube_allreduce (ws=2): 32 OK" in out


def test_the_program_runs_a_bench_in_python(prefix, tmp_path):
    (tmp_path / "mine.py").write_text(BENCH)
    assert "sum 64.0" in run(prefix, tmp_path, prefix / "bin" / "kernbench", "run", "--bench",
                             "./mine.py")


def test_kernels_in_c(prefix, tmp_path):
    (tmp_path / "k.c").write_text("""
#include <kernbench/tl.h>
KB_KERNEL(twice, tl_ptr x) { tl_store(x, tl_mul(tl_load(x, tl_shape(8), TL_F16), 2)); }
""")
    out = run(prefix, tmp_path, sys.executable, "-c", """
import kernbench as kb
c = kb.compile_c("k.c")
with kb.Context() as ctx:
    t = ctx.zeros((1, 8), dp=kb.DPPolicy(num_cubes=1, num_pes=1))
    t[...] = 3
    ctx.launch("k", c.twice, t)
    print(t.numpy().sum())
""")
    assert out.strip() == "48.0"


def test_stubs(prefix):
    package = prefix / "lib" / "python3" / "dist-packages" / "kernbench"
    assert (package / "py.typed").exists() and (package / "_core.pyi").exists()
    assert sorted(p.name for p in package.parent.iterdir()) == ["benches", "kernbench"]
    assert not (package.parent / "benches" / "__init__.py").exists()
