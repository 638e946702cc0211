#!/bin/sh
# probe.sh BUILD: the probe command: its tables, its JSON, its mistakes.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
kernbench=$1/kernbench
probe_json=$1/tests/probe-json

to_full() { "$@" >/dev/full; }
in_locale() { LC_ALL=de_DE.UTF-8 "$@"; }

# good_json ARGUMENT...: one document that the checker finds nothing wrong with.
good_json() {
    outcome 0 '{*}' '' "$kernbench" probe --json "$@" || return 1
    "$probe_json" <"$scratch/out"
}

# figure CASE KEY ARGUMENT...: a number of the case
figure() {
    figure_case=$1 figure_key=$2
    shift 2
    "$kernbench" probe --json --case "$figure_case" "$@" | "$probe_json" "$figure_case" "$figure_key"
}

# figure_is VALUE CASE KEY ARGUMENT...
figure_is() {
    figure_wanted=$1
    shift
    figure_found=$(figure "$@")
    [ "$figure_found" = "$figure_wanted" ] ||
        { echo "$2 of $1 is $figure_found, not $figure_wanted" && return 1; }
}

grep_out() { grep -q -- "$1" "$scratch/out" || complain "not in stdout: $1"; }
not_in_out() { ! grep -q -- "$1" "$scratch/out" || complain "in stdout: $1"; }
no_escapes() { ! grep -q "$(printf '\033')" "$scratch/out"; }
narrow() { ! grep -q '.\{121\}' "$scratch/out" || complain "a line of more than 120 columns"; }

check "plain" outcome 0 "Machine 'default'*bottleneck*h2d-near*" '' "$kernbench" probe
check "plain: all cases have a row" grep_out 'pe-remote-sip-write  *292.390'
check "plain: fits on a terminal" narrow
check "plain: no escape codes in a file" no_escapes
check "plain: the sweep" grep_out '1 MiB$'
check "quiet: figures alone" outcome 0 '*pe-local-hbm*' '' "$kernbench" probe --quiet
check "quiet: no explanations" not_in_out 'Overhead is'
check "one case" outcome 0 '*pe-local-hbm-write: a PE writes*103.040 ns*204.8*last byte arrives' '' \
    "$kernbench" probe --case pe-local-hbm-write
check "a read shows both legs" \
    outcome 0 '*request arrives, data return*last byte arrives' '' "$kernbench" probe --case=pe-local-hbm
check "verbose" outcome 0 '*h2d-near: the host*pe-remote-sip-write: a PE*' '' "$kernbench" probe --verbose
check "overhead by kind" outcome 0 \
    '*ucie  *24 x  *8.000  *192.000  *53.6*overhead of nodes, 53.6 % that of ucie: *save 5.6 %*' '' \
    "$kernbench" probe --case pe-remote-cube-far
check "one link bounds" outcome 0 '*93.8 % of the latency is the time of the bytes at the slowest link,*' '' \
    "$kernbench" probe --case pe-remote-cube-far --bytes 1MiB
check "two links bound" outcome 0 '*the slowest links, host>switch*and 1 more: *' '' \
    "$kernbench" probe --case h2d-near --bytes 1MiB
check "settings are named, and hints repeat them" outcome 0 \
    "Machine 'default' with sip.ucie.overhead_ns=4, fabric.vcs=3: *probe --case pe-remote-cube-far --set sip.ucie.overhead_ns=4 --set fabric.vcs=3*" '' \
    "$kernbench" probe --set sip.ucie.overhead_ns=4 --set fabric.vcs=3
check "settings in JSON" outcome 0 '*"set": \[*"sip.ucie.overhead_ns=4"*\]*' '' \
    "$kernbench" probe --case pe-sram --json --set sip.ucie.overhead_ns=4
check "an odd size is exact" outcome 0 '*of 4097 B at a time*' '' "$kernbench" probe --bytes 4097
check "list" outcome 0 '*h2d-near*pe-remote-sip*' '' "$kernbench" probe --list
check "list: what a machine has not" \
    outcome 0 '*pe-remote-sip  *not available: it has one SIP*' '' \
    "$kernbench" probe --list --topology mesh-reference
check "list as JSON" outcome 0 '{*"available": true*}' '' "$kernbench" probe --list --json
check "a machine without other cubes and SIPs" \
    outcome 0 '*Not available, as it has one SIP: pe-remote-sip*' '' \
    "$kernbench" probe --topology mesh-reference

check "JSON of all cases" good_json
check "JSON of one case" good_json --case h2d-far --bytes 1MiB
check "JSON of one byte" good_json --bytes 1
check "JSON of another machine" good_json --topology mesh-reference
check "JSON of an odd machine" good_json --set sip.cube_mesh.w=3 --set sip.cube_mesh.h=2 \
    --set cube.pe_layout.pe_per_corner=3 --set cube.noc.w=2
check "JSON has no comma for a point" in_locale good_json --case pe-sram
check "JSON under load" good_json --load --case pe-sram --transfers 300
check "load" outcome 0 '*pe-sram under load*100 % is*accepted GB/s*' '' \
    "$kernbench" probe --load --case pe-sram --transfers 300
