#!/bin/bash
# The verdicts of `make demo`, with stand-ins for pplan and prun: it must fail
# whenever the held-out loss is missing, no number, or not below the bigram entropy,
# whenever four ranks do not have the losses of one, and whenever a prediction does not hold;
# not when the machine is too busy for any.
mkdir -p "$TMP/build/release/bench/text" && cd "$TMP" || exit 2
cp -R "$TOP/bench" . && cp "$RELEASE/bench/text/entropy" build/release/bench/text/ || exit 2
cat >build/release/pplan <<'END'
#!/bin/bash
echo "$*" >>pplan.log
case $*:$1 in *--rank*:dump) echo "map 1 $(awk -v plan="$2" 'plan ~ "plan" $1 ".plan" { print $4 }' times.planted) B" ;; esac
END
cat >build/release/prun <<'END'
#!/bin/bash
[ "$1" != calibrate ] || { cat calibrate.planted >&2; exit "$(cat calibrated.planted)"; }
plan=$1
while [ "$1" != --log ]; do shift; done
case $2 in
*/turn.jsonl)
    read -r n predicted measured bytes <<<"$(awk -v plan="$plan" 'plan ~ "plan" $1 ".plan"' times.planted)"
    for i in {1..45}; do echo '{"step": '"$i"', "seconds": '"$measured"'e-3, "mfu": 1}'; done >"$2"
    { echo "time: a step of rank 2 (stage 1, the busiest), median of 43, 9 ms (predicted $predicted ms); matmul 1 ms (predicted 7 s)"
      echo "memory: 4 ranks: maps $((4 * bytes + $(cat more.planted))) bytes (all)"; } >&2
    ;;
*/probe.jsonl) for i in {1..20}; do echo '{"step": '"$i"', "seconds": '"$(cat seconds.planted)"', "mfu": 1}'; done >"$2" ;;
*/ranks.jsonl) cat ranks.planted >"$2" ;;
*) cat log.planted >"$2"; exit "$(cat status.planted)" ;;
esac
END
chmod +x build/release/pplan build/release/prun

# verdict NAME LOG STATUS: bench/demo.sh must exit with that status.
verdict() {
    printf '%b' "$2" >log.planted
    bench/demo.sh >out 2>&1
    local status=$?
    if [ $status -eq "$3" ]; then echo "ok $1"; else tail -n 5 out; echo "exit $status"; echo "not ok $1"; fi
}

ten() { for i in {1..10}; do printf '{"step": %d, "loss": %s, "mfu": 1}\\n' "$i" "$1"; done; }
first=$(ten 5.5)'{"step": 100, "eval_loss": 1.5}\n'
times() { printf '%s\n' "$@" >times.planted; }
echo 0 >status.planted
echo 0 >calibrated.planted
: >calibrate.planted
echo 0.05 >seconds.planted
echo 0 >more.planted
times "1 20 22 1000" "2 30 28 2000" "3 21 24 3000"
printf '%b' "$(ten 5.50001)" >ranks.planted
verdict "a loss below the bigram entropy passes" "$first"'{"step": 200, "eval_loss": 2.27}\n' 0
grep -q -- '-D steps=1400 .*demo.plan' pplan.log && echo "ok a run is as long as suits the machine" || { cat pplan.log; echo "not ok a run is as long as suits the machine"; }
verdict "the loss may be printed without spaces" "$first"'{"step":200,"eval_loss":2.0e0}\n' 0
verdict "the last loss counts, not the best" "$first"'{"step": 200, "eval_loss": 2.2740}\n' 1
verdict "a loss that is no number fails" "$first"'{"step": 200, "eval_loss": null}\n' 1
verdict "NaN fails" "$first"'{"step": 200, "eval_loss": NaN}\n' 1
verdict "a NaN after good losses fails" "$first"'{"step": 200, "eval_loss": NaN}\n' 1
verdict "a log without held-out loss fails" "$(ten 0.1)" 1
good="$first"'{"step": 200, "eval_loss": 2.27}\n'
echo 3 >calibrated.planted
echo "error: this machine is too busy to be measured: a link did not come to 3 rounds in time" >calibrate.planted
verdict "a machine too busy to be measured passes" "$good" 0
grep -q "^demo: the predictions are left out: " out && ! grep -q "^plan" out && echo "ok and the predictions are left out, which is said" || { cat out; echo "not ok and the predictions are left out, which is said"; }
verdict "though not when it did not learn" "$first"'{"step": 200, "eval_loss": 2.2740}\n' 1
echo "error: cannot write 'this.pcluster': No space left on device" >calibrate.planted
verdict "another failure of the machine fails" "$good" 1
echo 0 >calibrated.planted
times "1 20 26 1000" "2 30 28 2000" "3 21 24 3000"
verdict "a time predicted too short fails" "$good" 1
times "1 20 16 1000" "2 30 28 2000" "3 21 24 3000"
verdict "a time predicted too long fails" "$good" 1
times "1 20 22 1000" "2 21 24.5 2000" "3 22 20 3000"
verdict "a wrong order of plans that differ fails" "$good" 1
times "1 20 22 1000" "2 21 21.5 2000" "3 22 21 3000"
verdict "the order of plans that are alike is free" "$good" 0
echo 64 >more.planted
verdict "a map of other bytes fails" "$good" 1
echo 0 >more.planted
printf '%b' "$(ten 5.5001)" >ranks.planted
verdict "losses of four ranks that differ fail" "$first"'{"step": 200, "eval_loss": 2.27}\n' 1
head -n 9 ranks.planted >few && mv few ranks.planted
verdict "fewer steps of four ranks fail" "$first"'{"step": 200, "eval_loss": 2.27}\n' 1
echo 3 >status.planted
verdict "a failed run fails" "$first" 3
