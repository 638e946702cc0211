#!/usr/bin/env python3
"""commands.py: random command lines of the whole program, against random machine files.

Each command and option is drawn, with values that are valid, at an edge, or garbage; sizes are
small, so that most runs take milliseconds. Checked: the exit code; messages (a refusal has one on
stderr, a success has none besides warnings and notes); JSON, SVG and traces, which must be whole;
and that the same command gives the same output again.
"""
import os
import re
import xml.etree.ElementTree

import harness
import machines

# Sizes that make the benches small whose defaults are large.
SMALL = {
    "gemm_single_pe": {"m": 33, "k": 20, "n": 17},
    "qkv_gemm": {"tokens": 5, "width": 48},
    "qkv_gemm_multi_pe": {"tokens": 3, "width": 64},
    "va_offset_verify": {"rows": 13, "columns": 31},
    "halo": {"rows": 40, "columns": 24, "steps": 3},
    "launch_chain": {"launches": 4},
    "matmul_composite": {"m": 40, "k": 24, "n": 33},
    "pe2pe": {"min_bytes": 64, "max_bytes": 256, "warmup": 0},
    "tp_mlp": {"batch": 3, "width": 96, "hidden": 160},
    "gqa_llama70b": {"context": 24, "prompt": 8, "heads": 4, "kv_heads": 2, "head_dim": 16},
    "gqa_prefill": {"batch": 2, "prompt": 12, "heads": 4, "kv_heads": 2, "head_dim": 16},
    "gqa_decode": {"batch": 2, "context": 40, "heads": 4, "kv_heads": 2, "head_dim": 16},
    "llama": {"hidden": 64, "ffn": 96, "heads": 4, "kv_heads": 2, "head_dim": 16, "vocab": 80,
              "batch": 2, "layers": 1},
    "ccl": {"min_bytes": 64, "max_bytes": 2048},
}
SMALL_OTHER = {"llama70b_layer": {"context": 9, "prompt": 7}, "llama70b_decode": {"context": 9},
               "llama70b_prefill": {"prompt": 7}}

GARBAGE = ("", "-1", "x", "nan", "inf", "1e400", "0x10", "99999999999999999999", "1.5.5", "=",
           "a=b=c", "\u00e9", "%s%n", "../..", "-", "--", " ", "4KiBB", "\t", "1\n2", "'", '"',
           "18446744073709551616", "9223372036854775808", "1e-400", "A" * 3000)
SETTINGS = ("system.sips.count=3", "system.sips.topology=ring_1d", "cube.noc.w=3", "cube.noc.h=1",
            "cube.noc.k=2", "sip.cube_mesh.w=1", "sip.cube_mesh.h=2", "sip.ucie.bw_gbs=7.25",
            "cube.pe_layout.pe_per_corner=1", "cube.pe_layout.corners.0=SE", "name=named",
            "cube.hbm_ctrl.efficiency=0.5", "fabric.packet_bytes=128", "fabric.ports=serial",
            "cube.pe_gemm.fill=per_fold", "cube.hbm_gib=1", "fabric.vcs=1",
            "cube.pe_dma.channels=1", "cube.pe_cpu.queue_depth=1", "system.ns_per_mm=0")
CCL_SETTINGS = ("ccl.defaults.n_slots=2", "ccl.defaults.slot_size=4096",
                "ccl.defaults.algorithm=auto", "ccl.defaults.algorithm=ring_rsag",
                "ccl.defaults.algorithm=trees", "ccl.defaults.algorithm=one_shot",
                "ccl.defaults.n_slots=0", "ccl.defaults.buffer_kind=hbm")
BAD_SETTINGS = ("cube.noc.w=0", "cube.noc=3", "=", "x", "x.y=1", "cube.noc.w=-1", "name=",
                "system.sips.count=1e9", "cube.noc.w=99999", "cube.hbm_ctrl.efficiency=2",
                "ccl.x=1", "ccl.defaults.n_slots=0", "system.sips.count=3.5", "..=", "cube..w=1",
                "cube.pe_layout.corners.9=NW", "cube.pe_layout.corners.0=XX")
EDGES = ("0", "1", "2", "4KiB", "1e3", "64", "65536", "1MiB", "9007199254740992", "0.999999",
         "1e-9")

# Lines of stderr that a success may have: warnings, and with --verbose notes.
REMARK = re.compile(r"kernbench: (warning|note): ")


