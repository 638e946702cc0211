#!/bin/sh
# install.sh BUILD: installs into an empty prefix and builds programs outside the tree with nothing
# but what pkg-config says: first_program.c, the examples, and those in the comments of the public
# headers.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
build=$1
cc=${CC:-cc}

prefix=$scratch/prefix
mkdir "$scratch/elsewhere"
cp "$here/first_program.c" "$scratch/elsewhere/first_program.c"
cp "$here/first_program.c" "$scratch/elsewhere/first_program.cc"
cd "$scratch/elsewhere"

# Where things lie under the prefix is the system's custom: lib, lib64, lib/x86_64-linux-gnu.
find_prefix() {
    PKG_CONFIG_PATH=$(dirname -- "$(find "$prefix" -name kernbench.pc)")
    export PKG_CONFIG_PATH
    LD_LIBRARY_PATH=$(dirname -- "$PKG_CONFIG_PATH")
    export LD_LIBRARY_PATH
}

# shellcheck disable=SC2046 # pkg-config prints a list of words
compile() { # PROGRAM COMPILER...
    program=$1
    shift
    "$@" -Wall -Wextra -Wpedantic -Werror -o "$program" \
        $(pkg-config --cflags kernbench) $(pkg-config $static --libs kernbench)
}

needs_library() { readelf -d "$1" | grep -q 'NEEDED.*libkernbench\.so\.0'; }
self_contained() { ! needs_library "$1"; }

exports_only_ours() {
    nm -D --defined-only "$LD_LIBRARY_PATH/libkernbench.so" | awk '{ print $3 }' >"$scratch/symbols"
    ! grep -vE '^(kb|tl)_' "$scratch/symbols" && grep -qx kb_version "$scratch/symbols"
}

# The program exports the same calls to benches that it loads, beside what the linker adds.
# And the calls of the C library that exits.c replaces.
program_exports_the_same() {
    sed -nE 's/^EXPORTED [a-z]+ ([a-z]\w*)\(.*/\1/p' "$here/../../src/cli/exit_hooks.c" |
        LC_ALL=C sort - "$scratch/symbols" >"$scratch/of_program"
    nm -D --defined-only "$prefix/bin/kernbench" | awk '{ print $3 }' |
        grep -vE '@|^_|^data_start$' | LC_ALL=C sort >"$scratch/exported"
    diff "$scratch/of_program" "$scratch/exported"
}

# A bench that compiles with the headers of the prefix alone, which get a mark.
uses_installed_headers() {
    echo '#define INSTALLED_HEADERS' >>"$prefix/include/kernbench/tl.h"
    rm -f mine.c
    "$prefix/bin/kernbench" new bench mine >/dev/null || return 1
    printf '#ifndef INSTALLED_HEADERS\n#error other headers\n#endif\n' >>mine.c
    outcome 0 '*Verification: passed*' '' "$prefix/bin/kernbench" run --bench ./mine.c --verify-data --param n=1000
}

# The package for Python, if the build has it. The program finds it where it is installed.
has_python() { [ -n "$(find "$prefix" -name '_core.*.so')" ]; }
runs_python_bench() {
    rm -f mine.py
    "$prefix/bin/kernbench" new bench mine --python >/dev/null || return 1
    cat >>mine.py <<'END'


print("package:", __import__("kernbench").__file__)
END
    outcome 0 "package: $prefix/*are right*" '' env -u KB_PYTHON_BUILD -u PYTHONPATH \
        "$prefix/bin/kernbench" run --bench ./mine.py --verify-data
}

same_headers() {
    (cd "$here/../../include/kernbench" && find . -type f | LC_ALL=C sort) >"$scratch/want"
    (cd "$prefix/include/kernbench" && find . -type f | LC_ALL=C sort) >"$scratch/got"
    diff "$scratch/want" "$scratch/got"
}

# promise EXAMPLE: what its first comment says it prints.
promise() {
    awk '/^ \*\// { exit } after && /^ \*     / { sub(/^ \*     /, ""); print } /[Pp]rints:$/ { after = 1 }' "$1"
}

