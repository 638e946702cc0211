#!/usr/bin/env python3
"""limits.py: every numeric key of machines and of ccl.yaml, and every numeric option of the commands,
at the lowest and the highest value that is allowed.

Limits are learned by asking: a value that is absurd is refused, and the refusal names the range. A
refusal that does not is a finding. Then come runs with one key or option at a limit, in random order
of keys, and after that with random pairs of keys.

Findings, besides those of every attack: numbers below 0 and NaN in JSON or text; shares above 100 %;
exit code 0 with a clock that is past the limit of simulated time.
"""
import decimal
import re

import harness

HUGE = "9" * 40
TINY = "0." + "0" * 39 + "1"
LAST_NS = 9223372036854.775807

# How refusals name a range.
NUMBER = r"(-?[0-9][0-9.e+]*)"
RANGES = (
    (re.compile(rf"expected [^']*?\bfrom {NUMBER}(?: \([^)]*\))? to {NUMBER}"), 1, 2),
    (re.compile(rf"expected [^']*?of at least {NUMBER} and at most {NUMBER}"), 1, 2),
    (re.compile(rf"expected [^']*?\babove {NUMBER} and at most {NUMBER}"), None, 2),
)
DIGITS = re.compile(r"expected at most ([0-9]+) digits? after the point")

# Small, so that a run is short: 2 SIPs of 1 x 2 cubes.
SMALL = ("--set", "sip.cube_mesh.w=1", "--set", "sip.cube_mesh.h=2")
MESH = ("--topology", "mesh-reference")


# ---- Numeric keys of a YAML file -----------------------------------------------------------------

def strip_comment(line):
    return re.sub(r"(^|\s)#.*$", "", line).rstrip()


def split_flow(text):
    """The items of the flow mapping or sequence, whose brackets are left out."""
    depth, item = 0, ""
    for character in text:
        depth += character in "{["
        depth -= character in "}]"
        if character == "," and depth == 0:
            yield item.strip()
            item = ""
        else:
            item += character
    if item.strip():
        yield item.strip()


def keys_of_value(path, text):
    if text.startswith("{"):
        for item in split_flow(text[1:text.rindex("}")]):
            key, _, value = item.partition(":")
            yield from keys_of_value(f"{path}.{key.strip()}", value.strip())
    elif re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?", text):
        yield path


def numeric_keys(text):
    """The paths of all numbers in a file of block mappings, whose values may be flow mappings."""
    stack = []  # of (indent, key)
    for line in map(strip_comment, text.splitlines()):
        match = re.match(r"( *)([A-Za-z_][\w.-]*):(?: +(.*))?$", line)
        if not match:
            continue
        indent = len(match[1])
        while stack and stack[-1][0] >= indent:
            stack.pop()
        stack.append((indent, match[2]))
        if match[3]:
            yield from keys_of_value(".".join(key for _, key in stack), match[3].strip())


# ---- Learning limits -----------------------------------------------------------------------------

class Setting:
    """Something that has limits: how to set it, and with which commands."""

    def __init__(self, name, words, value_word, commands):
        self.name = name
        self.words = words            # to ask with
        self.value_word = value_word  # makes the argument of a value
        self.commands = commands      # to run, with the value at a limit
        self.low = self.high = None


