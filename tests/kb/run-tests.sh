#!/bin/sh
# run-tests.sh: tools/run-tests counts single cases, and takes no silence for success.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"

# test_named NAME COMMAND: a ctest test without any build.
test_named() { printf 'add_test([=[%s]=] sh -c [=[%s]=])\n' "$1" "$2" >>"$scratch/CTestTestfile.cmake"; }
test_named plain 'echo fine'
test_named plain-bad 'false'
test_named cases 'printf "[  PASSED  ] %d test(s).\n" 12 3'
test_named cases-bad 'printf "[  PASSED  ] 5 test(s).\n[  FAILED  ] 2 test(s), listed below:\n"; exit 2'
test_named died 'printf "[       OK ] a\n[       OK ] b\n[ RUN      ] c\n"; kill -SEGV $$'
test_named chatty 'head -c 200000 /dev/zero | tr "\0" x; printf "\n[  PASSED  ] 4 test(s).\n"'
test_named skipped 'exit 77'
cat >>"$scratch/CTestTestfile.cmake" <<'EOF'
set_tests_properties(skipped PROPERTIES SKIP_RETURN_CODE 77)
add_test(absent /no/such/program)
EOF

# counts STATUS "N passed, M failed" PATTERN: of the tests whose names match.
counts() {
    status=0
    "$here/../../tools/run-tests" "$scratch" -R "$3" >"$scratch/out" 2>"$scratch/err" || status=$?
    [ "$status" -eq "$1" ] || complain "status $status" || return 1
    [ "$(tail -n 1 "$scratch/out")" = "$2" ] || complain "not: $2"
}

check "a plain test is one" counts 0 "1 passed, 0 failed" '^plain$'
check "a plain failure is one" counts 1 "0 passed, 1 failed" '^plain-bad$'
check "cases are counted" counts 0 "15 passed, 0 failed" '^cases$'
check "failed cases are counted" counts 1 "5 passed, 2 failed" '^cases-bad$'
check "a crash keeps what passed" counts 1 "2 passed, 1 failed" '^died$'
check "long output" counts 0 "4 passed, 0 failed" '^chatty$'
check "a skipped test is none" counts 1 "0 passed, 0 failed" '^skipped$'
check "a missing program is a failure" counts 1 "0 passed, 1 failed" '^absent$'
check "no test at all is a failure" counts 1 "0 passed, 0 failed" '^nothing$'
check "all of them" counts 1 "27 passed, 5 failed" .

finish
