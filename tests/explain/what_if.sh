#!/bin/sh
# what_if.sh BUILD: what would help, measured by running again.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
kernbench=$(CDPATH='' cd -- "$1" && pwd)/kernbench

# measured RESOURCE BENCH OPTIONS...: twice as much of the resource helps most. Where the path stays
# the same, with the same waits, what it says is at most what was measured.
measured() {
    resource=$1 bench=$2
    shift 2
    outcome 0 '*' '' "$kernbench" explain --bench "$here/known_causes.c:$bench" --json --quiet "$@" &&
        python3 - "$resource" "$scratch/out" <<'END'
import json, sys
document = json.load(open(sys.argv[2]))
run = document["critical_path"]["fs"]
best = document["what_if"][0]
assert best["resource"] == sys.argv[1], best
compared = 0
for one in document["what_if"]:
    for factor, result in one["measured"].items():
        says = one["estimate_fs"][factor]
        assert result and "fails" not in result, (one["resource"], factor, result)
        assert result["gain_fs"] == run - result["fs"]
        if result["same_path"] and result["same_waits"] and says is not None:
            compared += 1
            assert says <= result["gain_fs"] + 1e-4 * run, (one["resource"], factor, says, result)
assert compared > 10, compared
END
}

small="--set system.sips.count=1 --set sip.cube_mesh.w=2 --set sip.cube_mesh.h=2"
# shellcheck disable=SC2086
{
    check "measured: vector work" measured vector vector_work $small --param steps=10
    check "measured: few slots" measured queue_slots few_slots $small --param steps=300
    check "measured: dependent products" measured matrix dependent_products $small --param steps=20
    check "measured: products" measured matrix products $small
    check "measured: one's own" outcome 0 '*cube.pe_math.lanes=128*' '' "$kernbench" explain \
        --bench "$here/known_causes.c:vector_work" $small --what-if cube.pe_math.lanes=128
    check "one's own is wrong" outcome 2 '' '*--what-if cube.pe_math.lanes=zero: *' "$kernbench" \
        explain --bench "$here/known_causes.c:vector_work" $small --what-if cube.pe_math.lanes=zero
    check "one's own is unknown" outcome 2 '' '*--what-if ccl.no.such=1: *' "$kernbench" explain \
        --bench "$here/known_causes.c:vector_work" $small --what-if ccl.no.such=1
    check "one's own is not measured" outcome 2 '' '*--what-if runs the bench again*' "$kernbench" \
        explain --bench "$here/known_causes.c:vector_work" --no-rerun --what-if cube.pe_math.lanes=8
    check "measured: one's own is too little" outcome 0 '*capacity_mib=4.0625 * fails *fails: *TCM*' '' "$kernbench" \
        explain --bench "$here/known_causes.c:products" $small --rerun-seconds 60 \
        --what-if cube.pe_tcm.capacity_mib=4.0625
    check "no time to measure" outcome 0 '*vector engine * - *' '' "$kernbench" explain \
        --bench "$here/known_causes.c:vector_work" $small --rerun-seconds 0
    check "path" outcome 0 '*The path, 5*command, host to *' '' "$kernbench" explain \
        --bench "$here/known_causes.c:vector_work" $small --no-rerun --path
    check "a full recorder" outcome 0 '*records of operations were full*not recorded in detail*' '' \
        "$kernbench" explain --bench "$here/known_causes.c:vector_work" $small --no-rerun --path-memory 0
}

# Text that fits into a mail.
mailable() {
    # shellcheck disable=SC2086
    "$kernbench" explain --bench "$here/known_causes.c:vector_work" --quiet $small >"$scratch/out" ||
        return 1
    python3 - "$scratch/out" <<'END'
import sys
lines = open(sys.argv[1]).read().split("\n")
assert len(lines) <= 60, len(lines)
assert max(map(len, lines)) <= 120, max(lines, key=len)
text = "\n".join(lines)
for part in ("what would help", "No effect: ", "by source line", "The longest steps", "The bound"):
    assert part in text, part
assert "by resource" not in text
END
}
check "short by default" mailable
# shellcheck disable=SC2086
check "verbose" outcome 0 '*TCM bandwidth * no effect *by resource *by link*' '' "$kernbench" explain \
    --bench "$here/known_causes.c:vector_work" $small --verbose
# Links in series: none gains half of what they do together.
in_series() {
    # shellcheck disable=SC2086
    "$kernbench" explain --bench "$here/known_causes.c:upload" --quiet --json $small >"$scratch/out" ||
        return 1
    python3 - "$scratch/out" <<'END'
import json, sys
document = json.load(open(sys.argv[1]))
assert document["critical_path"]["cause"] == "host_request", document["critical_path"]["headline"]
gains = {one["resource"]: one["measured"]["2"]["gain"] for one in document["what_if"]}
together = gains.pop("memories_and_links")
assert document["what_if"][-1]["resource"] == "memories_and_links"
assert together > 0.3 and max(gains.values()) < together / 2, (together, gains)
END
}
check "links in series" in_series
finish
