# Every two axes of six models, split by rules: all of what unit/test_split_axes samples.
CMOCKA_MESSAGE_OUTPUT=TAP "$ASAN/tests/unit/test_split_axes" pairs || echo "not ok split axes: status $?"
