"""MemoryStore, OpLogger, commands and handles: no engine, no context."""

import numpy as np
import pytest

from kernbench.common.pe_commands import GemmCmd, MathCmd, TensorHandle
from kernbench.sim_engine.memory_store import MemoryStore
from kernbench.sim_engine.op_log import OpLogger
from kernbench.triton_emu.tl_context import TLContext


def handle(name, addr, shape, data=None, space="tcm"):
    return TensorHandle(
        id=name, addr=addr, shape=shape, dtype="f16", nbytes=2 * int(np.prod(shape)), data=data,
        space=space,
    )


def logged(store, cmd, between=None):
    log = OpLogger(memory_store=store)
    log.record_start(10.0, "sip0.cube0.pe0.pe_math", cmd)
    if between:
        between()
    log.record_end(25.0, "sip0.cube0.pe0.pe_math", cmd)
    return log


class TestMemoryStore:
    def test_write_and_read(self):
        store = MemoryStore()
        a = np.arange(8, dtype=np.float16)
        store.write("hbm", 0x1000, a)
        got = store.read("hbm", 0x1000, shape=(8,), dtype=np.float16)
        assert isinstance(got, np.ndarray) and (got == a).all()
        assert (store.read("hbm", 0x1000, shape=(2, 4), dtype="f16") == a.reshape(2, 4)).all()

    def test_spaces_are_apart(self):
        store = MemoryStore()
        store.write("hbm", 0x1000, np.ones(4, np.float16))
        store.write("tcm", 0x1000, np.zeros(4, np.float16))
        assert (store.read("hbm", 0x1000, shape=(4,), dtype=np.float16) == 1).all()

    def test_another_size(self):
        store = MemoryStore()
        store.write("tcm", 0, np.ones(8, np.float16))
        with pytest.raises(ValueError, match="Shape mismatch"):
            store.read("tcm", 0, shape=(4,), dtype=np.float16)

    def test_the_last_write_stays(self):
        store = MemoryStore()
        store.write("tcm", 0, np.ones(8, np.float16))
        store.write("tcm", 0, np.full(4, 2, np.float16))
        assert (store.read("tcm", 0, shape=(4,), dtype=np.float16) == 2).all()

    def test_it_keeps_its_own_copy(self):
        store = MemoryStore()
        a = np.ones(4, np.float16)
        store.write("tcm", 0, a)
        a[:] = 5
        assert (store.read("tcm", 0, shape=(4,), dtype=np.float16) == 1).all()


class TestHandle:
    def test_fields(self):
        h = TensorHandle("x", 0x40, (2, 4), "f16", 16)
        assert (h.id, h.addr, h.shape, h.dtype, h.nbytes) == ("x", 0x40, (2, 4), "f16", 16)
        assert h.data is None and h.space == "tcm"
        h = TensorHandle(id="y", addr=1, shape=(4,), dtype="f32", nbytes=16,
                         data=np.ones(4, np.float32), space="hbm")
        assert (h.data == 1).all() and h.space == "hbm"

    def test_missing_arguments(self):
        with pytest.raises(TypeError):
            TensorHandle("x", 0)

    def test_operators_need_a_running_kernel(self):
        a, b = handle("a", 0, (4,)), handle("b", 8, (4,))
        with pytest.raises(RuntimeError):
            a + b


