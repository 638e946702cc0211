#!/bin/sh
# cli.sh BUILD: the program as a user meets it: exit status, which stream says what, odd arguments.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
kernbench=$1/kernbench

to_full() { "$@" >/dev/full; }
to_closed() { "$@" >&-; }
in_root() { (cd / && "$@"); }

check "no arguments: usage on stderr" outcome 2 '' 'usage: kernbench *' "$kernbench"
for help in --help -h help; do
    check "$help: on stdout" outcome 0 'usage: kernbench *Commands:*Exit status:*' '' "$kernbench" $help
done
for version in --version version; do
    check "$version" outcome 0 'kernbench [0-9]*.[0-9]*.[0-9]*' '' "$kernbench" $version
done
for help in 'help version' 'version --help' 'version -h' 'version x --help'; do
    # shellcheck disable=SC2086 # words
    check "$help" outcome 0 'usage: kernbench version*Example: kernbench version*' '' \
        "$kernbench" $help
done

# ./kb help, the list of kernbench --help and the table of commands are the same.
listed() { "$kernbench" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | sort; }
listed_by_kb() {
    "$here/../../kb" help | sed -n '/^The simulator/,/^$/s|^  ./kb \([a-z]*\).*|\1|p' | sort
}
in_table() {
    sed -n '/^const cli_command \*const cli_commands/,/^};/p' "$here/../../src/cli/commands.c" |
        grep -o 'cli_[a-z]*_command' | sed 's/cli_\(.*\)_command/\1/' | sort
}
same_commands() {
    listed >"$scratch/listed" && "$1" >"$scratch/others" || return 1
    [ -s "$scratch/listed" ] && diff "$scratch/listed" "$scratch/others"
}
check "help lists all commands" same_commands in_table
check "./kb help lists the same" same_commands listed_by_kb

check "unknown command" \
    outcome 2 '' "kernbench: unknown command 'frobnicate'; see kernbench --help" "$kernbench" frobnicate
check "mistyped command" \
    outcome 2 '' "kernbench: unknown command 'vesion'; did you mean 'version'?" "$kernbench" vesion
check "mistyped option" \
    outcome 2 '' "kernbench: unknown option '--versoin': expected --help or --version; did you mean '--version'?" \
    "$kernbench" --versoin
check "unknown option" \
    outcome 2 '' "kernbench: unknown option '--frobnicate': expected --help or --version" \
    "$kernbench" --frobnicate
check "mistyped option of a command" \
    outcome 2 '' "kernbench: unknown option '--hepl': expected --help; did you mean '--help'?" \
    "$kernbench" version --hepl
check "mistyped command after help" \
    outcome 2 '' "kernbench: unknown command 'verion'; did you mean 'version'?" \
    "$kernbench" help verion
check "argument too many" \
    outcome 2 '' "kernbench: too many arguments: 'x'; see kernbench version --help" \
    "$kernbench" version x
check "argument too many after help" \
    outcome 2 '' "kernbench: too many arguments: 'x'; see kernbench help --help" \
    "$kernbench" help version x

for command in --help --version version; do
    check "$command: stdout is full" \
        outcome 71 '' 'kernbench: cannot write the output: No space left on device' \
        to_full "$kernbench" $command
    check "$command: stdout is closed" \
        outcome 71 '' 'kernbench: cannot write the output: Bad file descriptor' \
        to_closed "$kernbench" $command
done
check "stdout is full, but nothing goes there" outcome 2 '' 'kernbench: unknown command*' \
    to_full "$kernbench" nonsense
check "from another directory" outcome 0 'kernbench *' '' in_root "$kernbench" --version

# refused ARGUMENT...: one line of plain UTF-8 on stderr, nothing on stdout, status 2.
refused() {
    outcome 2 '' 'kernbench: *' "$kernbench" "$@" || return 1
    [ "$(wc -l <"$scratch/err")" -eq 1 ] || complain "not one line" || return 1
    [ "$(wc -c <"$scratch/err")" -le 600 ] || complain "a very long line" || return 1
    LC_ALL=C tr -d '\n' <"$scratch/err" | LC_ALL=C grep -q '[[:cntrl:]]' &&
        { complain "control characters" || return 1; }
    iconv -f UTF-8 -t UTF-8 <"$scratch/err" >/dev/null || complain "not UTF-8" || return 1
}

# The same word as a command, an option and an argument too many.
refused_anywhere() {
    refused "$1" && refused "--$1" && refused version "$1" && refused version "--x$1" &&
        refused help "$1" && refused help version "$1"
}

# shellcheck disable=SC2059 # the formats are the cases
word() { printf "$@"; }

check "odd: empty" refused ''
check "odd: empty after a command" refused version ''
check "odd: dash" refused -
check "odd: two dashes" refused --
check "odd: spaces" refused_anywhere '   '
check "odd: format" refused_anywhere '%s%n%1000000d'
check "odd: quotes" refused_anywhere "'\"\`\$(id)\\"
check "odd: newline inside" refused_anywhere "$(word 'a\nkernbench: b')"
check "odd: escape sequence" refused_anywhere "$(word '\033[31mred\033[0m\007')"
check "odd: carriage return, backspace" refused_anywhere "$(word 'ab\r\bc')"
check "odd: C1 control" refused_anywhere "$(word '\302\233m')"
check "odd: not UTF-8" refused_anywhere "$(word '\377\376 \300\200 \355\240\200')"
check "odd: truncated UTF-8" refused_anywhere "$(word 'caf\303')"
check "odd: UTF-8" refused_anywhere "$(word 'caf\303\251 \360\237\230\200')"
check "odd: long" refused_anywhere "$(head -c 100000 /dev/zero | tr '\0' x)"
check "odd: long control characters" refused_anywhere "$(head -c 5000 /dev/zero | tr '\0' '\001')"
check "odd: long continuation bytes" refused_anywhere "$(head -c 5000 /dev/zero | tr '\0' '\200')"

every_byte() {
    byte=1
    while [ $byte -lt 256 ]; do
        refused "v$(word "\\$(printf %03o $byte)").x" || { echo "byte $byte" && return 1; }
        byte=$((byte + 1))
    done
}
check "odd: every byte" every_byte

finish
