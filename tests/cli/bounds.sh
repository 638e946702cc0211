#!/bin/sh
# bounds.sh BUILD: what is said of runs that are bound by something known (benches/bound_cases.c), and the
# profile by source line.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
kernbench=$(CDPATH='' cd -- "$1" && pwd)/kernbench
tests=$(CDPATH='' cd -- "$1" && pwd)/tests
bounds=$here/benches/bound_cases.c
mkdir "$scratch/work" "$scratch/tmp"
cd "$scratch/work"
TMPDIR=$scratch/tmp && export TMPDIR

# run BENCH ARGUMENT...: a summary, and a document whose figures add up, in $scratch/doc.
run() {
    bench=$1
    shift
    "$kernbench" run --bench "$bounds:$bench" --timing-only --quiet --profile --json "$@" >"$scratch/doc" &&
        "$tests/run-json" <"$scratch/doc" &&
        "$kernbench" run --bench "$bounds:$bench" --timing-only --quiet "$@" >"$scratch/text"
}
# verdict PATTERN: of the last document.
verdict() {
    found=$("$tests/run-json" verdict <"$scratch/doc") || return 1
    # shellcheck disable=SC2254 # a pattern is wanted
    case $found in
    \"$1\") return 0 ;;
    esac
    echo "$found"
    return 1
}
figure() {
    found=$("$tests/run-json" "$1" <"$scratch/doc") || return 1
    [ "$found" = "$2" ] || { echo "$1 is $found" && return 1; }
}
# less A B: of two members, the first is.
less() { "$tests/run-json" "$1" "$2" <"$scratch/doc" | awk '{ v[NR] = $1 } END { exit !(v[1] < v[2]) }'; }
text() { grep -Eq -- "$1" "$scratch/text"; }
not() { ! "$@"; }

# ---- What bounds a run

check "near and far in one composite" run near_far
check "they are told apart" less causes.local_memory_ns causes.other_cubes_ns
check "the fabric bounds it, and a link is named" \
    verdict 'Communication bound: waiting for other cubes * %*; the busiest link on the way, sip0.cube*.noc.*, is busy * %*: bandwidth bound *'
check "so says the roofline" figure roofline.bound '"communication"'
check "and its remote roof" figure roofline.roof '"remote"'
check "the far traffic has a line" text '^  remote memory +[0-9.]+ GB/s; the busiest link, sip0.cube'
check "only near" run near_far --param shift=0
check "nothing is far" figure causes.other_cubes_ns 0.0
check "so nothing is said of it" not text 'remote memory'

check "a little computing of what is far" run gating
check "communication inside kernels counts" \
    verdict 'Launch bound: *. Inside kernels the largest part is: waiting for other cubes, * % of their time*'
check "vectors" run vector
check "the sentence" verdict 'Compute bound: the vector engines are busy *'
check "the roofline agrees" figure roofline.bound '"compute"'
check "in detail" figure roofline.roof '"vector"'
check "memory" run copy
check "bandwidth" verdict 'Memory bound: stalled on local memory * bandwidth bound.'
check "the roofline agrees with that, too" figure roofline.roof '"local_memory"'
check "memory behind slower links" run copy --set cube.xbar_to_hbm_bw_gbs=1024
check "which the sentence names" verdict 'Memory bound: stalled on local memory *; HBM, through links of the PEs that are slower than it, delivers * bandwidth bound.'

# A product of 64 x 64 x 64 occupies the array for 64 cycles and drains for 2 * 64 + 64 - 2 = 190:
# 75 % of the time in a chain; three others hide it.
check "products that need each other" run chain
check "are named" verdict 'Compute bound: 7?.? % of the time the matrix engines only drain their pipelines: dependent products, * interleave independent chains*'
check "products that take turns" run chain --param chains=4
check "are not" verdict 'Compute bound: the matrix engines are busy 9?.? % of the time and reach 9?.? % of peak while kernels run.'

check "a straggler" run straggler
check "is named" verdict 'Load imbalance: 9?.? % of the time *; kernels take * ns on sip0.cube0.pe3, * ns on average.'
check "on another machine" run straggler --set sip.cube_mesh.w=3 --set sip.cube_mesh.h=1
check "too" verdict 'Load imbalance: * on sip0.cube0.pe3, *'

# ---- What is counted

check "36 launches" run launches
check "are two lines" text '^  short +24 +1 +1 +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ '
check "with the rest" text '^  long +12 +1 +1 '
check "and all of them in JSON" test "$(grep -c '"issued_ns"' "$scratch/doc")" -eq 36
# One of 256 PEs works: of the HBM slices the 8 of its cube count, and one of them is used.
mean_is_of_its_cube() {
    awk '$1 == "hbm_ctrl" { exit !($3 == 8 && $6 > 5 && $5 > $6 / 8 - 0.1 && $5 < $6 / 8 + 0.1) }' "$scratch/text"
}
check "a copy again" run copy
check "links of devices without work do not count" mean_is_of_its_cube

# ---- The profile

profile() { "$kernbench" run --bench "$bounds:$1" --timing-only --quiet --profile >"$scratch/text"; }
check "a profile" profile gating
check "a line, with its source" text '^  bound_cases.c:[0-9]+ .* tl_store\(y \+ me .*tl_softmax\(scores, 1\)\);'
check "its operations" text '^    softmax, pe_math +[0-9.]+ +[0-9.]+ +128 +0\.[0-9]+ +vector engine busy 100 %'
check "what they wait for" text '^    load, pe_dma_read +.* waiting for other cubes 99 %, stalled on local memory 1 %'
check "PEs without a kernel" text '^  \(imbalance\) +[0-9.]+ '
check "nothing of it unless it is asked for" not grep -q '"profile"' \
    "$("$kernbench" run --bench "$bounds:gating" --json --quiet >"$scratch/plain"; echo "$scratch/plain")"
check "with data and a trace, too" outcome 0 '*Profile by source line: 1 PE, *Verification: passed*' '' \
    "$kernbench" run --bench qkv_gemm --verify-data --profile --trace "$scratch/trace" --quiet
check "the trace has states" grep -q '"cat":"state","name":"matrix_drain"' "$scratch/trace"

# Messages between PEs of one SIP pass none of its links to the switch, which launches use.
messages() {
    "$kernbench" run --bench halo --param rows=128 --param columns=1 --param steps=400 --timing-only \
        --json --quiet >"$scratch/doc" &&
        verdict 'Communication bound: waiting for messages *the busiest link on the way, sip0.cube*.noc.*latency of messages or late senders*'
}
check "messages inside a SIP: a link that they pass" messages

finish
