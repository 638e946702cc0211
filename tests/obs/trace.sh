#!/bin/sh
# trace.sh BUILD: traces of real runs: they add up, change nothing, and are whole whatever happens.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
kernbench=$(CDPATH='' cd -- "$1" && pwd)/kernbench
tests=$(CDPATH='' cd -- "$1" && pwd)/tests
benches=$here/odd_traces.c
cd "$scratch"

run() { "$kernbench" run "$@"; }

# traced ARGUMENT...: slices, arrows and counters are as the format wants them and add up to the
# results, for the checker in C and for the one in Python.
traced() {
    run --json --trace trace.json "$@" >results.json 2>/dev/null || return 1
    "$tests/trace-check" trace.json results.json || return 1
    if command -v python3 >/dev/null; then
        python3 "$here/check_trace.py" trace.json results.json || return 1
    fi
}

# same_in_perfetto ARGUMENT...: both formats show the same.
same_in_perfetto() {
    run --trace trace.json "$@" >/dev/null 2>&1 || return 1
    run --trace trace.pftrace "$@" >/dev/null 2>&1 || return 1
    python3 "$here/check_perfetto.py" trace.pftrace trace.json
}

# ---- Machines and benches

for bench in gemm_single_pe va_offset_verify ccl_allreduce ccl_all_to_all; do
    check "$bench" traced --bench $bench
    check "$bench, on one cube" traced --bench $bench --set system.sips.count=1 \
        --set sip.cube_mesh.w=1 --set sip.cube_mesh.h=1
    check "$bench, on three SIPs of 5 cubes of 4 PEs" traced --bench $bench \
        --set system.sips.count=3 --set sip.cube_mesh.w=5 --set sip.cube_mesh.h=1 \
        --set cube.pe_layout.pe_per_corner=1
    check "$bench, with a slow HBM and packets of 100 bytes" traced --bench $bench \
        --set cube.hbm_ctrl.efficiency=0.3 --set fabric.packet_bytes=100
done
check "sizes that fit nothing" traced --bench gemm_single_pe --param m=131 --param k=257 --param n=77
check "a collective of several sizes" traced --bench ccl_allreduce --param min_bytes=1KiB \
    --param max_bytes=64KiB --timing-only

# ---- The critical path

without_numbers() { sed -e 's/"record":[0-9]*//' -e 's/ of record [0-9]*//g'; }

# path_traced ARGUMENT...: it is a chain from the start to the end, and changes no other event.
path_traced() {
    run --json --trace trace.json --trace-path "$@" >results.json 2>/dev/null &&
        "$tests/trace-check" trace.json results.json || return 1
    run --trace without.json "$@" >/dev/null 2>&1 || return 1
    # Control messages have numbers as well then, so those of records differ.
    grep -v '"pid":1,"tid":10001,' trace.json | without_numbers >rest.json
    without_numbers <without.json | cmp rest.json - || return 1
    if command -v python3 >/dev/null; then
        python3 "$here/check_trace.py" trace.json results.json path || return 1
    fi
}
for bench in gemm_single_pe va_offset_verify ccl_allreduce; do
    check "$bench: its critical path" path_traced --bench $bench
done
check "a critical path on three SIPs of 5 cubes of 4 PEs" path_traced --bench ccl_all_to_all \
    --set system.sips.count=3 --set sip.cube_mesh.w=5 --set sip.cube_mesh.h=1 \
    --set cube.pe_layout.pe_per_corner=1
check "a critical path of odd names" path_traced --bench "$benches:odd"
check "no trace for a path" outcome 2 '' '*--trace-path needs --trace*' "$kernbench" run \
    --bench gemm_single_pe --trace-path

# ---- What it says

