# Communication of ranks that share no memory, carried by TCP: the cases of unit/test_comm.
. "$TESTS/run/lib.bash"
. "$TESTS/run/torchrun.bash"
for n in 1 2 3 4; do
    timeout 300 $start $n "$ASAN/tests/tools/comm_far" 2>said || { echo "not ok $n ranks ended with status $?"; cat said; }
done
