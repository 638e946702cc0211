"""Traces of queues, the pointer dump, deadlocks."""

import importlib

import pytest

import kernbench as kb
import kernbench.ccl.diagnostics as diagnostics
from kernbench.ccl.diagnostics import IpcqDeadlock
from kernbench.cli.main import main
from support import MACHINE, cube_rows, make_context, one_pe, pe_columns


@pytest.fixture
def setting(monkeypatch):
    """setting(value): the environment variable, as reloaded; reset at the end."""

    def change(value):
        if value is None:
            monkeypatch.delenv("KERNBENCH_CCL_TRACE", raising=False)
        else:
            monkeypatch.setenv("KERNBENCH_CCL_TRACE", value)
        diagnostics.reload_trace_setting()

    yield change
    monkeypatch.undo()
    diagnostics.reload_trace_setting()


def shift(p, tl):
    mine = p + tl.program_id(0) * 16
    tl.send(dir="E", src=tl.load(mine, shape=(8,), dtype="f16"))
    tl.store(mine, tl.recv(dir="W", shape=(8,), dtype="f16"))


@pytest.fixture
def ring(write_ccl):
    write_ccl("ring_allreduce_tcm")
    with make_context() as ctx:
        ctx.install_ipcq(algorithm="ring_allreduce_tcm", world_size_override=4)
        yield ctx


class TestTrace:
    def test_enabled(self, setting):
        setting("1")
        assert diagnostics.trace_enabled() is True
        setting(None)
        assert diagnostics.trace_enabled() is False
        setting("0")
        assert diagnostics.trace_enabled() is False

    def test_it_stays_as_it_was_read(self, setting, monkeypatch):
        setting(None)
        monkeypatch.setenv("KERNBENCH_CCL_TRACE", "1")
        assert diagnostics.trace_enabled() is False
        diagnostics.reload_trace_setting()
        assert diagnostics.trace_enabled() is True

    def test_lines_by_hand(self, setting, capsys):
        setting("1")
        diagnostics.log_send(t_ns=12.5, sender="sip0.cube0.pe1", direction="E", nbytes=64,
                             sender_seq=3)
        diagnostics.log_recv(t_ns=13.5, receiver="sip0.cube0.pe2", direction="W", nbytes=64)
        send, recv = capsys.readouterr().out.splitlines()
        assert "send" in send and "sip0.cube0.pe1" in send and "dir=E" in send and "64" in send
        assert "12.5" in send and "3" in send
        assert "recv" in recv and "sip0.cube0.pe2" in recv and "dir=W" in recv

    def test_no_lines_when_it_is_off(self, setting, capsys):
        setting(None)
        diagnostics.log_send(t_ns=1.0, sender="x", direction="E", nbytes=1, sender_seq=0)
        diagnostics.log_recv(t_ns=1.0, receiver="x", direction="E", nbytes=1)
        assert capsys.readouterr().out == ""

    def test_lines_of_a_run(self, setting, capsys, write_ccl):
        setting("1")
        write_ccl("ring_allreduce_tcm")
        with make_context() as ctx:
            ctx.install_ipcq(algorithm="ring_allreduce_tcm", world_size_override=4)
            ctx.launch("k", shift, ctx.zeros((1, 32), dp=pe_columns(4)))
        out = capsys.readouterr().out
        sends = [line for line in out.splitlines() if "send" in line and "dir=E" in line]
        recvs = [line for line in out.splitlines() if "recv" in line and "dir=W" in line]
        assert len(sends) == 4 and len(recvs) == 4
        for pe in range(4):
            assert any(f"sip0.cube0.pe{pe}" in line for line in sends)

    def test_lines_of_a_run_that_sets_it_late(self, monkeypatch, capsys, write_ccl):
        """The variable is set, and nothing is reloaded."""
        monkeypatch.setenv("KERNBENCH_CCL_TRACE", "1")
        write_ccl("intercube_allreduce")
        with make_context() as ctx:
            ctx.distributed.init_process_group(backend="ahbm")

            def worker(rank):
                ctx.ahbm.set_device(rank)
                ctx.distributed.all_reduce(ctx.zeros((16, 8), dp=cube_rows()))

            ctx.multiprocessing.spawn(worker, nprocs=2)
        captured = capsys.readouterr()
        assert "dir=E" in captured.out and "send" in captured.out and "recv" in captured.out
        assert "sip0.cube0.pe0" in captured.out
        assert "dir=" not in captured.err

    @pytest.mark.parametrize("how", ["the environment", "the setting"])
    def test_lines_of_the_command_line(self, setting, monkeypatch, capsys, write_ccl, how):
        if how == "the setting":
            setting("1")
            monkeypatch.delenv("KERNBENCH_CCL_TRACE")
        else:
            monkeypatch.setenv("KERNBENCH_CCL_TRACE", "1")
        write_ccl("intercube_allreduce")
        assert main(["run", "--topology", str(MACHINE), "--bench", "ccl_allreduce"]) == 0
        captured = capsys.readouterr()
        lines = captured.out.splitlines()
        for pe, what in (("sip0.cube0.pe0", "send"), ("sip0.cube1.pe0", "recv")):
            direction = "dir=E" if what == "send" else "dir=W"
            assert any(pe in line and what in line and direction in line for line in lines)
        assert "intercube_allreduce (ws=2): 32 OK" in lines
        assert "sip0" not in captured.err

    def test_lines_of_kb_run(self, monkeypatch, capsys, write_ccl):
        def bench(torch):
            torch.install_ipcq(algorithm="ring_allreduce_tcm", world_size_override=4)
            torch.launch("k", shift, torch.zeros((1, 32), dp=pe_columns(4)))

        monkeypatch.setenv("KERNBENCH_CCL_TRACE", "1")
        write_ccl("ring_allreduce_tcm")
        kb.run(bench)
        assert capsys.readouterr().out.count("dir=E") == 4

    def test_a_quiet_run(self, setting, capsys, ring):
        setting(None)
        ring.launch("k", shift, ring.zeros((1, 32), dp=pe_columns(4)))
        assert capsys.readouterr().out == ""


