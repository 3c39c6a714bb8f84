# Times on GPUs, by prun on the emulator: a trace has the events that the cpu's has, each stream's one after the other and each
# instruction after those that it waits for; the end of a run says where a step's time went, in parts that sum up to it.
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
. "$TESTS/run/gpu.bash"

# events FILE: of a trace, one a line: rank, instruction, step or -STEP of an evaluation, micro-batch, slot, track, begin, end.
events() {
    grep '"ph": "X"' "$1" | tr -d '{}":,' | awk '{
        for (i = 1; i < NF; i++) value[$i] = $(i + 1)
        if (/ evaluation after step /) value["step"] = -value["step"]
        printf "%d %d %d %d %d %d %.3f %.3f\n", value["pid"], value["instruction"], value["step"], value["micro"], value["slot"], value["tid"], value["ts"], value["ts"] + value["dur"] }'
}

# waits PLAN RANKS: of each rank's program, one a line: rank, instruction, the one that it waits for, whether of its slot.
waits() {
    local r
    for ((r = 0; r < $2; r++)); do
        "$RELEASE/pplan" dump "$1" --program --rank $r | sed -nE "s/^wait instr=([0-9]+) on=([0-9]+)( same_slot=true)?.*/$r \1 \2 \3/p"
    done
}

# What is wrong with the order of a trace: microseconds, of which a clock may be off by a thousandth.
disorder() {
    awk 'function earlier(a, b, what) { if (a > b + 0.002) { print what ": " $0; bad = 1 } }
        NR == FNR { wait[$1, $2] = wait[$1, $2] " " $3 ($4 ? " 1" : " 0"); n++; next }
        { key = $1 SUBSEP $6; earlier(start[key], $7, "before the one that was begun before it"); start[key] = $7; earlier($7, $8, "ends before it begins")
          if ($6 < 3) { earlier(end[key], $7, "beside another of its stream"); end[key] = $8 }
          k = split(wait[$1, $2], w, " ")
          for (i = 1; i < k; i += 2) earlier(w[i + 1] ? done[$1, w[i], $5] : last[$1, w[i]], $7, "before " w[i])
          done[$1, $2, $5] = last[$1, $2] = $8; m += k > 0 }
        END { if (n < 4 || m < 4) { print n " waits, of " m " events"; bad = 1 } exit bad }' <(waits "$1" "$2") <(events "$3" | sort -s -k1,1n -k7,7g)
}

traces() {
    plan 1f1b.plan gpt2 "layers=2 drop=0.1" "mesh pp = 2, dp = 2; stage before h[1]; microbatches = 4" && plan dp.plan gpt2 "layers=2" "mesh dp = 2; devices = [0, 1]; microbatches = 2; bucket = 40 kB" || return 1
    train cpu 1f1b.plan x --eval e.txt --trace cpu.json && train cudaemu 1f1b.plan x --eval e.txt --trace gpu.json || return 1
    check "a trace has the events of the cpu's" '[ "$(events gpu.json | wc -l)" -gt 1000 ] && cmp <(events gpu.json | cut -d " " -f 1-6 | sort) <(events cpu.json | cut -d " " -f 1-6 | sort)'
    check "streams are in order, and after what they wait for" 'disorder 1f1b.plan 4 gpu.json'
    check "so they are with delays" 'CUDAEMU_SEED=6 train cudaemu dp.plan x --ranks threads --trace dp.json && disorder dp.plan 2 dp.json'
    check "ranks have one clock" 'events gpu.json | awk "\$3 == 2 { if (!(\$1 in a) || \$7 < a[\$1]) a[\$1] = \$7; if (\$8 > b[\$1]) b[\$1] = \$8 } END { for (i in a) for (k in a) if (a[i] > b[k]) exit 1 }"'
    check "a trace of one that fails has what was done" '! CUDAEMU_FAIL=kernel:900=700 train cudaemu dp.plan x --ranks threads --trace bad.json >/dev/null && [ "$(events bad.json | wc -l)" -gt 100 ]'
}

# parts FILE: of what the end of a run tells, a line each: microseconds and the name, the step first.
parts() {
    grep '^time: ' "$1" | sed -E 's/ \(predicted [^)]*\)//g; s/^time: //; s/median of [0-9]+, /;/; s/; ?/\n/g' | sed 1d | awk '{
        unit = $NF; v = NF > 1 ? $(NF - 1) : 0; v *= unit == "s" ? 1e6 : unit == "ms" ? 1e3 : 1; $NF = ""; $(NF - 1) = ""; print v, $0 }'
}
sums_up() { parts "$1" | grep -v hidden | awk 'NR == 1 { all = $1 } NR > 1 { sum += $1 } END { print sum, all; exit !(NR > 4 && sum < 1.02 * all && sum > 0.98 * all) }'; }

tallies() {
    train cudaemu 1f1b.plan x || return 1
    check "where a step's time went, as predicted too" 'once "^time: a step of rank [02] (stage [01], the busiest), median of 1, [0-9.]* [mu]*s (predicted " && grep -q "; exposed communication over pp [0-9.]* [mu]*s (predicted" said'
    check "parts sum up to the step" 'sums_up said'
    train cudaemu dp.plan x || return 1
    check "what goes on beside computing is told beside it" 'grep -q "; exposed communication over dp .*; hidden communication over dp [0-9.]* [mu]*s" said && sums_up said'
    check "of a long run one step in eight is measured after the first five" 'steps=30 train cudaemu dp.plan x && grep -q "median of 6, " said'
}

all() { traces && tallies || echo "not ok a run of these tests failed"; }
make_text t.txt $((64 * 16 + 1))
make_text e.txt 200 3
on_gpus all
