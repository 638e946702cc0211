#!/usr/bin/env python3
"""descriptors.py: stdin, stdout and stderr closed, full, or pipes that have no reader, and places
where files cannot be written.

Every combination of closed descriptors, with every command and kind of output file: a result that
did not get out is never a success, and what belongs to stdout or stderr never gets into a file. A
file that cannot be written whole stays as it was.
"""
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile

import harness

SMALL = ["--set", "sip.cube_mesh.w=1", "--set", "sip.cube_mesh.h=1"]
GEMM = ["run", "--bench", "gemm_single_pe", "--param", "m=64", "--param", "k=64", "--param", "n=64"]
# Commands, with FILE where an output file is named.
COMMANDS = (
    [*GEMM, "--trace", "FILE"],
    [*GEMM, "--json", "--trace", "FILE"],
    [*GEMM, "--quiet"],
    ["topo", "--svg", "FILE", *SMALL],
    ["topo", "--json", "--svg", "FILE", *SMALL],
    ["topo", *SMALL],
    ["topo", "--print", *SMALL],
    ["ccl", "tune", "--max", "1KiB", "--output", "FILE", *SMALL],
    ["ccl", "print"],
    ["ccl", "plan", *SMALL],
    ["new", "bench", "NAME"],
    ["list"],
    ["help"],
    ["version"],
    ["run", "--bench", "no_such_bench"],
)
MASK = re.compile(rb' in [0-9.]+ s: .*|"(?:wall_s|hops_per_s)": .*')


def mask(output):
    return MASK.sub(b"", output)


def has_file(command):
    return "FILE" in command or "NAME" in command


def fill_in(command):
    words = {"FILE": "out.file", "NAME": "mine"}
    return [words.get(word, word) for word in command]


def name_of(command):
    return "mine.c" if "NAME" in command else "out.file"


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def hidden(folder):
    return [name for name in os.listdir(folder) if "kernbench-" in name]


def run_in(attack, folder, command, **how):
    return attack.run(fill_in(command), cwd=folder, timeout=60, **how)


def check_leftovers(attack, outcome, folder):
    for name in hidden(folder):
        attack.finding(outcome, f"left behind: {name}")


def undisturbed(attack, command):
    """Exit code, stdout and file of a run in which nothing is odd."""
    key = tuple(command)
    if key not in attack.undisturbed:
        folder = attack.new_folder()
        outcome = run_in(attack, folder, command)
        attack.judge(outcome)
        path = os.path.join(folder, name_of(command))
        attack.undisturbed[key] = (outcome.code, mask(outcome.stdout),
                                   mask(read(path)) if os.path.exists(path) else None)
    return attack.undisturbed[key]


# ---- The cases. Each is called with (attack, command) --------------------------------------------


def closed(descriptors):
    def check(attack, command):
        code, out, file = undisturbed(attack, command)
        folder = attack.new_folder()
        outcome = run_in(attack, folder, command, closed=descriptors)
        outcome.where += f"closed {descriptors}: "
        attack.judge(outcome)
        expected = harness.HOST if code == 0 and out and 1 in descriptors else code
        if outcome.code != expected:
            attack.finding(outcome, f"{outcome.ended()}, not {expected}")
        path = os.path.join(folder, name_of(command))
        found = mask(read(path)) if os.path.exists(path) else None
        if found != file:
            attack.finding(outcome, "the file is not what it is with open descriptors")
        if 1 not in descriptors and mask(outcome.stdout) != out:
            attack.finding(outcome, "stdout is not what it is with open descriptors")
        check_leftovers(attack, outcome, folder)
    return check


def full_stdout(attack, command):
    code, out, _ = undisturbed(attack, command)
    with open("/dev/full", "wb") as full:
        outcome = run_in(attack, attack.new_folder(), command, stdout=full)
    expected = harness.HOST if code == 0 and out else code
    if outcome.code != expected:
        attack.finding(outcome, f"{outcome.ended()} with stdout on /dev/full, not {expected}")
    if outcome.code == harness.HOST and "cannot write" not in outcome.err:
        attack.finding(outcome, "no message")


def broken_pipe(ignored):
    def check(attack, command):
        code, out, _ = undisturbed(attack, command)
        readable, writable = os.pipe()
        os.close(readable)
        action = signal.SIG_IGN if ignored else signal.SIG_DFL
        outcome = run_in(attack, attack.new_folder(), command, stdout=writable,
                         before=lambda: signal.signal(signal.SIGPIPE, action))
        os.close(writable)
        if code == 0 and out:
            right = outcome.code == harness.HOST if ignored else outcome.signal == signal.SIGPIPE
        else:
            right = outcome.code == code
        if not right:
            attack.finding(outcome, f"{outcome.ended()} with a broken pipe")
    return check


