#!/bin/sh
# limits.sh BUILD: what the program says of simulated time that exceeds its limit, that sums over PEs
# may exceed it, and that a value that is refused is told the limits. Also outputs that fail.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
kernbench=$(CDPATH='' cd -- "$1" && pwd)/kernbench
tests=$(CDPATH='' cd -- "$1" && pwd)/tests
cd "$scratch"

slow="--quiet --set cube.pe_gemm.rows=1 --set cube.pe_gemm.columns=1 --set cube.pe_gemm.cycle_ns=1000000"
small="--param m=256 --param k=256 --param n=256"
exceeds='kernbench: simulated time exceeds its limit of 9,223 s: a command of a PE that begins at * ns would end later; *less work'
# shellcheck disable=SC2086 # lists of words
{
    # 256^3 cycles of 1 ms are 16777 s; of 0.5 ms 8389 s.
    check "a product that takes too long" outcome 2 '*' "$exceeds" \
        "$kernbench" run --bench gemm_single_pe --timing-only $slow $small
    check "one command that takes too long" outcome 2 '*' "$exceeds" \
        "$kernbench" run --bench gemm_single_pe --timing-only $slow
    check "a product that just fits" outcome 0 '*Simulated time: 83886*.* ns*' '' \
        "$kernbench" run --bench gemm_single_pe --timing-only $slow $small --set cube.pe_gemm.cycle_ns=500000
}

# A trace that would be cut off does not replace a whole one; that of a fault ends with it.
echo whole >trace.json
# shellcheck disable=SC2086
check "time runs out: no trace" outcome 2 '*' "$exceeds" \
    "$kernbench" run --bench gemm_single_pe --timing-only $slow $small --trace trace.json
check "the old one stays" grep -qx whole trace.json
for name in - /dev/stdout /dev/fd/1; do
    check "a trace on stdout, as $name" outcome 0 '{"displayTimeUnit"*' '*' \
        "$kernbench" run --bench gemm_single_pe --param m=64 --param k=64 --param n=64 --quiet --trace $name
done

# Of stdout on a full disk the reason is told.
to_full_disk() { "$@" >/dev/full; }
for words in 'topo --print' 'list --json' version; do
    # shellcheck disable=SC2086
    check "$words on a full disk" outcome 71 '' \
        'kernbench: cannot write the output: No space left on device' to_full_disk "$kernbench" $words
done

# The commands of 256 PEs that load at 2 MB/s take 10 s, many at a time.
sums_are_right() {
    "$kernbench" run --bench qkv_gemm_multi_pe --timing-only --quiet --profile --json \
        --set cube.xbar_to_hbm_bw_gbs=0.002 >doc || return 1
    "$tests/run-json" <doc || return 1
    if grep -n ': -' doc; then return 1; fi
    grep -q '"busy_ns": 1[0-9]\{13\}\.' doc
}
check "sums over PEs beyond the limit of time" sums_are_right

refused() {
    # shellcheck disable=SC2086 # a list of words
    check "$1" outcome 2 '*' "$2" "$kernbench" $3
}
# shellcheck disable=SC2086
{
    refused "a window" "kernbench: --measure-ns: expected a decimal number of at least 0.000002 and at most 1000000000, found '1e13'" \
        "traffic --measure-ns 1e13"
    refused "a rate" "kernbench: --rate: expected a decimal number above 0 and at most 100, found '-1'" \
        "traffic --rate -1"
    refused "a seed" "kernbench: --seed: expected a whole number from 0 to 9223372036854775807, found '-1'*" \
        "traffic --seed -1"
    refused "a size" "kernbench: --max: expected a number of bytes, such as 4096 or 4KiB, from 1 to 1099511627776 (1TiB), found '2TiB'*" \
        "ccl tune --max 2TiB"
    refused "a parameter with a unit" "kernbench: parameter tokens of *: expected * from 1 to 65536 (64KiB), found '1TiB'" \
        "run --bench qkv_gemm_multi_pe --param tokens=1TiB"
    refused "a parameter" "kernbench: parameter tokens of *: expected * from 1 to 65536, found '65537'" \
        "run --bench qkv_gemm_multi_pe --param tokens=65537"
    refused "a key" "kernbench: --set cube.pe_gemm.rows: expected an integer from 1 to 65536, found '99999999999999999999'" \
        "topo --check --set cube.pe_gemm.rows=99999999999999999999"
}
finish
