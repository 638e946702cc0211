#!/bin/sh
# sweep_mpi.sh BUILD: sweeps over the ranks of an MPI job.
. "$(dirname -- "$0")/../check.sh"

kernbench=$1/kernbench
cd "$scratch" || exit 1
plan="sweep --bench gemm_single_pe --over m=64,128,192,256 --over k=128,256 --timing-only --quiet"

# What stays the same whoever runs the points.
figures() { sqlite3 "$1" "SELECT key, status, parameters, machines.hash, sim_ns,
    json_remove(json, '\$.wall_s', '\$.hops_per_s') FROM runs JOIN machines USING (machine)
    JOIN documents ON run = number ORDER BY key"; }

# A program without the component.
cp "$kernbench" alone
export OMPI_COMM_WORLD_SIZE=3
# shellcheck disable=SC2086
check "without the component: says so" \
    outcome 2 '' 'kernbench: mpirun has started this program, which was built without MPI: *--shard' \
    ./alone $plan
unset OMPI_COMM_WORLD_SIZE

if [ ! -e "$1/kernbench-mpi.so" ] || ! command -v mpirun >/dev/null; then
    finish # OpenMPI is not installed
    exit
fi

mpi() { # RANKS ARGUMENTS
    ranks=$1
    shift
    timeout 120 mpirun --allow-run-as-root --oversubscribe -n "$ranks" "$kernbench" "$@"
}

# shellcheck disable=SC2086
"$kernbench" $plan --store one.db --workers 1 --csv - | cut -d, -f1-3 >one.csv
figures one.db >one
same_results() { # RANKS OPTIONS
    rm -f many.db
    ranks=$1
    shift
    # shellcheck disable=SC2086
    mpi "$ranks" $plan --store many.db --csv - "$@" | cut -d, -f1-3 >many.csv || return 1
    figures many.db | cmp - one && cmp many.csv one.csv
}
for ranks in 2 4 8; do
    check "$ranks ranks: the results of one process" same_results "$ranks"
done
check "a rank may run several points at a time" same_results 2 --workers 3
check "one rank alone runs them itself" same_results 1
# shellcheck disable=SC2086
check "stored points are not run again" outcome 0 "*tflops*" "" mpi 3 $plan --store many.db
all_are_there_once() { [ "$(sqlite3 many.db 'SELECT count(*) FROM runs')" = 8 ]; }
check "and are there once" all_are_there_once

cat >crash.c <<'EOC'
#include <kernbench/kernbench.h>
#include <stdlib.h>

static kb_error *crash(kb_bench *bench)
{
    if (kb_bench_param(bench, "n") % 2)
        abort();
    return NULL;
}

static const kb_param params[] = {{.name = "n", .value = 1, .min = 0, .max = 100, .help = "n"}};
static const kb_bench_spec spec = {.name = "crash", .summary = "crashes for odd n", .run = crash,
                                   .params = params, .param_count = 1};
KB_EXPORT_BENCHES(&spec);
EOC
check "points that crash are recorded" \
    outcome 1 '*' '*' mpi 3 sweep --bench ./crash.c --over n=0..5 --store crash.db --quiet
crashes() { [ "$(sqlite3 crash.db "SELECT count(*) FROM runs WHERE status = 'crashed'")" = 3 ]; }
check "as such" crashes
check "a wrong plan is reported once" \
    outcome 2 '' "kernbench: unknown bench 'nope'*Exit code: *2*" mpi 3 sweep --bench nope --over m=1
once() { [ "$(grep -c 'unknown bench' "$scratch/err")" = 1 ]; }
check "by rank 0" once

# A rank that cannot prepare: it does not see the file of the bench.
cat >rank.sh <<'EOC'
[ "$OMPI_COMM_WORLD_RANK" != 2 ] || cd ..
exec "$@"
EOC
check "a rank that cannot run points" \
    outcome 2 '' '*kernbench: rank 2 cannot run points: kernbench: cannot read ./crash.c: *' \
    timeout 120 mpirun --allow-run-as-root --oversubscribe -n 3 sh "$scratch/rank.sh" "$kernbench" \
    sweep --bench ./crash.c --over n=0..5 --store crash.db

finish
