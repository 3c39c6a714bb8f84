# Memory of many ranks is shown as that of one is (memory.sh): between step 1 and the last
# nothing is mapped or allocated by any of them, and all together grow by no more than their
# maps and reserves.
. "$TESTS/run/lib.bash"
make_text t.txt 4000
make_text v.txt 300
reserve=$((256 << 20))

# value NAME RANK
value() { sed -nE "s/^$1 //p" "report.$2"; }

# plan_ranks FILE MESH CLUSTER OPTION...: of a GPT with maps of megabytes.
plan_ranks() {
    local out=$1 mesh=$2 cluster=$3
    shift 3
    "$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c "$cluster" -D layers=2 -D hidden=128 --with "$mesh" -o "$out" "$@"
}

# map_bytes PLAN RANK
map_bytes() { "$RELEASE/pplan" dump "$1" --memory --rank "$2" | awk '$1 == "map" && !n++ { print $3 }'; }

# watch NAME PLAN RANKS OPTION...
watch() {
    local name=$1 plan=$2 n=$3 rank quiet=0 ours=0 steps=0 touched=0 grown=0 maps=0 before after
    shift 3
    rm -f report.*
    MEMORY_REPORT=report LD_PRELOAD=$RELEASE/preload/memory.so "$RELEASE/prun" "$plan" --data t.txt --steps 12 "$@" >/dev/null 2>err || cat err
    for ((rank = 0; rank < n; rank++)); do
        [ "$(value map_calls $rank)" = 0 ] && [ "$(value maps_changed $rank)" = 0 ] && quiet=$((quiet + 1))
        [ "$(value our_mallocs $rank)" = 0 ] && ours=$((ours + 1))
        [ "$(value steps $rank)" = 12 ] && steps=$((steps + 1))
        read -r before after <<<"$(value our_maps $rank)"
        # What is mapped beyond the plan is less than a huge page a rank, to whose size large parts are rounded.
        [ "$after" -ge "$(map_bytes "$plan" $rank)" ] && [ $((before - after)) -lt $((n * (2 << 20))) ] && touched=$((touched + 1))
        read -r before after <<<"$(value pss_kib $rank)"
        grown=$((grown + (after - before) * 1024))
        maps=$((maps + $(map_bytes "$plan" $rank)))
    done
    check "$name: nothing mapped, unmapped or grown by any of $n ranks" '[ $quiet = $n ] || ! cat report.*'
    check "$name: no malloc from our own code" '[ $ours = $n ] || ! cat report.*'
    check "$name: all steps of all were watched" '[ $steps = $n ]'
    check "$name: all that was planned was touched before step 1" '[ $touched = $n ] || ! cat report.*'
    check "$name: together they grow by at least the maps and at most maps and reserves" '[ $grown -ge $maps ] && [ $grown -le $((maps + n * reserve)) ] || ! echo "$grown, maps $maps"'
}

dp='devices = [0, 1]; microbatches = 2; mesh dp = 2'
tp='devices = [0, 1]; microbatches = 2; mesh tp = 2; split heads, ffn, vocab by tp; split seq by tp'
pp='devices = [0, 1]; microbatches = 4; mesh pp = 2; stage before h[1]'
for layout in dp tp pp; do
    plan_ranks $layout.plan "${!layout}" laptop4 >said || cat said
    watch "$layout = 2" $layout.plan 2 --log l --eval v.txt --eval-every 3 --save $layout --save-every 2
done
plan_ranks four.plan 'mesh dp = 2, tp = 2; microbatches = 2; split heads, ffn, vocab by tp; shard optimizer by dp' laptop4 >said || cat said
sed -E 's/^( +)threads( +)= 1$/&\n\1comm_threads = 1/' dp.plan >beside.plan
watch "dp = 2, communicating beside computing" beside.plan 2 --log l --eval v.txt --eval-every 3 --save beside --save-every 2
watch "dp = 2, tp = 2, sharded moments" four.plan 4 --eval v.txt --eval-every 3 --save four --save-every 2

# Devices with exactly the bytes of the fullest rank's map and the reserve will do; with one
# less they will not: a plan leaves nothing open that could be chosen otherwise.
with_memory() { sed -E "s/memory( +)= 2 GiB/memory\1= $2 B/" "$1"; }
for layout in dp tp pp; do
    most=$(printf '%s\n' "$(map_bytes $layout.plan 0)" "$(map_bytes $layout.plan 1)" | sort -n | tail -n 1)
    with_memory $layout.plan $((most + reserve)) >x.plan
    check "$layout = 2: devices of exactly map and reserve run it" '"$RELEASE/prun" x.plan --data t.txt --steps 1 2>said' || cat said
    with_memory $layout.plan $((most + reserve - 1)) >y.plan
    check "$layout = 2: one byte less is refused" 'refused 1 "1 B too much" "$RELEASE/prun" y.plan --data t.txt --steps 1'
done
