# M07: what a model without a loss gives is delivered whole, whichever stage makes it: logits of a prompt under stages,
# in f32 and bf16, with tied and with separate tables, for one row and for fewer rows than stages.
. "$TESTS/run/lib.bash"
PRUN=$RELEASE/prun
sed 's/peak.f64/peak.bf16 = 30 GFLOP\/s\n  peak.f64/' "$MODELS/clusters/laptop4.pcluster" >four.pcluster
for m in gpt2 llama; do
    sed -E "/^  optimizer/,/^  }/d; /input labels/d; s/minimize.*/output logits/; s|\.\./std|std|" "$MODELS/tiny/tiny_$m.pmodel" >$m.pmodel
done
# numbers FILE DTYPE: one a line; those of bf16 are the upper halves of f32.
numbers() {
    local at=$((9 + $(od -An -t u8 -N8 "$1")))
    if [ "$2" = f32 ]; then tail -c +$at "$1" | od -An -v -t f4 -w4; else tail -c +$at "$1" | od -An -v -t u2 -w2 |
        awk '{ e = int($1 / 128) % 256; f = (e ? 1 : 0) + $1 % 128 / 128; print ($1 > 32767 ? -1 : 1) * f * 2 ^ ((e ? e : 1) - 127) }'; fi
}
# forward NAME MODEL DTYPE ROWS RULES OPTION...: logits of the same prompt.
forward() {
    "$RELEASE/pplan" plan $2.pmodel -c four.pcluster -D dtype="$3" -D batch="$4" -D seq=16 -D vocab=64 -D hidden=32 -D heads=4 -D ffn=64 --with "$5" -o "$1.plan" >said 2>&1 &&
        "$PRUN" "$1.plan" --data random --steps 1 --dump $value@1="$1" "${@:6}" >said 2>&1
}
# logits ROWS...: those of one device of the kind; on the emulator of two rows.
logits() {
    local m dtype rows stages layer value
    [ $device = cpu ] || set -- 2
    for m in gpt2 llama; do
        layer=h value=logits
        [ $m = gpt2 ] || layer=layer value=head
        for dtype in f32 bf16; do
            for rows in "$@"; do
                rm -f one many
                forward one $m $dtype $rows 'devices = [0]' $on || cat said
                numbers one $dtype >one.txt
                for stages in "mesh pp = 2; devices = [0, 1]; stage before ${layer}[2]" "mesh pp = 4; stage every 1 in $layer"; do
                    check "M07 $m in $dtype, $rows rows, $(wc -l <one.txt) logits (${stages%%;*}, $device)" 'forward many $m $dtype $rows "$stages" $on && [ "$(wc -l <one.txt)" = $((rows * 16 * 64)) ] &&
                        paste <(numbers many $dtype) one.txt | awk "{ d = \$1 - \$2; n += \$2 * \$2; s += d * d } END { exit !(n > 0 && s <= 1e-10 * n) }"' || cat said
                done
            done
        done
    done
}
on_devices logits 1 2 8
