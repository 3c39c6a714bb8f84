#!/bin/bash
# The tests of ranks that communicate, with the thread sanitizer.
export TSAN_OPTIONS=exitcode=86
# Its shadow memory lies at fixed addresses, which a kernel that places libraries at
# random may have taken; some containers forbid to ask for fixed places.
fixed=
setarch -R true 2>/dev/null && fixed="setarch -R"
for test in test_comm test_comm_faults "test_layout_matrix races"; do
    CMOCKA_MESSAGE_OUTPUT=TAP $fixed $TOP/build/tsan/tests/unit/$test
    status=$?
    [ $status -eq 0 ] || echo "not ok $test ended with status $status"
done
