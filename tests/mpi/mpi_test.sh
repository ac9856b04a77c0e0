#!/usr/bin/env bash
# Exchanges over MPI: all kinds among two and four processes, and what happens if one of them fails.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
# shellcheck source=tests/support/mpirun.sh
. "$tests/support/mpirun.sh"
# A run that hangs ends with status 124.
limit=60

prepare()
{
    need_program mpi_checks
    command -v mpirun >/dev/null || skip "mpirun is not installed"
}

# all_ranks N WHAT [PROGRAM [LINES]]: every rank finds everything as expected, LINES times in all.
all_ranks()
{
    local got status lines
    got=$(timeout $limit mpirun -n "$1" "$build/tests/${3:-mpi_checks}" "$2" 2>&1 </dev/null)
    status=$?
    lines=$(grep -c ': as expected' <<<"$got")
    if [ $status -ne 0 ] || [ "$lines" -ne "${4:-$1}" ]; then
        fail "$2 on $1 ranks gave status $status: $got"
    fi
}

# ends STATUS TEXT N WHAT: the exit status of mpirun, and what the processes print.
ends()
{
    expect "$1" "$2" timeout $limit mpirun -n "$3" "$build/tests/mpi_checks" "$4"
}

case_all_kinds_of_exchanges()
{
    local n
    for n in 1 2 4; do all_ranks $n everything; done
    all_ranks 3 everything mpi_checks_cut
    all_ranks 2 sizes
}

case_a_program_of_four_ranks()
{
    all_ranks 4 program mpi_checks 8
}

case_an_error_of_one_rank_reaches_all()
{
    local n
    for n in 2 4; do
        all_ranks $n failure
        all_ranks $n silence
    done
}

case_MPI_that_cannot_be_used()
{
    ends 1 "the program began MPI without support for threads" 2 single
    ends 1 "MPI has ended, and a process can begin it only once" 2 twice
}

case_a_rank_that_fails_ends_the_others()
{
    ends 1 "file: cannot be read" 4 fails
    ends 1 "file: cannot be read" 4 silent
    ends 137 "signal 9" 4 killed
}

run_cases
