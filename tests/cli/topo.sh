#!/bin/sh
# topo.sh BUILD: the topo command: summary, check, the description with settings, the drawing.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
kernbench=$1/kernbench
machines=$here/../../machines

to_full() { "$@" >/dev/full; }
topo() { "$kernbench" topo "$@"; }
grep_out() { grep -q -- "$1" "$scratch/out" || complain "not in stdout: $1"; }

check "summary" outcome 0 "Machine 'default', hash *SIPs *2, ring_1d*256 total*1.5 TiB*" '' topo
check "summary: nodes" grep_out '^  pe_dma  *256  *5.000  builtin.pe_dma'
check "summary: links" grep_out '^  ucie - ucie  *96  *512'
check "summary: memories serve" grep_out '^  hbm_ctrl (service)  *256  *204.8'
check "summary: memories of PEs" grep_out '^  TCM  *16 MiB per PE, 4 MiB of it reserved for the scheduler, 4 GiB total'
check "summary as JSON" outcome 0 '{*"pes": 256,*"tcm": {*"pe_bytes": 16777216*"reserved_bytes": 4194304*"kind": "pe_dma"*"gbs": 204.8*}' '' topo --json
check "summary with settings" outcome 0 '*SIPs *6, torus_2d 3 x 2, *' '' topo \
    --set system.sips.count=6 --set system.sips.topology=torus_2d --set system.sips.w=3 --set system.sips.h=2
check "summary names the settings" outcome 0 \
    "Machine 'default' with cube.hbm_gib=47, fabric.vcs=1, hash *slices of 5.875 GiB*1 virtual channel per class and port*" '' \
    topo --set cube.hbm_gib=47 --set fabric.vcs=1
check "a built-in machine by name" outcome 0 "Machine 'mesh-reference'*" '' topo --topology mesh-reference

check "check" outcome 0 'ok' '' topo --check
check "check as JSON" outcome 0 '{*"ok": true*}' '' topo --check --json
check "check: all problems in one go" \
    outcome 2 '' "kernbench: *cube.noc.w*(and 1 more problem)*unknown key 'foo'*" \
    topo --check --set cube.noc.w=0 --set foo=1
check "check: all problems as JSON" outcome 2 '{*"ok": false*cube.noc.w*foo*}' '' \
    topo --check --json --set cube.noc.w=0 --set foo=1
printf 'cube:\n  nco: { w: 4 }\n' >"$scratch/bad.yaml"
check "check: file, line, and what was meant" \
    outcome 2 '' "kernbench: */bad.yaml:2:3: unknown key 'cube.nco'; did you mean 'cube.noc'?*" \
    topo --check --topology "$scratch/bad.yaml"

prints() {
    topo --print --topology "$1" >"$scratch/out" && diff "$scratch/out" "$2"
}
check "print: the default machine, word for word" prints default "$machines/default.yaml"
check "print: the other one" prints mesh-reference "$machines/mesh-reference.yaml"
cp "$machines/mesh-reference.yaml" "$scratch/mine.yaml"
check "print: a file" prints "$scratch/mine.yaml" "$scratch/mine.yaml"
check "print with settings" outcome 0 \
    '*efficiency: 0.9 *#*' '' topo --print --set cube.hbm_ctrl.efficiency=0.9
one_line_differs() { [ "$(diff "$machines/default.yaml" "$scratch/out" | grep -c '^>')" -eq 1 ]; }
check "print with settings: nothing else changes" one_line_differs

# The hash of what is printed is that of the machine with the settings.
hash_of() { topo --json "$@" | grep '"hash"'; }
same_machine() {
    topo --print "$@" >"$scratch/again.yaml" || return 1
    [ "$(hash_of "$@")" = "$(hash_of --topology "$scratch/again.yaml")" ]
}
check "print with settings: the same machine" same_machine --set system.sips.count=4 \
    --set cube.pe_layout.corners.0=SE --set cube.pe_layout.corners.3=NW --set fabric.vcs=5
check "print with new keys: the same machine" same_machine --topology mesh-reference \
    --set system.sips.link.bw_gbs=10 --set system.sips.link.length_mm=5 \
    --set system.sips.link.overhead_ns=1 --set cube.sram.bw_gbs=100 --set system.sips.count=2
# Effective: complete, and the same machine, whatever the file leaves out.
printf '# mine\nsystem: { sips: { topology: torus_2d, w: 3, h: 2 } } # six\n' >"$scratch/sparse.yaml"
same_effective() {
    topo --print --effective "$@" >"$scratch/again.yaml" || return 1
    [ "$(hash_of "$@")" = "$(hash_of --topology "$scratch/again.yaml")" ] || return 1
    topo --check --topology "$scratch/again.yaml" >"$scratch/out" || return 1
    # Complete: nothing changes where each of its keys is left to the default machine's text.
    grep -q '^    count: [0-9]' "$scratch/again.yaml" && grep -q '^  hbm_gib: ' "$scratch/again.yaml"
}
check "effective: the default machine" same_effective
check "effective: a built-in machine" same_effective --topology mesh-reference
check "effective: of a file that has two keys" same_effective --topology "$scratch/sparse.yaml"
check "effective: of a file and settings" same_effective --topology "$scratch/sparse.yaml" \
    --set cube.pe_layout.pe_per_corner=3 --set cube.hbm_gib=12 \
    --set system.sips.link.bw_gbs=10 --set system.sips.link.length_mm=5 --set system.sips.link.overhead_ns=1
