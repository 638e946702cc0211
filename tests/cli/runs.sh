#!/bin/sh
# runs.sh BUILD: runs are saved, listed, shown, exported, deleted and run again.
. "$(dirname -- "$0")/../check.sh"

kernbench=$1/kernbench
tests=$1/tests
cd "$scratch" || exit 1

save() { "$kernbench" run --quiet --timing-only "$@"; }
saves() { save "$@" >"$scratch/out"; }
run_ids() { sqlite3 "${1-kernbench.db}" 'SELECT id FROM runs ORDER BY number'; }
sql() { sqlite3 kernbench.db "$1"; }

# ---- Saving

check "no store: says so" outcome 2 '' 'kernbench: there is no store kernbench.db: kernbench run --save creates*' \
    "$kernbench" runs
check "saves in the default store" saves --bench gemm_single_pe --param m=64 --save
check "saves with an option after it" saves --save --bench gemm_single_pe --param m=128 --save-ops
check "saves in another store" saves --bench gemm_single_pe --param m=64 --save other.db
check "the same with =" saves --bench gemm_single_pe --param m=64 --save=other.db
other_has_two() { [ "$(run_ids other.db | wc -l)" = 2 ]; }
check "that has both" other_has_two
check "an empty name" outcome 2 '' 'kernbench: --save: empty value: expected *' save --bench gemm_single_pe --save=
check "operations need a store" outcome 2 '' 'kernbench: --save-ops needs --save' \
    save --bench gemm_single_pe --save-ops
check "labels need a store" outcome 2 '' 'kernbench: --label needs --save' \
    save --bench gemm_single_pe --label x
check "bad label" outcome 2 '' 'kernbench: --label: expected letters*' \
    save --bench gemm_single_pe --save --label last
check "a label" saves --bench gemm_single_pe --param m=80 --save labels.db --label first
check "another" saves --bench gemm_single_pe --param m=96 --save labels.db
check "the run of that label" outcome 0 '*label *first*m=80*' '' \
    "$kernbench" runs show @first --store labels.db
check "a folder is no store" outcome 2 '' 'kernbench: cannot open the store .: it is a directory' \
    save --bench gemm_single_pe --save .
echo "a text that is no store" >text.db
check "a text is no store" outcome 2 '' 'kernbench: text.db is not a store of runs: it is no SQLite database' \
    save --bench gemm_single_pe --save text.db
check "and stays as it is" grep -q 'a text that is no store' text.db
check "a wrong parameter is no run" outcome 2 '' 'kernbench: unknown parameter*' \
    save --bench gemm_single_pe --param x=1 --save
check "a program that says where" outcome 0 '*Saved as run ???????? in kernbench.db: kernbench runs show ????????' '' \
    "$kernbench" run --bench pe2pe --timing-only --save
check "with --json it says so on stderr" outcome 0 '{*}' '*Saved as run ???????? in kernbench.db*' \
    "$kernbench" run --bench pe2pe --timing-only --save --json

# ---- Lists

check "lists" outcome 0 '*id *bench *gemm_single_pe*m=64 k=512 n=512 *default *5854.145*ok *Compute bound*pe2pe*' '' \
    "$kernbench" runs
rows() { [ "$("$kernbench" runs --json "$@" | grep -c '"id"')" = "$expected" ]; }
expected=4 && check "lists all" rows
expected=2 && check "of a bench" rows --bench 'gemm*'
expected=1 && check "the newest" rows --last 1
expected=4 && check "of a status" rows --status ok
expected=0 && check "of another" rows --status crashed
expected=4 && check "since an hour" rows --since 1h
expected=0 && check "since a later date" rows --since 9999-12-31
expected=4 && check "of a machine" rows --machine default
expected=0 && check "of another machine" rows --machine large
check "none: says so" outcome 0 'No runs that match' '' "$kernbench" runs --bench x
check "bad date" outcome 2 '' "kernbench: --since: expected a date such as 2026-01-31*found 'yesterday'" \
    "$kernbench" runs --since yesterday
check "bad status" outcome 2 '' "kernbench: --status: unknown value 'good'*" "$kernbench" runs --status good
check "unknown subcommand" outcome 2 '' "kernbench: unknown subcommand 'shwo'*'show'*" "$kernbench" runs shwo

# ---- One run

check "shows one" outcome 0 '*Run * of gemm_single_pe*parameters *m=64 k=512 n=512*runs again by *cd -- *kernbench run --bench gemm_single_pe --param m=64 --timing-only*tflops*' '' \
    "$kernbench" runs show "$(run_ids | head -n 1)"
check "by the beginning of its id" outcome 0 '*gemm_single_pe*' '' \
    "$kernbench" runs show "$(run_ids | sed -n '1s/.$//p')"
check "unknown run" outcome 2 '' "kernbench: there is no run 'zzzzzzzz' in the store kernbench.db" \
    "$kernbench" runs show zzzzzzzz
check "too far back" outcome 2 '' "kernbench: there is no run @-9: the store kernbench.db has 4 runs" \
    "$kernbench" runs show @-9
check "no run" outcome 2 '' 'kernbench: missing run*' "$kernbench" runs show

