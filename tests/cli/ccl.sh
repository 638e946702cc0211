#!/bin/sh
# ccl.sh BUILD: `kernbench ccl plan` and `ccl print`, --ccl, --plugin and --set ccl. of other
# commands, and `kernbench new collective`.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
kernbench=$(CDPATH='' cd -- "$1" && pwd)/kernbench
collective=$here/benches/collective.c
mkdir "$scratch/work" "$scratch/tmp"
cd "$scratch/work"
TMPDIR=$scratch/tmp && export TMPDIR

plan() { "$kernbench" ccl plan "$@"; }
# rows PATTERN: lines of the last output that match.
rows() { grep -c -- "$1" "$scratch/out"; }
is() { [ "$1" = "$2" ] || { echo "'$1', not '$2'" && return 1; }; }

# ---- The commands

check "ccl alone" outcome 2 '' 'kernbench: missing subcommand: plan, print or tune; see kernbench ccl --help' "$kernbench" ccl
check "mistyped" outcome 2 '' "kernbench: unknown subcommand 'plam': expected plan, print or tune; did you mean 'plan'?" \
    "$kernbench" ccl plam
check "nothing like it" outcome 2 '' "kernbench: unknown subcommand 'list': expected plan, print or tune" \
    "$kernbench" ccl list
check "its help" outcome 0 'usage: kernbench ccl SUBCOMMAND *Subcommands:*plan *Example: *' '' \
    "$kernbench" ccl --help
for help in 'help ccl plan' 'ccl plan --help'; do
    # shellcheck disable=SC2086 # words
    check "$help" outcome 0 'usage: kernbench ccl plan *--algorithm *--ccl *--plugin *Example: *' '' \
        "$kernbench" $help
done
check "too many words of help" outcome 2 '' "kernbench: too many arguments: 'x'*" \
    "$kernbench" help ccl plan x
check "unknown option" outcome 2 '' "kernbench: unknown option '--algoritm'; did you mean '--algorithm'?" \
    plan --algoritm x
check "a word" outcome 2 '' "kernbench: too many arguments: 'x'; see kernbench ccl plan --help" plan x

# ---- Text

check "what ccl.yaml chooses" outcome 0 "Plan of 'intercube_allreduce' of built-in ccl.yaml on 'default'
  module         intercube (also reduces the shards within each SIP)*
  mapper         cube_leaders*
  slot_size      4 KiB*
  n_elem         8
  ranks          2 SIPs
*" '' plan
# SIP 0: 16 PEs, 4 x 4 cubes have 2 * 2 * 12 = 48 directions, and 2 more each to the other SIP: 80;
# 80 rings of 4 * 4 KiB are 1.25 MiB; 16 * 16 + 80 * 32 bytes of commands are 2.75 KiB.
check "a SIP in figures" is "$(rows '^  0     16          80     1.25 MiB  2.75 KiB$')" 1
check "a direction" is \
    "$(rows '^  sip0.cube0.pe0  E          sip0.cube1.pe0 W  *sip0.cube1.pe0 W  *4 x 4 KiB in tcm$')" 1
check "long tables are cut" is "$(rows '^  \.\. and 144 more directions; --limit 0 shows all')" 1
check "and can be had whole" outcome 0 '*' '' plan --limit 0
check "all directions" is "$(rows ' in tcm$')" 160
check "nothing is left out" is "$(grep -c 'more' "$scratch/out" || true)" 0
check "of one SIP" outcome 0 '*' '' plan --limit 0 --sip 1
check "half of the directions" is "$(rows '^  sip1.* in tcm$')" 80
check "none of the other" is "$(grep -c '^  sip0' "$scratch/out" || true)" 0
check "another one" outcome 0 "Plan of 'ring_rsag' *
  ranks          2 SIPs
*sip0.cube0.pe0  E          sip1.cube0.pe0 W  sip1.cube0.pe0 W  7 x 1 KiB in tcm*" '' \
    plan --algorithm ring_rsag --set ccl.algorithms.ring_rsag.n_slots=7 \
    --set ccl.algorithms.ring_rsag.slot_size=1024
check "ranks that are PEs" outcome 0 '*ranks          7 PEs
*sip0.cube0.pe0  child_left  *sip0.cube0.pe1 parent *' '' plan --algorithm tree_allreduce_7
check "memory of the cube" outcome 0 "*% of the cube's SRAM*in sram*" '' \
    plan --algorithm ring_allreduce_sram
