#!/bin/bash
# The tests of ranks that communicate, in the order of their programs and beside computing, with the thread sanitizer.
export TSAN_OPTIONS=exitcode=86
# Its shadow memory lies at fixed addresses, which a kernel that places libraries at
# random may have taken; some containers forbid to ask for fixed places.
fixed=
setarch -R true 2>/dev/null && fixed="setarch -R"
for test in test_comm test_comm_faults "test_layout_matrix races" "test_layout_matrix beside_races" "test_courier right"; do
    CMOCKA_MESSAGE_OUTPUT=TAP $fixed $TOP/build/tsan/tests/unit/$test
    status=$?
    [ $status -eq 0 ] || echo "not ok $test ended with status $status"
done

# Messages by TCP: what both threads of a rank do.
cd "$TMP" && . "$TESTS/run/torchrun.bash"
timeout 300 $start 2 $fixed "$TOP/build/tsan/tests/tools/comm_far" || echo "not ok comm_far ended with status $?"

# A program that lacks waits: the sanitizer must say so.
CMOCKA_MESSAGE_OUTPUT=TAP $fixed $TOP/build/tsan/tests/unit/test_courier missing >"$TMP/said" 2>&1
status=$?
if [ $status -eq 86 ] && grep -q 'WARNING: ThreadSanitizer: data race' "$TMP/said"; then
    echo "ok a sum of gradients that nothing waits for is seen as a race"
else
    tail -n 20 "$TMP/said"
    echo "not ok a sum of gradients that nothing waits for: status $status, no race seen"
fi
