#!/bin/sh
# tutorial.sh BUILD [--update]: runs every command of the tutorial and of the guide to collectives, and
# compares what they print with what is shown there; with --update, writes it there.
#
# Commands are the lines that begin with "$ " in blocks of ```console; what follows each is its output.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
docs=$here/../../docs
readme=$here/../../README.md
PATH=$(CDPATH='' cd -- "$1" && pwd):$PATH

# What the document should be. Stderr is shown as a terminal would.
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
        yes*) ;; # what it printed when the document was written
        no*) printf '%s\n' "$line" ;;
        esac
    done <"$1"
}

without_wall() { sed 's|in [0-9.]* s: [0-9.]* million hops/s|in ... s|' "$1"; }

# same DOCUMENT PLAYED
same() {
    without_wall "$1" >"$scratch/want"
    without_wall "$2" | diff "$scratch/want" -
}

# What the README shows of its first command is in what that prints.
readme_is_right() {
    kernbench run --bench gemm_single_pe --verify-data >"$scratch/out" || return 1
    grep -qxF '$ ./kb run --bench gemm_single_pe --verify-data' "$readme" || return 1
    awk '/^```/ { blocks++; next } blocks == 3 && !/^ *\.\.\.$/ && NF' "$readme" >"$scratch/shown"
    [ -s "$scratch/shown" ] && ! grep -vxFf "$scratch/out" "$scratch/shown"
}

for name in tutorial collectives; do
    mkdir "$scratch/$name"
    cd "$scratch/$name"
    play "$docs/$name.md" >"$scratch/$name.played"
    if [ "${2-}" = --update ]; then
        cp "$scratch/$name.played" "$docs/$name.md"
    fi
    check "the commands of $name print what it shows" same "$docs/$name.md" "$scratch/$name.played"
    check "$name has commands" test "$(grep -c '^\$ ' "$docs/$name.md")" -ge 10
done
check "the README shows what its first command prints" readme_is_right

finish
