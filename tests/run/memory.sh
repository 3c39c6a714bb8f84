# Memory is shown: between step 1 and the last nothing is mapped or allocated, and
# the process grows by no more than the map and the reserve.
. "$TESTS/run/lib.bash"
make_text t.txt 4000
make_text v.txt 300
value() { sed -nE "s/^$1 //p" report; }

watch() {                            # NAME PLAN OPTION...
    local name=$1
    shift
    MEMORY_REPORT=report LD_PRELOAD=$RELEASE/preload/memory.so "$RELEASE/prun" "$@" >/dev/null 2>err || cat err
    check "$name: nothing mapped, unmapped or grown" '[ "$(value map_calls)" = 0 ] && [ "$(value maps_changed)" = 0 ] || ! cat report'
    check "$name: no malloc from our own code" '[ "$(value our_mallocs)" = 0 ] || ! cat report'
    check "$name: all steps were watched" '[ "$(value steps)" -gt 5 ]'
}
make_plan gpt.plan --with 'microbatches = 4'
watch "gpt" gpt.plan --data t.txt --steps 12 --eval v.txt --eval-every 3 --log l
watch "gpt with saves" gpt.plan --data t.txt --steps 12 --save d --save-every 2
"$RELEASE/pplan" plan "$MODELS/tiny/tiny_llama.pmodel" -c laptop1 -D layers=2 -o llama.plan >/dev/null || exit 2
watch "llama" llama.plan --data random --steps 10
# Buffers of megabytes that two threads take and give back at once: their holes must be filled again.
"$RELEASE/pplan" plan "$MODELS/mlp.pmodel" -c laptop1 -D dtype=f32 -D batch=512 -D hidden=1024 -D pixel=1024 -o wide.plan >/dev/null || exit 2
watch "wide matrices" wide.plan --data random --steps 10
"$RELEASE/pplan" plan "$MODELS/mlp.pmodel" -c laptop1 -D dtype=f32 -o mlp.plan >/dev/null || exit 2
watch "mlp" mlp.plan --data random --steps 10

# Growth against the plan's own figures.
map=$("$RELEASE/pplan" dump mlp.plan --memory | awk '$1 == "map" { print $3 }')
reserve=$((256 << 20))
read -r before after <<<"$(value pss_kib)"
check "Pss grows by at least the map and at most the map and the reserve" '[ $(((after - before) * 1024)) -ge "$map" ] && [ $(((after - before) * 1024)) -le $((map + reserve)) ]'

# A device with exactly the bytes of map and reserve will do; with one less it will not.
cluster() { sed -E "s/memory += 8 GiB/memory = $1 B/" "$MODELS/clusters/laptop1.pcluster" >c.pcluster; }
cluster $((map + reserve))
check "a device of exactly map and reserve runs it" '"$RELEASE/pplan" plan "$MODELS/mlp.pmodel" -D dtype=f32 -c c.pcluster --with "microbatches = 1" -o x.plan >said 2>&1 &&
    "$RELEASE/prun" x.plan --data random --steps 1 2>said || ! cat said'
cluster $((map + reserve - 1))
check "one byte less is refused" 'refused 1 "1 B too much" "$RELEASE/pplan" plan "$MODELS/mlp.pmodel" -D dtype=f32 -c c.pcluster --with "microbatches = 1" -o y.plan'