class TestOpLogger:
    def test_record(self):
        store = MemoryStore()
        store.write("tcm", 0, np.ones(4, np.float16))
        cmd = MathCmd(op="exp", inputs=(handle("a", 0, (4,)),), out=handle("o", 64, (4,)))
        log = logged(store, cmd)
        assert isinstance(log.records, list) and len(log.records) == 1
        record = log.records[0]
        assert (record.t_start, record.t_end) == (10.0, 25.0)
        assert isinstance(record.params["input_snapshots"], list)

    def test_the_stores_value_as_of_the_end(self):
        store = MemoryStore()
        store.write("tcm", 0, np.ones(4, np.float16))
        cmd = MathCmd(op="exp", inputs=(handle("a", 0, (4,)),), out=handle("o", 64, (4,)))
        log = logged(store, cmd, lambda: store.write("tcm", 0, np.full(4, 2, np.float16)))
        store.write("tcm", 0, np.full(4, 3, np.float16))
        [got] = log.records[0].params["input_snapshots"]
        assert (got == 2).all() and got.shape == (4,)

    def test_a_carried_value_wins(self):
        store = MemoryStore()
        store.write("tcm", 0, np.zeros(4, np.float16))
        carried = handle("a", 0, (4,), data=np.full(4, 7, np.float16))
        cmd = MathCmd(op="maximum", inputs=(carried, handle("b", 0, (4,))),
                      out=handle("o", 64, (4,)))
        log = logged(store, cmd)
        first, second = log.records[0].params["input_snapshots"]
        assert (first == 7).all() and (second == 0).all()

    def test_a_later_write_of_another_shape(self):
        store = MemoryStore()
        store.write("tcm", 0, np.full(4, 7, np.float16))
        carried = handle("a", 0, (2, 2), data=np.full((2, 2), 7, np.float16))
        cmd = MathCmd(op="exp", inputs=(carried,), out=handle("o", 64, (2, 2)))
        log = logged(store, cmd, lambda: store.write("tcm", 0, np.zeros((8, 3), np.float16)))
        [got] = log.records[0].params["input_snapshots"]
        assert got.shape == (2, 2) and (got == 7).all()

    def test_snapshots_are_copies(self):
        store = MemoryStore()
        data = np.full(4, 7, np.float16)
        cmd = MathCmd(op="exp", inputs=(handle("a", 0, (4,), data=data),),
                      out=handle("o", 64, (4,)))
        log = logged(store, cmd)
        data[:] = 0
        assert (log.records[0].params["input_snapshots"][0] == 7).all()

    def test_one_from_the_store_has_the_handles_shape(self):
        store = MemoryStore()
        store.write("tcm", 0, np.arange(4, dtype=np.float16))
        cmd = MathCmd(op="exp", inputs=(handle("a", 0, (2, 2)),), out=handle("o", 64, (2, 2)))
        [got] = logged(store, cmd).records[0].params["input_snapshots"]
        assert got.shape == (2, 2) and (got.ravel() == np.arange(4)).all()

    def test_records_in_order(self):
        store = MemoryStore()
        store.write("tcm", 0, np.ones(4, np.float16))
        log = OpLogger(memory_store=store)
        cmds = [MathCmd(op="exp", inputs=(handle("a", 0, (4,)),), out=handle("o", 64, (4,)))
                for _ in range(3)]
        for i, cmd in enumerate(cmds):
            log.record_start(float(i), "n", cmd)
        for i, cmd in reversed(list(enumerate(cmds))):
            log.record_end(10.0 + i, "n", cmd)
        assert sorted((r.t_start, r.t_end) for r in log.records) == [
            (0.0, 10.0), (1.0, 11.0), (2.0, 12.0)
        ]

    def test_a_matrix_command(self):
        assert GemmCmd is not None


class TestTLContext:
    def test_program_ids_without_an_engine(self):
        tl = TLContext(pe_id=3, num_programs=8)
        assert tl.program_id(0) == 3 and tl.num_programs(0) == 8
        assert tl.program_id() == 3 and tl.num_programs() == 8
        assert tl.program_id(axis=0) == 3 and tl.num_programs(axis=0) == 8

    def test_each_has_its_own(self):
        assert [TLContext(pe_id=i, num_programs=4).program_id(0) for i in range(4)] == [0, 1, 2, 3]

    def test_set_active(self):
        tl = TLContext(pe_id=0, num_programs=1)
        TLContext._set_active(tl)
        TLContext._set_active(None)

    def test_cdiv(self):
        tl = TLContext(pe_id=0, num_programs=1)
        assert tl.cdiv(7, 2) == 4
        assert TLContext.cdiv(8, 2) == 4
