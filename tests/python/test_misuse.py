"""Calls with arguments of any kind: errors are exceptions, never the end of the process."""

import array
import os
import random as rng

import pytest

import kernbench as kb
from kernbench import _core
from kernbench.common.pe_commands import TensorHandle
from support import make_context, one_pe, python

SEED = int(os.environ.get("KB_SEED", "1"))

# Calls that wait for ever, end the context, or print much.
NOT_CALLED = {"recv", "close", "spawn", "run_cli", "cooperative_yield", "free", "load_kernels"}


class Odd:
    """What behaves strangely when it is asked for something."""

    def __index__(self):
        raise ZeroDivisionError("index")

    def __float__(self):
        raise ZeroDivisionError("float")

    def __len__(self):
        raise ZeroDivisionError("len")

    def __getattr__(self, name):
        raise ZeroDivisionError(name)


class Lying(list):
    """A sequence that says it is longer than it is."""

    def __len__(self):
        return 100


def pool(random, values):
    return random.choice(values + [
        None, True, 0, 1, -1, 7, 8, 1 << 31, 1 << 63, 1 << 64, -(1 << 63), 1 << 200, 0.5, -2.0,
        float("inf"), float("nan"), "", "E", "W", "f16", "f32", "i8", "tcm", "hbm", "x" * 5000,
        "\0", "\udc80", "sum", "gemm", b"", b"abc", (), (8,), (2, 4), (0,), (-1,), (1 << 40,),
        (1 << 62, 1 << 62), (1, 2, 3, 4, 5, 6, 7, 8, 9), ("a",), (None,), [8], [], {}, {"a": 1},
        object(), Odd(), Lying([1]), int, len, lambda *a: None, range(3), array.array("f", [1] * 8),
        bytearray(16), memoryview(b"abcd"), Ellipsis, slice(1, 2), 1j,
        TensorHandle("h", 0, (8,), "f16", 16), TensorHandle("h", 1 << 62, (8,), "f16", 16),
        TensorHandle("h", 0, (-5,), "f99", -1, data=Odd(), space="nowhere"),
    ])


NAMES = ["shape", "dtype", "ptr", "value", "dir", "src", "axis", "a", "b", "x", "acc", "mask",
         "other", "strides", "nbytes", "space", "src_addr", "dst_addr", "out_ptr", "op", "nonsense"]


def call(random, function, values):
    args = [pool(random, values) for _ in range(random.randint(0, 4))]
    kwargs = {random.choice(NAMES): pool(random, values) for _ in range(random.randint(0, 2))}
    return function(*args, **kwargs)


def methods(thing):
    return sorted(n for n in dir(thing) if not n.startswith("_") and n not in NOT_CALLED
                  and callable(getattr(thing, n, None)))


def test_the_kernel_language():
    """In each launch random operations until one is a fault, which is final."""
    random = rng.Random(SEED)
    calls = [0]
    for _ in range(60):
        with make_context(enable_data=random.random() < 0.5) as ctx:
            t = ctx.zeros((1, 64), dp=one_pe())

            def kernel(p, tl):
                values = [p, p + 16, tl.load(p, (8,), "f16"), tl.load(p, (2, 4), "f16"),
                          tl.arange(0, 8), tl.ref(p, (8,), "f16"), tl.store(p, tl.zeros((8,)))]
                for _ in range(60):
                    try:
                        values.append(call(random, getattr(tl, random.choice(methods(tl))), values))
                    except (kb.KernbenchError, TypeError, ValueError, OverflowError,
                            ZeroDivisionError, AttributeError, NotImplementedError, IndexError,
                            MemoryError, BufferError):
                        pass
                    calls[0] += 1

            try:
                ctx.launch("k", kernel, t)
            except (kb.KernbenchError, RuntimeError, ValueError, TypeError, MemoryError):
                pass
    assert calls[0] > 1000


