#!/bin/sh
# causes.sh BUILD: programs that are slow for one reason, and what `explain` says of them; also
# variants of them on other machines.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
kernbench=$(CDPATH='' cd -- "$1" && pwd)/kernbench

# names CAUSE BENCH OPTIONS...: the path of the bench names the cause, and its groups add up to the
# run.
names() {
    cause=$1 bench=$2
    shift 2
    outcome 0 '*' '' "$kernbench" explain --bench "$here/known_causes.c:$bench" --json --quiet \
        --no-rerun "$@" &&
        python3 - "$cause" "$scratch/out" <<'END'
import json, sys
path = json.load(open(sys.argv[2]))["critical_path"]
assert path["cause"] == sys.argv[1], path["headline"]
for key, groups in path.items():
    if key.startswith("by_"):
        assert sum(group["fs"] for group in groups) == path["fs"], key
steps = path["path"]
if steps and len(steps) == path["steps"]:
    assert steps[0]["from_fs"] == 0 and steps[-1]["to_fs"] == path["fs"]
    assert all(a["to_fs"] == b["from_fs"] for a, b in zip(steps, steps[1:]))
for step in steps:
    assert sum(part["fs"] for part in step["parts"]) == step["to_fs"] - step["from_fs"], step
END
}

check "a link that eight PEs share" names slow_link slow_link
check "a link that is slow" names slow_link slow_link --set sip.ucie.bw_gbs=16
check "a link that one PE uses, while others work at home" names slow_link lone_reader \
    --set sip.ucie.bw_gbs=8
check "half of the PEs work: no straggler" names vector half
check "products" names matrix products
check "products that are faster than the ports of the TCM" names tcm products \
    --set cube.pe_gemm.cycle_ns=0.125
check "ports of the TCM" names tcm tcm_ports --set cube.pe_tcm.bw_gbs=16
check "nothing takes time" names nothing nothing
check "nothing to measure" outcome 0 '*nothing takes simulated time.' '' "$kernbench" explain \
    --bench "$here/known_causes.c:nothing"
check "a PE with ten times the work" names straggler straggler
check "a PE with ten times the work, on 36 PEs" names straggler straggler \
    --set sip.cube_mesh.w=3 --set sip.cube_mesh.h=3 --set cube.pe_layout.pe_per_corner=1
check "dependent products" names dependent_products dependent_products
check "dependent products on a large array" names dependent_products dependent_products \
    --set cube.pe_gemm.rows=128 --param steps=30
check "few slots" names queue_slots few_slots
check "two slots" names queue_slots few_slots --param slots=2
check "launches" names launch launch_latency
check "launches through a slow control processor" names launch launch_latency \
    --set sip.io.io_cpu.overhead_ns=2000
check "a hot slice" names hot_memory hot_slice
check "a hot slice that is slow" names hot_memory hot_slice --set cube.xbar_to_hbm_bw_gbs=64
check "a far operand" names far_operand far_operand
check "a far operand in a row of cubes" names far_operand far_operand \
    --set sip.cube_mesh.w=5 --set sip.cube_mesh.h=1
check "vector work" names vector vector_work
check "vector work on few lanes" names vector vector_work --set cube.pe_math.lanes=24

check "the summary counts ports as the engine's" outcome 0 '*"vector engine busy"*hold it up*' '' \
    "$kernbench" explain --bench "$here/known_causes.c:tcm_ports" --no-rerun \
    --set cube.pe_tcm.bw_gbs=16

check "the summary names what is as much of the path" outcome 0 '*it is as much of the critical*' '' \
    "$kernbench" explain --bench ccl_sendrecv --no-rerun
check "bounds that the bench states" outcome 0 '*message_bound_ns, 100.000 ns*' '' "$kernbench" \
    explain --bench "$here/known_causes.c:few_slots" --no-rerun
check "shares are no bounds" [ "$(grep -c share_of_bound "$scratch/out")" -eq 0 ]

check "deadlock" outcome 4 '*The run fails: deadlock at *main*cause*' '*cycle: *' "$kernbench" explain \
    --bench "$here/known_causes.c:deadlock"
deadlock_ends_the_path() {
    "$kernbench" explain --bench "$here/known_causes.c:deadlock" --json >"$scratch/out" 2>"$scratch/err"
    python3 - "$scratch/out" "$scratch/err" <<'END'
import json, re, sys
path = json.load(open(sys.argv[1]))["critical_path"]
at = re.search(r"deadlock at (\d+)\.(\d{6}) ns", open(sys.argv[2]).read())
assert path["fs"] == int(at[1] + at[2]), (path["fs"], at[0])
assert path["path"][-1]["to_fs"] == path["fs"]
assert path["path"][-1]["what"].startswith("recv of known_causes.c"), path["path"][-1]
for key, groups in path.items():
    assert not key.startswith("by_") or sum(group["fs"] for group in groups) == path["fs"], key
END
}
check "a deadlock ends the path" deadlock_ends_the_path
check "fault" outcome 3 '*The run fails: *main*cause*' '*' "$kernbench" explain \
    --bench "$here/known_causes.c:fault"
check "no bench" outcome 2 '' '*missing --bench NAME*' "$kernbench" explain
check "a bench in Python" outcome 2 '' '*run --bench ./mine.py --save*' "$kernbench" explain \
    --bench ./mine.py
check "unknown setting" outcome 2 '' '*cube.no*' "$kernbench" explain --bench halo --set cube.no=1
finish
