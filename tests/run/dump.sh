# Dumps: the state's own bytes, the same values whatever the micro-batches, and no
# wrong data for what the program does not store.
. "$TESTS/run/lib.bash"
make_text t.txt 900
reals() { tail -c +$((9 + $(od -An -t u8 -N8 "$1"))) "$1" | od -An -v -t f8 -w8; }
near() { paste <(reals "$1") <(reals "$2") | awk 'NF != 2 || ($1 - $2) ^ 2 > 1e-20 { exit 1 } END { exit NR == 0 }'; }
for m in 1 4; do
    make_plan $m.plan -D dtype=f64 --with "microbatches = $m"
    prun $m.plan --data t.txt --steps 3 --save d$m --save-every 1 --keep 3 --dump weights@2=w$m --dump moments@2=m$m --dump grads@2=g$m \
        --dump grad:wte@2=gw$m --dump 'h[0].attn.q@2='q$m --dump logits@2=l$m --dump ids@2=i$m --dump samples@2=s$m --dump wpe@2=p$m 2>said || cat said
done
check "weights and moments are those of the checkpoint" 'cmp w1 d1/step-00000002/weights.safetensors && cmp m1 d1/step-00000002/moments.safetensors'
for k in w m g gw q l p; do
    check "'$k' does not depend on the micro-batches" 'near ${k}1 ${k}4'
done
check "neither do ids and samples" 'cmp i1 i4 && cmp s1 s4 && [ "$(integers s1 | wc -l)" -eq 8 ]'
check "a gradient by itself is that among all" '[ "$(reals gw1 | tail -n 3)" = "$(reals g1 | tail -n 3)" ]'
check "the gradient of a tied table comes from both its uses" '[ "$(reals gw1 | awk "\$1 == 0" | wc -l)" -lt 100 ]'

no() { check "$1 is refused" 'refused 2 "$2" prun 1.plan --data t.txt --steps 3 --dump "$3=x" && [ ! -e x ]' "$@"; }
check() { local name=$1 what=$2; shift 2; if eval "$what"; then echo "ok $name"; else echo "not ok $name"; fi; }
no "an unknown path" "did you mean 'h[0].attn.q'?" 'h[0].atn.q@1'
no "a step after the last" "--dump 'weights@4': this run goes from step 1 to step 3, so it can be written at steps 0..3" weights@4
no "the gradients of step 0" "so it can be written at steps 1..3" grads@0
no "what is added into another's memory" "no instruction of the program stores this value by itself" 'grad:h[0].attn.q.x@1'
check "without @STEP it is refused" 'refused 2 "expected KIND@STEP=FILE" prun 1.plan --data t.txt --dump weights=x'

mkfifo fifo
cat fifo >read &
echo old >target && ln -s target link
check "a pipe is written in place" 'prun 1.plan --data t.txt --steps 1 --dump weights@1=fifo 2>err && wait && [ -p fifo ] && [ -s read ]'
check "behind a link its target is replaced" 'prun 1.plan --data t.txt --steps 1 --dump weights@1=link 2>err && [ -L link ] && ! grep -q old target'
check "a folder that is not there is found before step 1" 'refused 3 "cannot write into" prun 1.plan --data t.txt --steps 1 --dump weights@1=nodir/x --log early && [ ! -s early ]'
