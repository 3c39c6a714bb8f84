#!/bin/bash
# Rows of bug reports on the emulator of GPUs: the closed forms and layouts of unit/test_bug_layouts and unit/test_bug_experts, in f32 and
# with ranks as threads.
export PRUN_PLUGINS=$TOP/build/emu CMOCKA_MESSAGE_OUTPUT=TAP
if [ -f "$PRUN_PLUGINS/libprun_cudaemu.so" ]; then
    for rows in layouts experts; do
        CUDAEMU_SEED=1 "$RELEASE/tests/unit/test_bug_$rows" cudaemu || echo "not ok test_bug_$rows ended with status $?"
    done
else
    echo "skip rows of bug reports on the emulator of GPUs: $(cut -c 9- "$TOP/build/emu/absent")"
fi
