#!/bin/bash
# The tests of ranks that communicate, with the thread sanitizer. Its shadow memory
# lies at fixed addresses, which a kernel that places libraries at random may take.
export TSAN_OPTIONS=exitcode=86
for program in "$TOP"/build/tsan/tests/unit/test_*; do
    [ -x "$program" ] || continue
    CMOCKA_MESSAGE_OUTPUT=TAP setarch -R "$program"
    status=$?
    [ $status -eq 0 ] || echo "not ok ${program##*/} ended with status $status"
done
