"""harness.py: what the attacks of this folder share: running the program under limits, judging how
a run ended, and the command line and the report of an attack.

    import harness

    def case(attack, rng, number):
        outcome = attack.run(["topo", "--set", f"sip.count={rng.randrange(99)}"])
        attack.judge(outcome)

    if __name__ == "__main__":
        harness.main("example", case)

An attack is `NAME.py --build DIR --seconds N --seed S`. It runs cases until the time is over and
closes with the line `NAME: N cases, M findings` on stdout; the exit code is 0 if there is none.
Each case has a random generator of its own, made from the seed and the number of the case, so that
`--seed S --case I` repeats one. What an attack wants kept goes to attack.keep(): to a folder below
`--findings DIR` (without the option: below DIR/soak of the build).
"""
import argparse
import json
import math
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# The exit codes of the program (kb_code). 70, a bug in KernBench, is never allowed.
OK, FAILED_CHECK, BAD_INPUT, FAULT, DEADLOCK, BUG, HOST = 0, 1, 2, 3, 4, 70, 71
ALLOWED = frozenset((OK, FAILED_CHECK, BAD_INPUT, FAULT, DEADLOCK, HOST))

# What no run may print on stderr, whatever its exit code.
SANITIZER = re.compile(
    r"runtime error:|AddressSanitizer|LeakSanitizer|ThreadSanitizer|UndefinedBehaviorSanitizer")
OWN_BUG = re.compile(r"[Tt]his is a bug in KernBench|\bassertion\b|Assertion `")

MIB = 1 << 20


class Outcome:
    """How a run ended. `code` is the exit code, or None after a signal or a timeout."""

    def __init__(self, argv, returncode, stdout, stderr, timed_out, seconds, where):
        self.argv = argv
        self.timed_out = timed_out
        self.signal = -returncode if returncode < 0 and not timed_out else None
        self.code = returncode if returncode >= 0 and not timed_out else None
        self.stdout = stdout
        self.stderr = stderr
        self.seconds = seconds
        self.where = where  # what a shell needs in front of the command, such as `cd DIR &&`

    @property
    def out(self):
        return self.stdout.decode("utf-8", "backslashreplace")

    @property
    def err(self):
        return self.stderr.decode("utf-8", "backslashreplace")

    @property
    def command(self):
        """The command as a shell takes it."""
        return self.where + shlex.join(os.fsdecode(word) for word in self.argv)

    def ended(self):
        if self.timed_out:
            return f"timed out after {self.seconds:.1f} s"
        if self.signal is not None:
            return f"signal {self.signal} ({signal.strsignal(self.signal)})"
        return f"exit code {self.code}"


def run(argv, *, timeout=20.0, address_space=None, file_size=None, env=None, cwd=None, closed=(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, before=None):
    """Runs a command to its end, or to the timeout, and returns its Outcome.

    address_space and file_size are in bytes. `closed` are descriptors of 0, 1, 2 that the program
    finds closed. `env` holds changes to the environment; None as a value removes a variable.
    `before` is called in the child last. The command has a process group of its own, which ends
    with it: nothing stays behind.
    """
    environment = dict(os.environ)
    for name, value in (env or {}).items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value

    def prepare():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if address_space is not None:
            resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
        if file_size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
        for descriptor in closed:
            os.close(descriptor)
        if before is not None:
            before()

    began = time.monotonic()
    child = subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd,
                             env=environment, preexec_fn=prepare, start_new_session=True)
    timed_out = False
    try:
        out, err = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
        end_group(child.pid)
        out, err = child.communicate()
    except BaseException:
        end_group(child.pid)
        child.wait()
        raise
    where = f"cd {shlex.quote(os.fspath(cwd))} && " if cwd is not None else ""
    where += "".join(f"{name}={shlex.quote(value)} " if value is not None else f"env -u {name} "
                     for name, value in (env or {}).items())
    return Outcome(argv, child.returncode, out or b"", err or b"", timed_out,
                   time.monotonic() - began, where)


def end_group(pid):
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def problems(outcome, allowed=ALLOWED, timeout_is_finding=False):
    """What is wrong with an outcome whatever was asked: a list of sentences."""
    found = []
    if outcome.timed_out:
        if timeout_is_finding:
            found.append(outcome.ended())
    elif outcome.signal is not None or outcome.code not in allowed:
        found.append(outcome.ended())
    text = outcome.err
    for pattern in (SANITIZER, OWN_BUG):
        match = pattern.search(text)
        if match:
            found.append("stderr says: " + line_of(text, match.start()))
    return found


def line_of(text, at):
    begin = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    return text[begin:end if end >= 0 else len(text)].strip()[:300]


def read_json(text):
    """The value of a JSON text. Raises ValueError if it is none, or has NaN, an infinity or a key
    twice."""
    def refuse(word):
        raise ValueError(f"{word} in JSON")

    def number(word):
        value = float(word)
        if not math.isfinite(value):
            raise ValueError(f"{word} is out of range")
        return value

    def once(pairs):
        names = [name for name, _ in pairs]
        if len(set(names)) != len(names):
            raise ValueError("a key twice: " + ", ".join(sorted(names)))
        return dict(pairs)

    return json.loads(text, parse_constant=refuse, parse_float=number, object_pairs_hook=once)


