#!/bin/sh
# kernels.sh BUILD: kernels of users: what is said of mistakes that the compiler finds, and of data
# that a run does not have.
set -eu
here=$(cd "$(dirname -- "$0")" && pwd)
kernbench=$(cd "$1" && pwd)/kernbench
# shellcheck source=tests/check.sh
. "$here/../check.sh"
cd "$scratch"

# ---- Mistakes --------------------------------------------------------------------------------

cat >right.c <<'END'
#include <kernbench/tl.h>

KB_KERNEL(scale, tl_ptr x, int n)
{
    tl_tensor v = tl_load(x, tl_shape(n, n), TL_F32);
    tl_tensor w = tl_mul(v, 2);
    tl_tensor y = tl_dot(v, w, .out_f32 = true);
    tl_store(x, tl_add(y, w));
    tl_tensor z = tl_exp(y);
    tl_store(x, tl_sum(z, 1));
}

static const kb_policy one_pe = {.num_cubes = 1, .num_pes = 1};

static kb_error *run(kb_bench *bench)
{
    kb_tensor x;
    kb_context *ctx = kb_bench_context(bench);
    KB_TRY(kb_zeros(ctx, &(kb_tensor_spec){.name = "x", .dtype = KB_F32, .shape = KB_SHAPE(64, 64), .policy = &one_pe}, &x));
    return kb_launch(ctx, "scale", &scale, x, 4);
}

static const kb_bench_spec bench = {.name = "right", .summary = "for tests", .run = run};
KB_EXPORT_BENCHES(&bench);
END

# first_error LINE TEXT CC SED...: the file, changed by sed, does not compile, and the first error is
# at that line and has that text. Not much more is said.
first_error() {
    want_line=$1 want_text=$2 compiler=$3
    shift 3
    sed "$@" right.c >wrong.c
    status=0
    CC=$compiler "$kernbench" run --bench ./wrong.c >out 2>err </dev/null || status=$?
    [ "$status" -eq 2 ] || { echo "status $status"; cat err; return 1; }
    error=$(grep -m 1 'error:' err)
    # shellcheck disable=SC2254 # a pattern is wanted
    case $error in
    ./wrong.c:"$want_line":*$want_text*) ;;
    *) cat err; return 1 ;;
    esac
    grep -q '^kernbench: .*wrong.c' err || { cat err; return 1; }
    [ "$(wc -l <err)" -le 16 ] || { wc -l err; cat err; return 1; }
}

mistakes() {
    cc=$1 kind=$2
    said() { if [ "$kind" = gcc ]; then echo "$1"; else echo "$2"; fi; }
    check "$kind: what is right compiles" outcome 0 '*' '' env CC="$cc" "$kernbench" run --bench ./right.c
    # gcc sees that a declaration does not end when the next one begins.
    check "$kind: no ; after a declaration" \
        first_error "$(said 6 5)" "expected*;*" "$cc" '5s/;$//'
    check "$kind: no ; after a statement" first_error 8 "expected*;*" "$cc" '8s/;$//'
    check "$kind: an unknown variable" first_error 6 "*vv*" "$cc" '6s/v, 2/vv, 2/'
    check "$kind: an unknown variable in a store" first_error 8 "*yy*" "$cc" '8s/y, w/yy, w/'
    few=$(said 'too few arguments to function*tl_needs_a_tensor_*' 'too few arguments to function call*')
    check "$kind: tl_load without a type" first_error 5 \
        "$(said '*tl_needs_a_dtype_*' 'too few arguments to function call*')" "$cc" '5s/, TL_F32//'
    check "$kind: tl_load of one" first_error 5 \
        "$(said 'macro "tl_load_takes_ptr_shape_dtype_"*' 'too few arguments*')" "$cc" '5s/x, .*/x);/'
    check "$kind: tl_store without a value" first_error 8 "$few" "$cc" '8s/x, .*;/x);/'
    check "$kind: tl_dot of one" first_error 7 "$few" "$cc" '7s/v, w.*/v);/'
    few=$(said 'macro "tl_*requires*arguments, but only*' 'too few arguments*')
    check "$kind: tl_mul of one" first_error 6 "$few" "$cc" '6s/v, 2/v/'
    check "$kind: tl_mul of three" \
        first_error 6 "$(said 'macro "tl_mul" passed 3*' 'too many arguments*')" "$cc" '6s/v, 2/v, 2, w/'
    check "$kind: tl_load with one too many" \
        first_error 5 "*tl_options_have_names*" "$cc" '5s/TL_F32/TL_F32, 5/'
    check "$kind: tl_store with one too many" \
        first_error 8 "*tl_options_have_names*" "$cc" '8s/y, w)/y, w), v/'
    check "$kind: tl_dot of three" first_error 7 "*tl_options_have_names*" "$cc" '7s/w, .*/w, v);/'
    check "$kind: no ) in an expression" \
        first_error 6 "$(said "this '(' is not closed*" 'unterminated function-like macro*')" \
        "$cc" '6s/);$/;/'
    check "$kind: no ) at the end of a call" \
        first_error 8 "$(said "this '(' is not closed*" 'unterminated function-like macro*')" \
        "$cc" '8s/));$/);/'
    check "$kind: a pointer as operand" \
        first_error 6 "$(said '*incompatible type*tl_needs_a_tensor_*' "*'tl_tensor \*'*remove &*")" "$cc" '6s/v, 2/\&v, 2/'
    pointer=$(said '*incompatible type*tl_needs_a_tensor_*' "*'tl_tensor \*'*remove &*")
    check "$kind: a pointer to reduce" first_error 10 "$pointer" "$cc" '10s/z, 1/\&z, 1/'
    check "$kind: a pointer to store" first_error 8 "$pointer" "$cc" '8s/tl_add.*/\&y);/'
    check "$kind: a pointer in a product" first_error 7 "$pointer" "$cc" '7s/v, w/v, \&w/'
    check "$kind: an unknown option" \
        first_error 5 "*stride*did you mean*strides*" "$cc" '5s/TL_F32/TL_F32, .stride = tl_strides(1, 1)/'
    check "$kind: an unknown option of a product" \
        first_error 7 "*out_fp32*did you mean*out_f32*" "$cc" '7s/out_f32/out_fp32/'
    check "$kind: a function without the context" \
        first_error 3 "$(said "*tl*undeclared*" "*undeclared identifier 'tl'*")" "$cc" \
        '2s/$/\nstatic tl_tensor relu(tl_tensor x) { return tl_maximum(x, 0); }/'
}