class Case:
    """A command line while it is made, and what its output must be."""

    def __init__(self, attack, rng):
        self.attack, self.rng = attack, rng
        self.words, self.files = [], []
        self.folder = os.path.join(attack.scratch, f"case{attack.case}")
        os.mkdir(self.folder)

    def add(self, *words):
        self.words += words

    def maybe(self, chance, *words):
        if self.rng.random() < chance:
            self.add(*words)

    def value(self, *valid):
        """One of the valid values, or at times another one."""
        roll = self.rng.random()
        if roll < 0.02:
            return self.rng.choice(GARBAGE)
        if roll < 0.04:
            return self.rng.choice(EDGES)
        return str(self.rng.choice(valid))

    def file(self, name):
        """An output file, which has to be whole after a success."""
        self.files.append(name)
        return name

    def write(self, name, data):
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(data)
        return name

    def machine(self):
        rng, roll = self.rng, self.rng.random()
        text = machines.random_machine(rng)
        if roll < 0.6:
            self.add("--topology", self.write("machine.yaml", text.encode()))
        elif roll < 0.75:
            self.add("--topology", self.write("machine.yaml", machines.malform(rng, text)))
        elif roll < 0.8:
            self.add("--topology", rng.choice(("default", "default",
                                                "mesh-reference", "missing.yaml", ".")))
        if roll >= 0.75:
            self.add("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1")
        for _ in range(rng.choice((0, 0, 0, 1, 2))):
            bad = rng.random() < 0.15
            self.add("--set", rng.choice(BAD_SETTINGS if bad else SETTINGS))

    def collectives(self):
        rng = self.rng
        self.maybe(0.2, "--set", rng.choice(CCL_SETTINGS))
        if rng.random() < 0.15:
            with open(os.path.join(self.attack.source, "collectives", "ccl.yaml"),
                      encoding="utf-8") as file:
                text = file.read()
            whole = rng.random() < 0.5
            self.add("--ccl", self.write(
                "mine.yaml", text.encode() if whole else machines.malform(rng, text)))


def run_words(case):
    rng, name = case.rng, case.rng.choice(sorted(BENCHES))
    case.add("run", "--bench", name if rng.random() < 0.97 else case.value("gem", "./none.c"))
    values = dict(SMALL.get(name) or SMALL.get(name.split("_")[0].replace("70b", ""))
                  or SMALL.get("ccl" if "allreduce" in name else "") or {})
    values.update(SMALL_OTHER.get(name, {}))
    for param in BENCHES[name]:
        if rng.random() < 0.12:
            values[param["name"]] = random_param(case, param)
    for key, value in values.items():
        case.add("--param", f"{key}={value}")
    case.maybe(0.03, "--param", rng.choice(GARBAGE))
    if rng.random() < 0.2:
        case.add("--device", case.value("all", "sip:0", "sip:1"))
    mode = rng.choice(("--verify-data", "--verify-data", "--timing-only", None))
    if mode:
        case.add(mode)
    case.maybe(0.02, "--timing-only")
    case.maybe(0.15, "--check-races")
    case.maybe(0.25, "--profile")
    case.maybe(0.1, "--verbose")
    case.maybe(0.05, "--ccl-trace")
    if rng.random() < 0.25:
        case.add("--trace", case.file("trace.json"))
    if rng.random() < 0.1:
        case.add("--stack-bytes", case.value("64KiB", "1MiB", "262144"))
    case.collectives()


def random_param(case, param):
    if "names" in param:
        return case.value(*param["names"])
    low, high = param["min"], param["max"]
    small = [n for n in (low, 1, 2, 3, 5, 8, 17) if low <= n <= high]
    if case.rng.random() < 0.05:
        return case.rng.choice((low - 1, high + 1, -1))
    return case.value(*small)


def probe_words(case):
    case.add("probe")
    if case.rng.random() < 0.6:
        case.add("--case", case.value("h2d-near", "pe-sram", "pe-remote-cube-far", "pe-local-hbm"))
    case.maybe(0.1, "--list")
    case.maybe(0.2, "--verbose")
    if case.rng.random() < 0.4:
        case.add("--bytes", case.value("1", "64", "4KiB", "100000"))
    if case.rng.random() < 0.3:
        case.add("--load", "--transfers", case.value("100", "200", "99"))
        case.add("--seed", case.value("0", "1", "77"))


