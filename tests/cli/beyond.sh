#!/bin/sh
# beyond.sh BUILD: machines larger than physical addresses can name (16 SIPs of 32 cubes of 16 PEs):
# what `topo --check` accepts works, collectives with data among it.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
kernbench=$(CDPATH='' cd -- "$1" && pwd)/kernbench
cd "$scratch"

# machine NAME SIPS W H PES: a file; PES is a layout.
machine() {
    printf 'system: { sips: { count: %s } }\nsip: { cube_mesh: { w: %s, h: %s } }\n' "$2" "$3" "$4"
    printf 'cube: { pe_layout: { %s } }\n' "$5"
} >"$1.yaml"

machine sips17 17 1 1 'pe_per_corner: 1, corners: [NW, SE]'
machine sips1024 1024 1 1 'pe_per_corner: 1, corners: [NW]'
machine cubes40 2 8 5 'pe_per_corner: 1, corners: [NE]'
machine pes64 2 1 1 'pe_per_corner: 16, corners: [NW, NE, SW, SE]'
machine pes256 1 1 1 'pe_per_router: 16'

# bench MACHINE NAME ARGUMENTS: compared with a reference.
bench() {
    on=$1 name=$2
    shift 2
    "$kernbench" run --quiet --verify-data --topology "$on.yaml" --bench "$name" "$@"
}
right='*Verification: passed (compared with *'

for on in sips17 sips1024 cubes40 pes64 pes256; do
    check "$on is accepted" outcome 0 'ok' '' "$kernbench" topo --check --topology $on.yaml
    check "$on: plan" outcome 0 'Plan of *' '' "$kernbench" ccl plan --limit 1 --topology $on.yaml
    for algorithm in hierarchical_allreduce ring_rsag trees ring_rsag_pes; do
        check "$on: $algorithm" outcome 0 "$right" '' \
            bench $on ccl_allreduce --set ccl.defaults.algorithm=$algorithm
    done
    check "$on: broadcast" outcome 0 "$right" '' \
        bench $on ccl_broadcast --param min_bytes=64 --param max_bytes=64
    check "$on: between two PEs" outcome 0 "$right" '' bench $on pe2pe
done

# Smaller ones have the time for all others.
for on in sips17 cubes40 pes64; do
    for algorithm in intercube_allreduce ring_allreduce_tcm ring_allreduce_hbm ring_allreduce_sram \
        one_shot auto; do
        check "$on: $algorithm" outcome 0 "$right" '' \
            bench $on ccl_allreduce --set ccl.defaults.algorithm=$algorithm
    done
    for name in ccl_all_gather ccl_reduce_scatter ccl_reduce ccl_gather ccl_scatter ccl_all_to_all \
        ccl_sendrecv; do
        check "$on: $name" outcome 0 "$right" '' \
            bench $on $name --param min_bytes=4KiB --param max_bytes=4KiB
    done
    check "$on: kernels" outcome 0 "$right" '' bench $on va_offset_verify
    check "$on: probe" outcome 0 '*' '' "$kernbench" probe --quiet --topology $on.yaml
done

# 1,023 queues of 4 x 4 KiB are more than the 12 MiB of a PE's TCM, of 4 x 2 KiB are not.
check "slots get smaller" outcome 0 '*slot_size      2 KiB*' '' \
    "$kernbench" ccl plan --algorithm pairs_gather --limit 1 --topology sips1024.yaml
check "or the plan is refused" outcome 2 '' "kernbench: algorithm 'one_shot': the slots\
 that sip0.cube0.pe0 needs, 4 of 4096 bytes for each direction, are more than its TCM of 12582912\
 bytes" "$kernbench" ccl plan --algorithm one_shot --topology sips1024.yaml
check "tune says that it is left out" outcome 0 '*one_shot: auto_max_ranks is 32, and there are 40 ranks*' \
    '' "$kernbench" ccl tune --max 1KiB --topology sips17.yaml --set system.sips.count=40

finish
