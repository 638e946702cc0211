"""test_check_docs.py BUILD: tools/check-docs finds what is wrong with a document, and updates outputs."""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = sys.argv[1]

KERNEL = """<!-- fill: scale.c KERNEL -->
```c
KB_KERNEL(scale, tl_ptr x, int n, float factor)
{
    tl_ptr mine = x + %s * n * 2;
    tl_store(mine, tl_mul(tl_load(mine, tl_shape(n), TL_F16), factor));
}
```
"""
HOST = """<!-- fill: scale.c HOST -->
<!-- run: %s -->
```c
kb_machine machine = kb_context_machine(ctx);
const kb_policy policy = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
const kb_tensor_spec spec = {
    .dtype = KB_F16, .shape = KB_SHAPE(machine.cubes, machine.pes * 256), .policy = &policy};
KB_TRY(kb_full(ctx, &spec, 1, &x));
KB_TRY(kb_launch(ctx, "scale", &scale, x, 256, 0.5));
```
"""
RIGHT = "(tl_program_id(1) * tl_num_programs(0) + tl_program_id(0))"
VERIFY = "on-machines kernbench run --bench ./scale.c --verify-data"
MACHINE = """<!-- save: m.yaml -->
<!-- run: kernbench topo --check --topology m.yaml -->
```yaml
sip: { %s: { w: 2 } }
```
"""


def console(text, directive=""):
    return "%s```console\n%s\n```\n" % (directive, text)


# (name, document, what is wrong with it; None: nothing)
CASES = [
    ("an output that is right", console("$ echo a; echo b\na\nb"), None),
    ("an output that is wrong", console("$ echo a\nb"), "+a"),
    ("an output of a second command", console("$ echo a\na\n$ echo b\nc"), "+b"),
    ("a wall time may differ", console("$ echo 7 hops in 0.3 s\n7 hops in 9.25 s"), None),
    ("other numbers may not", console("$ echo 7 hops in 0.3 s\n8 hops in 0.3 s"), "+7 hops"),
    ("a command of two lines", console("$ echo a |\n      tr a b\nb"), None),
    ("the shell keeps its state", console("$ cd / && x=1\n$ echo $PWD $x\n/ 1"), None),
    ("an unknown language", "```\necho a\n```\n", "unknown language ''"),
    ("C without a check", "```c\nint x;\n```\n", "no check"),
    ("YAML without a check", "```yaml\nname: a\n```\n", "no check"),
    ("text without a check", "```text\na\n```\n", "no check"),
    ("console without a command", console("a"), "no check"),
    ("a file that no command uses", "<!-- save: a.c -->\n```c\nint x;\n```\n", "no command uses a.c"),
    ("a file that a command uses",
     "<!-- save: a.c -->\n<!-- run: grep -q x a.c -->\n```c\nint x;\n```\n", None),
    ("a hidden command that fails", console("$ echo a\na", "<!-- run: false -->\n"),
     "exit status 1: (false)"),
    ("an unknown directive", console("$ echo a\na", "<!-- rum: true -->\n"), "unknown directive 'rum'"),
    ("a directive without a block", "<!-- run: true -->\n\ntext\n", "a directive belongs right above"),
    ("a block without an end", "```console\n$ echo a\n", "has no end"),
    ("sh that fails", "```sh\nfalse\n```\n", "exit status 1"),
    ("a silent command that fails", console("$ false", "<!-- silent -->\n"), "exit status 1"),
    ("output of a text block", "<!-- shows: echo a -->\n```text\nb\n```\n", "+a"),
    ("usage of ./kb", "<!-- usage -->\n```sh\n./kb test -L sim\n```\n", None),
    ("unknown usage of ./kb", "<!-- usage -->\n```sh\n./kb tset\n```\n", "does not list"),
    ("commands of a table", "<!-- commands -->\n| a |\n|---|\n| `./kb version` |\n", None),
    ("a table's command that fails", "<!-- commands -->\n| a |\n|---|\n| `./kb topo --chek` |\n",
     "exit status 2"),
    ("a kernel that is right", KERNEL % RIGHT + HOST % VERIFY, None),
    ("a kernel that ignores its cube", KERNEL % "tl_program_id(0)" + HOST % VERIFY,
     "30720 of 32768 elements are wrong"),
    ("a kernel that does not compile", KERNEL % "tl_program(0)" + HOST % VERIFY, "exit status"),
    ("a kernel that nothing runs", KERNEL % RIGHT + HOST % "true", "no command uses scale.c"),
    ("a scaffold that is not filled", KERNEL % RIGHT, "not filled: /* @HOST@ */"),
    ("a machine file", MACHINE % "cube_mesh", None),
    ("a machine file with a mistake", MACHINE % "cube_mash", "did you mean"),
]

TABLE = "<!-- commands -->\n| a |\n|---|\n| `./kb version` |\n\nb\n"

# (name, document, document afterwards)
UPDATES = [
    ("an output is replaced", "a\n" + console("$ echo b\nc") + "d\n", "a\n" + console("$ echo b\nb") + "d\n"),
    ("a wall time stays", console("$ echo 0.1 s\n2 s"), console("$ echo 0.1 s\n2 s")),
    ("a text block is replaced", "<!-- shows: echo b -->\n```text\n```\n",
     "<!-- shows: echo b -->\n```text\nb\n```\n"),
    ("nothing is replaced if a check fails", console("$ echo b\nc") + "```sh\nfalse\n```\n",
     console("$ echo b\nc") + "```sh\nfalse\n```\n"),
    ("an output is not emptied", console("$ true\na"), console("$ true\na")),
    ("a table stays", TABLE, TABLE),
]


def play(document, *options):
    """(succeeded, printed, the document afterwards)"""
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "document.md")
        with open(path, "w") as file:
            file.write(document)
        command = [sys.executable, os.path.join(ROOT, "tools", "check-docs"), BUILD, path, *options]
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with open(path) as file:
            return result.returncode == 0, result.stdout, file.read()


def check_case(document, problem):
    succeeded, printed, _ = play(document)
    return succeeded == (problem is None) and (problem or "") in printed, printed


def check_update(document, wanted):
    _, printed, after = play(document, "--update")
    return after == wanted, printed + after


def main():
    passed = failed = 0
    runs = [(name, check_case, rest) for name, *rest in CASES]
    runs += [("update: " + name, check_update, rest) for name, *rest in UPDATES]
    for name, check, arguments in runs:
        print("[ RUN      ] %s" % name)
        good, printed = check(*arguments)
        if good:
            print("[       OK ] %s" % name, flush=True)
            passed += 1
        else:
            print("%s\n[  FAILED  ] %s" % (printed.replace("[  ", "[- "), name), flush=True)
            failed += 1
    print("[  PASSED  ] %d test(s)." % passed)
    if failed:
        print("[  FAILED  ] %d test(s)." % failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