def test_operators():
    random = rng.Random(SEED + 1)
    operators = [
        "a + b", "a - b", "a * b", "a / b", "a < b", "a <= b", "a > b", "a >= b", "a == b",
        "a != b", "-a", "abs(a)", "a ** b", "a // b", "a @ b", "a[b]", "a(b)", "bool(a)",
        "float(a)", "int(a)", "len(a)", "hash(a)", "str(a)", "list(a)", "a.data", "a.nothing",
        "setattr(a, 'shape', b)", "setattr(a, 'addr', b)", "setattr(a, 'data', b)",
        "setattr(a, 'x', b)", "delattr(a, 'data')", "a += b", "a *= b",
    ]
    for _ in range(60):
        with make_context() as ctx:
            def kernel(p, tl):
                values = [tl.load(p, (8,), "f16"), tl.load(p, (2, 4), "f16"), tl.arange(0, 8),
                          tl.ref(p, (8,), "f16")]
                for _ in range(40):
                    names = {"a": random.choice(values), "b": pool(random, values)}
                    try:
                        exec(random.choice(operators), {}, names)
                    except (kb.KernbenchError, TypeError, ValueError, OverflowError,
                            ZeroDivisionError, AttributeError, IndexError, MemoryError):
                        pass

            try:
                ctx.launch("k", kernel, ctx.zeros((1, 64), dp=one_pe()))
            except (kb.KernbenchError, RuntimeError, ValueError, TypeError, MemoryError):
                pass


def test_the_engine():
    random = rng.Random(SEED + 2)
    for _ in range(40):
        ctx = _core.Context()
        t = _core.Tensor()
        ctx.deploy(t, (1, 64), "f32", num_cubes=1, num_pes=1)
        values = [t, _core.Tensor(), ctx, "all_reduce", [t], [None], [t, 3], (0, 0, 0)]
        for _ in range(60):
            try:
                values.append(call(random, getattr(ctx, random.choice(methods(ctx))), values))
            except (Exception, _core.KernelStopped):
                pass
        ctx.close()


def test_functions_and_types():
    random = rng.Random(SEED + 3)
    things = [getattr(_core, n) for n in methods(_core)]
    for _ in range(4000):
        try:
            call(random, random.choice(things), [])
        except Exception:
            pass


@pytest.mark.parametrize("type_name", ["TL", "Future", "Request", "CKernel"])
def test_types_that_only_the_engine_makes(type_name):
    kind = getattr(_core, type_name, None)
    if kind is None:
        pytest.skip("there is no such type")
    for make in (lambda: kind(), lambda: kind.__new__(kind), lambda: object.__new__(kind),
                 lambda: type("Sub", (kind,), {})()):
        try:
            made = make()
        except TypeError:
            continue
        for name in dir(made):
            try:
                member = getattr(made, name)
                if callable(member) and not name.startswith("__"):
                    member()
            except Exception:
                pass


def test_objects_without_init():
    """__new__ without __init__, and __init__ twice."""
    for kind in (_core.Context, _core.Tensor, TensorHandle):
        made = kind.__new__(kind)
        for name in dir(made):
            if name not in NOT_CALLED:
                try:
                    getattr(made, name)
                except Exception:
                    pass
        repr(made)
        del made
    ctx = _core.Context()
    try:
        ctx.__init__()
    except Exception:
        pass
    ctx.close()
    with make_context() as context:
        t = context.zeros((1, 8), dp=one_pe())
        try:
            t.__init__((1, 4))
            repr(t)
        except Exception:
            pass


def test_random_yaml():
    random = rng.Random(SEED + 4)
    for _ in range(300):
        text = "".join(random.choice("{}[]:,-#\n \"'ab1.&*!|>%@`\0é") for _ in range(40))
        try:
            _core.parse_yaml(text)
        except Exception:
            pass


def test_in_a_process_of_its_own():
    """Frees in every order at the end of the process."""
    python("-c", """
from kernbench import _core
from support import make_context, one_pe
kept = []
for i in range(3):
    ctx = make_context()
    t = ctx.zeros((1, 8), dp=one_pe())
    kept.append((t, ctx.launch("k", lambda p, tl: kept.append(tl.load(p, (8,))), t), ctx.engine))
    kept.append(ctx.launch("k", lambda p, tl: kept.append(tl), t, _defer_wait=True))
    kept.append(kept)
""")
