#!/bin/bash
# predict.sh MODEL TEXT DIR [OPTION...] -- what is predicted of four virtual devices on this
# machine against what they do: it is measured, three plans are made with the figures, and
# each is run.  Fails unless each predicted step time is within 20 % of the measured median,
# the order of plans that differ by more than 10 % is as predicted, and their maps have the
# bytes that were planned.  OPTIONs are for pplan.  Where others use the machine so much that
# it cannot be measured, nothing is predicted: that is said, and is no failure.
#
# Plans take turns, so that a busy moment falls on all of them.  Times that fail are taken
# once again: others may have used the machine.
set -eu
cd "$(dirname "$0")/.."
bin=build/release
model=$1 text=$2 dir=$3
shift 3
turns=3 steps=40 skipped=5           # of a turn, the first ones find cold caches

. bench/step.bash

# The plans $dir/plan1.plan, which is searched for, and plan2.plan and plan3.plan, whose layouts are given.
make_plans() {
    local n=1 layout plan=("$bin/pplan" plan "$model" -c "$dir/this.pcluster:crowd" -D devices=4 "$@")
    step "${plan[@]}" --top 3 -o "$dir/plan1.plan"
    while read -r layout; do
        n=$((n + 1))
        step "${plan[@]}" --with "$layout" -o "$dir/plan$n.plan" >"$dir/plan$n.txt"
    done < <(grep -v '^#' bench/layouts.txt)
}

# One turn of plan $1; its times are added to those of others.
run_plan() {
    $bin/prun "$dir/plan$1.plan" --data "$text" --steps $((steps + skipped)) --log "$dir/turn.jsonl" 2>"$dir/said$1" || fail "$(cat "$dir/said$1")"
    sed -nE 's/.*"seconds": ([0-9.e-]+),.*/\1/p' "$dir/turn.jsonl" | tail -n +$((skipped + 1)) >>"$dir/seconds$1"
}

measure() {
    local n turn
    rm -f "$dir"/seconds?
    for ((turn = 1; turn <= turns; turn++)); do
        for n in 1 2 3; do run_plan $n; done
    done
}

median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print 1000 * v[int((NR + 1) / 2)] }'; }

# "predicted 27.6 ms" of the line that a run ends with, in milliseconds.
predicted() {
    sed -nE 's/^time: a step[ ,][^;]*predicted ([0-9.e+]+) (s|ms|us)\).*/\1 \2/p' "$1" | awk '{ print $1 * ($2 == "s" ? 1000 : $2 == "us" ? 0.001 : 1) }'
}

# A line a plan: number, predicted, measured.
times() { for n in 1 2 3; do echo "$n $(predicted "$dir/said$n") $(median "$dir/seconds$n")"; done; }

# The table, and whether it is as it should be.
judge() {
    printf '\n%4s  %12s  %12s  %s\n' plan predicted measured difference
    times | awk '
        function part(x, y) { return x > y ? x / y - 1 : y / x - 1 }
        { p[NR] = $2; m[NR] = $3; printf "%4d  %9.1f ms  %9.1f ms  %+.0f %%\n", $1, $2, $3, 100 * ($2 / $3 - 1)
          bad += !($2 > 0 && $3 > 0) || $2 > 1.2 * $3 || $2 < 0.8 * $3 }
        END { for (i = 1; i <= NR; i++) for (j = 1; j < i; j++)
                  if (part(m[i], m[j]) > 0.1 && (m[i] - m[j]) * (p[i] - p[j]) <= 0) { printf "plans %d and %d are predicted in the wrong order\n", j, i; bad++ }
              exit NR != 3 || bad > 0 }'
}

map_bytes() { $bin/pplan dump "$1" --memory --rank "$2" | awk '$1 == "map" && !n++ { print $3 }'; }

# What the ranks of a plan mapped in all, to the byte.
check_memory() {
    local planned=0 rank mapped
    for rank in 0 1 2 3; do planned=$((planned + $(map_bytes "$dir/plan$1.plan" $rank))); done
    mapped=$(sed -nE 's/^memory: 4 ranks: maps ([0-9,]+) bytes.*/\1/p' "$dir/said$1" | tr -d ,)
    printf 'plan %d: %d bytes planned for its ranks, %s mapped\n' "$1" $planned "$mapped"
    [ "$mapped" = $planned ] || fail "the memory of plan $1 is not what was planned"
}

# The machine's figures; without them there is no prediction to judge.
calibrate() {
    local status=0
    echo; echo "this machine is measured, which takes most of a minute"
    step $bin/prun calibrate -o "$dir/this.pcluster" 2>"$dir/calibrate.said" || status=$?
    [ $status -ne 0 ] || return 0
    if [ $status -eq 3 ] && grep -q "too busy to be measured" "$dir/calibrate.said"; then
        printf '%s\ndemo: the predictions are left out: other programs use this machine. All that came before stands\n' "$(cat "$dir/calibrate.said")"
        exit 0
    fi
    fail "$(cat "$dir/calibrate.said")"
}

mkdir -p "$dir"
calibrate
make_plans "$@"
measure
judge || { echo "once more, as others may have used the machine:"; measure; judge; } ||
    fail "predicted times are not within 20 % of the measured ones, or in another order (is the machine busy?)"
echo
for n in 1 2 3; do sed -n 's/^time:/plan '$n':/p' "$dir/said$n"; done
echo
for n in 1 2 3; do check_memory $n; done
echo "demo: times were predicted within 20 %, in the right order where they are more than 10 % apart, and memory to the byte"
