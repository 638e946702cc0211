# shellcheck shell=sh
# check.sh: read by the shell tests. It reports in cmocka's words, so that cases are counted one by
# one (see tools/run-tests).
#
#   check "says its version" outcome 0 'kernbench *' '' "$kernbench" --version
#   finish

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
checks_passed=0
checks_failed=0

# check NAME COMMAND...: a case; it passes if the command succeeds.
check() {
    check_name=$1
    shift
    printf '[ RUN      ] %s\n' "$check_name"
    if "$@"; then
        printf '[       OK ] %s\n' "$check_name"
        checks_passed=$((checks_passed + 1))
    else
        printf '[  FAILED  ] %s\n' "$check_name"
        checks_failed=$((checks_failed + 1))
    fi
}

# outcome STATUS OUT ERR COMMAND...: the command ends with that status, and what it writes to
# stdout and stderr matches the patterns OUT and ERR. They stay in $scratch/out and $scratch/err.
outcome() {
    want_status=$1 want_out=$2 want_err=$3
    shift 3
    status=0
    "$@" </dev/null >"$scratch/out" 2>"$scratch/err" || status=$?
    [ "$status" -eq "$want_status" ] || complain "status $status, not $want_status" || return 1
    like "$want_out" "$scratch/out" || complain "stdout is not: $want_out" || return 1
    like "$want_err" "$scratch/err" || complain "stderr is not: $want_err" || return 1
}

like() {
    # shellcheck disable=SC2254 # a pattern is wanted
    case $(tr -d '\000' <"$2") in
    $1) return 0 ;;
    esac
    return 1
}

complain() {
    echo "$1"
    sed 's/^/  stdout: /' "$scratch/out" | cat -v | head -20
    sed 's/^/  stderr: /' "$scratch/err" | cat -v | head -20
    return 1
}

finish() {
    printf '[  PASSED  ] %d test(s).\n' "$checks_passed"
    [ "$checks_failed" -eq 0 ] || printf '[  FAILED  ] %d test(s).\n' "$checks_failed"
    [ "$checks_failed" -eq 0 ] && [ "$checks_passed" -gt 0 ]
}
