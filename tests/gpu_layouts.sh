#!/bin/bash
# Rows of the layout matrix on the emulator of GPUs: each third of a dozen with streams in another random order; and, with the thread
# sanitizer, which sees a race between streams, programs that are right and one that lacks waits.
export PRUN_PLUGINS=$TOP/build/emu TSAN_OPTIONS="exitcode=86 suppressions=$TOP/tests/cudaemu/tsan.supp" CMOCKA_MESSAGE_OUTPUT=TAP

# rows GROUP SEED
rows() {
    CUDAEMU_SEED=$2 "$RELEASE/tests/unit/test_layout_matrix" "$1" || echo "not ok $1 ended with status $?"
}

# Its shadow memory lies at fixed addresses (see threads.sh).
sanitized() {
    local fixed=
    setarch -R true 2>/dev/null && fixed="setarch -R"
    PRUN_PLUGINS=$TOP/build/emu/tsan CUDAEMU_SEED=4 $fixed "$@"
}

races() {
    local status
    sanitized "$TOP/build/emu/tsan/test_rank" right || echo "not ok test_rank right ended with status $?"
    sanitized "$TOP/build/tsan/tests/unit/test_layout_matrix" gpu_races || echo "not ok gpu_races ended with status $?"
    sanitized "$TOP/build/emu/tsan/test_rank" missing >"$TMP/said" 2>&1
    status=$?
    if [ $status -eq 86 ] && grep -q 'WARNING: ThreadSanitizer: data race' "$TMP/said"; then
        echo "ok kernels that do not wait for a sum of gradients are seen as a race"
    else
        tail -n 20 "$TMP/said"
        echo "not ok kernels that do not wait for a sum of gradients: status $status, no race seen"
    fi
}

if [ -f "$PRUN_PLUGINS/libprun_cudaemu.so" ]; then
    rows gpu_1 1
    rows gpu_2 2
    rows gpu_3 3
    rows gpu_bundled 5
    races
else
    echo "skip layouts on the emulator of GPUs: $(cut -c 9- "$TOP/build/emu/absent")"
fi
