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
    check "no time to measure" outcome 0 '*vector engine * no time *Not measured in time*vector engine, *' '' \
        "$kernbench" explain --bench "$here/known_causes.c:vector_work" $small --rerun-seconds 0
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

# in_time SECONDS: each run takes 300 ms of the processor at least, so one after the other no more of
# them end than fit. Which ones do depends on the machine; that they are those of which the path
# expects most, and that the others are named, does not.
in_time() {
    for format in "" --json; do
        # shellcheck disable=SC2086
        timeout 60 "$kernbench" explain --bench "$here/known_causes.c:long" --quiet --jobs 1 \
            --what-if cube.pe_math.lanes=128 --rerun-seconds "$1" $small $format \
            >"$scratch/out$format" || return 1
    done
    python3 - "$1" "$scratch/out" "$scratch/out--json" <<'END'
import json, sys
seconds, text = float(sys.argv[1]), " ".join(open(sys.argv[2]).read().split())
document = json.load(open(sys.argv[3]))
path, table = document["critical_path"], document["what_if"]
for key, groups in path.items():
    if key.startswith("by_"):
        assert sum(group["fs"] for group in groups) == path["fs"], key
def is_cut_off(result):
    return result == {"not_measured": "no time left"}
measured, cut_off = [], []
for one in table:
    result = one["measured"].get("own", one["measured"].get("2"))
    assert is_cut_off(result) or result["gain_fs"] == path["fs"] - result["fs"], one
    (cut_off if is_cut_off(result) else measured).append(one)
    assert not is_cut_off(result) or all(map(is_cut_off, one["measured"].values())), one
assert len(cut_off) > 5, table
alone = [one for one in measured if not one["measured"].get("2", {}).get("together")]
assert len(alone) <= seconds / 0.3, alone
expected = [one for one in cut_off if (one["estimate_fs"].get("2") or 0) >= 1e-3 * path["fs"]]
if alone:
    assert "own" in [next(iter(one["measured"])) for one in alone], alone
    least = min((one["estimate_fs"]["2"] for one in alone
                 if one["estimate_fs"].get("2") is not None), default=path["fs"])
    assert least >= max(one["estimate_fs"].get("2") or 0 for one in cut_off), (alone, cut_off)
assert "Not measured in time (--rerun-seconds): " in text, text
if seconds < 0.3:
    assert not measured and expected
    named = text.split("(--rerun-seconds): ")[1]
    assert all(one["name"] in named for one in cut_off), named
END
}
check "no run ends in time" in_time 0.1
check "some runs end in time" in_time 1.3
finish
