#!/bin/sh
# demo.sh BUILD: the demo verifies what it computes with data, times a step of Llama 70B, and ends
# with the exit code of what went wrong.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"

demo=$here/../../tools/demo
check "verifies two runs and times a third" outcome 0 \
    '*Verification: passed*Verification: passed*8 of 80 layers were run: a layer takes * ms' '' \
    "$demo" "$1"

printf '#!/bin/sh\necho "no result"\nexit 3\n' >"$scratch/kernbench"
chmod +x "$scratch/kernbench"
check "ends with the exit code of a run" outcome 3 '1. Attention*' '' "$demo" "$scratch"
finish
