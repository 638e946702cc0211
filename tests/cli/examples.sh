#!/bin/sh
# examples.sh BUILD: every example that a command's help shows works, and has nothing to warn of.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
PATH=$(CDPATH='' cd -- "$1" && pwd):$PATH

mkdir "$scratch/work" # examples may write files, and later ones read them
example() { (cd "$scratch/work" && eval "$1"); }

commands=$(kernbench --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
check "there are commands" test -n "$commands"
for command in $commands; do
    kernbench "$command" --help | sed -n 's/^Example: //p' >"$scratch/$command"
    check "$command: has examples" test -s "$scratch/$command"
    while IFS= read -r line; do
        check "$line" outcome 0 '*' '' example "$line"
    done <"$scratch/$command"
done

finish