def numbers(value, path=""):
    """Every number of a JSON value, as (path, number)."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from numbers(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from numbers(item, f"{path}[{index}]")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, value


# What differs between two runs of the same command: times of the host, in text and in JSON.
WALL = re.compile(rb' in [0-9.]+ s: [0-9.]+ million hops/s|"(?:wall_s|hops_per_s)": [-+0-9.eE]+')


def mask_wall_times(output):
    return WALL.sub(b"<wall time>", output)


class Attack:
    """One run of an attack: its options, its scratch folder, its findings."""

    def __init__(self, name, options):
        self.name = name
        self.options = options
        self.build = os.path.abspath(options.build)
        self.program = os.path.join(self.build, "kernbench")
        self.source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        self.seed = options.seed
        self.cases = 0
        self.findings = 0
        self.unfinished = 0
        self.case = None
        self.repeat_options = ""  # options of its own that a repetition needs
        self.summary = []  # lines to print before the last one
        self.began = time.monotonic()
        self.said = self.began
        self.scratch = tempfile.mkdtemp(prefix=f"kb-{name}-")
        self.sanitized = is_sanitized(self.build)

    def seconds_left(self):
        return self.options.seconds - (time.monotonic() - self.began)

    def run(self, words, **limits):
        """Runs the program with these arguments."""
        env = {"ASAN_OPTIONS": "exitcode=99:allocator_may_return_null=1"} if self.sanitized else {}
        env.update(limits.pop("env", None) or {})
        if self.sanitized:
            limits["address_space"] = None  # the shadow memory alone is terabytes
            limits["timeout"] = 8 * limits.get("timeout", 20.0)
        return run([self.program, *words], env=env, **limits)

    def judge(self, outcome, **options):
        """Reports what is wrong with an outcome whatever was asked; True if nothing is."""
        if outcome.timed_out and not options.get("timeout_is_finding"):
            self.unfinished += 1
        found = problems(outcome, **options)
        for sentence in found:
            self.finding(outcome, sentence)
        return not found

    def finding(self, outcome, sentence):
        """Reports a finding. `outcome` may be None, or a string: the command that shows it."""
        self.findings += 1
        command = outcome.command if isinstance(outcome, Outcome) else outcome
        print(f"finding {self.findings}: {sentence}")
        if command:
            print(f"  command: {command}")
        if isinstance(outcome, Outcome):
            for line in outcome.err.splitlines()[:12]:
                print(f"  stderr: {line[:300]}")
        case = f" --case {self.case}" if self.case is not None else ""
        print(f"  repeat: {sys.argv[0]} --build {shlex.quote(self.options.build)}"
              f" --seed {self.seed}{case}{self.repeat_options}", flush=True)

    def keep(self, path):
        """Copies a file or folder to the folder of findings; returns its new path."""
        folder = self.options.findings or os.path.join(self.build, "soak", "findings")
        os.makedirs(folder, exist_ok=True)
        case = "" if self.case is None else f"-{self.case}"
        kept = os.path.join(folder, f"{self.name}-{self.seed}{case}-{os.path.basename(path)}")
        if os.path.isdir(path):
            shutil.copytree(path, kept, dirs_exist_ok=True)
        else:
            shutil.copyfile(path, kept)
        return kept

    def progress(self):
        now = time.monotonic()
        if now - self.said >= 10 and sys.stderr.isatty():
            self.said = now
            print(f"{self.name}: {self.cases} cases, {self.findings} findings,"
                  f" {now - self.began:.0f} s", file=sys.stderr)

    def close(self):
        shutil.rmtree(self.scratch, ignore_errors=True)
        if self.unfinished:
            print(f"{self.name}: {self.unfinished} runs were cut by their timeout")
        for line in self.summary:
            print(f"{self.name}: {line}")
        print(f"{self.name}: {self.cases} cases, {self.findings} findings", flush=True)
        return 1 if self.findings else 0


def is_sanitized(build):
    try:
        with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as cache:
            return any("-fsanitize=" in line for line in cache if line.startswith("CMAKE_C_FLAGS"))
    except OSError:
        return False


def parse(name, description=None, add_options=None):
    parser = argparse.ArgumentParser(prog=f"{name}.py", description=description)
    parser.add_argument("--build", required=True, help="the build directory to attack")
    parser.add_argument("--seconds", type=float, default=10.0, help="when to stop (10)")
    parser.add_argument("--seed", type=int, default=1, help="of the random cases (1)")
    parser.add_argument("--cases", type=int, help="stop after this many cases")
    parser.add_argument("--case", type=int, help="only the case of this number")
    parser.add_argument("--findings", help="where to keep files that show a finding")
    if add_options:
        add_options(parser)
    return parser.parse_args()


def stop(number, frame):
    raise KeyboardInterrupt


def main(name, case, description=None, add_options=None, setup=None, close=None):
    """Runs case(attack, rng, number) for number = 0, 1, ... until the time is over. A case that
    returns the string "done" was the last. setup(attack), if given, comes first, and close(attack)
    last: it may add lines to attack.summary."""
    signal.signal(signal.SIGTERM, stop)
    attack = Attack(name, parse(name, description, add_options))
    options = attack.options
    try:
        if setup:
            setup(attack)
        number = options.case if options.case is not None else 0
        while attack.seconds_left() > 0:
            if options.cases is not None and attack.cases >= options.cases:
                break
            attack.case = number
            if case(attack, random.Random(f"{name}/{options.seed}/{number}"), number) == "done":
                break
            attack.cases += 1
            attack.progress()
            number += 1
            if options.case is not None:
                break
    except KeyboardInterrupt:
        print(f"{name}: interrupted")
    if close:
        close(attack)
    sys.exit(attack.close())
