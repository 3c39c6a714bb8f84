# Runs repeat bit for bit, and a resumed run is the run that was not interrupted.
. "$TESTS/run/lib.bash"
make_plan p.plan -D drop=0.1
make_text t.txt $((21 * 16 + 1))     # 21 samples: steps 3 and 6 straddle an epoch's end
run() { "$RELEASE/prun" p.plan --data t.txt --save-every 3 --keep 9 --dump samples@4=s4.$1 --dump samples@6=s6.$1 "${@:2}" 2>>err; }

run a --save a --steps 7 --log a.log || exit 1
run b --save b --steps 7 --log b.log || exit 1
check "two runs print the same figures" 'cmp <(figures a.log) <(figures b.log)'
check "two runs end with the same weights and moments" 'same a/step-00000007 b/step-00000007'

"$RELEASE/prun" p.plan --data t.txt --save c --steps 3 --log c.log 2>>err || exit 1
run c --resume c --save c --steps 7 --log c.log || exit 1
check "a resumed run adds to its log the figures of an uninterrupted one" 'cmp <(figures a.log) <(figures c.log)'
check "a resumed run ends with the same weights and moments" 'same a/step-00000007 c/step-00000007'
check "K07 a resumed run reads the samples that come next" 'cmp s4.a s4.c && cmp s6.a s6.c && ! cmp -s s4.a s6.a'
check "K07 an epoch has every sample once" '[ "$(for k in 1 2 3; do
    "$RELEASE/prun" p.plan --data t.txt --steps 3 --dump samples@$k=s 2>>err && integers s; done | head -n 21 | sort -n | tr "\n" " ")" = "$(seq -s " " 0 20) " ]'
check "another seed is refused" 'refused 1 "--seed 2, but the run to resume has seed 1" "$RELEASE/prun" p.plan --data t.txt --resume c --seed 2'
check "another seed gives another run" '"$RELEASE/prun" p.plan --data t.txt --seed 2 --steps 1 --log d.log 2>>err && ! cmp -s <(figures d.log) <(head -n 1 a.log | figures)'
check "nothing left to do is said" '"$RELEASE/prun" p.plan --data t.txt --resume c --steps 5 2>said && grep -q "nothing to do: 7 steps are done, and the run has 5" said'
check "the sanitizer build does it too" 'prun p.plan --data t.txt --resume c/step-00000003 --save e --steps 5 --log e.log 2>>err && [ "$(field step e.log | tr "\n" " ")" = "4 5 " ]'