# cc is what KernBench takes; the others if they are there.
for cc in gcc clang; do
    if command -v "$cc" >/dev/null 2>&1; then
        if "$cc" --version 2>/dev/null | grep -q clang; then mistakes "$cc" clang; else mistakes "$cc" gcc; fi
    fi
done

# What looks like an open parenthesis and is none.
cat >parens.c <<'END'
/* ( ; */
#define OPEN (
#define CLOSED )  \
    + (0) /* ; */
#include <kernbench/tl.h> // ( ;
static const char *text = "(; \" (;";
static const char quote = '(', other = '\'';
KB_KERNEL(scale, tl_ptr x, int n)
{
    for (int i = 0; i < n; i++) for(;;) { break; }
    int twice = ({ int half = n + OPEN quote CLOSED; half * 2; });
    (void)(twice + other), (void)text;
}
END
sed -n '13,$p' right.c >>parens.c
check "no parenthesis is missed" outcome 0 '*' '' "$kernbench" run --bench ./parens.c

# ---- Stand-ins -------------------------------------------------------------------------------

cat >ask.c <<'END'
#include <kernbench/tl.h>

KB_KERNEL(ask, tl_ptr x, int times)
{
    for (int i = 0; i < times; i++)
        if (tl_item_or(tl_load(x, tl_shape(1), TL_F16), 7) == 7)
            tl_store(x, tl_zeros(tl_shape(1), TL_F16));
}

static const kb_policy one_pe = {.num_cubes = 1, .num_pes = 1};

static kb_error *run(kb_bench *bench)
{
    kb_tensor x;
    kb_context *ctx = kb_bench_context(bench);
    KB_TRY(kb_zeros(ctx, &(kb_tensor_spec){.name = "x", .dtype = KB_F16, .shape = KB_SHAPE(8), .policy = &one_pe}, &x));
    return kb_launch(ctx, "ask", &ask, x, (int)kb_bench_param(bench, "times"));
}

static const kb_param params[] = {{.name = "times", .value = 3, .max = 9, .help = "how often"}, {0}};
static const kb_bench_spec bench = {.name = "ask", .summary = "for tests", .params = params, .param_count = 1, .run = run};
KB_EXPORT_BENCHES(&bench);
END

check "with data there are no stand-ins" outcome 0 '*Simulated time*' '' "$kernbench" run --bench ./ask.c
check "nothing is said of them" sh -c "! grep -q stand-in '$scratch/out'"
check "with data, as JSON" outcome 0 '*"stand_ins":*"count": 0,*"first": null*' '' \
    "$kernbench" run --bench ./ask.c --json
check "stand-ins are counted" outcome 0 \
    '*timing-only: 3 values read by the kernel were replaced by stand-ins (first at ask.c:6)*' '' \
    "$kernbench" run --bench ./ask.c --timing-only
check "one is said in the singular" outcome 0 \
    '*timing-only: 1 value read by the kernel was replaced by a stand-in (first at ask.c:6)*' '' \
    "$kernbench" run --bench ./ask.c --timing-only --param times=1
check "stand-ins are in the JSON" outcome 0 '*"stand_ins":*"count": 3,*"first": "ask.c:6"*' '' \
    "$kernbench" run --bench ./ask.c --timing-only --json
finish
