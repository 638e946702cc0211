#!/bin/sh
# ccl_tune.sh BUILD: `kernbench ccl tune`, and auto with what it wrote.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
kernbench=$(CDPATH='' cd -- "$1" && pwd)/kernbench
mkdir "$scratch/work"
cd "$scratch/work"

# A small machine: two cubes of four PEs a SIP.
tune() {
    "$kernbench" ccl tune --set sip.cube_mesh.w=2 --set sip.cube_mesh.h=1 --set cube.noc.w=2 \
        --set cube.noc.h=2 --set cube.pe_layout.pe_per_corner=1 "$@"
}
rows() { [ "$(grep -c -- "$1" "$2")" -eq "$3" ] || { cat "$2" && return 1; }; }
# The words of the head and the numbers below them end in the same columns; * and units are apart.
lined_up() {
    awk '
        function ends(line, list, at) {
            list = ""
            gsub(/\* /, "  ", line)
            sub(/ KiB /, "_KiB ", line)
            for (at = 1; at <= length(line); at++)
                if (substr(line, at, 1) != " " && substr(line, at + 1, 1) ~ /^ ?$/)
                    list = list " " at
            return list
        }
        /^ *size / { head = ends($0) }
        /^ *[0-9]+ KiB / { rows++; if (ends($0) != head) { print; bad = 1 } }
        END { exit bad || !rows }' "$1"
}
one_document() { tune --json "$@" >"$scratch/doc" && python3 -m json.tool <"$scratch/doc" >/dev/null; }

check "its help" outcome 0 'usage: kernbench ccl tune *--collective *--output *Example: *' '' \
    "$kernbench" ccl tune --help
check "unknown collective" outcome 2 '' "kernbench: --collective: unknown value 'all_redce'; did you mean 'all_reduce'?" \
    tune --collective all_redce
check "min and max" outcome 2 '' 'kernbench: --min is greater than --max' tune --min 2KiB --max 1KiB
check "one SIP" outcome 2 '' 'kernbench: cannot tune with a single rank*system.sips.count=2*' \
    tune --set system.sips.count=1

check "a table" outcome 0 "Machine 'default' with *, 2 ranks. Times in ns, \\* is the best.
size: bytes of one rank's buffer *
time: all ranks call at once, *
bound: *

all_reduce
 *size *bound *ring_rsag *trees *one_shot
 *1 KiB * \\* *
 *16 KiB * \\* *
excluded: *" '' tune --max 16KiB --factor 16
check "one is the best of each size" rows ' \*' "$scratch/out" 3 # with the line that says so
check "numbers end where their heads do" lined_up "$scratch/out"
# 1 KiB * 16 is 16 KiB, and * 16 is too large.
check "the largest is measured too" outcome 0 '* 1 KiB * 16 KiB * 20 KiB *' '' \
    tune --max 20KiB --factor 16
check "no size twice" rows '20 KiB' "$scratch/out" 1
check "one size" outcome 0 '* 1 KiB *' '' tune --max 1KiB
check "once" rows ' KiB' "$scratch/out" 1

check "others are left out" outcome 0 "*
excluded: intercube_allreduce, hierarchical_allreduce: reduces the shards of a rank, too (reduce_shards)
excluded: ring_allreduce_tcm, ring_allreduce_hbm, ring_allreduce_sram, hello_send: for one layout only, as the mapper is leader_only, not lanes
excluded: mesh_allreduce_4, tree_allreduce_7, ring_rsag_pes: ranks are PEs there, not SIPs

--set ccl.defaults.algorithm=auto selects the best *" '' tune --max 1KiB
check "a line for each reason" rows '^excluded: ' "$scratch/out" 3
check "world_size" outcome 0 '*
excluded: ring_rsag: world_size is 3, not 2
*' '' tune --max 1KiB --set ccl.algorithms.ring_rsag.rank=sip --set ccl.algorithms.ring_rsag.world_size=3
check "not with --quiet" outcome 0 '*1 KiB*' '' tune --max 1KiB --quiet
check "nothing of it" rows 'excluded' "$scratch/out" 0

# Of one's own: 8 PEs send what they have as one message, and a queue has room for 16 KiB. A rank's
# 1 MiB are 128 KiB each: nobody gets as far as receiving.
"$kernbench" new collective own >/dev/null
sed -e 's/leader_only/lanes/' -e '/validator/d' own.yaml >lanes.yaml
sed 's/1 << KB_ALL_REDUCE,/& .same_bits = true,/' own.c >same.c
check "mapper" outcome 0 '*excluded: own, *: for one layout only, as the mapper is leader_only, not lanes
*' '' tune --max 1KiB --ccl own.yaml --plugin own.c
check "bits" outcome 0 '*excluded: own: module own does not promise same_bits
*' '' tune --max 1KiB --ccl lanes.yaml --plugin own.c
check "now it is in" outcome 0 '* size * own  *' '' tune --max 1KiB --ccl lanes.yaml --plugin same.c
check "not left out" rows 'excluded: own' "$scratch/out" 0
check "one that fails says so" outcome 0 '* size * own  *
 *1 MiB  *-  *excluded: own: at 1 MiB: deadlock *' '' \
    tune --max 1MiB --factor 1024 --ccl lanes.yaml --plugin same.c

check "all of them" outcome 0 '*all_reduce*all_gather*reduce_scatter*broadcast*reduce*gather*scatter*all_to_all*' \
    '' tune --collective all --min 1KiB --max 1KiB
check "a document" one_document --max 4KiB
check "with who was left out" rows '"algorithm": "hello_send"' "$scratch/doc" 1

check "written" outcome 0 '*Wrote mine.yaml: with --ccl mine.yaml, auto does not need to measure.' '' tune --max 4KiB --output mine.yaml
check "complete" rows '^  ring_rsag:' mine.yaml 1
check "one section" rows '^tuned:' mine.yaml 1
check "it is read again" outcome 0 '*Wrote mine.yaml: *' '' \
    tune --max 1KiB --collective broadcast --ccl mine.yaml --output mine.yaml
check "what was there stays" rows 'collective: all_reduce, world: 2' mine.yaml 1
check "and there is more" rows 'collective: broadcast, world: 2' mine.yaml 1
check "still one section" rows '^tuned:' mine.yaml 1
sed 's/up_to_bytes: 4096/up_to_bytes: 1/' mine.yaml >old.yaml
check "what is measured anew is replaced" outcome 0 '*' '' \
    tune --max 4KiB --ccl old.yaml --output mine.yaml
check "by the new" rows 'all_reduce.*up_to_bytes: 4096' mine.yaml 1
check "not beside it" rows 'all_reduce.*up_to_bytes: 1,' mine.yaml 0
check "no such place" outcome 2 '*' 'kernbench: cannot write none/x.yaml: *' \
    tune --max 1KiB --output none/x.yaml

finish
