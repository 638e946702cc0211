#!/bin/sh
# bench.sh BUILD_DIR: the options of kb-bench, with invented programs to compare with, and its check
# of stored counts of instructions.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
bench=$1/kb-bench
json=$scratch/bench.json

check "--help names the options" outcome 0 'usage: *--against BUILD*--update-instructions FILE*' '' \
    "$bench" --help
check "an unknown option" outcome 2 '' "*unknown option '--agains'*--against*" "$bench" --agains x
for option in --only --json --against --check-instructions --update-instructions; do
    check "$option without a value" outcome 2 '' "*option '$option' wants a *" "$bench" $option
done
check "--only that nothing begins with" outcome 2 '*' "*no figure has a name*'x.y'*" \
    "$bench" --only x.y --json "$json"

# ---- Another build ----

check "--against without a program" outcome 2 '*' "*there is no program $scratch/none*" \
    "$bench" --against "$scratch/none" --only commands.qkv3072 --json "$json"
mkdir "$scratch/other"
printf '#!/bin/sh\nexit 0\n' >"$scratch/other/kernbench"
chmod +x "$scratch/other/kernbench"
check "--against a build directory" \
    outcome 0 '*x other*commands.qkv3072 *commands.qkv3072.other_s *commands.qkv3072.mb *' '' \
    "$bench" --quick --against "$scratch/other" --only commands.qkv3072 --json "$json"
check "the ratio is among the figures" grep -q '"commands.qkv3072.vs_other": ' "$json"
printf '#!/bin/sh\necho "unknown bench" >&2\nexit 2\n' >"$scratch/other/kernbench"
check "--against a program that lacks the bench" \
    outcome 0 '*No ratio for commands.qkv3072: *unknown bench*commands.qkv3072 *' '' \
    "$bench" --quick --against "$scratch/other/kernbench" --only commands.qkv3072 --json "$json"

# ---- Stored counts ----

stored=$scratch/stored.txt
"$bench" --check-instructions "$scratch/none" 2>"$scratch/err" || :
if ! grep -q 'cannot count instructions' "$scratch/err"; then # valgrind, and a release build
    check "no file with counts" outcome 2 '' "*cannot read $scratch/none*" \
        "$bench" --check-instructions "$scratch/none"
    printf '# kept\nmessages.add\n' >"$stored"
    check "a line without a figure" outcome 2 '' "*expected a name and a figure, found 'messages.add'*" \
        "$bench" --check-instructions "$stored"
    printf '# kept\nmessages.none 5\n' >"$stored"
    check "a case that is not there" outcome 2 '' "*there is no case 'messages.none'*" \
        "$bench" --check-instructions "$stored"
    printf '# kept\nmessages.add 100\nmessages.ring16 100\n' >"$stored"
    check "a case that rose" \
        outcome 1 'messages.add *100.0 -> * instructions, +* ROSE by more than 10 %' '*1 case rose*' \
        "$bench" --check-instructions "$stored" --only messages.add
    check "writes new figures" outcome 0 'messages.add *100.0 -> *' '' \
        "$bench" --update-instructions "$stored" --only messages.add
    check "keeps comments and other cases" \
        outcome 0 '# kept?messages.add [1-9]*.[0-9]?messages.ring16 100.0' '' cat "$stored"
    check "the same figures" outcome 0 'messages.add *, [+-]0.0 %' '' \
        "$bench" --check-instructions "$stored" --only messages.add
fi
finish
