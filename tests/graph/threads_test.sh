#!/usr/bin/env bash
# Threads in hostile environments: a run ends well, with the same bits, or with one clear line; it neither crashes
# nor hangs.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
run=$build/tests/thread_run
unset WEFT_GEMM OMP_NUM_THREADS OMP_STACKSIZE GOMP_STACKSIZE OMP_THREAD_LIMIT OMP_DYNAMIC
processors=$(nproc)
bits=

prepare()
{
    bits=$("$run" 1) || fail "thread_run 1"
    bits=${bits% on 1 threads}
}

case_any_number_of_threads()
{
    expect 0 "$bits on 8 threads" "$run" 8
    expect 0 "$bits on $processors threads" "$run" 0
    # More threads than any machine has, or than anybody may ask for.
    expect 0 "$bits on $processors threads" env OMP_NUM_THREADS=100000 "$run" 0
    expect 1 "100000 threads; expected 0 (the default) to 1024" "$run" 100000
    expect 1 "-1 threads; expected 0 (the default) to 1024" "$run" -1
}

case_limits_of_OpenMP_and_of_the_system()
{
    expect 0 "$bits on 1 threads" env OMP_THREAD_LIMIT=1 "$run" 8
    expect 0 "$bits on 3 threads" env OMP_THREAD_LIMIT=3 "$run" 8
    expect 0 "$bits on 1 threads" taskset -c "$(taskset -cp $$ | grep -oE '[0-9]+' | tail -1)" "$run" 0
    expect 0 "$bits on" env OMP_DYNAMIC=true "$run" 8
}

# Stacks: too small, just enough, and more than there is memory.
case_sizes_of_stacks()
{
    local small="2 KiB are needed: set OMP_STACKSIZE to 64 KiB or more, or ask for one thread"
    expect 1 "$small" env OMP_STACKSIZE=16k "$run" 8
    expect 0 "$bits on 1 threads" env OMP_STACKSIZE=16k "$run" 1
    expect 0 "$bits on 8 threads" env OMP_STACKSIZE=64k "$run" 8
    expect 0 "$bits on 8 threads" env OMP_STACKSIZE=64 "$run" 8
    expect 0 "$bits on 1 threads" env OMP_STACKSIZE=100000G "$run" 8
}

case_room_for_some_of_the_threads_only()
{
    local small_stacks=(env OMP_STACKSIZE=64k)
    expect 0 "$bits on" bash -c 'ulimit -v 200000 && exec "$0" 64' "$run"
    # Threads of clang's OpenMP allocate, for which malloc reserves address space for each.
    grep -q libomp <(ldd "$run") && small_stacks+=(MALLOC_ARENA_MAX=1)
    expect 0 "$("$run" 64)" "${small_stacks[@]}" bash -c 'ulimit -v 300000 && exec "$0" 64' "$run"
}

case_inside_parallel_regions_of_the_program()
{
    expect 0 "$bits on 1 threads" "$run" 4 nested
    expect 0 "$bits on 4 threads" env OMP_MAX_ACTIVE_LEVELS=2 "$run" 4 nested
    expect 0 "$bits on" env OMP_MAX_ACTIVE_LEVELS=2 OMP_THREAD_LIMIT=5 "$run" 4 nested
}

# A fork takes OpenMP's threads away, if there were any.
case_after_a_fork()
{
    local at_least_two=$((processors > 1 ? 2 : 1))
    expect 0 "$bits on $at_least_two threads" "$run" $at_least_two child
    expect 0 "$bits on 1 threads" "$run" 2 late
}

# The whole of the library on stacks of 64 KiB, the main thread's too.
case_suites_on_small_stacks()
{
    local suite
    for suite in ops attention recurrent threads pack; do
        expect 0 "Run Summary" bash -c 'ulimit -s 64 && exec "$0" "$1"' "$build/tests/weft_tests" $suite
    done
}

run_cases