run --bench gemm_single_pe --trace t.json >/dev/null
check "a load names its tensors" grep -q '"name":"load a, b","args":{"label":"gemm","tensors":\[{"tensor":"a","dtype":"f16","access":"read","first_element":' t.json
check "a store names its tensor" grep -q '"name":"store c",' t.json
check "a product names its matrices" grep -q '"cat":"pe_scheduler","name":"gemm a, b to c",' t.json
run --bench ccl_allreduce --trace t.json >/dev/null
check "a wait says for what" grep -q '"cat":"wait","name":"waiting for message from W"' t.json
check "a send says where to" grep -q '"cat":"pe_dma_write","name":"send E"' t.json

# ---- Perfetto's format

if command -v python3 >/dev/null; then
    for bench in gemm_single_pe va_offset_verify ccl_allreduce; do
        check "$bench: the same in both formats" same_in_perfetto --bench $bench
        check "$bench: the same critical path" same_in_perfetto --bench $bench --trace-path
    done
    check "odd names: the same in both formats" same_in_perfetto --bench "$benches:odd" --trace-path
fi

# It takes less than half the space of the JSON.
is_smaller() {
    run --trace trace.json "$@" >/dev/null && run --trace trace.pftrace "$@" >/dev/null &&
        test $(($(wc -c <trace.pftrace) * 2)) -lt "$(wc -c <trace.json)"
}
check "Perfetto's format is smaller" is_smaller --bench ccl_allreduce

# ---- The run is the same

# Not how the run was executed: kernels that are watched follow global time.
results() {
    python3 -c 'import json, sys
document = json.load(sys.stdin)
for key in "wall_s", "hops_per_s", "events", "execution":
    document.pop(key, None)
print(json.dumps(document))'
}
same_with_trace() {
    run "$@" --json --trace t.json 2>/dev/null | results >with
    run "$@" --json 2>/dev/null | results >without
    cmp with without
}
same_twice() {
    run "$@" --trace first.json >/dev/null && run "$@" --trace second.json >/dev/null &&
        cmp first.json second.json &&
        run "$@" --trace first.pftrace >/dev/null && run "$@" --trace second.pftrace >/dev/null &&
        cmp first.pftrace second.pftrace
}
for bench in gemm_single_pe va_offset_verify ccl_allreduce; do
    check "$bench: nothing changes by its trace" same_with_trace --bench $bench
    check "$bench: the same trace twice" same_twice --bench $bench
done

# ---- Whatever happens

# whole FILE: one document, checked as far as there are no results.
whole() { "$tests/trace-check" "$1"; }
check "names that are hard to write" traced --bench "$benches:odd"
check "and what became of them" grep -q '"name":"load \\"a\\\\b\\u000a\\u0009\\u0001\\u007f € \\ufffd"' trace.json
check "no launch" outcome 0 '*' '*' "$kernbench" run --bench "$benches:nothing" --trace t.json
check "no launch: whole" whole t.json
check "a fault" outcome 3 '*' '*' "$kernbench" run --bench "$benches:fault" --trace t.json
check "a fault: whole" whole t.json
check "a fault: with its path" outcome 3 '*' '*' "$kernbench" run --bench "$benches:fault" \
    --trace path.json --trace-path
check "a fault: its path is whole" whole path.json
check "a fault: its path ends there" grep -q '"cat":"path"' path.json
check "a fault: what came before" grep -q '"name":"load x"' t.json

# Rings of 16 KiB, and messages that are larger: all PEs send, none receives.
"$kernbench" new collective own >/dev/null
sed -e 's/leader_only/lanes/' -e '/validator/d' own.yaml >lanes.yaml
check "a deadlock" outcome 4 '*' '*deadlock*' "$kernbench" run --bench ccl_allreduce \
    --ccl lanes.yaml --plugin own.c --param min_bytes=8MiB --param max_bytes=8MiB --timing-only \
    --trace t.json
check "a deadlock: whole" whole t.json
check "a deadlock: what was waited for" grep -q '"name":"waiting for credit on E","args":{.*"unfinished":true' t.json
finish
