#!/bin/sh
# compare.sh BUILD: runs that are kept with their critical paths, and differences of two of them.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
kernbench=$(CDPATH='' cd -- "$1" && pwd)/kernbench
cd "$scratch"

saved() { "$kernbench" run --save --quiet --timing-only --bench "$@" >out 2>err; }
explained() { "$kernbench" explain --no-rerun --json --quiet --bench "$@" >"$file" 2>err; }

# adds_up FILE: each table of a comparison adds up to the difference.
adds_up() {
    python3 - "$1" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
assert d["difference_fs"] == d["b_fs"] - d["a_fs"] != 0
tables = [key for key in d if key.startswith("by_")]
assert len(tables) >= 5
for key in tables:
    assert sum(row["difference_fs"] for row in d[key]) == d["difference_fs"], key
    assert sum(row["a_fs"] for row in d[key]) == d["a_fs"], key
    sizes = [abs(row["difference_fs"]) for row in d[key]]
    assert sizes == sorted(sizes, reverse=True), key
END
}

check "a run is saved" saved halo --param steps=4
check "a slower one" saved halo --param steps=4 --set cube.pe_math.lanes=32
check "a saved run is explained" outcome 0 '*The run takes *vector work*by source line*' '' \
    "$kernbench" explain @last
check "as it was without a store" outcome 0 '*' '' "$kernbench" explain @-2 --json
file=now.json
check "explained now" explained halo --param steps=4
same_path() {
    python3 - out now.json <<'END'
import json, sys
a, b = (json.load(open(name))["critical_path"] for name in sys.argv[1:])
assert a == b
END
}
check "the same path" same_path
check "compared" outcome 0 \
    '*B is slower by *Most of it: vector*engine*Different: settings: *lanes=32*by kernel*' '' \
    "$kernbench" compare @-2 @last
check "faster" outcome 0 '*B is faster by *' '' "$kernbench" compare @last @-2
check "the same" outcome 0 '*the same.*The name of the bench, parameters, machine and settings are the same*' '' \
    "$kernbench" compare @last @last
check "as JSON" outcome 0 '*' '' "$kernbench" compare now.json @last --json
check "it adds up" adds_up out
check "too slow" outcome 1 '*B is slower*' '*B takes * longer than A, more than 2%*' \
    "$kernbench" compare @-2 @last --fail-above 2%
check "not too slow" outcome 0 '*' '' "$kernbench" compare @-2 @last --fail-above 1000
check "faster is never too slow" outcome 0 '*' '' "$kernbench" compare @last @-2 --fail-above 0
file=other.json
check "another program" explained ccl_allreduce
check "of two programs" outcome 0 '*' '' "$kernbench" compare now.json other.json --json
check "that adds up too" adds_up out
check "one run" outcome 2 '' '*missing run*' "$kernbench" compare @last
check "no such run" outcome 2 '' "*no run 'zz'*" "$kernbench" compare @last zz
check "no percentage" outcome 2 '' '*expected a percentage*' "$kernbench" compare @-2 @last \
    --fail-above much
echo '{' >broken.json
echo '{}' >empty.json
check "no JSON" outcome 2 '' '*broken.json:*no JSON document*' "$kernbench" compare broken.json @last
check "no path" outcome 2 '' '*empty.json has no critical path*' "$kernbench" explain empty.json
finish