def topo_words(case):
    case.add("topo")
    what = case.rng.randrange(6)
    if what == 0:
        case.add("--check")
    elif what in (1, 2):
        case.add("--print")
        case.maybe(0.5, "--effective")
    elif what == 3:
        case.add("--svg", case.rng.choice(("-", case.file("machine.svg"))))
    case.maybe(0.05, "--effective")
    case.maybe(0.05, "--check")


def ccl_words(case):
    rng = case.rng
    part = rng.choices(("plan", "tune", "print", "x"), (12, 6, 1, 1))[0]
    case.add("ccl", part)
    if part == "plan":
        if rng.random() < 0.8:
            case.add("--algorithm", case.value(*ALGORITHMS))
        if rng.random() < 0.2:
            case.add("--sip", case.value(0, 1, 6))
        if rng.random() < 0.3:
            case.add("--limit", case.value(0, 1, 5))
    elif part == "tune":
        case.add("--min", case.value("64", "1KiB"), "--max", case.value("1KiB", "2KiB"))
        case.add("--collective", case.value("all_reduce", "all_gather", "broadcast", "all"))
        if rng.random() < 0.3:
            case.add("--output", case.file("tuned.yaml"))
    if part != "print":
        case.collectives()
    return part != "print"


def traffic_words(case):
    rng = case.rng
    case.add("traffic", "--pattern",
             case.value("uniform", "transpose", "bitcomp", "neighbor", "hotspot"))
    case.add("--level", case.value("cube", "sip", "system"))
    case.add("--process", case.value("bernoulli", "poisson"))
    case.add("--rate", case.value("0.01", "0.1", "0.5", "0.9", "1"))
    case.add("--warmup-ns", case.value("0", "50"), "--measure-ns", case.value("1", "100", "500"))
    if rng.random() < 0.3:
        case.add("--bytes", case.value("1", "100", "256", "4KiB"))
    if rng.random() < 0.3:
        case.add("--seed", case.value("0", "5"))
    if rng.random() < 0.15:
        case.add("--hot", case.value("0,0", "1,0", "9,9", "x,y", "1", "0,0,0"))


def sweep_words(case):
    """Few points, some of which fail; the same command again shows them from the store."""
    rng = case.rng
    case.add("sweep", "--bench", case.value("va_offset_verify"), "--param", "columns=31")
    case.add("--over", "rows=" + case.value("1,2", "1..3", "1..4*2", "4..1", "1,1"))
    if rng.random() < 0.4:
        case.add("--over", case.value("sip.ucie.bw_gbs=256,512", "sip.ucie.bw_gbs=0,256",
                                      "sip.nothing=1,2", "topology=default,missing.yaml",
                                      "columns=1,2", "ccl.defaults.n_slots=4,8"))
    case.maybe(0.2, "--where", case.value("rows > 1", "rows > 9", "rwos > 1", "rows >"))
    case.maybe(0.2, "--workers", case.value(1, 2, 0))
    case.maybe(0.2, "--repeat", case.value(1, 2, 0))
    case.maybe(0.1, "--shard", case.value("1/2", "2/2", "3/2"))
    case.maybe(0.1, "--timing-only")
    case.maybe(0.1, "--zip", "rows,columns")
    return True


def other_words(case):
    rng = case.rng
    case.add(*rng.choice((("list",), ("list", "--quiet"), ("help",), ("version",), ("--version",),
                          ("--help",), ("help", "run"), ("help", "nothing"), ("ccl",), ("new",),
                          ("new", "bench", "mine"), ("new", "collective", "mine"),
                          ("new", "bench", rng.choice(GARBAGE)), ("new", "bench", "a b"),
                          ("new", "bench", "mine", "--dir", "nowhere"), (rng.choice(GARBAGE),),
                          ("rnu",), ("list", "--ccl", "none.yaml"), ("topo", "--help"))))
    case.maybe(0.1, "--json")
    case.maybe(0.1, rng.choice(GARBAGE))
    return False


KINDS = ((run_words, 10), (probe_words, 3), (topo_words, 4), (ccl_words, 4), (traffic_words, 3),
         (sweep_words, 2), (other_words, 1))
BENCHES, ALGORITHMS = {}, []


def setup(attack):
    """Learns the benches with their parameters, and the algorithms."""
    listing = harness.read_json(attack.run(["list", "--json"]).out)
    for bench in listing["benches"]:
        BENCHES[bench["name"]] = bench["params"]
    ALGORITHMS.extend(entry["name"] for entry in listing["collectives"]["algorithms"])