check "one SIP: nobody to talk to" outcome 0 '*ranks          1 SIP
*No queues: a single rank does not communicate.

  group: *' '' \
    plan --algorithm ring_rsag --set system.sips.count=1
check "what is quiet does not explain" outcome 0 '*No queues: a single rank does not communicate.' '' \
    plan --algorithm ring_rsag --set system.sips.count=1 --quiet
check "16 SIPs" outcome 0 '*ranks          16 SIPs*' '' \
    plan --algorithm one_shot --set system.sips.count=16

# ---- Settings

check "--set reaches both" outcome 0 '*on *n_slots        9
*ranks          3 SIPs*' '' plan --set ccl.defaults.n_slots=9 --set system.sips.count=3
check "a wrong setting" outcome 2 '' \
    "kernbench: --set ccl.defaults.n_slot: unknown key 'defaults.n_slot'; did you mean 'defaults.n_slots'?" \
    plan --set ccl.defaults.n_slot=9
check "a wrong setting of the machine" outcome 2 '' "kernbench: --set system.sip.count: unknown key 'system.sip'*" \
    plan --set system.sip.count=9
check "ccl. is not of the machine" outcome 2 '' "kernbench: --set ccl.x: unknown key 'ccl'*" \
    "$kernbench" topo --set ccl.x=1
check "idle settings are told" outcome 0 '*' 'kernbench: warning: --set system.sips.count=2 has no effect: *' \
    plan --set system.sips.count=2

# ---- Mistakes

check "no such algorithm" outcome 2 '' \
    "kernbench: --algorithm: built-in ccl.yaml has no algorithm 'one_shoot'; did you mean 'one_shot'?" \
    plan --algorithm one_shoot
check "auto" outcome 2 '' 'kernbench: *auto* selects an algorithm by size (see kernbench ccl tune) and has no plan of its own: choose one with --algorithm; see kernbench list' \
    plan --set ccl.defaults.algorithm=auto
check "no such SIP" outcome 2 '' 'kernbench: --sip: no such SIP: the machine has 2 SIPs, numbered from 0' plan --sip 2
cat >tiny.yaml <<'YAML'
system: { sips: { count: 1 } }
sip: { cube_mesh: { w: 1, h: 1 } }
cube: { pe_layout: { pe_per_corner: 1, corners: [NW, SE] } }
YAML
check "makes no sense on this machine" outcome 2 '' \
    "kernbench: algorithm 'tree_allreduce_7': rank: pe needs 7 PEs, but the machine has 2" \
    plan --algorithm tree_allreduce_7 --topology tiny.yaml

# ---- ccl.yaml

cat >mine.yaml <<'YAML'
defaults: { algorithm: wide, slot_size: 64 }
algorithms:
  wide: { module: mesh, topology: mesh_2d, world_size: 6, w: 3, h: 2 }
YAML
check "a file" outcome 0 "Plan of 'wide' of mine.yaml *
  slot_size      64 B*
  w              3
  h              2
  ranks          6 PEs*" '' plan --ccl mine.yaml
check "an algorithm that ships, with the file's defaults" outcome 0 "Plan of 'one_shot' of mine.yaml *
  slot_size      64 B*" '' plan --ccl mine.yaml --algorithm one_shot
check "no such file" outcome 2 '' 'kernbench: none.yaml: *' plan --ccl none.yaml
cp mine.yaml ccl.yaml
check "ccl.yaml of the directory" outcome 0 "Plan of 'wide' of ccl.yaml *" '' plan
check "is listed" outcome 0 '*collectives of ccl.yaml:*wide  *mesh  *mesh_2d  *' '' "$kernbench" list
rm ccl.yaml
printf 'defaults: { n_slots: 0, x: 1 }\n' >bad.yaml
check "all that is wrong" outcome 2 '' \
    "kernbench: bad.yaml:1:22: defaults.n_slots: *(and 1 more problem)*bad.yaml:1:25: unknown key *" \
    plan --ccl bad.yaml

# ---- What is built in

built_in() { "$kernbench" ccl print >"$scratch/printed" && diff "$scratch/printed" "$here/../../collectives/ccl.yaml"; }
check "print" built_in
check "is a file that means the same" outcome 0 "Plan of 'intercube_allreduce' of $scratch/printed *" '' \
    plan --ccl "$scratch/printed"
check "print: its help" outcome 0 'usage: kernbench ccl print
*Example: *' '' "$kernbench" ccl print --help
check "print: a word" outcome 2 '' "kernbench: too many arguments: 'x'; see kernbench ccl print --help" \
    "$kernbench" ccl print x
