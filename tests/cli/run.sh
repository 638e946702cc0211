#!/bin/sh
# run.sh BUILD: `kernbench run`, `list` and `new` as a user meets them.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
kernbench=$(CDPATH='' cd -- "$1" && pwd)/kernbench
tests=$(CDPATH='' cd -- "$1" && pwd)/tests
faults=$here/benches/faults.c
mkdir "$scratch/work" "$scratch/tmp"
cd "$scratch/work"
TMPDIR=$scratch/tmp && export TMPDIR

run() { "$kernbench" run "$@"; }
to_full() { "$@" >/dev/full; }
small='--bench gemm_single_pe --param m=64 --param k=64 --param n=64'

# good_json ARGUMENT...: one document whose figures add up.
good_json() {
    run --json "$@" >"$scratch/doc" 2>"$scratch/err" && "$tests/run-json" <"$scratch/doc"
}
# figure MEMBER VALUE: of the last document.
figure() {
    found=$("$tests/run-json" "$1" <"$scratch/doc") || return 1
    [ "$found" = "$2" ] || { echo "$1 is $found" && return 1; }
}

# ---- Text

check "a bench, its lines first" outcome 0 'C (512, 512) = *gemm_single_pe on machine *m=512 k=512 n=512*Simulated time: *compute *memory *communication *idle *Compute bound: the matrix engines *gemm *pe_gemm *Busiest unit: pe_gemm of sip0.cube0.pe0*busiest links*links by kind*Roofline of the 1 PE *Verification: passed*hops/s' '' \
    "$kernbench" run --bench gemm_single_pe --verify-data
# shellcheck disable=SC2086 # words
check "not asked to verify" outcome 0 '*Verification: not done*' '' "$kernbench" run $small
# shellcheck disable=SC2086
check "quiet: no times of this host" outcome 0 '*Verification: *' '' "$kernbench" run $small --quiet
no_wall() { ! grep -q 'hops/s' "$scratch/out"; }
check "quiet: indeed" no_wall
# shellcheck disable=SC2086
check "timing-only" outcome 0 '*Timing-only: nothing was computed*' '' "$kernbench" run $small --timing-only
check "too large for data" outcome 0 '*Timing-only, as the bench is too large*qkv  *2  *2  256 *' '' \
    "$kernbench" run --bench qkv_gemm_multi_pe --param tokens=1 --param width=4096
# shellcheck disable=SC2086
check "settings of the machine" outcome 0 "*on machine 'default' with cube.pe_gemm.rows=32*" '' \
    "$kernbench" run $small --set cube.pe_gemm.rows=32
# shellcheck disable=SC2086
check "settings without effect are told" outcome 0 '*' 'kernbench: warning: *cube.pe_gemm.rows=64*' \
    "$kernbench" run $small --set cube.pe_gemm.rows=64
lines() { grep -c "$1" "$scratch/out"; }
# 2^18 numbers divide evenly over the HBM slices of the 128 PEs.
check "links that are alike are one line" outcome 0 '*sip0.cube0.hbm_ctrl0 and 127 more like it *' '' \
    "$kernbench" run --bench va_offset_verify --param rows=256 --param columns=1024
check "kinds of links that hardly did anything are one line" outcome 0 \
    '*... * more, none with a link that is busy for 1 % (--verbose shows them)*' '' "$kernbench" run --bench gemm_single_pe
few=$(lines ' - ')
check "unless they are wanted" outcome 0 '*' '' "$kernbench" run --bench gemm_single_pe --verbose
check "indeed they are" test "$(lines ' - ')" -gt "$few"
check "padding is told of" outcome 0 '*array slots  * % idle while *' '' \
    "$kernbench" run --bench gemm_single_pe --param m=65 --param k=65 --param n=65
# shellcheck disable=SC2086
check "stdout is full" outcome 71 '' 'kernbench: cannot write the output: *' to_full "$kernbench" run $small

# ---- JSON

