#!/bin/sh
# report.sh BUILD: reports as files, and in a browser if there is one.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
kernbench=$(CDPATH='' cd -- "$1" && pwd)/kernbench
cd "$scratch"

run() { "$kernbench" run "$@"; }

# page NAME ARGUMENT...: makes NAME.html; its data are NAME.json.
page() {
    name=$1
    shift
    run "$@" --report "$name.html" >/dev/null || return 1
    python3 "$here/check_report.py" "$name.html" 10000000 >"$name.json"
}

if ! command -v python3 >/dev/null; then
    echo "report.sh: python3 is not there"
    exit 1
fi

# ---- The file

check "a product" page gemm --bench gemm_single_pe
check "a collective of several sizes, odd machine" page collective --bench ccl_allreduce \
    --param min_bytes=1KiB --param max_bytes=64KiB --timing-only --set system.sips.count=3 \
    --set sip.cube_mesh.w=3 --set sip.cube_mesh.h=1 --set cube.pe_layout.pe_per_corner=1
check "attention" page attention --bench gqa_decode --timing-only
check "hostile names" page hostile --bench "$here/report_bench.c"
check "a bench without kernels" page empty --bench "$here/../obs/odd_traces.c:nothing"

# data FILE EXPRESSION: of the data d it is true.
data() { python3 -c "import json, sys; d = json.load(open(sys.argv[1])); assert eval(sys.argv[2])" "$@"; }
check "the command that makes it again" data gemm.json \
    "d['command'] == 'kernbench run --bench gemm_single_pe'"
check "the verdict" data gemm.json "'ompute bound' in d['document']['verdict']"
check "at least 50 bins" data gemm.json "50 <= d['activity']['bins'] <= 256"
check "each link has a share for each bin" data collective.json \
    "all(len(l[7]) == d['activity']['bins'] for l in d['activity']['links'])"
check "bytes of links add up" data collective.json \
    "sum(l[5] for l in d['activity']['links']) == d['document']['link_bytes']"
check "the critical path adds up" data collective.json \
    "sum(g['fs'] for g in d['critical_path']['by_kernel']) == d['critical_path']['fs']"
check "a tensor keeps its name" data hostile.json \
    "any('</script><img src=x onerror=alert(1)>' in t for t in d['activity']['texts'])"
check "nothing of the host that made it" data gemm.json \
    "'wall_s' not in d['document'] and 'hops_per_s' not in d['document']"

# Slices of a PE's states take the time of its kernels, also when neighbours are merged.
check "times of states" data attention.json "(lambda a: all(
    abs(sum(l[2][2::6]) - sum(k[2][2::6])) <= len(l[2])
    for l in a['lanes'] for k in a['lanes'] if l[0] == k[0] >= 0 and l[1] == 0 and k[1] == 1))(
    d['activity'])"

same_twice() { page again --bench ccl_allreduce && cp again.html first.html &&
    page again --bench ccl_allreduce && cmp first.html again.html; }
check "the same page twice" same_twice