check "print: an option" outcome 2 '' "kernbench: unknown option '--x'*" "$kernbench" ccl print --x

# ---- List

check "list" outcome 0 '*algorithm *collectives *module *topology *mapper *validator*intercube_allreduce *topology *ring_1d *topology *none *mapper *lanes *validator *shard_per_cube *' '' "$kernbench" list
check "list, names" outcome 0 '*
ring_rsag
*
lanes
*' '' "$kernbench" list --quiet
check "list, JSON" outcome 0 '*"collectives": {*"algorithms": *"mappers": *' '' "$kernbench" list --json

# ---- Plugins

cat >plugged.yaml <<'YAML'
defaults: { algorithm: mine }
algorithms:
  mine: { module: pass_on, topology: pass_on_ring, world_size: 4, kernel_step: 1 }
YAML
check "a plugin" outcome 0 '*module         pass_on
*sip0.cube0.pe0  ahead      sip0.cube0.pe1 ahead  sip0.cube0.pe3 ahead *' '' \
    plan --ccl plugged.yaml --plugin "$collective"
check "without it" outcome 2 '' \
    "kernbench: plugged.yaml:3:19: algorithms.mine.module: unknown module 'pass_on': expected *" \
    plan --ccl plugged.yaml
check "is listed" outcome 0 '*module *pass_on *everybody gets *' '' \
    "$kernbench" list --plugin "$collective"
check "its plan may fail" outcome 2 '' \
    "kernbench: algorithm 'mine': direction ahead of sip0.cube0.pe0 is connected to itself" \
    plan --ccl plugged.yaml --plugin "$collective" --set ccl.algorithms.mine.kernel_step=4
sed 's/"pass_on"/"lanes"/; s/_ring"/"/' "$collective" >ok.c
check "names are by kind" outcome 0 '*' '' plan --plugin ./ok.c
sed 's/"pass_on"/"ring"/' "$collective" >twice.c
check "a name twice" outcome 2 '' "kernbench: plugin 1: another algorithm is called 'ring' already" \
    plan --plugin ./twice.c
check "the same file twice is two" outcome 2 '' "kernbench: plugin 2: another * is called 'pass_on' already" \
    plan --plugin "$collective" --plugin "$collective"
sed '/^KB_EXPORT_CCL/d; s/^static const kb_ccl_plugin/extern const kb_ccl_plugin plugin;\nconst kb_ccl_plugin/' \
    "$collective" >none.c
check "no collectives" outcome 2 '' 'kernbench: none.c exports no collectives: add KB_EXPORT_CCL() at its end' \
    plan --plugin none.c
sed 's/^KB_EXPORT_CCL/#undef KB_INTERFACE\n#define KB_INTERFACE "0.0"\n&/' "$collective" >old.c
check "compiled for another version" outcome 2 '' \
    'kernbench: old.c was compiled for KernBench 0.0, this is KernBench *: recompile it' plan --plugin old.c
check "not there" outcome 2 '' 'kernbench: cannot read nowhere.c: *' plan --plugin nowhere.c
check "neither" outcome 2 '' 'kernbench: mine.yaml: not a plugin: expected a FILE.c or a FILE.so' plan --plugin mine.yaml
printf 'int x = y;\n' >wrong.c
check "does not compile" outcome 2 '' '*kernbench: compilation of wrong.c failed' plan --plugin wrong.c

# ---- Runs

check "a bench with collectives in its file" outcome 0 '*Verification: passed*' '' \
    "$kernbench" run --bench "$collective" --ccl plugged.yaml --verify-data
check "from a plugin of its own" outcome 2 '' "kernbench: plugin *: another * is called 'pass_on' already" \
    "$kernbench" run --bench "$collective" --plugin "$collective" --ccl plugged.yaml
check "a trace of messages" outcome 0 '*Verification: passed*' '*sip0.cube0.pe0*ahead*' \
    "$kernbench" run --bench "$collective" --ccl plugged.yaml --verify-data --ccl-trace
check "none unless it is asked for" outcome 0 '*' '' \
    "$kernbench" run --bench "$collective" --ccl plugged.yaml
check "a setting reaches the run" outcome 2 '' "kernbench: --set ccl.defaults.kernel_stepp: unknown key *" \
    "$kernbench" run --bench "$collective" --ccl plugged.yaml --set ccl.defaults.kernel_stepp=2
check "a wrong one is told, whatever the bench" outcome 2 '' "kernbench: --set ccl.default.n_slots: *" \
    "$kernbench" run --bench gemm_single_pe --set ccl.default.n_slots=2