check "JSON adds up" good_json --bench gemm_single_pe --verify-data
check "JSON: verified" figure verified true
check "JSON: lines of the bench go to stderr" grep -q '^C (512, 512) = ' "$scratch/err"
# shellcheck disable=SC2086
check "JSON, quiet: nothing else" outcome 0 '{*}' '' "$kernbench" run $small --json --quiet
# 64 x 64 products and sums a ns are 8.192 TFLOP/s; 204.8 GB/s; so 40 FLOP a byte.
check "JSON: the peak of a PE" figure roofline.peak_tflops 8.192
check "JSON: the bandwidth of a PE" figure roofline.peak_gbs 204.8
check "JSON: the ridge" figure roofline.ridge 40.0
check "JSON: two operations for each product" figure units.4.flops 268435456
check "JSON adds up: all PEs" good_json --bench qkv_gemm_multi_pe --param tokens=3 --param width=200 --verify-data
check "JSON: a kernel for each SIP" figure kernels.1.sip 1
check "JSON: parameters" figure parameters '{"tokens": 3, "width": 200}'
check "JSON: a parameter that is a name" outcome 0 '{*"dtype": "bf16",*"op": "sum",*}' '' \
    "$kernbench" run --bench ccl_reduce --param max_bytes=1K --param dtype=bf16 --json --quiet
check "JSON adds up: copies" good_json --bench va_offset_verify
check "JSON: not verified" figure verified null
check "JSON adds up: transfers between PEs" good_json --bench pe2pe --verify-data
check "JSON: a latency" figure metrics.neighbour_dma_128 12.5
check "JSON adds up: composite products" good_json --bench matmul_composite --param m=65 --param k=70 --verify-data
check "JSON adds up: attention" good_json --bench gqa_llama70b
check "JSON: verified at validation scale" figure verified true
# 8 PEs, and 4 cubes; of 8 ranks each sends 3 messages two ways in 7 steps.
check "JSON: an object for each panel" figure metrics.single_user_decode.matrix_products 16.0
check "JSON: and its figures" figure metrics.multi_user_decode.matrix_products 8.0
check "JSON: messages" figure metrics.single_user_decode.queue_messages 336.0
check "JSON: one panel" good_json --bench gqa_llama70b --param panel=multi_user_prefill
check "JSON: no other" figure metrics.single_user_prefill missing
check "JSON adds up: attention with a cache" good_json --bench gqa_decode --param batch=3 --param ragged=yes
check "JSON: verified too" figure verified true
check "JSON: large caches have no data" good_json --bench gqa_decode --param scale=headline --param batch=8
# 8 * 4095 cached tokens of 8 heads, each with a key and a value of 128 elements of 2 bytes.
check "JSON: bytes of the cache" figure metrics.cache_bytes 134184960.0
check "JSON adds up: prefill attention" good_json --bench gqa_prefill --param ragged=yes --param cached=9
check "JSON: prefill is verified" figure verified true
check "JSON: large prompts have no data" good_json --bench gqa_prefill --param scale=headline --param prompt=512
# 64 heads, 512 * 513 / 2 keys of a head: 65664 scores of each of 128 PEs, 8 cycles for 64 of them.
check "JSON: exponentials" figure metrics.exponential_bound_ns 8208.0

# ---- Models

model='--bench llama70b_decode --quiet --param hidden=64 --param ffn=64 --param heads=4 --param kv_heads=2 --param head_dim=16 --param vocab=64 --param layers=1 --param context=30'
# shellcheck disable=SC2086
check "a model on one SIP of several" outcome 0 '*on 1 device*Verification: passed*' '' \
    "$kernbench" run $model --device sip:1 --verify-data
# shellcheck disable=SC2086
check "tp has to divide the SIPs" outcome 2 '' 'kernbench: tp is 2, but the run has 3 SIPs: *' \
    "$kernbench" run $model --param tp=2 --set system.sips.count=3
# shellcheck disable=SC2086
check "the only size that can be divided" outcome 2 '' '*ffn (1) is not divisible by the 2 ranks: 2 would be*' \
    "$kernbench" run $model --param ffn=1
# 2^38 tokens of 2^35 elements: the bytes do not fit in 64 bits.
check "sizes do not wrap around" outcome 2 '*' "*does not fit on 2 devices*cache 16.00 EiB*" \
    "$kernbench" run --bench llama70b_decode --quiet --param batch=65536 --param context=4194304 --param layers=4096 \
    --param kv_heads=16384 --param heads=16384 --param head_dim=256