# What is observed changes no figure.
without_host() { python3 -c 'import json, sys
d = json.load(sys.stdin)
for key in "wall_s", "hops_per_s", "events", "execution":
    d.pop(key, None)
print(json.dumps(d))'; }
unchanged() { run --bench ccl_allreduce --json 2>/dev/null | without_host >without &&
    run --bench ccl_allreduce --json --report r.html 2>/dev/null | without_host >with &&
    cmp without with; }
check "nothing changes by the report" unchanged

# ---- Pages of documents and of other commands

# made NAME COMMAND...: the command, with --report or -o at its end, makes NAME.html.
made() {
    name=$1
    shift
    "$kernbench" "$@" "$name.html" >/dev/null || return 1
    python3 "$here/check_report.py" "$name.html" 10000000 >"$name.json"
}
run --bench gemm_single_pe --save runs.db --quiet >/dev/null
check "a saved run" made saved report @last --store runs.db -o
check "a saved run has its command" data saved.json \
    "d['command'].startswith('kernbench run --bench gemm_single_pe')"
run --bench ccl_allreduce --json 2>/dev/null >run.json
check "a document" made document report run.json -o
check "traffic at saturation" made traffic traffic --rate 0.9 --measure-ns 300 --warmup-ns 100 --report
check "its command" data traffic.json "'--rate 0.9' in d['command'] and d['kind'] == 'traffic'"
check "a probe" made probe probe --report
check "a probe under load" made load probe --load --transfers 100 --report
check "its curves" data load.json "all(len(c['load']) == 12 for c in d['document']['cases'])"
cat >sweep-document.json <<'END'
{"points": [
 {"axes": {"m": 64, "bw": 128}, "status": "ok", "ok": true, "message": null,
  "bottleneck": "matrix", "figures": {"sim_ns": 10, "metrics.tflops": 2}},
 {"axes": {"m": 64, "bw": 512}, "status": "ok", "ok": true, "message": null,
  "bottleneck": "matrix", "figures": {"sim_ns": 8, "metrics.tflops": 3}},
 {"axes": {"m": 128, "bw": 128}, "status": "failed", "ok": false,
  "message": "</script><b>", "bottleneck": null, "figures": {}}],
 "axes": [{"axis": "m", "compared": 1, "changed": 1, "on": []},
  {"axis": "bw", "compared": 1, "changed": 1, "on": []}],
 "best": {"point": 1, "figure": "sim_ns", "value": 8, "equal": 1}, "pareto": [1]}
END
check "a sweep" made sweep report sweep-document.json -o
check "its title" data sweep.json "d['title'] == 'sweep over m, bw'"

sweep() { "$kernbench" sweep "$@"; }
cat >plan.yaml <<'END'
bench: gemm_single_pe
param: {n: 32}
over: {m: 16..64*2, k: [16, 32]}
timing_only: true
show: {pareto: 'sim_ns:min,m:max', report: plan.html}
END
sweep_page() {
    made swept sweep --bench gemm_single_pe --over 'm=16..64*2' --over k=16,32 --timing-only \
        --where 'm * k <= 1024' --param n=32 --best metrics.tflops:max --plot-kind heat \
        --workers 2 --report
}
check "the page of a sweep" sweep_page
check "it has the command without what changes no result" data swept.json \
    "d['command'] == (\"kernbench sweep --bench gemm_single_pe --over 'm=16..64*2' --over k=16,32 \"
    \"--where 'm * k <= 1024' --param n=32 --timing-only --best metrics.tflops:max \"
    \"--plot-kind heat\")"
sweep --bench gemm_single_pe --over 'm=16..64*2' --over k=16,32 --timing-only --param n=32 \
    --where 'm * k <= 1024' --best metrics.tflops:max --json --quiet >swept-document.json
check "its document is that of --json" python3 -c 'import json
load = lambda path: json.load(open(path), parse_float=lambda text: float("%.9g" % float(text)))
assert load("swept.json")["document"] == load("swept-document.json")'
check "its plot" data swept.json "d['plot'].startswith('<svg') and d['plot'].count('<rect') > 6"
sweep_again() { cp swept.html swept-before.html && sweep_page && cmp swept.html swept-before.html; }
check "the same page from the same store" sweep_again
plan_page() { sweep plan.yaml >/dev/null && python3 "$here/check_report.py" plan.html 1000000 >plan.json; }
check "a plan that says where the page is" plan_page
check "a Pareto front" data plan.json "d['command'] == 'kernbench sweep plan.yaml' and (
    d['document']['pareto'] and 'class=\"kb-plot' in d['plot'])"
check "one point has no plot" made point sweep --bench gemm_single_pe --over m=16 --timing-only --report
check "but a page" data point.json "d['plot'] is None and len(d['document']['points']) == 1"
check "a plot that was asked for and cannot be" outcome 2 '*' '*--report: a heat map needs two axes*' \
    "$kernbench" sweep --bench gemm_single_pe --over m=16 --timing-only --plot-kind heat \
    --report x.html
check "a failed point has a page" outcome 1 '*' '*1 of 2 points failed*' "$kernbench" sweep \
    --bench gemm_single_pe --over cube.pe_layout.pe_per_corner=0,1 --timing-only --quiet \
    --report failed.html
failed_page() { python3 "$here/check_report.py" failed.html 1000000 >failed.json; }
check "and it is whole" failed_page

# ---- Mistakes

check "no run" outcome 2 '' '*missing run*' "$kernbench" report -o x.html
check "no page" outcome 2 '' '*missing -o*' "$kernbench" report run.json
check "an unknown run" outcome 2 '' '*' "$kernbench" report zzz --store runs.db -o x.html
echo '[1' >cut.json
check "no JSON" outcome 2 '' '*cut.json:*not a JSON document*' "$kernbench" report cut.json -o x.html
echo '{"a": 1}' >other.json
check "another document" outcome 2 '' '*not a document of run*' "$kernbench" report other.json \
    -o x.html

check "a folder that does not exist" outcome 2 '*' '*none/r.html*' "$kernbench" run \
    --bench gemm_single_pe --report none/r.html
check "a sweep's page on stdout" outcome 2 '' '*--report -: give a file*' "$kernbench" sweep \
    --bench gemm_single_pe --over m=16 --report -
check "stdout" outcome 2 '' '*--report*file*' "$kernbench" run --bench gemm_single_pe --report -
check "a fault has a report" outcome 3 '*' '*' "$kernbench" run \
    --bench "$here/../obs/odd_traces.c:fault" --report fault.html
check "and it is whole" python3 "$here/check_report.py" fault.html 10000000

# ---- In a browser

status=0
/usr/bin/python3 "$here/drive_report.py" "$scratch/gemm.html" "$scratch/collective.html" \
    "$scratch/attention.html" "$scratch/hostile.html" "$scratch/empty.html" \
    "$scratch/saved.html" "$scratch/traffic.html" "$scratch/load.html" "$scratch/sweep.html" \
    "$scratch/swept.html" "$scratch/plan.html" "$scratch/point.html" "$scratch/failed.html" || status=$?
if [ "$status" -ne 77 ]; then
    check "pages in a browser" test "$status" -eq 0
fi
finish
