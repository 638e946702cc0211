#!/bin/sh
# soak.sh BUILD_DIR: the driver of the attacks, with invented attacks.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"

# A copy: its logs do not go to this tree's build.
tree=$scratch/tree
attacks=$scratch/attacks
mkdir -p "$tree/tools" "$tree/build" "$attacks" "$tree/tests/fuzz" "$tree/build-fuzz" \
    "$tree/tests/corpus/bytes"
cp "$here/../../tools/soak" "$tree/tools/soak"
: >"$tree/build/kernbench"
soak() { python3 "$tree/tools/soak" --no-build --attacks "$attacks" "$@"; }

# invent NAME: an attack whose script comes on stdin.
invent() {
    {
        echo 'import sys, time, os'
        echo 'if __name__ == "__main__":'
        sed 's/^/    /'
    } >"$attacks/$1.py"
}
invent good <<'EOT'
print("arguments:", *sys.argv[1:])
print("good: 12 cases, 0 findings")
EOT
echo 'raise SystemExit("a module, no attack")' >"$attacks/module.py"

row() { grep -qE "^$1 +$2 +$3 +[0-9]+$" "$scratch/out" || { cat "$scratch/out" && return 1; }; }
log_says() { grep -qE -- "$2" "$tree"/build/soak/*/"$1.log"; }

for word in 0 -1 x nan inf 1e9 ''; do
    check "refuses '$word' minutes" outcome 2 '' '*MINUTES*' soak -- "$word"
done
check "refuses a second word" outcome 2 '' '*unrecognized*' soak 1 2
check "refuses a seed that is none" outcome 2 '' '*--seed*' soak --seed x
check "refuses an attack that is not there" outcome 2 '' '*no such attack*' soak --only none
check "lists attacks, not modules" outcome 0 'good' '' soak --list
# Each is started as it is named where a finding says how to repeat it.
not_executable() {
    grep -l '^if __name__ ==' "$here"/../soak/*.py | while read -r file; do
        { [ -x "$file" ] && head -n 1 "$file" | grep -q '^#!'; } || echo "$file"
    done
}
check "attacks can be started" outcome 0 '' '' not_executable
check "runs nothing when it checks arguments" outcome 0 '' '' soak 5 --check-arguments

check "is content with attacks that find nothing" outcome 0 'seed 7*all*' '' soak 0.1 --seed 7
check "counts cases" row good 12 0
check "passes seed, time and build" log_says good '--build .*/build --seconds 6 --seed 7$'

invent bad <<'EOT'
print("finding 1: wrong\nbad: 3 cases, 1 findings")
sys.exit(1)
EOT
check "ends with 1 if there is a finding" outcome 1 '*' '' soak 0.1
check "counts findings" row bad 3 1
check "runs the other attacks too" row good 12 0
check "adds up" row all 15 1
check "names the folder" grep -qE '^logs .*: .*/build/soak/[0-9]+-[0-9]+-[^/]+$' "$scratch/out"
check "runs only what is asked for" outcome 0 '*good*' '' soak 0.1 --only '^good$'

invent bad <<'EOT'
sys.exit("no closing line")
EOT
check "an attack that breaks is a finding" outcome 1 '*' '' soak 0.1 --only bad
invent bad <<'EOT'
print("bad: 3 cases, 0 findings")
sys.exit(1)
EOT
check "so is one that contradicts itself" outcome 1 '*' '' soak 0.1 --only bad
rm "$attacks/bad.py"

touch "$tree/tests/fuzz/fuzz_bytes.c"
fuzzer() { { echo '#!/bin/sh' && cat; } >"$tree/build-fuzz/fuzz-bytes" && chmod +x "$tree/build-fuzz/fuzz-bytes"; }
fuzzer <<'EOT'
sleep 3
echo "stat::number_of_executed_units: 1000"
EOT
check "runs fuzzers" outcome 0 '*' '' soak 0.08
check "counts their executions" row fuzz-bytes 1,000 0
fuzzer <<'EOT'
sleep 0.1
echo "stat::number_of_executed_units: 10"
exit 77
EOT
check "a fuzzer that fails is a finding" outcome 1 '*' '' soak 0.5 --only fuzz
check "it is started again, some times" row fuzz-bytes 30 3
rm "$tree/tests/fuzz/fuzz_bytes.c"

# Interrupted: what ran is ended, and the table is printed.
invent slow <<'EOT'
open(os.environ["SLOW"], "w").write(str(os.getpid()))
time.sleep(600)
EOT
interrupted() {
    SLOW=$scratch/slow.pid python3 "$tree/tools/soak" 20 --no-build --attacks "$attacks" \
        --only slow >"$scratch/out" 2>"$scratch/err" &
    driver=$!
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        [ -s "$scratch/slow.pid" ] && break
        sleep 0.5
    done
    # A shell starts what is in the background with interrupts ignored; TERM is dealt with alike.
    kill -TERM $driver
    status=0
    wait $driver || status=$?
    [ "$status" -eq 130 ] || { echo "status $status" && return 1; }
    grep -q '^interrupted$' "$scratch/out" && row slow 0 0 && ! kill -0 "$(cat "$scratch/slow.pid")" 2>&-
}
check "an interrupt ends attacks and prints the table" interrupted

finish