keeps_promise() { # PROGRAM
    promise "$examples/$1.c" >"$scratch/want"
    [ -s "$scratch/want" ] || { echo "$1.c does not say what it prints" && return 1; }
    outcome 0 '*' '' "./$1" && diff "$scratch/want" "$scratch/out"
}

# programs HEADER: writes each comment's code that has a main() to HEADER-N.c, counting from 1.
programs() {
    awk -v stem="$(basename "$1" .h)" '
        function end() {
            if (code ~ /int main\(void\)/) {
                if (code !~ /#include/)
                    code = "#include <inttypes.h>\n#include <kernbench/kernbench.h>\n#include <stdio.h>\n" code
                printf "%s", code >(stem "-" ++count ".c")
            }
            code = ""
        }
        /^ \*\// { end() }
        /^ \*(     .*)?$/ { line = $0; sub(/^ \*(     )?/, "", line); code = code line "\n" }' "$1"
}

check "installs" outcome 0 '*' '' cmake --install "$build" --prefix "$prefix"
find_prefix
version=$(pkg-config --modversion kernbench)
static=

check "the program says its version" \
    outcome 0 "kernbench $version" '' "$prefix/bin/kernbench" --version
check "the program needs no library of ours" self_contained "$prefix/bin/kernbench"
check "all public headers, nothing else" same_headers
check "the licence is there" test -s "$prefix/share/doc/kernbench/LICENSE"
check "the machines are there" test -s "$prefix/share/kernbench/machines/default.yaml"
check "the shared library exports kb_ and tl_ alone" exports_only_ours
check "so does the program, and what ends a process" program_exports_the_same
check "a bench is compiled with the installed headers" uses_installed_headers

if has_python; then
    check "a bench in Python runs with the installed package" runs_python_bench
fi

check "C11, shared: compiles" compile hello "$cc" -std=c11 first_program.c
check "C11, shared: uses the library" needs_library hello
check "C11, shared: runs" outcome 0 "hello from kernbench $version: closed at 9 ns" '' ./hello

if command -v c++ >/dev/null; then
    check "C++, shared: compiles" compile hello-cc c++ -std=c++11 first_program.cc
    check "C++, shared: runs" outcome 0 "hello from kernbench $version: closed at 9 ns" '' ./hello-cc
fi

examples=$here/../../examples
for source in "$examples"/*.c; do
    example=$(basename "$source" .c)
    cp "$source" .
    check "example $example: compiles" compile "$example" "$cc" -std=c11 "$example.c"
    check "example $example: prints what it says" keeps_promise "$example"
done

programs "$prefix/include/kernbench/kernbench.h"
check "kernbench.h: there and back compiles" compile there "$cc" -std=c11 kernbench-1.c
check "kernbench.h: there and back runs" \
    outcome 0 '6 came back after [1-9]*.[0-9][0-9][0-9] ns' '' ./there
check "kernbench.h: no other program" test ! -e kernbench-2.c
programs "$prefix/include/kernbench/sim.h"
check "sim.h: the clerk compiles" compile clerk "$cc" -std=c11 sim-1.c
check "sim.h: the clerk runs" outcome 0 'closed at 9000000 fs' '' ./clerk
check "sim.h: no other program" test ! -e sim-2.c

# Moved elsewhere, and with the static library alone.
mv "$prefix" "$scratch/moved"
prefix=$scratch/moved
find_prefix
rm "$LD_LIBRARY_PATH"/libkernbench.so*
static=--static
check "moved: a bench is compiled with its headers" uses_installed_headers
if has_python; then
    check "moved: a bench in Python" runs_python_bench
fi
check "C11, static, moved: compiles" compile hello-static "$cc" -std=c11 first_program.c
check "C11, static, moved: self-contained" self_contained hello-static
check "C11, static, moved: runs" outcome 0 "hello from kernbench $version: closed at 9 ns" '' ./hello-static

finish
