# The rows of the layout matrix by the runtime, in the optimised build.  Other builds of it run
# in unit/test_layout_matrix and threads.sh, prun itself in run/layouts.sh.
for group in threads f32 processes beside beside_processes; do
    CMOCKA_MESSAGE_OUTPUT=TAP "$RELEASE/tests/unit/test_layout_matrix" $group || echo "not ok $group ended with status $?"
done
