# Rows of the layout matrix by pplan and prun themselves: what their ranks, as processes, log
# and write is what one rank does, and ranks as threads repeat it bit for bit.
. "$TESTS/run/lib.bash"
MATRIX=$ASAN/tests/unit/test_layout_matrix COMPARE=$ASAN/tests/tools/compare_files
laptop() { sed "s/4 \* core/$1 * core/; s/laptop4/laptop/" "$MODELS/clusters/laptop4.pcluster" >"laptop$1.pcluster"; }

# plan RANKS RULES: of the row's model; plans of one rank have no rules.
plan() {
    laptop "$1"
    "$RELEASE/pplan" plan "$model" -I "$MODELS/std" -c "laptop$1.pcluster" -D dtype=f64 $defines ${2:+--with "$2"} -o "$1.plan" >said 2>&1
}

# train PLAN NAME OPTION...: its log and dumps.
train() {
    local plan=$1 name=$2
    shift 2
    "$RELEASE/prun" "$plan" $data --steps "$steps" $set --log "$name.log" --dump "grads@1=$name.grads" \
        --dump "weights@$steps=$name.weights" "$@" >said 2>&1
}

row() {
    rm -f ./*.log ./*.grads ./*.weights
    plan 1 && plan "$ranks" "$rules" || return
    train 1.plan one && train "$ranks.plan" many && train "$ranks.plan" threads --ranks threads || return
    near loss 1e-12 "$steps" && near grad_norm 1e-11 "$steps" || return
    "$COMPARE" many.grads one.grads 1e-10 1e-15 && "$COMPARE" many.weights one.weights 1e-9 1e-13 || return
    [ "$(figures many.log)" = "$(figures threads.log)" ] && cmp many.grads threads.grads && cmp many.weights threads.weights
}

# check_rows GROUP: a dozen.
check_rows() {
    local ranks model defines rules set steps data good=0
    "$MATRIX" write "$TMP" "$1" >rows || exit 2
    while IFS='|' read -r ranks model defines rules set steps data; do
        defines=$(printf -- '-D %s ' $defines) set=$(printf -- '--set %s ' $set) data=$(printf -- '--data %s ' $data)
        if row >seen 2>&1; then good=$((good + 1)); else echo "$ranks ranks, $defines, '$rules':"; cat seen said; fi
    done <rows
    check "$(wc -l <rows) plans as processes of prun against one rank in f64, and as threads bit for bit" '[ $good = 12 ] && [ "$(wc -l <rows)" = 12 ]'
}