def head(attack, command):
    """As in `kernbench ... | head -1`: no message, and no success of a writer that was cut off."""
    shell = shlex.join([attack.program, *fill_in(command)])
    folder = attack.new_folder()
    done = subprocess.run(["bash", "-c", f"{shell} | head -1; exit ${{PIPESTATUS[0]}}"], cwd=folder,
                          capture_output=True, timeout=60, check=False,
                          preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))
    code = undisturbed(attack, command)[0]
    if done.returncode not in (code, 128 + signal.SIGPIPE):
        attack.finding(f"{shell} | head -1", f"exit code {done.returncode}")
    if b"bug" in done.stderr:
        attack.finding(f"{shell} | head -1", done.stderr.decode())


def bad_file(prepare, expected):
    """The output file is at a place that prepare(folder) returns; it stays as it was."""
    def check(attack, command):
        if "FILE" not in command:
            return
        folder = attack.new_folder()
        path = prepare(folder)
        before = read(path) if os.path.isfile(path) else None
        words = [path if word == "FILE" else word for word in command]
        outcome = attack.run(words, cwd=folder, timeout=60)
        attack.judge(outcome)
        if outcome.code not in expected:
            attack.finding(outcome, f"{outcome.ended()}, not {expected}")
        if before is not None and read(path) != before:
            attack.finding(outcome, "the file has changed")
        check_leftovers(attack, outcome, folder)
    return check


def missing_folder(folder):
    return os.path.join(folder, "missing", "out.file")


def file_as_folder(folder):
    write(os.path.join(folder, "plain"), "text")
    return os.path.join(folder, "plain", "out.file")


def a_folder(folder):
    os.mkdir(os.path.join(folder, "out"))
    return os.path.join(folder, "out")


def link_to_itself(folder):
    path = os.path.join(folder, "loop")
    os.symlink("loop", path)
    return path


def too_long(folder):
    return os.path.join(folder, "x" * 300)


def read_only_folder(folder):
    inner = os.path.join(folder, "inner")
    os.mkdir(inner)
    os.chmod(inner, 0o500)
    return os.path.join(inner, "out.file")


def small_files(attack, command):
    """RLIMIT_FSIZE below what is written: the old file stays."""
    code, _, file = undisturbed(attack, command)
    if "FILE" not in command or file is None or len(file) < 2000:
        return
    folder = attack.new_folder()
    path = os.path.join(folder, "out.file")
    write(path, "old: # a comment\n" if "tune" in command else "old")
    before = read(path)
    outcome = run_in(attack, folder, command, file_size=1000)
    attack.judge(outcome)
    if code == 0 and outcome.code != harness.HOST:
        attack.finding(outcome, f"{outcome.ended()} with files of 1000 bytes at most")
    if read(path) != before:
        attack.finding(outcome, "the file has changed")
    check_leftovers(attack, outcome, folder)


def full_disk(attack, command):
    """A file system of 16 KiB, of which the old file has 4: not enough for the new one."""
    _, _, file = undisturbed(attack, command)
    if "FILE" not in command or not attack.small_disk or file is None or len(file) <= 12288:
        return
    for name in os.listdir(attack.small_disk):
        os.unlink(os.path.join(attack.small_disk, name))
    path = os.path.join(attack.small_disk, "out.file")
    write(path, "old")
    words = [path if word == "FILE" else word for word in command]
    outcome = attack.run(words, timeout=60)
    attack.judge(outcome)
    if outcome.code != harness.HOST or "No space left on device" not in outcome.err:
        attack.finding(outcome, f"{outcome.ended()} on a full disk")
    if read(path) != b"old":
        attack.finding(outcome, "the file has changed")
    check_leftovers(attack, outcome, attack.small_disk)


def special_file(path, expected):
    def check(attack, command):
        if "FILE" not in command:
            return
        words = [path if word == "FILE" else word for word in command]
        outcome = attack.run(words, cwd=attack.new_folder(), timeout=60)
        attack.judge(outcome)
        if outcome.code != expected:
            attack.finding(outcome, f"{outcome.ended()}, not {expected}")
        if not stat.S_ISCHR(os.stat(path).st_mode):
            attack.finding(outcome, f"{path} was replaced")
    return check


