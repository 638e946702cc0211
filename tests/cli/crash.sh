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
        "kernbench: stack overflow in $2: its stack has 32 KiB; make stacks larger, or use less of them" \
        "$overflow" "$1" || return 1
    [ "$(wc -l <"$scratch/err")" -eq 1 ] || complain "not one line"
}

bug='this is a bug in KernBench; please report it, with the command that you ran'

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
check "a simulator that is not watched" \
    outcome 70 '' "kernbench: SIGSEGV at address 0x[0-9a-f]*: $bug" "$overflow" forgotten
# 128 + 11: the shell's status for a process that SIGSEGV has ended; it may say so itself.
check "a signal that was sent" outcome 139 '' '*' "$overflow" sent

finish