check "and a wrong file" outcome 2 '' 'kernbench: none.yaml: *' \
    "$kernbench" run --bench gemm_single_pe --ccl none.yaml
check "a plugin that is not there" outcome 2 '' 'kernbench: cannot read nowhere.c: *' \
    "$kernbench" run --bench gemm_single_pe --plugin nowhere.c

# ---- One's own

check "new" outcome 0 'Created ./sum.c, a collective, and ./sum.yaml, its ccl.yaml. Next:
  kernbench run --bench ccl_allreduce --ccl ./sum.yaml --plugin ./sum.c' '' \
    "$kernbench" new collective sum
check "runs" outcome 0 '*sum (ws=2): 2 OK*' '' \
    "$kernbench" run --bench ccl_allreduce --ccl sum.yaml --plugin sum.c
cp sum.c before.c
check "new: both are there" outcome 2 '' 'kernbench: ./sum.c already exists: choose another name' \
    "$kernbench" new collective sum
rm sum.c
check "new: one is there" outcome 2 '' 'kernbench: ./sum.yaml already exists: choose another name' \
    "$kernbench" new collective sum
check "neither is written then" is "$(ls sum.*)" sum.yaml
rm sum.yaml
cp before.c sum.c
check "new: the other is there" outcome 2 '' 'kernbench: ./sum.c already exists: choose another name' \
    "$kernbench" new collective sum
check "what is there stays" cmp sum.c before.c

# shown FENCE FIRST: the block of the guide with that fence whose first line has this in it.
shown() {
    awk -v fence="\`\`\`$1" -v first="$2" '
        $0 == fence { getline; inside = index($0, first) > 0 }
        /^```$/ { inside = 0 }
        inside' "$here/../../docs/collectives.md"
}
shown c chain.c: >chain.c
shown yaml '# chain' >chain.yaml
check "the guide's topology and mapper" outcome 0 '*chain (ws=5): 80 OK*' '' \
    "$kernbench" run --bench ccl_allreduce --ccl chain.yaml --plugin chain.c --set system.sips.count=5
check "the plan of them" outcome 0 '* group  PEs *' '' \
    plan --ccl chain.yaml --plugin chain.c --set system.sips.count=3 --limit 0
# Of the 3 members of a circle the first has E, the last W, the second both.
check "what E sends W receives" is "$(rows '^  sip[01].cube[0-9]*.pe0  *E .* W  *4 x 4 KiB in tcm$')" 32
sed -e 's/"E"/"next"/g' -e 's/"W"/"previous"/g' chain.c >named.c
check "other names" outcome 0 '*chain (ws=5): 80 OK*' '' \
    "$kernbench" run --bench ccl_allreduce --ccl chain.yaml --plugin named.c --set system.sips.count=5

# ---- JSON

# All 256 PEs have E and W: 16 + 2 * 32 bytes to tell each of them.
check "a document" outcome 0 '{*"topology": {*"ccl": "built-in ccl.yaml"*"name": "ring_rsag"*"world_size": 2*"circles": *"pes": *}' '' \
    plan --algorithm ring_rsag --json --limit 1 --sip 0
check "is complete" is "$(rows '"install_bytes": 80')" 256
check "both ways" is "$(rows '"direction": "W"')" $((256 + 2 * 256))
check "what is wrong is no document" outcome 2 '' 'kernbench: --algorithm: *' plan --json --algorithm x

# ---- Messages

hierarchical='--set ccl.defaults.algorithm=hierarchical_allreduce --set ccl.algorithms.hierarchical_allreduce'
# shellcheck disable=SC2086 # words
check "arguments that an algorithm refuses to make: its entry is named once" outcome 2 '' \
    "kernbench: 1 of 2 workers failed: rank 0: 'hierarchical_allreduce': hierarchical needs all PEs of all ranks *" \
    "$kernbench" run --bench ccl_allreduce --quiet $hierarchical.mapper=leader_only \
    --set ccl.algorithms.hierarchical_allreduce.validator=single_shard_per_rank
check "what all ranks have to say is said once" outcome 2 '' \
    "kernbench: 3 of 3 workers failed: ranks 0-2: kb_distributed_init_process_group: algorithm 'trees': *" \
    "$kernbench" run --bench ccl_allreduce --quiet --set system.sips.count=3 \
    --set ccl.defaults.algorithm=trees --set ccl.algorithms.trees.mapper=all_pes

finish
