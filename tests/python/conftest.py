"""Fixtures of the tests of the Python package, and one summary line for each case under ctest."""

import os

import pytest

import support


@pytest.fixture
def ctx():
    """An entered context of the default machine."""
    with support.make_context() as context:
        yield context


@pytest.fixture
def bare_ctx():
    """A context of the default machine that is never entered."""
    return support.make_context()


@pytest.fixture
def write_ccl(tmp_path, monkeypatch):
    """Changes to an empty folder; write_ccl(algorithm, **entries) writes its ccl.yaml."""
    monkeypatch.chdir(tmp_path)

    def write(algorithm, entries=None, **defaults):
        return support.write_ccl(tmp_path / "ccl.yaml", algorithm, entries, **defaults)

    return write


@pytest.fixture
def machine_file(tmp_path):
    """machine_file(count, topology): a topology file made from the default one, as its path."""

    def make(count, topology, **more):
        return support.write_machine(tmp_path / f"{topology}_{count}.yaml", count, topology, **more)

    return make


# tools/run-tests counts cases by the words of cmocka.

_tally = {"passed": 0, "failed": 0}


def pytest_runtest_logreport(report):
    if not os.environ.get("KB_COUNT_CASES"):
        return
    if report.when == "call" or report.failed or report.skipped:
        if report.failed:
            _tally["failed"] += 1
        elif report.passed:
            _tally["passed"] += 1
            print(f"\n[       OK ] {report.nodeid}", flush=True)


def pytest_sessionfinish(session, exitstatus):
    if os.environ.get("KB_COUNT_CASES"):
        print(f"\n[  PASSED  ] {_tally['passed']} test(s).", flush=True)
        if _tally["failed"]:
            print(f"[  FAILED  ] {_tally['failed']} test(s).", flush=True)