check "prompts are not made for a model that does not fit" outcome 2 '*' '*does not fit on 2 devices*' \
    "$kernbench" run --bench llama70b_prefill --quiet --param batch=65536 --param prompt=1048576 --param layers=1
# shellcheck disable=SC2086
check "long contexts have no data, and fit" outcome 0 '*context 4194304 and more*Timing-only, as the bench is too large*' '' \
    "$kernbench" run $model --param context=4194304
check "layers alone are small without a vocabulary" outcome 0 '*layers alone*Verification: passed*' '' \
    "$kernbench" run --bench llama70b_layer --quiet --param hidden=64 --param ffn=64 --param heads=4 --param kv_heads=2 \
    --param head_dim=16 --param context=30 --verify-data
check "JSON adds up: timing-only" good_json --bench qkv_gemm --timing-only
check "JSON: timing-only" figure timing_only true
check "JSON: one device" good_json --bench qkv_gemm_multi_pe --param width=64 --device sip:1
check "JSON: on that device" figure kernels.0.sip 1
check "JSON: on no other" figure kernels.1 missing

same_time() {
    run --json --bench "$@" --quiet 2>/dev/null | "$tests/run-json" sim_ns >"$scratch/first" &&
        run --json --bench "$@" --timing-only 2>/dev/null | "$tests/run-json" sim_ns |
        cmp -s - "$scratch/first"
}
for bench in $("$kernbench" list --json | sed -n 's/^      "name": "\([a-z_]*_[a-z_]*\)".*/\1/p' | grep -vE 'multi|tp_mlp'); do
    check "$bench: the same time without data" same_time "$bench"
done
check "pe2pe: the same time without data" same_time pe2pe
check "tp_mlp: the same time without data" same_time tp_mlp --param batch=5 --param width=512 --param hidden=704
repeatable() {
    # shellcheck disable=SC2086
    run $small --json 2>/dev/null | grep -v -e wall_s -e hops_per_s >"$scratch/first"
    # shellcheck disable=SC2086
    run $small --json 2>/dev/null | grep -v -e wall_s -e hops_per_s | cmp -s - "$scratch/first"
}
check "the same twice" repeatable

# ---- Traces

traced() {
    run --json --trace trace.json "$@" >results.json 2>/dev/null || return 1
    "$tests/trace-check" trace.json results.json >"$scratch/out" || { cat "$scratch/out" && return 1; }
}
for bench in gemm_single_pe matmul_composite pe2pe qkv_gemm va_offset_verify; do
    check "trace of $bench: as the format wants it, and units add up" traced --bench $bench
done
check "trace of all PEs" traced --bench qkv_gemm_multi_pe --param tokens=5 --param width=300
arrows() { grep -q ', 256 arrows' "$scratch/out"; }
check "trace: an arrow to every kernel" arrows
check "trace: units are named" grep -q '"name":"pe3 pe_gemm"' trace.json
check "trace: lines of the kernel are named" grep -q '"file":"src/benches/qkv_gemm_multi_pe.c","line":' trace.json
check "trace of a collective" traced --bench ccl_allreduce
# Each message that was received has an arrow from where it was sent.
message_arrows() {
    received=$(grep -c '"cat":"wait","name":"waiting for message from' trace.json)
    arrived=$(grep -c '"ph":"f".*"name":"message"' trace.json)
    [ "$received" -gt 0 ] && [ "$received" -eq "$arrived" ]
}
check "trace: an arrow to every receive" message_arrows
# shellcheck disable=SC2086
check "trace: said where" outcome 0 '*Trace: t.json, *' '' "$kernbench" run $small --trace t.json
# shellcheck disable=SC2086
check "trace: no such directory" outcome 2 '' \
    'kernbench: cannot write /nonexistent/t.json: No such file or directory' \
    "$kernbench" run $small --trace /nonexistent/t.json
# shellcheck disable=SC2086
check "trace: the disk is full" outcome 71 '*Verification: *' \
    'kernbench: cannot write /dev/full: No space left on device' "$kernbench" run $small --trace /dev/full

# ---- Mistakes

