#!/bin/sh
# kb.sh: the kb script on an invented machine. PATH holds some plain tools and fakes of apt-get,
# cmake, ninja and so on, which note how they were called, so that this is quick and harmless.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"

tree=$scratch/tree
bin=$scratch/bin
log=$scratch/log
mkdir "$tree" "$bin" "$tree/tools"
cp "$here/../../kb" "$tree/kb"
printf '#!/bin/sh\necho "docs are made"\n' >"$tree/tools/docs"
cat >"$tree/tools/train" <<'EOF'
#!/bin/sh
echo "training with $1" >>"$FAKE/log"
exit "${FAKE_TRAIN-0}"
EOF
chmod +x "$tree/tools/docs" "$tree/tools/train"

for tool in sh cat dirname readlink mkdir rm touch grep env flock sleep find; do
    ln -s "$(command -v $tool)" "$bin/$tool"
done

# fake NAME: a tool whose script comes on stdin; it lies in $scratch/fakes.
fake() {
    mkdir -p "$scratch/fakes"
    { echo '#!/bin/sh' && cat; } >"$scratch/fakes/$1"
    chmod +x "$scratch/fakes/$1"
}
fake id <<'EOF'
echo "${FAKE_UID-0}"
EOF
fake cc <<'EOF'
test -e "$FAKE/libc6-dev"
EOF
fake pkg-config <<'EOF'
test -e "$FAKE/$2" || test -e "$FAKE/lib$2"
EOF
fake cmake <<'EOF'
echo "cmake $*" >>"$FAKE/log"
echo "noise of cmake"
[ "$1" != --install ] || exit 0
build=build
case "$*" in *'--preset pgo'*) build=build-pgo ;; esac
touch "$build/build.ninja"
echo "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" >"$build/CMakeCache.txt"
case "$*" in *-DKB_PYTHON=ON*) echo "KB_PYTHON:BOOL=ON" >>"$build/CMakeCache.txt" ;; esac
case "$*" in *-DKB_MPI=ON*) echo "KB_MPI:BOOL=ON" >>"$build/CMakeCache.txt" ;; esac
EOF
fake ninja <<'EOF'
build=$2
case "$*" in
*-n*) test -e "$build/kernbench" && echo "ninja: no work to do."; exit 0 ;;
esac
echo "ninja begins" >>"$FAKE/log"
echo "noise of ninja"
sleep 0.2
cat >"$build/kernbench" <<'END'
#!/bin/sh
echo "here: $PWD; arguments:$(printf ' [%s]' "$@")"
exit "${FAKE_STATUS-0}"
END
"$FAKE/chmod" +x "$build/kernbench"
echo "ninja ends" >>"$FAKE/log"
exit "${FAKE_NINJA-0}"
EOF
fake apt-get <<'EOF'
echo "apt-get $1" >>"$FAKE/log"
echo "noise of apt-get"
[ "$1" = install ] || exit "${FAKE_APT-0}"
while [ $# -gt 0 ]; do
    case $1 in
    ninja-build) package=ninja ;;
    libyaml-dev) package=yaml-0.1 ;;
    libjansson-dev) package=jansson ;;
    libopenblas-pthread-dev) package=openblas ;;
    libsqlite3-dev) package=libsqlite3 ;;
    zlib1g-dev) package=zlib ;;
    libopenmpi-dev) package=ompi-c ;;
    openmpi-bin) package=mpirun ;;
    install | -* | DPkg*) shift; continue ;;
    *) package=$1 ;;
    esac
    echo "  $1" >>"$FAKE/log"
    case $package in
    yaml-0.1 | jansson | openblas | libsqlite3 | zlib | ompi-c | libc6-dev) touch "$FAKE/$package" ;;
    *) "$FAKE/ln" -sf "$FAKE/fakes/$package" "$FAKE/bin/$package" ;;
    esac
    shift
done
EOF
fake doxygen </dev/null
fake sqlite3 </dev/null
fake mpirun </dev/null
fake python3 <<'EOF'
echo "python3 $*"
EOF
fake sudo <<'EOF'
echo "sudo" >>"$FAKE/log"
exec "$@"
EOF
ln -s "$(command -v chmod)" "$scratch/chmod"
ln -s "$(command -v ln)" "$scratch/ln"

