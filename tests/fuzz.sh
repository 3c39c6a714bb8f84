#!/bin/bash
# Every text format under a seeded mutator, FUZZ_SECONDS (15) each; a program of
# tests/fuzz is one format.
cd "$TOP" || exit 2
seconds=${FUZZ_SECONDS:-15}
for program in "$ASAN"/tests/fuzz/fuzz_*; do
    case $program in *.d | *.o | *'*') continue ;; esac
    name=$(basename "$program")
    if "$program" -t "$seconds"; then echo "ok $name"; else echo "not ok $name"; fi
done
