"""builds.py: two builds of the program, whose results are compared."""
import os
import re
import shutil
import subprocess

import harness

# Environments in which a build must give the same results: how far PEs run ahead of the clock. They
# are tried if the program knows the variable.
WINDOWS = tuple({"KERNBENCH_RUN_AHEAD": str(records)} for records in (1, 2, 32))

# Keys of documents that say how a run was executed, and how long that took.
HOST_KEYS = frozenset(("wall_s", "hops_per_s", "events", "elided", "cancelled", "resumes",
                       "pending", "max_pending", "coroutines", "execution", "trace"))
HOST_TEXT = re.compile(r" in [0-9.]+ s: [0-9.]+ million hops/s|[0-9,]+ events(?=, [0-9,]+ hops)")

# What may differ between builds: how the memory that is left is cut, when a value does not fit.
FREE_BLOCKS = re.compile(r"\d+ free(?: in \d+ blocks, the largest \d+)?")


class Build:
    """A build directory. `variants` are the environments to run it in."""

    def __init__(self, directory):
        self.directory = os.path.abspath(directory)
        self.program = os.path.join(self.directory, "kernbench")
        with open(self.program, "rb") as file:
            knows_windows = next(iter(WINDOWS[0])).encode() in file.read()
        self.variants = WINDOWS if knows_windows else ({},)

    def source(self):
        """Where the sources are that it was built from."""
        with open(os.path.join(self.directory, "CMakeCache.txt"), encoding="utf-8") as cache:
            for line in cache:
                if line.startswith("CMAKE_HOME_DIRECTORY"):
                    return line.split("=", 1)[1].strip()
        raise SystemExit(f"{self.directory}: no build directory")

    def compile(self, source, output):
        """Makes a plugin of a C file, with the headers of this build."""
        compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
        subprocess.run([*compiler.split(), "-std=gnu17", "-O1", "-g", "-shared", "-fPIC",
                        "-I", os.path.join(self.source(), "include"), "-o", output, source],
                       check=True)

    def run(self, words, env=None, **limits):
        return harness.run([self.program, *words], env=env or {}, **limits)


def clean_text(text):
    return FREE_BLOCKS.sub("<free>", HOST_TEXT.sub("", text))


def clean_document(value):
    """A JSON value without the keys that tell how a run was executed."""
    if isinstance(value, dict):
        return {key: clean_document(item) for key, item in value.items() if key not in HOST_KEYS}
    if isinstance(value, list):
        return [clean_document(item) for item in value]
    return value


def differing_paths(first, second, path=""):
    """The paths of two JSON values at which they differ, with both values."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in sorted(first.keys() | second.keys()):
            yield from differing_paths(first.get(key), second.get(key), f"{path}.{key}")
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for index, (one, other) in enumerate(zip(first, second)):
            yield from differing_paths(one, other, f"{path}[{index}]")
    elif first != second:
        yield f"{path[1:] or 'the document'}: {first} and {second}"


def compare_ends(first, second):
    """How two runs differ in the exit code and the messages: a list."""
    found = []
    if first.ended() != second.ended():
        found.append(f"{first.ended()} and {second.ended()}")
    lines = differing_lines(clean_text(first.err), clean_text(second.err))
    return found + [f"stderr: {line}" for line in lines]


def compare_outputs(first, second):
    """The same, and in the output: text, or a JSON document."""
    found = compare_ends(first, second)
    one, other = clean_text(first.out), clean_text(second.out)
    try:
        documents = [clean_document(harness.read_json(text)) for text in (one, other)]
    except ValueError:
        return found + [f"stdout: {line}" for line in differing_lines(one, other)]
    return found + list(differing_paths(*documents))[:10]


def differing_lines(first, second, most=6):
    """The first lines of each text that the other does not have."""
    one, other = first.splitlines(), second.splitlines()
    if one == other:
        return []
    ours, theirs = set(one), set(other)
    lines = [f"only the first has: {line[:300]}" for line in one if line not in theirs][:most]
    lines += [f"only the second has: {line[:300]}" for line in other if line not in ours][:most]
    return lines or ["the same lines in another order"]


# Numbers of threads and of arrows in a trace.
LANES = re.compile(r'"(?:tid|id|sort_index)":\d+')


def compare_traces(first, second, any_order=False):
    """As compare_outputs(), and in the trace."""
    (outcome, trace), (other, other_trace) = first, second
    found = compare_outputs(outcome, other)
    if trace == other_trace:
        return found
    lines = [[line.rstrip(",") for line in text.splitlines()] for text in (trace, other_trace)]
    if any_order:
        lines = [sorted(LANES.sub("", line) for line in text) for text in lines]
    return found + differing_lines("\n".join(lines[0]), "\n".join(lines[1]))


def compare_figures(plain, changed):
    """Observers change no figure."""
    if plain.code is None or changed.code is None:
        return []
    if plain.code != changed.code:
        return [f"{plain.ended()} and {changed.ended()}"]
    documents = [clean_document(harness.read_json(outcome.out))
                 for outcome in (plain, changed)]
    for document in documents:
        for key in ("profile", "verified", "timing_only", "stand_ins"):
            document.pop(key, None)
    return list(differing_paths(*documents))[:10]


def add_option(parser):
    parser.add_argument("--against", metavar="DIR",
                        help="another build directory, which must give the same results")


def setup(attack):
    attack.first = Build(attack.options.build)
    attack.second = Build(attack.options.against) if attack.options.against else None
    if attack.second:
        attack.repeat_options = f" --against {attack.options.against}"