document() { "$kernbench" runs export @-4 --json | "$tests/run-json" sim_ns; }
check "its document" outcome 0 5854.145 '' document
"$kernbench" run --bench gemm_single_pe --param m=64 --timing-only --json --quiet 2>/dev/null >direct
# But for the critical path, and what recording it and the host change.
same_document() {
    "$kernbench" runs export @-4 --json >kept
    python3 - kept direct <<'END'
import json, sys
kept, direct = (json.load(open(name)) for name in sys.argv[1:])
assert kept.pop("critical_path")["fs"] == round(kept["sim_ns"] * 1e6)
for document in kept, direct:
    for key in "wall_s", "hops_per_s", "events", "execution":
        del document[key]
assert kept == direct
END
}
check "is what run --json prints" same_document
check "its machine" outcome 0 '# The effective machine, complete; hash *' '' "$kernbench" runs export @-4 --yaml
"$kernbench" runs export @-3 --ops >ops.csv
check "its operations" grep -q '^[0-9.]*,[0-9.]*,pe_gemm,0,0,0,gemm,' ops.csv
check "not saved" outcome 2 '' 'kernbench: the run @-4 has no operations: *--save-ops*' \
    "$kernbench" runs export @-4 --ops
check "no format" outcome 2 '' 'kernbench: missing format: --json, --csv, --yaml or --ops' \
    "$kernbench" runs export @last
check "two formats" outcome 2 '' 'kernbench: give one of --json*' "$kernbench" runs export @last --csv --json
check "documents of two runs" outcome 2 '' 'kernbench: too many runs: *' \
    "$kernbench" runs export @last @-2 --json
"$kernbench" runs export --csv >table.csv
columns_agree() { [ "$(awk -F, '{ print NF }' table.csv | sort -u | wc -l)" = 1 ] && [ "$(wc -l <table.csv)" = 5 ]; }
check "a table: all rows have all columns" columns_agree
check "a table: figures by name" grep -q '^id,.*,m,k,n,.*,metrics.tflops,sim_ns,' table.csv
check "a table of two" outcome 0 'id,*,gemm_single_pe,*,pe2pe,*' '' "$kernbench" runs export @-4 @last --csv

# ---- Running it again

mkdir "odd ' place" && cp "$(dirname -- "$0")/benches/faults.c" "odd ' place/it's.c"
repeat() { # the saved command, from another directory, saves the same document
    command=$(sql "SELECT 'cd ''' || replace(directory, '''', '''\\''''') || ''' && ' || command FROM runs ORDER BY number DESC LIMIT 1") &&
        sql "SELECT json_remove(json, '\$.wall_s', '\$.hops_per_s') FROM documents ORDER BY run DESC LIMIT 1" >first
    (cd / && eval "kernbench() { \"$kernbench\" \"\$@\"; }; $command --save '$scratch/again.db'") \
        >/dev/null 2>&1 || [ $? = "${1-0}" ] || return 1
    sqlite3 again.db "SELECT json_remove(json, '\$.wall_s', '\$.hops_per_s') FROM documents ORDER BY run DESC LIMIT 1" |
        diff first -
}
save --bench gemm_single_pe --param m=96 --set sip.cube_mesh.w=2 --set sip.cube_mesh.h=3 --device sip:1 --profile --save >/dev/null
check "the command runs it again" repeat
(cd "odd ' place" && "$kernbench" run --quiet --bench "./it's.c:wrong" --verify-data --save ../kernbench.db >/dev/null 2>&1)
check "of a file, in its directory" repeat 1
status() { [ "$(sql "SELECT status, exit_code, message IS NOT NULL FROM runs ORDER BY number DESC LIMIT 1")" = "$expected" ]; }
expected="wrong|1|1" && check "a wrong result has its status" status
"$kernbench" run --quiet --bench "odd ' place/it's.c:stray" --save >/dev/null 2>&1
expected="failed|3|1" && check "a fault has its status" status

# ---- Deleting

check "deletes one" outcome 0 'Deleted 1 run' '' "$kernbench" runs delete @last
check "deletes what matches" outcome 0 'Deleted 1 run' '' "$kernbench" runs delete --status wrong
check "neither" outcome 2 '' 'kernbench: missing runs: *' "$kernbench" runs delete
check "both" outcome 2 '' 'kernbench: give ids of runs, or options*' "$kernbench" runs delete @last --last 1
check "deletes nothing of an unknown run" outcome 2 '' "kernbench: there is no run 'zzz'*" \
    "$kernbench" runs delete @last zzz
expected=5 && check "the others stay" rows

# ---- A full disk

# Saves until there is no room: whatever was said to be saved is there.
cat >fill.sh <<'EOF'
mount -t tmpfs -o size=400k none /mnt && cd /mnt || exit 3
saved=0
code=0
while [ "$code" = 0 ]; do
    "$1" run --quiet --timing-only --bench gemm_single_pe --save >/dev/null || code=$?
    [ "$code" != 0 ] || saved=$((saved + 1))
done
[ "$saved" -gt 3 ] && [ "$(sqlite3 kernbench.db 'SELECT count(*) FROM runs')" = "$saved" ] &&
    [ "$(sqlite3 kernbench.db 'PRAGMA integrity_check')" = ok ] && exit "$code"
EOF
if unshare -rm true 2>/dev/null; then # a user's own mounts
    check "a full disk: says so, and loses nothing" \
        outcome 71 '' 'kernbench: cannot write the store kernbench.db: the disk is full' \
        unshare -rm sh fill.sh "$kernbench"
fi

finish