check "sizes without an end" outcome 2 '*' 'kernbench: min_bytes needs max_bytes' \
    "$kernbench" run --bench ccl_allreduce --param min_bytes=8KiB
check "a size that is none" outcome 2 '' \
    'kernbench: parameter max_bytes *: expected a whole number (4096, 4KiB) from 0 *' \
    "$kernbench" run --bench ccl_allreduce --param max_bytes=4kb

check "no bench" outcome 2 '' 'kernbench: missing --bench NAME; see kernbench list' "$kernbench" run
check "a bench without --bench" outcome 2 '' \
    'kernbench: missing --bench: kernbench run --bench mine.c' "$kernbench" run mine.c
check "a bench, and one too many" outcome 2 '' "kernbench: too many arguments: 'mine.c'*" \
    "$kernbench" run mine.c --bench qkv_gemm
check "mistyped bench" outcome 2 '' \
    "kernbench: unknown bench 'gemm_single_p'; did you mean 'gemm_single_pe'?" \
    "$kernbench" run --bench gemm_single_p
check "unknown bench" outcome 2 '' "kernbench: unknown bench 'x'; see kernbench list, or name a file: ./mine.c" \
    "$kernbench" run --bench x
check "unknown parameter" outcome 2 '' "kernbench: unknown parameter 'wdith' of bench 'qkv_gemm': expected tokens or width; did you mean 'width'?" \
    "$kernbench" run --bench qkv_gemm --param wdith=3
check "parameter out of range" outcome 2 '' "kernbench: parameter m of bench 'gemm_single_pe': expected *" \
    "$kernbench" run --bench gemm_single_pe --param m=0
check "parameter that is none of its names" outcome 2 '' \
    "kernbench: parameter dtype of bench 'ccl_reduce': unknown value '2': expected f16, bf16 or f32" \
    "$kernbench" run --bench ccl_reduce --param dtype=2
check "parameters: a size, a name" \
    outcome 0 '*  parameters: min_bytes=1024 max_bytes=1024 factor=4 dtype=bf16 op=max root=0 *' '' \
    "$kernbench" run --bench ccl_reduce --param max_bytes=1KiB --param dtype=bf16 --param op=max
check "no such device" outcome 2 '' "kernbench: no such device 'sip:2': the machine has 2 SIPs, numbered from 0" \
    "$kernbench" run --bench qkv_gemm --device sip:2
check "verify without data" outcome 2 '' 'kernbench: --verify-data and --timing-only are mutually exclusive' \
    "$kernbench" run --bench qkv_gemm --verify-data --timing-only
check "no such machine" outcome 2 '' 'kernbench: *nowhere*' "$kernbench" run --bench qkv_gemm --topology nowhere

# ---- Benches in files

check "wrong: told where, and the summary is there" outcome 1 '*Verification: FAILED*' \
    "kernbench: 'x'\\[5] at sip0.cube0.pe0: got 2, expected 3 within 0; 1 of 16 elements are wrong" \
    "$kernbench" run --bench "$faults:wrong" --verify-data
check "wrong, as JSON" outcome 1 '{*"verified": false*}' "kernbench: 'x'*" \
    "$kernbench" run --bench "$faults:wrong" --verify-data --json
check "wrong, but nobody asked" outcome 0 '*Verification: not done*' '' "$kernbench" run --bench "$faults:wrong"
check "nothing is compared" outcome 1 '*Verification: not done, the bench has no reference*' \
    "kernbench: verification: bench 'unchecked' compares nothing; it must call kb_bench_verify()" \
    "$kernbench" run --bench "$faults:unchecked" --verify-data
check "a fault" outcome 3 '' \
    "kernbench: kernel 'strays' on sip0.cube0.pe0 at *faults.c:*: tl_load: *is not mapped*" \
    "$kernbench" run --bench "$faults:stray"
check "a fault, as JSON: what is known" outcome 3 '{*"error": {*"code": 3,*"message": "kernel *strays*}*' \
    "kernbench: *" "$kernbench" run --bench "$faults:stray" --json
