# A dozen rows of the layout matrix by pplan and prun, of decoders.
. "$TESTS/run/rows.bash"
check_rows processes
