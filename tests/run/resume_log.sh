# A log has each step once, however often the run died and went on.
. "$TESTS/run/lib.bash"
make_small p.plan
run() { "$RELEASE/prun" p.plan --data random --eval random --eval-every 2 --save d --save-every 2 --log l "$@"; }
"$RELEASE/prun" p.plan --data random --eval random --eval-every 2 --steps 6 --log whole 2>err || exit 2
run --steps 4 2>err && cp l died || exit 2
# It died in step 6, after its last checkpoint.
sed -n 7,8p whole >>died && sed -n 8p whole | head -c 30 >>died
resume() { cp "$1" l; run --resume d --steps 6 2>said; }
check "steps after the checkpoint are taken out and taken again" 'resume died && cmp <(figures l) <(figures whole) &&
    grep -qF "note: removed from the log '"'l'"' 3 lines after step 4, from where this run goes on" said'
rm -rf d && rm l && run --steps 4 2>err || exit 2
check "without such lines nothing is said" 'head -n 6 whole >part && resume part && cmp <(figures l) <(figures whole) && ! grep -q removed said'
rm -rf d && rm l && run --steps 4 2>err || exit 2
{ echo '# my notes'; head -n 7 whole; printf 'no end'; } >mixed
check "lines of another kind stay" 'resume mixed && [ "$(sed -n "1p;8p" l | tr "\n" " ")" = "# my notes no end " ] && grep -q " 1 line after step 4" said'
rm -rf d && rm l && run --steps 4 2>err || exit 2
cp died real && rm l && ln -s real l
check "behind a link its target is cut" 'run --resume d --steps 6 2>said && [ -L l ] && cmp <(figures real) <(figures whole)'