def check_messages(case, outcome):
    """What stderr must be like; a sentence if it is not."""
    lines = outcome.err.splitlines()
    words = case.words
    chatty = {"--ccl-trace", "--verbose", "--json"} & set(words)
    if outcome.code == 0:
        if chatty:
            return None
        odd = [line for line in lines if not REMARK.match(line)]
        if odd:
            return f"success, but stderr says: {odd[0][:200]}"
        if "--quiet" in words and lines and words[0] not in ("help", "new"):
            return "--quiet, but stderr is not empty"
        return None
    shown_as_json = "--json" in words and outcome.stdout
    if not lines:
        return None if shown_as_json else f"exit code {outcome.code} without a message"
    if words and words[0] and not any(line.startswith("kernbench: ") for line in lines):
        return "no line of stderr begins with 'kernbench: '"
    if outcome.code == harness.BAD_INPUT and len(lines) > 60 and not chatty:
        return f"a message of {len(lines)} lines"
    if any(ord(c) < 32 and c != "\n" or ord(c) == 127 for c in outcome.err):
        return "control characters in a message"
    return None


def check_output(case, outcome):
    words = case.words
    if "--json" in words and outcome.stdout and "--help" not in words and words[0] != "help":
        try:
            harness.read_json(outcome.out)
        except ValueError as problem:
            return f"stdout is no JSON: {problem}"
    if outcome.stdout and not outcome.stdout.endswith(b"\n"):
        if "--print" not in words:
            return "stdout does not end with a newline"
    if outcome.code == 0 and "--svg" in words and "-" in words:
        return check_svg(outcome.stdout)
    return None


def check_svg(data):
    try:
        xml.etree.ElementTree.fromstring(data)
    except xml.etree.ElementTree.ParseError as problem:
        return f"the drawing is no XML: {problem}"
    return None


def check_files(case, outcome):
    if outcome.code != 0 or "--help" in case.words:
        return None
    for name in case.files:
        path = os.path.join(case.folder, name)
        if name not in case.words:
            continue
        if not os.path.exists(path):
            return f"success, but there is no {name}"
        with open(path, "rb") as file:
            data = file.read()
        if name.endswith(".svg"):
            return check_svg(data)
        if name.endswith(".json"):
            try:
                harness.read_json(data.decode())
            except ValueError as problem:
                return f"{name} is no JSON: {problem}"
        if name.endswith(".yaml"):
            again = case.attack.run(["list", "--ccl", name], cwd=case.folder)
            if again.code != 0:
                return f"{name} is refused: {again.err.strip()[:200]}"
    return None


def read_files(case):
    found = {}
    for name in case.files:
        path = os.path.join(case.folder, name)
        if os.path.exists(path):
            with open(path, "rb") as file:
                found[name] = file.read()
            os.remove(path)
    return found


def run_case(attack, rng, number):
    case = Case(attack, rng)
    make = rng.choices([kind for kind, _ in KINDS], [weight for _, weight in KINDS])[0]
    has_machine = make(case) is not False
    if has_machine:
        case.machine()
        case.maybe(0.4, "--json")
        case.maybe(0.2, "--quiet")
    case.maybe(0.02, rng.choice(GARBAGE + ("--nonsense", "--json=1", "--set")))
    limits = {"timeout": 5.0, "address_space": 8 << 30, "cwd": case.folder}
    words = [word.replace("\0", "") for word in case.words]
    outcome = attack.run(words, **limits)
    whole = attack.judge(outcome)
    sentence = None
    if whole and not outcome.timed_out:
        sentence = (check_messages(case, outcome) or check_output(case, outcome)
                    or check_files(case, outcome))
        if not sentence and rng.random() < 0.4:
            files = read_files(case)
            again = attack.run(words, **limits)
            if not again.timed_out and not (words and words[0] == "new"):
                sentence = compare(case, outcome, again, files)
        if sentence:
            attack.finding(outcome, sentence)
    if sentence or not whole:
        print(f"  kept: {attack.keep(case.folder)}")


def compare(case, first, second, files):
    if first.code != second.code:
        return f"first {first.ended()}, then {second.ended()}"
    for name in ("stdout", "stderr"):
        a, b = (harness.mask_wall_times(getattr(o, name)) for o in (first, second))
        if a != b:
            return f"{name} differs between two runs"
    if files != read_files(case):
        return "an output file differs between two runs"
    return None


if __name__ == "__main__":
    harness.main("commands", run_case, description=__doc__, setup=setup)