class TestPointerDump:
    def test_what_it_shows(self, ring):
        ring.launch("k", shift, ring.zeros((1, 32), dp=pe_columns(4)))
        text = diagnostics.pointer_dump(ring.engine)
        assert isinstance(text, str)
        for part in ("sip0.cube0.pe0", "sip0.cube0.pe3", "E:", "W:", "my_head=1", "my_tail=1",
                     "peer_head_cache=", "peer_tail_cache="):
            assert part in text, part

    def test_nothing_installed(self, ctx):
        assert isinstance(diagnostics.pointer_dump(ctx.engine), str)


class TestDeadlock:
    def test_out_of_launch(self, ring):
        with pytest.raises(IpcqDeadlock) as caught:
            ring.launch("waits", lambda p, tl: tl.recv(dir="W", shape=(8,), dtype="f16"),
                        ring.zeros((1, 32), dp=pe_columns(4)))
        text = str(caught.value)
        assert "my_head=" in text and "peer_tail_cache=" in text and "E:" in text
        assert "sip0.cube0.pe2" in text and "W" in text

    def test_out_of_wait(self, ring):
        [(handle, _, meta)] = ring.launch(
            "waits", lambda p, tl: tl.recv(dir="W", shape=(8,), dtype="f16"),
            ring.zeros((1, 8), dp=one_pe()), _defer_wait=True)
        with pytest.raises(IpcqDeadlock):
            ring.wait(handle, _meta=meta)

    def test_a_sender_without_credits(self, ring):
        def kernel(p, tl):
            v = tl.load(p, shape=(8,), dtype="f16")
            for _ in range(50):
                tl.send(dir="E", src=v)

        with pytest.raises(IpcqDeadlock):
            ring.launch("floods", kernel, ring.zeros((1, 8), dp=one_pe()))

    def test_it_is_the_same_class_everywhere(self):
        module = importlib.import_module("kernbench.ccl.diagnostics")
        assert module.IpcqDeadlock is IpcqDeadlock
        assert issubclass(IpcqDeadlock, Exception)

    def test_the_kernel_unwinds(self, ring):
        log = []

        def kernel(p, tl):
            try:
                tl.recv(dir="W", shape=(8,), dtype="f16")
            finally:
                log.append(tl.program_id(0))

        with pytest.raises(IpcqDeadlock):
            ring.launch("waits", kernel, ring.zeros((1, 32), dp=pe_columns(4)))
        assert sorted(log) == [0, 1, 2, 3]

    def test_the_next_context_works(self, write_ccl):
        write_ccl("ring_allreduce_tcm")
        for _ in range(3):
            with make_context() as ctx:
                ctx.install_ipcq(algorithm="ring_allreduce_tcm", world_size_override=4)
                with pytest.raises(IpcqDeadlock):
                    ctx.launch("waits", lambda p, tl: tl.recv(dir="W"),
                               ctx.zeros((1, 32), dp=pe_columns(4)))

    def test_in_a_worker(self, ring):
        from kernbench.runtime_api.multiprocessing import SpawnException

        def worker(rank):
            ring.launch("waits", lambda p, tl: tl.recv(dir="W"), ring.zeros((1, 8), dp=one_pe()))

        with pytest.raises((IpcqDeadlock, SpawnException)) as caught:
            ring.multiprocessing.spawn(worker, nprocs=1)
        if isinstance(caught.value, SpawnException):
            assert isinstance(caught.value.errors[0], IpcqDeadlock)
