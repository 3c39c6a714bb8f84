# prun when one call for memory fails, or one that ranks are started with: status 3 and a message, all
# ranks gone within 10 s, no part of a file, and the last checkpoint as it was.
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
. "$TESTS/run/scarce.bash"
most=${NO_MEMORY_MOST:-24}
make_small one.plan
"$RELEASE/pplan" plan "$MODELS/mlp.pmodel" -c laptop4 -D batch=8 -D pixel=8 -D hidden=8 -D class=4 -D dtype=f32 --with 'mesh dp = 2, tp = 2; split hidden by tp; shard optimizer by dp' -o four.plan >/dev/null || exit 2

run() { echo "$PRUN" "$TMP/$1.plan" --data random --save "$TMP/d" --save-every 1 --dump "weights@2=$TMP/w" --trace "$TMP/t" --steps "${@:2}"; }
begin() { rm -rf d; echo old >w; echo old >t; [ -z "$from" ] || cp -r "$from" d; }
# Of the checkpoints that are there each is one of an undisturbed run; so is what was dumped.
sound() {
    local step
    ! alive || { kill -KILL $(processes); return 1; }
    [ -z "$(find . -name '*tmp')" ] || return 1
    [ -z "$from" ] || [ -e d/latest ] || return 1
    for step in $(cd d 2>/dev/null && ls -d step-* latest 2>/dev/null); do
        diff -r "d/$step" "good/$step" >/dev/null || [ "$step" = latest ] && [ -e "d/$(cat d/latest)/state.json" ] || return 1
    done
    cmp -s w good.w || [ "$(cat w)" = old ] || return 1
    [ "$(cat t)" = old ] || tail -c 3 t | grep -q ']\|}'
}

# all NAME OF RANK MOST LEAST COMMAND...
all() {
    local name=$1 of=$2 rank=$3 many=$4 least=$5
    shift 5
    begin
    "$@" >said 2>&1 || { cat said; echo "not ok $name: it fails with memory enough"; return; }
    rm -rf good
    mv d good && cp w good.w
    [ -z "$from" ] || cp -rn "$from"/step-* good
    sweep "$of" "$rank" "$many" "$@"
    swept "$name" "$least"
}

from=""
all "one rank, maps and threads" map "" 1000 2 $(run one 2)
all "one rank, heap" heap "" "$most" 3 $(run one 2)
all "one rank, libraries" library "" $((most / 4)) 1 $(run one 2)
all "four ranks, launcher's maps, files and processes" map launcher 1000 8 $(run four 2)
all "four ranks, launcher's heap" heap launcher "$most" 3 $(run four 2)
for rank in 0 2; do
    all "four ranks, rank $rank's maps and threads" map $rank 1000 4 $(run four 2)
    all "four ranks, rank $rank's heap" heap $rank "$most" 3 $(run four 2)
done
all "four ranks, rank 1's libraries" library 1 $((most / 4)) 1 $(run four 2)
all "threads as ranks" map "" 1000 8 $(run four 2 --ranks threads)
for plan in one four; do
    from=""
    begin
    "$PRUN" $plan.plan --data random --steps 1 --save "$TMP/first" >/dev/null 2>&1
    from=$TMP/first
    all "$plan: resuming, maps and threads" map "$([ $plan = one ] || echo 0)" 1000 4 $(run $plan 3 --resume "$TMP/d")
    all "$plan: resuming, heap" heap "$([ $plan = one ] || echo 0)" "$most" 3 $(run $plan 3 --resume "$TMP/d")
    rm -rf first
done
