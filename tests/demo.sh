#!/bin/bash
# The verdict of `make demo`, with stand-ins for pplan and prun: it must fail
# whenever the held-out loss is missing, no number, or not below the bigram entropy.
mkdir -p "$TMP/build/release/bench/text" && cd "$TMP" || exit 2
cp -R "$TOP/bench" . && cp "$RELEASE/bench/text/entropy" build/release/bench/text/ || exit 2
printf '#!/bin/bash\n' >build/release/pplan
cat >build/release/prun <<'END'
#!/bin/bash
while [ "$1" != --log ]; do shift; done
cat log.planted >"$2"
exit "$(cat status.planted)"
END
chmod +x build/release/pplan build/release/prun

# verdict NAME LOG STATUS: bench/demo.sh must exit with that status.
verdict() {
    printf '%b' "$2" >log.planted
    bench/demo.sh >out 2>&1
    local status=$?
    if [ $status -eq "$3" ]; then echo "ok $1"; else tail -n 5 out; echo "exit $status"; echo "not ok $1"; fi
}

echo 0 >status.planted
first='{"step": 1, "loss": 5.5}\n{"step": 100, "eval_loss": 1.5}\n'
verdict "a loss below the bigram entropy passes" "$first"'{"step": 200, "eval_loss": 2.27}\n' 0
verdict "the loss may be printed without spaces" '{"step":200,"eval_loss":2.0e0}\n' 0
verdict "the last loss counts, not the best" "$first"'{"step": 200, "eval_loss": 2.2740}\n' 1
verdict "a loss that is no number fails" '{"step": 200, "eval_loss": null}\n' 1
verdict "NaN fails" '{"step": 200, "eval_loss": NaN}\n' 1
verdict "a NaN after good losses fails" "$first"'{"step": 200, "eval_loss": NaN}\n' 1
verdict "a log without held-out loss fails" '{"step": 1, "loss": 0.1}\n' 1
echo 3 >status.planted
verdict "a failed run fails" "$first" 3