def plain(number):
    """As the program reads it: no exponent, no needless zeros."""
    text = format(decimal.Decimal(number), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def ask(attack, setting, value):
    outcome = attack.run([*setting.words, *setting.value_word(value)], timeout=10)
    attack.judge(outcome)
    return outcome


def learn(attack, setting):
    """False, and a finding, if the refusal of an absurd value names no range."""
    outcome = ask(attack, setting, HUGE)
    if outcome.code == harness.OK:
        attack.finding(outcome, f"{setting.name}: {HUGE} is taken")
        return False
    for pattern, low, high in RANGES:
        match = pattern.search(outcome.err)
        if match:
            setting.high = plain(match[high])
            setting.low = plain(match[low]) if low else None
            break
    if setting.high is None:
        if outcome.code is not None:
            attack.finding(outcome, f"{setting.name}: the refusal names no range")
        return False
    if setting.low is None:  # above 0: the least is known by how many digits there may be
        match = DIGITS.search(ask(attack, setting, TINY).err)
        setting.low = plain(decimal.Decimal(1).scaleb(-int(match[1]))) if match else "1"
    return True


def set_key(key):
    return lambda value: ["--set", f"{key}={value}"]


def set_option(option):
    return lambda value: [f"{option}={value}"]


# ---- What is run ---------------------------------------------------------------------------------

def gemm(machine, *more):
    return ["run", "--bench", "gemm_single_pe", "--timing-only", "--quiet", "--param", "m=96",
            "--param", "k=200", "--param", "n=72", *machine, *more]


def all_reduce(machine, *more):
    return ["run", "--bench", "ccl_allreduce", "--timing-only", "--quiet", *machine, *more]


def commands_of(machine):
    return [
        ["topo", "--check", *machine],
        gemm(machine, "--json", "--profile"),
        ["traffic", "--measure-ns", "100", "--warmup-ns", "20", "--quiet", "--json", *machine],
        all_reduce(machine, "--json"),
        gemm(machine, "--profile"),
        ["probe", "--case", "pe-local-hbm", "--json", "--quiet", *machine],
        all_reduce(machine),
        ["traffic", "--measure-ns", "100", "--warmup-ns", "20", "--quiet", *machine],
        ["probe", "--quiet", "--json", *machine],
    ]


def machine_settings(attack, machine):
    outcome = attack.run(["topo", "--print", *machine])
    attack.judge(outcome, allowed=(harness.OK,))
    for key in numeric_keys(outcome.out):
        yield Setting(key, ["topo", "--check", *machine], set_key(key), commands_of(machine))


def ccl_settings(attack):
    outcome = attack.run(["ccl", "print"])
    attack.judge(outcome, allowed=(harness.OK,))
    for key in numeric_keys(outcome.out):
        # The entry is what runs; of `defaults`, the entry that these name.
        name = key.split(".")[1] if key.startswith("algorithms.") else None
        use = ["--set", f"ccl.defaults.algorithm={name}"] if name else []
        commands = [[*all_reduce(SMALL, *use), "--json"], ["ccl", "plan", *SMALL, *use],
                    all_reduce(SMALL, *use)]
        yield Setting("ccl." + key, ["ccl", "plan", *SMALL, *use], set_key("ccl." + key), commands)


# Options with a number, as their help names it, and what makes a short run of their command.
OPTION = re.compile(r"^  (--[a-z-]+) (N|T|R|BYTES)\b", re.M)
SHORT = {
    "run": gemm(SMALL, "--json"),
    "probe": ["probe", "--case", "pe-local-hbm", "--load", "--transfers", "100", "--json", "--quiet",
              *SMALL],
    "traffic": ["traffic", "--measure-ns", "100", "--warmup-ns", "20", "--json", "--quiet", *SMALL],
    "ccl plan": ["ccl", "plan", *SMALL],
    "ccl tune": ["ccl", "tune", "--max", "1KiB", "--quiet", "--json", *SMALL],
}


def option_settings(attack):
    for command, words in SHORT.items():
        outcome = attack.run([*command.split(), "--help"])
        attack.judge(outcome, allowed=(harness.OK,))
        for option, _ in OPTION.findall(outcome.out):
            yield Setting(f"{command} {option}", words, set_option(option), [words])


def param_settings(attack):
    for name, bench in (("m", "gemm_single_pe"), ("tokens", "qkv_gemm_multi_pe"),
                        ("max_bytes", "ccl_allreduce"), ("factor", "ccl_allreduce")):
        words = ["run", "--bench", bench, "--timing-only", "--quiet", "--json", *SMALL]
        yield Setting(f"{bench} {name}", words,
                      lambda value, name=name: ["--param", f"{name}={value}"], [words])


# ---- What is wrong with what was printed ---------------------------------------------------------

SHARES = re.compile(r"(utilization|share|of_roof|array_slots_used|_busy|occupied)$")
# Differences, which may be below 0, and what the host took.
SIGNED = re.compile(r"(^|\.)(wait_ns|error|parameters)\b")
PERCENT = re.compile(r"([0-9]+\.[0-9]+) ?%")
BAD_TEXT = re.compile(r"(?<![\w.,-])-[0-9]+(\.[0-9]+)?\b|\b-?nan\b|\b-?inf\b|-nan", re.I)


def bad_json(text):
    try:
        document = harness.read_json(text)
    except ValueError as error:
        yield f"bad JSON: {error}"
        return
    for path, number in harness.numbers(document):
        if number < 0 and not SIGNED.search(path):
            yield f"{path} is {number}"
        if SHARES.search(path) and number > 1.0005:
            yield f"{path} is {number}, more than 1"
        if path in ("sim_ns", "ended_ns") and number > LAST_NS * (1 + 1e-12):
            yield f"{path} is {number}, past the end of the clock"


def bad_text(text):
    for match in PERCENT.finditer(text):
        if float(match[1]) > 100.05:
            yield "a share above 100 %: " + harness.line_of(text, match.start())
    match = BAD_TEXT.search(text)
    if match:
        yield "a bad number: " + harness.line_of(text, match.start())


def check(attack, words):
    outcome = attack.run(words, timeout=attack.options.timeout, address_space=4096 * harness.MIB,
                         cwd=attack.scratch)
    if not attack.judge(outcome) or outcome.code != harness.OK:
        return
    found = bad_json(outcome.out) if "--json" in words else bad_text(outcome.out)
    for sentence in list(found)[:3]:
        attack.finding(outcome, sentence)


# ---- Cases ---------------------------------------------------------------------------------------

def setup(attack):
    found = [*machine_settings(attack, SMALL), *machine_settings(attack, MESH),
             *ccl_settings(attack), *option_settings(attack), *param_settings(attack)]
    if len(found) < 60:
        attack.finding(None, f"only {len(found)} keys and options were found")
    known = {}  # by name: a key has the same limits in each machine
    for setting in found:
        if setting.name in known:
            setting.low, setting.high = known[setting.name].low, known[setting.name].high
        elif learn(attack, setting):
            known[setting.name] = setting
    learned = [setting for setting in found if setting.name in known]
    attack.keys = [s for s in learned if s.words[0] == "topo" and s.words[2:] == list(SMALL)]
    # Every setting at both limits, with each of its commands: first one command of each.
    attack.singles = []
    for turn in range(max((len(setting.commands) for setting in learned), default=0)):
        attack.singles += [(setting, value, setting.commands[(index + turn) % len(setting.commands)])
                           for index, setting in enumerate(learned)
                           if turn < len(setting.commands)
                           for value in (setting.low, setting.high)]


def case(attack, rng, number):
    if number < len(attack.singles):
        setting, value, command = attack.singles[number]
        check(attack, [*command, *setting.value_word(value)])
        return None
    words = list(rng.choice(commands_of(SMALL)))
    for setting in rng.sample(attack.keys, 2):
        words += setting.value_word(rng.choice((setting.low, setting.high)))
    check(attack, words)
    return None


def add_options(parser):
    parser.add_argument("--timeout", type=float, default=10.0, help="of a run, in seconds (10)")


if __name__ == "__main__":
    harness.main("limits", case, description=__doc__, add_options=add_options, setup=setup)