cp "$scratch/out" "$scratch/doc"
check "a fault, as JSON: it adds up" figure error.code 3
race="data race in launch 'clashes': 4 bytes at sip0.cube0.pe0.hbm+0x0, in tensor 'x' (f32, 0x100000000 to 0x100000040) from offset 0x0 on, element 0: kernel 'clashes' on sip0.cube*.pe* writes them (tl_store at faults.c:*, issued at * ns), kernel 'clashes' on sip0.cube*.pe* writes them (tl_store at faults.c:*, issued at * ns), and no chain of messages orders the two; 14 more accesses of this launch race"
check "a race: a warning" outcome 0 '*Simulated time*' "kernbench: warning: $race" \
    "$kernbench" run --bench "$faults:race"
check "a race: quiet" outcome 0 '*Simulated time*' '' "$kernbench" run --bench "$faults:race" --quiet
check "a race: a fault on request" outcome 3 '' "kernbench: $race" \
    "$kernbench" run --bench "$faults:race" --check-races
check "a race: without data too" outcome 3 '' "kernbench: $race" \
    "$kernbench" run --bench "$faults:race" --check-races --timing-only
check "a race: without data nobody asked" outcome 0 '*' '' \
    "$kernbench" run --bench "$faults:race" --timing-only
check "no race" outcome 0 '*' '' "$kernbench" run --bench va_offset_verify --check-races
for algorithm in intercube_allreduce ring_allreduce_hbm mesh_allreduce_4 tree_allreduce_7 hierarchical_allreduce \
    ring_rsag trees streams one_shot ring_rsag_pes; do
    check "no race: $algorithm" outcome 0 '*' '' "$kernbench" run --bench ccl_allreduce --check-races \
        --set ccl.defaults.algorithm=$algorithm
done
check "a deadlock, as JSON" outcome 4 '*"code": 4,*"message": "deadlock at *' '*' \
    "$kernbench" run --bench "$faults:deadlock" --json
check "no error, as JSON" good_json --bench va_offset_verify
check "no error, as JSON: null" figure error null
check "a parameter that the bench does not have" outcome 2 '' \
    "kernbench: kb_bench_param: unknown parameter 'cuont' of bench 'ask': expected count; did you mean 'count'?" \
    "$kernbench" run --bench "$faults:ask"
check "a parameter that the bench does not have, as JSON" outcome 2 '{*"error": {*"code": 2,*}' '*' \
    "$kernbench" run --bench "$faults:ask" --json
check "expected is NULL" outcome 2 '' "kernbench: kb_bench_verify: missing reference of 'x': *" \
    "$kernbench" run --bench "$faults:expect_nothing" --verify-data
check "expected is NULL, and nothing is compared" outcome 0 '*Verification: not done*' '' \
    "$kernbench" run --bench "$faults:expect_nothing"
check "exit() by a bench" outcome 3 'leaving' \
    'kernbench: the bench *faults.c:leave called exit(): it must return instead' \
    "$kernbench" run --bench "$faults:leave"
check "a fault: its trace is whole" outcome 3 '' '*' "$kernbench" run --bench "$faults:stray" --trace f.json
whole() { tail -n 1 "$1" | grep -qx ']}'; }
check "indeed" whole f.json
check "a deadlock" outcome 4 '' 'kernbench: deadlock at *rank 0 waits for what never comes*' \
    "$kernbench" run --bench "$faults:deadlock"
check "several benches in a file" outcome 2 '' 'kernbench: *has several benches: name one, as in *' \
    "$kernbench" run --bench "$faults"
check "no such bench in a file" outcome 2 '' "kernbench: *has no bench 'x'*" \
    "$kernbench" run --bench "$faults:x"
check "no such file" outcome 2 '' 'kernbench: cannot read ./nothing.c: No such file or directory' \
    "$kernbench" run --bench ./nothing.c
check "no source" outcome 2 '' 'kernbench: ./t.json: not a bench: expected *' "$kernbench" run --bench ./t.json
if "$tests/overflow" sanitized; then
    : # the sanitizer reports it in its own words
