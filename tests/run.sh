#!/bin/bash
# run.sh [PATTERN] -- run the tests whose name contains PATTERN (default: all), on
# all cores, one line per test, failures with their output, where the time went, the
# failures again where there is more than fits a screen, and a closing line.
#
#   unit/NAME      a program of tests/unit (or tests/ops); each of its cmocka tests counts
#   script/NAME    tests/NAME.sh, tests/run/NAME.sh, and tests/slow/NAME.sh when CHECK_ALL is set
#   emu/NAME       a program of tests/cudaemu, skipped where NVIDIA's headers are missing
#   golden/FILE    a case below tests/golden, once per build (see one.sh)
#
# A script with a line '# alone: WHY' has the machine to itself: it runs after all others,
# and such scripts run one after the other.
#
# UPDATE=1 rewrites the .expect files instead of comparing with them.
# TESTS is the folder the tests are in; only the runner's own test sets it.
set -u
cd "$(dirname "$0")/.." || exit 2
export TOP=$PWD TESTS=${TESTS:-$PWD/tests} LC_ALL=C TZ=UTC
export ASAN=$TOP/build/asan CLANG=$TOP/build/clang RELEASE=$TOP/build/release
export ASAN_OPTIONS=detect_leaks=1:exitcode=86 UBSAN_OPTIONS=print_stacktrace=1:exitcode=86
# An own BLAS setting of the caller must not reach the tests.
unset MAKEFLAGS MFLAGS MAKELEVEL NO_COLOR

variants=asan
[ -n "${UPDATE:-}" ] || variants="asan clang ${CHECK_ALL:+release}"

scripts() {
    local f
    for f in "$TESTS"/*.sh "$TESTS"/run/*.sh ${CHECK_ALL:+"$TESTS"/slow/*.sh}; do
        case ${f##*/} in run.sh | one.sh | '*.sh') ;; *) echo "script ${f#"$TESTS"/}" ;; esac
    done
}

units() {
    local f
    for f in "$TESTS"/*/test_*.c; do
        f=${f#"$TESTS"/}
        case $f in cudaemu/*) continue ;; esac
        [ -f "$TESTS/$f" ] && echo "${f%%/*} $(basename "$f" .c)"
    done
}

emulator() {
    local f
    for f in "$TESTS"/cudaemu/test_*.c "$TESTS"/cudaemu/test_*.cpp "$TESTS"/cudaemu/test_*.cu; do
        f=${f##*/}
        [ ! -f "$TESTS/cudaemu/$f" ] || echo "emu ${f%.*}"
    done
}

# A case is a file whose first line says what to run.
goldens() {
    [ -d "$TESTS/golden" ] || return
    find "$TESTS/golden" -type f ! -name '*.expect' -print0 | sort -z |
        xargs -0 -r awk 'FNR == 1 && /^# run: / { print FILENAME } { nextfile }' |
        while read -r f; do
            for v in $variants; do echo "golden ${f#"$TESTS"/golden/} $v"; done
        done
}

export RESULTS
RESULTS=$(mktemp -d "${TMPDIR:-/tmp}/tests.XXXXXX")
trap 'rm -rf "$RESULTS"' EXIT
: >"$RESULTS/verdicts"

# The tests of a list, so many at a time.
run_tests() { xargs -r -d '\n' -P "$1" -n 1 "$TOP/tests/one.sh"; }

is_alone() { [ "${1%%/*}" = script ] && grep -q '^# alone: ' "$TESTS/${1#script/}"; }

{ scripts; units; emulator; goldens; } | sed 's| |/|' | grep -F -- "${1:-}" | while IFS= read -r t; do
    if is_alone "$t"; then echo "$t" >>"$RESULTS/alone"; else echo "$t"; fi
done | run_tests "$(nproc)"
[ ! -f "$RESULTS/alone" ] || run_tests 1 <"$RESULTS/alone"

# What one looks for in two thousand lines: what the processors did, and what failed.
if [ "$(wc -l <"$RESULTS/verdicts")" -gt 50 ]; then
    sort -rn "$RESULTS/times" | head -n 30 | awk '{ printf "%s%s %d s (%d)", NR == 1 ? "processor time (and time passed): " : ", ", $3, $1, $2 } END { print "" }'
    cat "$RESULTS/failures"
fi

count() { grep -c "^$1\$" "$RESULTS/verdicts"; }
passed=$(count ok) failed=$(count FAIL) skipped=$(count skip)
if [ $((passed + failed)) -eq 0 ]; then
    echo "no test matches '${1:-}'"
    failed=1
fi
if [ "$skipped" -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ "$failed" -eq 0 ]
