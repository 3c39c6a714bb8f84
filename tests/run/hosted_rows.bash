# hosted_rows.bash -- rows of the layout matrix by ranks that another program starts: what they log and write is what processes of prun
# do, bit for bit.  A script sources it after rows.bash and hosted.bash; $beside=1: with communication beside computing.
beside=
make_text t.txt 4000
own() { echo "4|$MODELS/tiny/tiny_gpt2.pmodel|layers=2|$1||3|t.txt"; }

# train NAME COMMAND...: the row's plan.
train() {
    local name=$1
    shift
    timeout 200 "$@" "$PRUN" many.plan $data --steps "$steps" $set --log "$name.log" --dump "grads@1=$name.grads" --dump "weights@$steps=$name.weights" >said 2>&1
}

row() {
    rm -f ./*.log ./*.grads ./*.weights
    laptop "$ranks"
    sed -i -E 's/^( +)peak.f64 .*/&\n\1peak.bf16 = 100 GFLOP\/s/' "laptop$ranks.pcluster"
    [ -z "$beside" ] || sed -i -E 's/^( +)threads( +)= 1$/&\n\1comm_threads = 1/' "laptop$ranks.pcluster"
    "$RELEASE/pplan" plan "$model" -I "$MODELS/std" -c "laptop$ranks.pcluster" $defines -D dtype=$dtype --with "$rules" -o many.plan >said 2>&1 || return
    [ "$(grep -c 'comm_threads = 1' many.plan)" = "${beside:-0}" ] && train near && train far $start "$ranks" || return
    [ "$(figures near.log)" = "$(figures far.log)" ] && cmp near.grads far.grads && cmp near.weights far.weights
}

# rows WHAT TYPE...: those of the file `rows`, in these types in turn.
rows() {
    local ranks model defines rules set steps data dtype n=0 good=0 what=$1
    shift
    while IFS='|' read -r ranks model defines rules set steps data; do
        defines=$(printf -- '-D %s ' $defines) set=${set:+$(printf -- '--set %s ' $set)} data=$(printf -- '--data %s ' $data) dtype=${@:1 + n % $#:1}
        n=$((n + 1))
        if row >seen 2>&1 </dev/null; then good=$((good + 1)); else echo "$ranks ranks, $dtype, $defines, '$rules':"; cat seen said; fi
    done <rows
    check "$n plans by $by as by processes, $what, in $*" '[ $good = $n ] && [ $n -ge 2 ]'
}