# machine [TOOL...]: a fresh clone on a machine with these fakes; libraries among them.
machine() {
    rm -rf "$tree/build" "$tree/build-pgo" "$log"
    rm -f "$scratch/libc6-dev" "$scratch/yaml-0.1" "$scratch/jansson" "$scratch/openblas" \
        "$scratch/libsqlite3" "$scratch/zlib" "$scratch/ompi-c"
    for tool in "$scratch"/fakes/*; do
        rm -f "$bin/$(basename "$tool")"
    done
    for tool in id "$@"; do
        case $tool in
        lib* | yaml-0.1 | jansson | openblas | zlib) touch "$scratch/$tool" ;;
        *) ln -s "$scratch/fakes/$tool" "$bin/$tool" ;;
        esac
    done
    touch "$log"
}
all="cc libc6-dev cmake ninja pkg-config yaml-0.1 jansson openblas libsqlite3 zlib"

kb() { PATH="$bin" FAKE="$scratch" "$tree/kb" "$@"; }
kb_as_user() { FAKE_UID=1000 kb "$@"; }
kb_by_link() { ln -sf "$tree/kb" "$scratch/link" && PATH="$bin" FAKE="$scratch" "$scratch/link" "$@"; }
logged() { printf '%s\n' "$@" | diff - "$log"; }
not_logged() { ! grep "$1" "$log"; }

machine
# The commands that the script names are those that it knows: each is a label of its case.
knows_what_it_names() {
    kb help | sed -n '/^The source tree/,/^$/s|^  ./kb \([a-z-]*\).*|\1|p' >"$scratch/named"
    [ -s "$scratch/named" ] || return 1
    while read -r name; do
        grep -q "^$name)" "$tree/kb" || complain "help names '$name'" || return 1
    done <"$scratch/named"
}
check "help names what there is" knows_what_it_names
check "help needs nothing" outcome 0 'usage: ./kb *probe *topo *traffic *validate *test *docs *' '' kb help
check "--help" outcome 0 'usage: ./kb *' '' kb --help
check "no arguments" outcome 2 '' 'usage: ./kb *' kb
check "empty command" outcome 2 '' 'kb: missing command; see ./kb help' kb ''
check "install without a prefix" outcome 2 '' 'kb: usage: ./kb install PREFIX' kb install
check "ci takes no arguments" outcome 2 '' 'kb: usage: ./kb ci' kb ci x
check "docs takes no arguments" outcome 2 '' 'kb: usage: ./kb docs' kb docs x

# shellcheck disable=SC2086 # lists of words
machine $all apt-get
check "all there: builds and runs" outcome 0 "here: *; arguments: \\[probe] \\[a  b] \\[]" '*noise*' \
    kb probe 'a  b' ''
check "all there: apt-get is left alone" \
    logged "cmake --fresh --preset release -DKB_TESTS=OFF" "ninja begins" "ninja ends"
check "again: silence" outcome 0 'here: *' '' kb probe
check "build: prints where the program is" outcome 0 "$tree/build/kernbench" '' kb build
check "build takes no other arguments" outcome 2 '' 'kb: usage: ./kb build \[--pgo]' kb build x
check "build --pgo takes no arguments" outcome 2 '' 'kb: usage: ./kb build \[--pgo]' kb build --pgo x
check "build: an empty argument" outcome 2 '' 'kb: usage: ./kb build \[--pgo]' kb build ''
check "the caller's directory" outcome 0 "here: $PWD; *" '' kb probe
check "through a link" outcome 0 'here: *' '' kb_by_link probe
FAKE_STATUS=3 && export FAKE_STATUS
check "the status of the program" outcome 3 'here: *' '' kb probe
unset FAKE_STATUS
check "help of a command is the program's" outcome 0 '*\[help] \[probe]*' '' kb help probe
check "installs under a relative prefix" outcome 0 '' '*noise of cmake*' kb install some/where
check "the prefix is the caller's" grep -qx "cmake --install $tree/build --prefix $PWD/some/where" "$log"
echo "CMAKE_HOME_DIRECTORY:INTERNAL=/elsewhere" >"$tree/build/CMakeCache.txt"
check "a tree that moved is set up anew" outcome 0 'here: *' '*noise of cmake*' kb probe

# shellcheck disable=SC2086
machine $all
FAKE_NINJA=1 && export FAKE_NINJA
check "a failed build runs nothing" outcome 70 '' '*kb: the build failed*' kb probe
unset FAKE_NINJA

machine cc libc6-dev cmake pkg-config jansson openblas libsqlite3 zlib apt-get
check "two are missing: runs, noise on stderr" \
    outcome 0 'here: *' 'kb: installing ninja-build libyaml-dev*noise of apt-get*' kb probe
check "two are missing: just those are installed" logged \
    "apt-get update" "apt-get install" "  ninja-build" "  libyaml-dev" \
    "cmake --fresh --preset release -DKB_TESTS=OFF" "ninja begins" "ninja ends"

machine cc libc6-dev cmake ninja pkg-config jansson openblas libsqlite3 zlib
check "no apt-get: says what to install" \
    outcome 2 '' "kb: please install (Debian's names): libyaml-dev" kb probe
machine cc libc6-dev cmake ninja pkg-config jansson openblas libsqlite3 zlib apt-get
check "not root, no sudo: says what to do" \
    outcome 2 '' 'kb: please run as root: apt-get install libyaml-dev' kb_as_user probe
check "not root, no sudo: did not try" not_logged apt-get
machine cc libc6-dev cmake ninja pkg-config jansson openblas libsqlite3 zlib apt-get sudo
check "not root: through sudo" outcome 0 'here: *' '*installing libyaml-dev*' kb_as_user probe
check "sudo was asked" grep -qx sudo "$log"
machine cc libc6-dev cmake ninja pkg-config jansson openblas libsqlite3 zlib apt-get
FAKE_APT=100 && export FAKE_APT
check "apt-get fails" outcome 2 '' '*kb: apt-get could not install: libyaml-dev' kb probe
unset FAKE_APT

machine apt-get
check "docs: needs Doxygen alone" outcome 0 'docs are made' '*installing doxygen*' kb docs
check "docs: builds nothing" logged "apt-get update" "apt-get install" "  doxygen"
check "docs: again, in silence" outcome 0 'docs are made' '' kb docs

# shellcheck disable=SC2086
machine $all apt-get
check "update-docs: needs Python" outcome 0 "python3 $tree/tools/check-docs $tree/build --update" \
    '*installing python3*' kb update-docs
check "update-docs: takes no arguments" outcome 2 '' 'kb: usage: ./kb update-docs' kb update-docs README.md

# shellcheck disable=SC2086
machine $all
check "build --pgo: prints where the program is" outcome 0 "$tree/build-pgo/kernbench" '*noise*' \
    kb build --pgo
check "build --pgo: builds, trains, builds again" logged "cmake --fresh --preset pgo -DKB_PGO=generate" \
    "ninja begins" "ninja ends" "training with $tree/build-pgo/kernbench" \
    "cmake --preset pgo -DKB_PGO=use"
check "build --pgo: again, in silence" outcome 0 "$tree/build-pgo/kernbench" '' kb build --pgo
check "build --pgo: leaves the other build alone" test ! -e "$tree/build"
rm "$tree/build-pgo/trained"
FAKE_TRAIN=1 && export FAKE_TRAIN
check "build --pgo: a training that fails" outcome 70 '' '*kb: the training failed' kb build --pgo
unset FAKE_TRAIN
check "build --pgo: trains again" outcome 0 "$tree/build-pgo/kernbench" '*kb: training*' kb build --pgo

# shellcheck disable=SC2086
machine $all
unset PYTHONPATH
environment='import os; print(os.environ["PYTHONPATH"], os.environ["KB_PYTHON_BUILD"], os.getcwd())'
check "python: finds the package, in the caller's directory" \
    outcome 0 "$tree/python $tree/build/python $PWD" '*noise*' kb python -c "$environment"
check "python: has it built" logged "cmake --fresh --preset release -DKB_TESTS=OFF -DKB_PYTHON=ON" \
    "ninja begins" "ninja ends"
check "python: the caller's PYTHONPATH is behind it" \
    outcome 0 "$tree/python:/mine *" '' env PYTHONPATH=/mine PATH="$bin" FAKE="$scratch" \
    "$tree/kb" python -c "$environment"
# shellcheck disable=SC2086
machine $all
check "a bench in Python has the package built" outcome 0 'here: *' '*' kb run --bench ./mine.py
check "a bench in Python: set up for that" \
    grep -qx "cmake --fresh --preset release -DKB_TESTS=OFF -DKB_PYTHON=ON" "$log"

# shellcheck disable=SC2086
machine $all apt-get
sweep_over_mpi() { OMPI_COMM_WORLD_SIZE=4 kb sweep plan.yaml; }
check "a sweep that mpirun starts" outcome 0 'here: *sweep*plan.yaml*' \
    '*installing libopenmpi-dev openmpi-bin*' sweep_over_mpi
check "a sweep over MPI: set up for that" \
    grep -qx "cmake --fresh --preset release -DKB_TESTS=OFF -DKB_MPI=ON" "$log"
check "another sweep needs nothing more" outcome 0 'here: *' '' kb sweep plan.yaml

# A lock that another process holds, and then two at once.
lock_waits() {
    mkdir -p "$tree/build"
    flock "$tree/build/.kb-lock" sleep 1 &
    sleep 0.3
    outcome 0 'here: *' 'kb: waiting for another kb*noise*' kb probe
    wait
}
two_at_once() {
    kb probe >/dev/null 2>&1 &
    kb probe >/dev/null 2>&1 || return 1
    wait $! || return 1
    [ "$(grep -c ninja "$log")" -eq 2 ] || { cat "$log" && return 1; }
}
# shellcheck disable=SC2086
machine $all
check "waits for the lock" lock_waits
# shellcheck disable=SC2086
machine $all
check "two at once build once" two_at_once

finish
