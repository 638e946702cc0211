#!/bin/sh
# errors.sh BUILD: mistakes of a user: each is one line that names the place and the remedy, and status 2.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
kernbench=$(CDPATH='' cd -- "$1" && pwd)/kernbench
cd "$scratch"

# refused MESSAGE ARGUMENT...: exactly this message, on one line of stderr, nothing on stdout.
refused() {
    message=$1
    shift
    outcome 2 '' "kernbench: $message" "$kernbench" "$@" || return 1
    [ "$(wc -l <"$scratch/err")" -eq 1 ] || complain "not one line"
}

# ---- Names: the nearest, and the list if it is short ----
near() { check "near: $2" refused "$@"; }

near "unknown command 'tpoo'; did you mean 'topo'[?]" tpoo
near "unknown command 'xyzzy'; see kernbench --help" xyzzy
near "unknown option '--topolgy'; did you mean '--topology'[?]" topo --topolgy default
near "unknown option '--topolgy=x'; did you mean '--topology'[?]" topo --topolgy=x
near "unknown subcommand 'pln': expected plan, print or tune; did you mean 'plan'[?]" ccl pln
near "unknown kind of file 'benhc': expected bench or collective; did you mean 'bench'[?]" new benhc x
near "unknown bench 'gem_single'; did you mean 'gemm_single_pe'[?]" run --bench gem_single
near "unknown bench 'allreduce'; did you mean 'ccl_allreduce'[?]" run --bench allreduce
near "unknown bench 'gemm-single-pe'; did you mean 'gemm_single_pe'[?]" run --bench gemm-single-pe
near "unknown bench 'xyzzy'; see kernbench list, or name a file: ./mine.c" run --bench xyzzy
near "unknown parameter 'mm' of bench 'gemm_single_pe': expected m, k or n; did you mean 'm'[?]" \
    run --bench gemm_single_pe --param mm=3
near "parameter dtype of bench 'ccl_reduce': unknown value 'fp16': expected f16, bf16 or f32; did you mean 'f16'[?]" \
    run --bench ccl_reduce --param dtype=fp16
near "unknown device 'sp:0': expected all, or sip:N as in sip:0" run --bench gemm_single_pe --device sp:0
near "no such device 'sip:9': the machine has 2 SIPs, numbered from 0" run --bench gemm_single_pe --device sip:9
near "no such device 'sip:1': the machine has 1 SIP, numbered from 0" \
    run --bench gemm_single_pe --device sip:1 --set system.sips.count=1
near "unknown case 'pe-lcal-hbm'; did you mean 'pe-local-hbm'[?]" probe --case pe-lcal-hbm
near "--pattern: unknown value 'unifrm': expected uniform, transpose, bitcomp, neighbor or hotspot; did you mean 'uniform'[?]" \
    traffic --pattern unifrm
near "--level: unknown value 'chip': expected cube, sip or system" traffic --level chip
near "no such file or built-in machine: 'Defualt': expected default or mesh-reference; did you mean 'default'[?]" \
    topo --topology Defualt
near "--set cube.noc.ww: unknown key 'cube.noc.ww': expected w, h, k, router, bw_gbs or length_mm; did you mean 'cube.noc.w'[?]" \
    topo --set cube.noc.ww=3
near "--set fabric.ports: expected parallel or serial, found 'seral'; did you mean 'serial'[?]" \
    topo --set fabric.ports=seral
near "--set cube.xbar.impl: unknown component 'builtin.xbra': expected builtin.xbar; did you mean 'builtin.xbar'[?]" \
    topo --set cube.xbar.impl=builtin.xbra
near "--algorithm: built-in ccl.yaml has no algorithm 'one_shoot'; did you mean 'one_shot'[?]" \
    ccl plan --algorithm one_shoot
near "--set ccl.defaults.algorithm: unknown algorithm 'tree'; did you mean 'trees'[?]" \
    ccl plan --set ccl.defaults.algorithm=tree
for pair in module:rng:ring mapper:lane:lanes validator:shard_per_cub:shard_per_cube \
    topology:rng_1d:ring_1d; do
    key=${pair%%:*} rest=${pair#*:}
    near "--set ccl.algorithms.ring_rsag.$key: unknown $key '${rest%:*}': expected *; did you mean '${rest#*:}'[?]" \
        ccl plan --set "ccl.algorithms.ring_rsag.$key=${rest%:*}"
done

# ---- Files that are not what they should be ----
mkdir dir dir.c dir.so
: >empty.yaml
: >empty.so
printf '# nothing\n' >comment.yaml
printf 'cube: [1, 2\nsip: 3\n' >open.yaml
printf 'cube: { noc: { w: four } }\n' >word.yaml
printf '\177ELF\001\002\377\376' >junk.yaml
cp junk.yaml junk.so
for option in "topo --topology" "ccl plan --ccl"; do
    # shellcheck disable=SC2086 # words
    {
        check "$option: a directory" refused 'dir: cannot read: Is a directory' $option dir
        check "$option: empty" refused 'empty.yaml: expected a mapping, found an empty document' \
            $option empty.yaml
        check "$option: a comment" refused 'comment.yaml: expected a mapping, found an empty document' \
            $option comment.yaml
        check "$option: no YAML" refused 'open.yaml:[0-9]*:[0-9]*: *' $option open.yaml
        check "$option: binary" refused \
            'junk.yaml:1:1: expected YAML text, found a control character (0x7f)' $option junk.yaml
        check "$option: no name" refused "--${option#* --}: empty value: expected FILE" $option ''
    }
done 2>&1
check "a word for a number" refused \
    "word.yaml:1:19: cube.noc.w: expected an integer from 1 to 64, found 'four'" topo --topology word.yaml
check "no ccl.yaml" refused 'none.yaml: cannot open: No such file or directory' ccl plan --ccl none.yaml
for option in "run --bench" "ccl plan --plugin"; do
    # shellcheck disable=SC2086 # words
    {
        check "$option: none" refused 'cannot read ./none.c: No such file or directory' $option ./none.c
        check "$option: a directory" refused 'cannot read ./dir.c: Is a directory' $option ./dir.c
        check "$option: a directory, too" refused 'cannot read ./dir.so: Is a directory' $option ./dir.so
        check "$option: an empty library" refused 'cannot load ./empty.so: file too short' \
            $option ./empty.so
        check "$option: no library" refused 'cannot load ./junk.so: *' $option ./junk.so
        check "$option: neither" refused './word.yaml: not a *: expected *FILE.c or a FILE.so' \
            $option ./word.yaml
    }
done
check "trace: a directory" refused 'cannot write dir: Is a directory' \
    run --bench gemm_single_pe --param m=8 --param k=8 --param n=8 --trace dir
check "a value is missing" refused '--set needs a value: --set KEY=VALUE' topo --set
check "a setting without =" refused '--set cube.noc.w: expected key=value' topo --set cube.noc.w
check "a flag with a value" refused '--json takes no value' topo --json=yes
check "--effective alone" refused '--effective needs --print' topo --effective
check "a size of nothing" refused '--bytes: expected a number of bytes*from 1 to *found*0*' probe --bytes 0

finish