else
    check "a stack that is too small" outcome 3 '' \
        'kernbench: stack overflow in overflows on sip0.cube0.pe0: its stack has 1024 KiB; *' \
        "$kernbench" run --bench "$faults:overflow"
    check "a variable that is larger than the stack" outcome 3 '' \
        'kernbench: stack overflow in has_large_variable on sip0.cube0.pe0: its stack has 1024 KiB; *' \
        "$kernbench" run --bench "$faults:large"
    check "a larger stack" outcome 0 '*Verification: *' '' "$kernbench" run --bench "$faults:large" --stack-bytes 2MiB
    check "a crash of the host's side" outcome 3 '' \
        'kernbench: the bench *faults.c:crash crashed: segmentation fault *' \
        "$kernbench" run --bench "$faults:crash"
    check "a crash of a kernel" outcome 3 '' \
        'kernbench: kernel divides on sip0.cube0.pe0 crashed: arithmetic error *; last seen at faults.c:*' \
        "$kernbench" run --bench "$faults:divide"
    # Once the kernel says that it runs. In the background a shell has SIGINT ignored, unlike a terminal.
    interrupted() {
        env --default-signal=INT "$@" &
        patience=600
        until grep -q spinning "$scratch/err" || [ $patience -eq 0 ]; do
            sleep 0.1
            patience=$((patience - 1))
        done
        kill -s INT $!
        wait $!
    }
    # 128 + 2: the shell's status for a process that SIGINT has ended.
    check "an endless kernel is interrupted" outcome 130 '' \
        'spinning*kernbench: interrupted at *[0-9].[0-9][0-9][0-9] ns simulated; kernel spins on sip0.cube0.pe0 *, last seen at faults.c:*' \
        interrupted "$kernbench" run --bench "$faults:endless"
fi
check "stacks out of range" outcome 2 '' 'kernbench: --stack-bytes: expected *' \
    "$kernbench" run --bench qkv_gemm --stack-bytes 1

# ---- new, and what compiles

check "new" outcome 0 'Created ./mine.c, a bench *kernbench run --bench ./mine.c --verify-data' '' "$kernbench" new bench mine
check "new: it works" outcome 0 '*mine on machine *Verification: passed*' '' "$kernbench" run --bench ./mine.c --verify-data
check "new: with a name" outcome 0 '*mine on machine *' '' "$kernbench" run --bench mine.c:mine
for machine in "--set system.sips.count=1 --set sip.cube_mesh.w=3 --set sip.cube_mesh.h=2" \
    "--set sip.cube_mesh.w=1 --set sip.cube_mesh.h=1 --set cube.noc.w=1 --set cube.noc.h=1"; do
    for n in 1 7 100001; do
        # shellcheck disable=SC2086
        check "new: $n elements, $machine" outcome 0 '*Verification: passed*' '' \
            "$kernbench" run --bench ./mine.c --verify-data --param n=$n $machine
    done
done
check "new: again" outcome 2 '' 'kernbench: ./mine.c already exists: choose another name' "$kernbench" new bench mine
check "new: elsewhere" outcome 0 "Created $scratch/tmp/mine.c, a bench *" '' "$kernbench" new bench mine --dir "$scratch/tmp"
rm "$scratch/tmp/mine.c"
check "new: nowhere" outcome 2 '' 'kernbench: cannot write /nonexistent/mine.c: *' \
    "$kernbench" new bench mine --dir /nonexistent
for name in 3d a-b a.b '' 'a b' ../a; do
    check "new: the name '$name'" outcome 2 '' "kernbench: invalid name '$name' of a bench: expected a C identifier*" "$kernbench" new bench "$name"
done
# The name is that of the bench and its file alone: it may be one that C or the template has.
for name in int run axpb x main kb_launch tl_load exit NULL; do
    check "new: a bench '$name'" outcome 0 '*' '' "$kernbench" new bench $name
    check "new: it works as '$name'" outcome 0 "*$name on machine *Verification: passed*" '' \
        "$kernbench" run --bench ./$name.c --verify-data --param n=100
done
check "new: in Python" outcome 0 'Created ./mine.py, a bench *kernbench run --bench ./mine.py --verify-data' '' \
    "$kernbench" new bench mine --python
check "new: a collective in Python" outcome 2 '' 'kernbench: --python is for benches: *' \
    "$kernbench" new collective mine --python