check "effective: says what differs" outcome 0 \
    '# The effective machine*#   system.sips.count: 6 (default: 2)*#   system.sips.w: 3*    count: 6 *' '' \
    topo --print --effective --topology "$scratch/sparse.yaml"
check "print of a file: its own text" outcome 0 '# mine*# six' '' topo --print --topology "$scratch/sparse.yaml"
check "effective as JSON" outcome 0 '{*"text": "# The effective machine*}' '' topo --print --effective --json
check "print as JSON" outcome 0 '{*"text": "# The default machine*}' '' topo --print --json

draws() {
    topo --svg - "$@" >"$scratch/out" || return 1
    head -n 1 "$scratch/out" | grep -q '^<?xml' || complain "no XML" || return 1
    [ "$(tail -n 1 "$scratch/out")" = "</svg>" ] || complain "no end" || return 1
    ! command -v xmllint >/dev/null || xmllint --noout "$scratch/out"
}
printf 'name: "a < b & c"\n' >"$scratch/name.yaml"
check "svg" draws
check "svg: what is there" grep_out 'pcie_ep'
check "svg: of a mesh" draws --topology mesh-reference
check "svg: of one router" draws --set system.sips.count=1 --set sip.cube_mesh.w=1 \
    --set sip.cube_mesh.h=1 --set cube.noc.w=1 --set cube.noc.h=1
check "svg: of a torus" draws --set system.sips.count=9 --set system.sips.topology=torus_2d \
    --set system.sips.link.bw_gbs=10 --set system.sips.link.length_mm=5 --set system.sips.link.overhead_ns=1
check "svg: an odd name" draws --topology "$scratch/name.yaml"
check "svg: an odd name is escaped" grep_out 'a &lt; b &amp; c'
check "svg: to a file" outcome 0 '' '' topo --svg "$scratch/machine.svg"
same_drawing() { topo --svg - | cmp - "$scratch/machine.svg"; }
check "svg: the file is the same" same_drawing
check "svg: to a file, as JSON" outcome 0 '{*"svg": */machine.svg"*}' '' \
    topo --json --svg "$scratch/machine.svg"
check "svg: no such directory" outcome 2 '' \
    'kernbench: cannot write /nonexistent/m.svg: No such file or directory' topo --svg /nonexistent/m.svg
check "svg: the disk is full" outcome 71 '' \
    'kernbench: cannot write /dev/full: No space left on device' topo --svg /dev/full
check "svg: stdout is full" outcome 71 '' 'kernbench: cannot write the output: *' to_full topo --svg -
check "svg and JSON on stdout" outcome 2 '' 'kernbench: --svg - and --json *' topo --svg - --json
check "effective without print" outcome 2 '' 'kernbench: --effective needs --print' topo --effective
check "two things at a time" outcome 2 '' 'kernbench: --check, --print and --svg are mutually exclusive' topo --check --print
check "print: stdout is full" outcome 71 '' 'kernbench: cannot write the output: *' to_full topo --print
# On a machine that has one of everything nouns are singular: no "1 SIPs".
one="--set system.sips.count=1 --set sip.cube_mesh.w=1 --set sip.cube_mesh.h=1 --set cube.noc.w=1
    --set cube.noc.h=1 --set fabric.vcs=1"
printf 'cube: { pe_layout: { pe_per_corner: 1, corners: [NW] } }\n' >"$scratch/one.yaml"
singular() {
    # shellcheck disable=SC2086 # words
    "$kernbench" "$@" --topology "$scratch/one.yaml" $one >"$scratch/out" 2>&1
    [ -s "$scratch/out" ] || complain "no output" || return 1
    ! grep -E '(^|[ (])1 ([a-z]+ )?(SIPs|cubes|PEs|routers|slices|channels|ranks|transfers|sources|groups|links|hops|events|directions|devices|workers)\b' \
        "$scratch/out"
}
check "singular: topo" singular topo
check "singular: probe" singular probe
check "singular: probe --load" singular probe --load --case pe-sram --transfers 100
check "singular: traffic" singular traffic --measure-ns 1000
check "singular: ccl plan" singular ccl plan --algorithm ring_rsag
check "singular: run" singular run --bench gemm_single_pe --param m=8 --param k=8 --param n=8
check "singular: a device that there is not" singular run --bench gemm_single_pe --device sip:1
check "singular: a rank that there is not" singular run --bench ccl_allreduce
check "help" outcome 0 'usage: kernbench topo*--svg FILE*--set KEY=VALUE*Example: *' '' topo --help

finish