def to_stdout(attack, command):
    """A file that is /dev/stdout, or `-`: written behind what is there, closed or not."""
    if "FILE" not in command or "tune" in command or "--json" in command:
        return
    file = undisturbed(attack, command)[2]
    for path in ("-", "/dev/stdout", "/dev/fd/1"):
        words = [path if word == "FILE" else word for word in command]
        if path == "-" and "--trace" in words:
            words.append("--quiet")
        folder = attack.new_folder()
        target = os.path.join(folder, "target")
        write(target, "before\n")
        with open(target, "ab") as out:
            outcome = attack.run(words, cwd=folder, timeout=60, stdout=out)
        attack.judge(outcome, allowed=(0,))
        found = mask(read(target))
        if not found.startswith(b"before\n") or file[:200] not in found:
            attack.finding(outcome, f"{path} on a file: the file is not whole")
        outcome = attack.run(words, cwd=folder, timeout=60, closed=(1,))
        outcome.where += "closed (1,): "
        attack.judge(outcome, allowed=(harness.HOST,))


def same_as_stdout(attack, command):
    if "FILE" not in command:
        return
    folder = attack.new_folder()
    with open(os.path.join(folder, "out.file"), "wb") as out:
        outcome = run_in(attack, folder, command, stdout=out)
    attack.judge(outcome, allowed=(harness.BAD_INPUT,))


def permissions(attack, command):
    """A new file has what the umask leaves; an existing one keeps its mode; links stay."""
    if "FILE" not in command:
        return
    code, _, file = undisturbed(attack, command)
    folder = attack.new_folder()
    path = os.path.join(folder, "out.file")
    for mask_bits, old_mode in ((0o022, None), (0o077, None), (0o022, 0o640), (0o077, 0o664)):
        if os.path.exists(path):
            os.unlink(path)
        if old_mode is not None:
            write(path, "old")
            os.chmod(path, old_mode)
        outcome = run_in(attack, folder, command, before=lambda bits=mask_bits: os.umask(bits))
        wanted = 0o666 & ~mask_bits if old_mode is None else old_mode
        if outcome.code != code:
            attack.finding(outcome, outcome.ended())
        elif stat.S_IMODE(os.stat(path).st_mode) != wanted:
            attack.finding(outcome, f"mode {os.stat(path).st_mode:o}, not {wanted:o}")
    os.unlink(path)
    os.mkdir(os.path.join(folder, "there"))
    os.symlink("there/real", path)  # which does not exist at first
    for _ in range(2):
        outcome = run_in(attack, folder, command)
        if not os.path.islink(path) or mask(read(path)) != file:
            attack.finding(outcome, "a symbolic link was not followed")
    check_leftovers(attack, outcome, os.path.join(folder, "there"))


def pipe_as_file(attack, command):
    if "FILE" not in command:
        return
    file = undisturbed(attack, command)[2]
    folder = attack.new_folder()
    path = os.path.join(folder, "out.file")
    os.mkfifo(path)
    with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as reader:
        outcome = run_in(attack, folder, command)
        text = reader.stdout.read()
    attack.judge(outcome, allowed=(0,))
    if mask(text) != file or not stat.S_ISFIFO(os.stat(path).st_mode):
        attack.finding(outcome, "the pipe did not get the file")


CHECKS = (
    *(closed(tuple(d for d in range(3) if bits >> d & 1)) for bits in range(1, 8)),
    full_stdout, broken_pipe(False), broken_pipe(True), head,
    bad_file(missing_folder, (harness.BAD_INPUT,)), bad_file(file_as_folder, (harness.BAD_INPUT,)),
    bad_file(a_folder, (harness.BAD_INPUT,)), bad_file(link_to_itself, (harness.BAD_INPUT,)),
    bad_file(too_long, (harness.BAD_INPUT,)),
    bad_file(read_only_folder, (0, harness.BAD_INPUT)),  # root may write everywhere
    small_files, full_disk, special_file("/dev/full", harness.HOST), special_file("/dev/null", 0),
    to_stdout, same_as_stdout, permissions, pipe_as_file,
)


def mount_small_disk(attack):
    """A tmpfs of 16 KB, if that is permitted; else None."""
    folder = tempfile.mkdtemp(dir=attack.scratch)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", folder],
                          capture_output=True, check=False)
    return folder if done.returncode == 0 else None


def setup(attack):
    attack.undisturbed = {}
    attack.small_disk = mount_small_disk(attack)
    attack.list = [(check, command) for check in CHECKS for command in COMMANDS]
    harness.random.Random(attack.seed).shuffle(attack.list)

    def new_folder():
        folder = os.path.join(attack.scratch, "case")
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        return folder

    attack.new_folder = new_folder
    close = attack.close

    def unmount_and_close():
        if attack.small_disk:
            subprocess.run(["umount", attack.small_disk], check=False)
        return close()

    attack.close = unmount_and_close


def case(attack, rng, number):
    if number >= len(attack.list):
        return "done"
    check, command = attack.list[number]
    check(attack, command)
    return None


if __name__ == "__main__":
    harness.main("descriptors", case, __doc__, setup=setup)