check "new: what?" outcome 2 '' "kernbench: unknown kind of file 'bnech': expected bench or collective; did you mean 'bench'?" "$kernbench" new bnech x
check "new: nothing" outcome 2 '' 'kernbench: missing arguments: kernbench new bench NAME*' "$kernbench" new

sed 's/tl_load/tl_laod/' mine.c >typo.c
check "what does not compile: the compiler speaks" outcome 2 '' '*typo.c:*error*kernbench: compilation of typo.c failed' \
    "$kernbench" run --bench typo.c
sed 's/return kb_bench_verify/void nowhere(void); nowhere(); &/' mine.c >undefined.c
check "what is defined nowhere" outcome 2 '' \
    'kernbench: undefined.c: undefined symbol nowhere: neither the file nor KernBench defines it' "$kernbench" run --bench undefined.c
sed 's/float a, float b)/float a, float b, int unused)/; s/n, a, b));/n, a, b, 1));/' mine.c >unused.c
check "a parameter of a kernel that is not used: no warning" outcome 0 '*Verification: passed*' '' \
    "$kernbench" run --bench unused.c --verify-data
sed 's/KB_EXPORT_BENCHES(.*/int nothing;/' mine.c >none.c
check "a file without benches" outcome 2 '' '*kernbench: ./none.c exports no benches: *' "$kernbench" run --bench ./none.c
sed 's/^KB_EXPORT_BENCHES/#undef KB_INTERFACE\n#define KB_INTERFACE "0.0"\n&/' mine.c >old.c
check "a file of another version" outcome 2 '' 'kernbench: ./old.c was compiled for KernBench 0.0, this is KernBench 0.2: recompile it' \
    "$kernbench" run --bench ./old.c
cp mine.c ./-mine.c
check "a file that looks like an option" outcome 0 '*mine on machine *' '' "$kernbench" run --bench=-mine.c
with_cc() {
    compiler=$1
    shift
    CC=$compiler "$@"
}
check "no compiler" outcome 71 '' "kernbench: cannot run the compiler 'nocc'*" with_cc nocc "$kernbench" run --bench mine.c
check "a compiler with options" outcome 2 '' "*kernbench: compilation of mine.c failed" \
    with_cc "${CC:-cc} -fno-such-option" "$kernbench" run --bench mine.c
shared() { ${CC:-cc} -shared -fPIC -I"$here/../../include" -o "$1" mine.c; }
check "a library of one's own compiles" shared mine.so
check "a library" outcome 0 '*Verification: passed*' '' "$kernbench" run --bench mine.so --verify-data
echo text >bad.so
check "no library" outcome 2 '' 'kernbench: cannot load ./bad.so: *' "$kernbench" run --bench ./bad.so
check "nothing is left behind" test -z "$(ls -A "$scratch/tmp")"

# OpenBLAS is loaded when there are matrices to multiply: an empty file is no library.
mkdir broken
: >broken/libopenblas.so.0
without_blas() { LD_LIBRARY_PATH=$PWD/broken "$kernbench" run --bench "$@"; }
check "no BLAS" outcome 71 '*' 'kernbench: *cannot load OpenBLAS, which multiplies matrices (Debian package libopenblas0-pthread): *' \
    without_blas gemm_single_pe --param m=64 --verify-data
check "no BLAS, and no data" outcome 0 '*gemm_single_pe on machine *' '' \
    without_blas gemm_single_pe --param m=64 --timing-only
check "no BLAS, and no products" outcome 0 '*Verification: passed*' '' without_blas ./mine.so --verify-data

# ---- list

check "list" outcome 0 '*gemm_single_pe *va_offset_verify*  Parameters of gemm_single_pe
*m *512  1 to 32768 *default *The default machine*builtin.router*' '' "$kernbench" list
check "list: parameters that several have are there once" grep -q '^  Parameters of ccl_allreduce, ipcq_allreduce$' "$scratch/out"
check "list: a parameter with names" grep -q '^  op  *sum  sum, max, min, prod, avg  ' "$scratch/out"
check "list, quiet" outcome 0 'gemm_single_pe*' '' "$kernbench" list --quiet
check "list, JSON" outcome 0 '{*"benches": *"default": 512*"default": "f16",*"names": *"topologies": *"components": *}' '' "$kernbench" list --json

finish
