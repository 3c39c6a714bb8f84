# Plans that pplan finds for the bundled models, made tiny, where a mesh alone is given: prun on
# four ranks has the losses and norms of one.
. "$TESTS/run/lib.bash"

# run NAME CLUSTER MODEL DEFINES RULES: a plan, and three steps of it into NAME.log.
run() {
    local name=$1 cluster=$2 model=$3 defines=$4 rules=$5
    "$RELEASE/pplan" plan "$MODELS/$model.pmodel" -c "$cluster" -D dtype=f64 $defines --with "$rules" -o "$name.plan" >said 2>&1 &&
        "$RELEASE/prun" "$name.plan" --data random --steps 3 --set warmup=1 --log "$name.log" >said 2>&1
}

like_one() {
    rm -f many.log
    run many laptop4 "$1" "$2" "bucket = 20 kB; $3" && near loss 1e-12 3 && near grad_norm 1e-11 3 || { cat said; return 1; }
}

widths="-D hidden=48 -D heads=12 -D ffn=120 -D layers=3"
while IFS='|' read -r model defines; do
    rm -f one.log
    run one laptop1 "$model" "$defines" 'bucket = 20 kB' || cat said
    for mesh in 'mesh tp = 4' 'mesh pp = 2, tp = 2' 'mesh pp = 2, dp = 2; shard optimizer by dp'; do
        check "$model under $mesh has the numbers of one rank" 'like_one "$model" "$defines" "$mesh"'
    done
done <<EOF
bert_base|-D batch=8 -D seq=12 -D vocab=60 -D position=12 $widths
t5_small|-D batch=8 -D source=24 -D target=12 -D vocab=60 -D head_dim=4 $widths
vit_b16|-D batch=8 -D patch=2 -D height=10 -D width=14 -D class=60 $widths
mlp|-D batch=8 -D pixel=24 -D hidden=120 -D class=60
two_tower|-D batch=8 -D seq=36 -D vocab=60 -D hidden=48 -D heads=12
EOF
