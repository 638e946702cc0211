#!/bin/sh
# tutorial.sh BUILD [--update]: runs every command of docs/tutorial.md, and compares what it prints
# with what the tutorial shows; with --update, writes it there.
#
# Commands are the lines that begin with "$ " in blocks of ```console; what follows each is its output.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
tutorial=$here/../../docs/tutorial.md
readme=$here/../../README.md
PATH=$(CDPATH='' cd -- "$1" && pwd):$PATH
mkdir "$scratch/work"
cd "$scratch/work"

# What the tutorial should be. Stderr is shown as a terminal would.
play() {
    inside=no
    while IFS= read -r line; do
        case $inside$line in
        no'```console')
            inside=yes
            printf '%s\n' "$line"
            ;;
        yes'```')
            inside=no
            printf '%s\n' "$line"
            ;;
        yes'$ '*)
            printf '%s\n' "$line"
            eval "${line#\$ }" </dev/null 2>&1 || :
            ;;
        yes*) ;; # what it printed when the tutorial was written
        no*) printf '%s\n' "$line" ;;
        esac
    done <"$tutorial"
}

without_wall() { sed 's|in [0-9.]* s: [0-9.]* million hops/s|in ... s|' "$1"; }

same() {
    without_wall "$tutorial" >"$scratch/want"
    without_wall "$scratch/played" | diff "$scratch/want" -
}

# What the README shows of its first command is in what that prints.
readme_is_right() {
    kernbench run --bench gemm_single_pe --verify-data >"$scratch/out" || return 1
    grep -qxF '$ ./kb run --bench gemm_single_pe --verify-data' "$readme" || return 1
    awk '/^```/ { blocks++; next } blocks == 3 && !/^ *\.\.\.$/ && NF' "$readme" >"$scratch/shown"
    [ -s "$scratch/shown" ] && ! grep -vxFf "$scratch/out" "$scratch/shown"
}

play >"$scratch/played"
if [ "${2-}" = --update ]; then
    cp "$scratch/played" "$tutorial"
fi
check "its commands print what it shows" same
check "it has commands" test "$(grep -c '^\$ ' "$tutorial")" -ge 10
check "the README shows what its first command prints" readme_is_right

finish
