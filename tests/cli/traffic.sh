#!/bin/sh
# traffic.sh BUILD: `kernbench traffic` and `kernbench validate` as a user meets them.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
kernbench=$1/kernbench

mesh="--topology mesh-reference --set cube.noc.k=4"

# json_has FILE KEY...: these keys are in it.
json_has() {
    file=$1
    shift
    for key in "$@"; do
        grep -q "^  \"$key\": " "$file" || complain "no $key" || return 1
    done
}

# without_wall FILE: what does not depend on the machine that it ran on.
without_wall() { grep -v -e wall_s -e hops_per_s -e 'hops/s' "$1"; }

repeatable() {
    "$@" >"$scratch/first" && "$@" >"$scratch/second" || return 1
    without_wall "$scratch/first" >"$scratch/out"
    without_wall "$scratch/second" | cmp -s - "$scratch/out"
}

check "the default machine" \
    outcome 0 "Traffic on machine 'default': uniform within each cube*busiest links*hops/s" '' \
    "$kernbench" traffic --measure-ns 500
# shellcheck disable=SC2086 # words
check "a full mesh without conflicts: 18 ns on average, exactly" \
    outcome 0 '*accepted  100.00 %*latency   mean 18.000 ns*' '' \
    "$kernbench" traffic $mesh --pattern neighbor --rate 1 --quiet
# shellcheck disable=SC2086
check "JSON" outcome 0 '{*"mean_ns": 18.0,*' '' \
    "$kernbench" traffic $mesh --pattern neighbor --rate 1 --json
check "JSON has its keys" json_has "$scratch/out" topology pattern mean_ns p50_ns p99_ns max_ns \
    offered accepted offered_gbs offered_gbs_per_pe accepted_gbs accepted_gbs_per_pe saturated \
    cut_off too_short busiest_links \
    links_by_kind events hops wall_s hops_per_s
# shellcheck disable=SC2086
check "more than can be carried" outcome 0 '*"saturated": true*' '' \
    "$kernbench" traffic $mesh --pattern hotspot --rate 0.5 --measure-ns 2000 --json
# shellcheck disable=SC2086
check "and so that not all arrives" outcome 0 '*saturated: *lower bound*' '' \
    "$kernbench" traffic $mesh --pattern hotspot --hot 0,0 --rate 1 --measure-ns 500
# A transfer takes 14 ns and more, and the run lasts 11 ns after the warm-up.
# shellcheck disable=SC2086
check "a window that is too short is not called saturated" outcome 0 \
    '*latency   not meaningful: only 0 of * arrived*cut off *too short: *--measure-ns *' '' \
    "$kernbench" traffic $mesh --pattern bitcomp --rate 0.5 --measure-ns 1 --warmup-ns 100
not_saturated() { ! grep -q 'saturated:' "$scratch/out" || complain "saturated"; }
check "indeed not" not_saturated
check "links by kind, and settings" outcome 0 \
    "Traffic on machine 'default' with cube.noc.bw_gbs=128: *links by kind *GB/s*router - router  *128  *1,536 *" '' \
    "$kernbench" traffic --measure-ns 500 --set cube.noc.bw_gbs=128
for format in --json --quiet; do
    # shellcheck disable=SC2086
    check "the same twice: $format" \
        repeatable "$kernbench" traffic $mesh --process poisson --rate 0.37 --seed 9 $format
done

check "a pattern that the machine has not" \
    outcome 2 '' 'kernbench: the pattern neighbor has the PEs at router 0,0 of the cube send to *' \
    "$kernbench" traffic --pattern neighbor
check "a pattern that there is not" \
    outcome 2 '' "kernbench: --pattern: unknown value 'tornado': expected uniform, transpose, bitcomp, neighbor or hotspot" \
    "$kernbench" traffic --pattern tornado
for rate in x -0.1 0.0000000001; do
    check "rate '$rate'" outcome 2 '' 'kernbench: --rate: expected *' \
        "$kernbench" traffic --rate "$rate"
done
check "rate 0" outcome 2 '' "kernbench: --rate: expected a decimal number above 0 and at most 100, found '0'" "$kernbench" traffic --rate 0
for hot in 1 '1,' ',1' a,b 1,2,3 -1,0 99999999999,0; do
    check "hot spot '$hot'" outcome 2 '' "kernbench: --hot: expected a router, such as 3,3, *" \
        "$kernbench" traffic --pattern hotspot --hot "$hot"
done
check "a window of nothing" outcome 2 '' "kernbench: --measure-ns: expected a decimal number of at least 0.000002 and at most 1000000000, found '0'" \
    "$kernbench" traffic --measure-ns 0

check "validate --quick" outcome 0 '*packets of 256 B, parallel ports*Closed forms*cube15.hbm_ctrl7*0.40 *checks passed*' '' \
    "$kernbench" validate --quick
check "validate --quick --quiet" outcome 0 '[0-9]* of [0-9]* checks passed; *' '' \
    "$kernbench" validate --quick --quiet
check "validate --quick --json" outcome 0 '{*"inside": *' '' "$kernbench" validate --quick --json
check "validate's JSON has its keys" \
    json_has "$scratch/out" judged inside worst_error closed_forms mesh doubling larger_packets
check "validate takes no machine" outcome 2 '' "kernbench: unknown option '--topology'*" \
    "$kernbench" validate --topology default

finish
