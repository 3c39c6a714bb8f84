# Communication of ranks that share no memory, carried by MPI: the cases of unit/test_comm.
. "$TESTS/run/lib.bash"
. "$TESTS/run/mpi.bash"
export PRUN_PLUGINS=$ASAN ASAN_OPTIONS=detect_leaks=0:exitcode=86     # what MPI leaves behind is MPI's
for n in 1 2 3 4; do
    timeout 300 mpirun -n $n "$ASAN/tests/tools/comm_far" 2>said || { echo "not ok $n ranks ended with status $?"; cat said; }
done
