# The rows of the layout matrix that are of the bundled models, as layouts.sh has those of decoders.
for group in bundled_threads bundled_f32; do
    CMOCKA_MESSAGE_OUTPUT=TAP "$RELEASE/tests/unit/test_layout_matrix" $group || echo "not ok $group ended with status $?"
done
