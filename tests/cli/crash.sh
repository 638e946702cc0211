#!/bin/sh
# crash.sh BUILD: what is said, and with which status, when a stack overflows or the program crashes.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
overflow=$1/tests/overflow

check "nothing wrong" outcome 0 'no crash' '' "$overflow" none

# Sanitizers differ in words and status; what counts is that the report is theirs.
sanitizer_reports() {
    if "$overflow" "$1" >"$scratch/out" 2>"$scratch/err"; then
        complain "no crash" || return 1
    fi
    grep -qi error "$scratch/err" || complain "no report" || return 1
    ! grep -q '^kernbench:' "$scratch/err" || complain "a report of ours" || return 1
}

if "$overflow" sanitized; then
    for mode in recurse array null outside; do
        check "$mode: the sanitizer reports" sanitizer_reports $mode
    done
    finish
    exit
fi

# overflows MODE NAME: one line with the name and the size.
overflows() {
    outcome 3 '' \
        "kernbench: stack overflow in $2: its stack has 32 KiB; increase --stack-bytes, or use less stack" \
        "$overflow" "$1" || return 1
    [ "$(wc -l <"$scratch/err")" -eq 1 ] || complain "not one line"
}

bug='this is a bug in KernBench; please report it with the command line'

check "recursion" overflows recurse "kernel 'deep', PE 7"
check "a large variable" overflows array "kernel 'wide', PE 8"
check "in a cleanup" overflows cleanup victim
check "in another thread" overflows thread "kernel of the thread"
check "beside another thread" overflows beside "kernel of main"
check "a name with control characters" overflows name 'a[?]b[?]\[31m%s[?]'
check "a null pointer in a coroutine" \
    outcome 70 '' "kernbench: SIGSEGV at address 0x0: $bug" "$overflow" null
check "a null pointer elsewhere" \
    outcome 70 '' "kernbench: SIGSEGV at address 0x0: $bug" "$overflow" outside
check "a null pointer in the simulator, while code of the user's runs" \
    outcome 70 '' "kernbench: SIGSEGV at address 0x0: unless ./mine.c corrupted the memory of the program, $bug" \
    "$overflow" handler user
check "a division by zero" outcome 70 '' "kernbench: SIGFPE at address 0x*: $bug" "$overflow" divide
check "abort()" outcome 70 '' "kernbench: SIGABRT: $bug" "$overflow" abort
check "exit()" outcome 71 'printed before' \
    'kernbench: a library called exit() during the run' "$overflow" exit

# mistakes MODE WORDS: what is said if the code is the user's, in a kernel and on the host's side.
mistakes() {
    outcome 3 '' \
        "kernbench: kernel scale on sip0.cube1.pe2 crashed: $2; last seen at mine.c:27" \
        "$overflow" "$1" user || return 1
    outcome 3 '' "kernbench: the bench ./mine.c crashed: $2" "$overflow" "$1" host
}
check "the user's: a null pointer" mistakes null \
    'segmentation fault (an error in its C code, such as a bad pointer or endless recursion)'
check "the user's: a division by zero" mistakes divide \
    'arithmetic error (an error in its C code, such as dividing by zero)'
check "the user's: an instruction that is none" mistakes ill \
    'illegal instruction (an error in its C code, such as a missing return)'
check "the user's: abort()" mistakes abort 'aborted (by abort() or a failed assertion)'
check "the user's: exit() in a kernel" outcome 3 'printed before' \
    'kernbench: kernel scale on sip0.cube1.pe2 called exit(): it must return instead' "$overflow" exit user
check "the user's: exit() on the host's side" outcome 3 'printed before' \
    'kernbench: the bench ./mine.c called exit(): it must return instead' "$overflow" exit host
check "a simulator that is not watched" \
    outcome 70 '' "kernbench: SIGSEGV at address 0x[0-9a-f]*: $bug" "$overflow" forgotten
check "a crash in the handler" outcome 70 '' "kernbench: SIGSEGV: $bug" "$overflow" ruined
check "the user's: memory is damaged" outcome 3 '' \
    'kernbench: SIGSEGV: ./mine.c corrupted the memory of the program (an error in its C code, *' \
    "$overflow" ruined user
# 128 + 11: the shell's status for a process that SIGSEGV has ended; it may say so itself.
check "a signal that was sent" outcome 139 '' '*' "$overflow" sent

finish