check "load of all cases" outcome 0 '*h2d-near under load*pe-remote-sip-write under load*' '' \
    "$kernbench" probe --load --transfers 100

# 5 + 2 + 76 ns in nodes, 0.04 ns in wires, 4096 bytes at 204.8 GB/s: see test_probe.c.
check "a figure" figure_is 103.04 pe-local-hbm-write total_ns
check "--bytes" figure_is 123.04 pe-local-hbm-write total_ns --bytes 8KiB
check "--set: efficiency" figure_is 99.04 pe-local-hbm-write total_ns --set cube.hbm_ctrl.efficiency=1
# With UCIe the narrowest place, its bandwidth is the bottleneck's.
check "--set: narrow UCIe" figure_is 32 pe-remote-cube-near bottleneck_gbs --set sip.ucie.bw_gbs=32
check "--set: twice that" figure_is 64 pe-remote-cube-near bottleneck_gbs --set sip.ucie.bw_gbs=64
# 4096 bytes take 128 ns at 32 GB/s and 64 ns at 64 GB/s; the request of 16 bytes 0.5 and 0.25 ns.
check "--set: narrow UCIe takes time" figure_is 128.5 pe-remote-cube-near drain_ns \
    --set sip.ucie.bw_gbs=32
check "--set: twice that halves it" figure_is 64.25 pe-remote-cube-near drain_ns \
    --set sip.ucie.bw_gbs=64
loaded() { "$kernbench" probe --load --case pe-sram --transfers 200 --json --seed "$1"; }
differs() { [ "$(loaded "$1")" != "$(loaded "$2")" ]; }
agrees() { [ "$(loaded "$1")" = "$(loaded "$1")" ]; }
check "the seed matters" differs 1 2
check "the same twice" agrees 1

check "mistyped case" outcome 2 '' "kernbench: unknown case 'pe-srm'; did you mean 'pe-sram'?" \
    "$kernbench" probe --case pe-srm
check "unknown case" outcome 2 '' "kernbench: unknown case 'nonsense'; see kernbench probe --list" \
    "$kernbench" probe --case nonsense
check "a case by some of its words" outcome 2 '' \
    "kernbench: unknown case 'pe-far': matching cases are pe-remote-cube-far, pe-remote-cube-far-write" \
    "$kernbench" probe --case pe-far
check "--seed without --load" outcome 2 '' 'kernbench: --seed needs --load' \
    "$kernbench" probe --seed 0
check "--transfers without --load" outcome 2 '' 'kernbench: --transfers needs --load' \
    "$kernbench" probe --transfers 100 --case pe-sram
check "a case that the machine has not" \
    outcome 2 '' "kernbench: case pe-remote-sip is not available on machine 'mesh-reference': it has one SIP" \
    "$kernbench" probe --topology mesh-reference --case pe-remote-sip
check "mistyped option" outcome 2 '' "kernbench: unknown option '--byts'; did you mean '--bytes'?" \
    "$kernbench" probe --byts 1
check "no value" outcome 2 '' 'kernbench: --bytes needs a value: --bytes N' "$kernbench" probe --bytes
check "a bad value" outcome 2 '' \
    "kernbench: --bytes: expected a number of bytes, such as 4096 or 4KiB, from 1 to 1073741824 (1GiB), found '0'*" \
    "$kernbench" probe --bytes 0
check "a value for a flag" outcome 2 '' 'kernbench: --json takes no value' "$kernbench" probe --json=1
check "a word" outcome 2 '' "kernbench: too many arguments: 'x'; see kernbench probe --help" \
    "$kernbench" probe x
check "no such machine" outcome 2 '' "kernbench: no such file or built-in machine: 'nowhere.yaml': expected default or mesh-reference" \
    "$kernbench" probe --topology nowhere.yaml
check "a setting without effect" outcome 0 '*' 'kernbench: warning: --set system.sips.count=2 *' \
    "$kernbench" probe --case pe-sram --set system.sips.count=2
check "a setting without effect, quietly" outcome 0 '*' '' \
    "$kernbench" probe --quiet --case pe-sram --set system.sips.count=2
check "help" outcome 0 'usage: kernbench probe*--case NAME*--topology FILE*--json*Example:*' '' \
    "$kernbench" probe --help
check "stdout is full" outcome 71 '' 'kernbench: cannot write the output: *' \
    to_full "$kernbench" probe --json

# Colours are for terminals: script(1) provides one.
if command -v script >/dev/null; then
    on_terminal() {
        script -qec "$*" /dev/null </dev/null >"$scratch/out" 2>&1
    }
    colours() { on_terminal "$@" && grep -q "$(printf '\033')\[1m" "$scratch/out"; }
    no_colours() { on_terminal "$@" && no_escapes; }
    TERM=xterm && export TERM
    check "colours on a terminal" colours "$kernbench" probe --list
    check "NO_COLOR" no_colours env NO_COLOR=1 "$kernbench" probe --list
    check "no colours in JSON" no_colours "$kernbench" probe --list --json
fi

finish
