#!/bin/sh
# one_measure.sh BUILD: a figure that several commands print is the same in all of them, to the last
# digit of --json. tests/benches/test_one_measure.c has more machines and sizes.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
kernbench=$(CDPATH='' cd -- "$1" && pwd)/kernbench

# Three SIPs of three cubes of four PEs.
machine='--set system.sips.count=3 --set sip.cube_mesh.w=3 --set sip.cube_mesh.h=1
    --set cube.noc.w=2 --set cube.noc.h=2 --set cube.pe_layout.pe_per_corner=1'

# holds EXPRESSION FILE...: a condition on JSON documents d[0], d[1], ...
holds() {
    expression=$1
    shift
    python3 -c '
import json, sys
d = [json.load(open(name)) for name in sys.argv[2:]]
sys.exit(not eval("(" + sys.argv[1] + ")"))' "$expression" "$@"
}

# json NAME COMMAND...: its document, in $scratch/NAME.
json() {
    name=$1
    shift
    # shellcheck disable=SC2086 # words
    "$kernbench" "$@" --json $machine >"$scratch/$name" 2>"$scratch/err" || {
        cat "$scratch/err"
        return 1
    }
}

# same_tflops BENCH OPTION...
same_tflops() {
    bench=$1
    shift
    json run run --bench "$bench" --timing-only "$@" &&
        holds 'd[0]["metrics"]["tflops"] == d[0]["roofline"]["tflops"] > 0' "$scratch/run"
}

check "tflops of one PE" same_tflops gemm_single_pe --param m=70 --param k=100 --param n=33
check "tflops with tiles" same_tflops qkv_gemm --param tokens=5 --param width=300
check "tflops of all SIPs" same_tflops qkv_gemm_multi_pe --param tokens=5 --param width=300
check "tflops of one SIP" same_tflops qkv_gemm_multi_pe --device sip:1 --param width=301

# same_times COLLECTIVE BENCH BYTES SIZE: by all algorithms and by auto, which takes the fastest.
# The size that is run is whole elements for each rank. Metrics are in us, rows in ns.
same_times() {
    json tune ccl tune --collective "$1" --min "$3" --max "$3" || return 1
    names=$(python3 -c '
import json, sys
print(*[x["algorithm"] for x in json.load(open(sys.argv[1]))["rows"][0]["results"]])' "$scratch/tune")
    for algorithm in $names auto; do
        json run run --bench "$2" --timing-only --set "ccl.defaults.algorithm=$algorithm" \
            --param "min_bytes=$3" --param "max_bytes=$3" || return 1
        python3 - "$scratch/tune" "$scratch/run" "$algorithm" "$4" <<'EOF' || return 1
import json, sys
row = json.load(open(sys.argv[1]))["rows"][0]
metrics = json.load(open(sys.argv[2]))["metrics"]
algorithm, size = sys.argv[3:]
times = [x["time_ns"] for x in row["results"] if algorithm in (x["algorithm"], "auto")]
wanted = [min(times), row["bound_ns"], row["bytes"]]
got = [round(1000 * metrics["time_" + size], 6), round(1000 * metrics["bound_" + size], 6), int(size)]
if got != wanted or wanted[1] > wanted[0]:
    sys.exit(f"{algorithm}: time, bound and size are {got}, but {wanted} in ccl tune")
EOF
    done
}

check "all_reduce" same_times all_reduce ccl_allreduce 4096 4096
check "all_reduce of an odd size" same_times all_reduce ccl_allreduce 10007 10006
check "all_gather: three equal blocks" same_times all_gather ccl_all_gather 1000 996
check "broadcast of one element" same_times broadcast ccl_broadcast 1 2

# What all PEs offer together, as in `probe`; and what each does.
gbs_of_all() {
    json traffic traffic --measure-ns 200 &&
        holds 'all(abs(d[0][x + "_gbs"] / d[0][x + "_gbs_per_pe"] / d[0]["pes"] - 1) < 1e-12
                   for x in ("offered", "accepted"))' "$scratch/traffic"
}
check "traffic: of all PEs and of one" gbs_of_all

finish
