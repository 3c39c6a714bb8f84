# A dozen rows of the layout matrix by pplan and prun, of the bundled models of other kinds:
# several inputs, images, masks, documents.
. "$TESTS/run/rows.bash"
check_rows bundled_processes
