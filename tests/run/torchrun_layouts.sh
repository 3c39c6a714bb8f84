# Rows of the layout matrix by ranks that are connected by TCP.
. "$TESTS/run/rows.bash"
. "$TESTS/run/torchrun.bash"
. "$TESTS/run/hosted_rows.bash"
"$MATRIX" write "$TMP" processes | sed -n '1~3p' >rows
rows "of the layout matrix" f64 f32 bf16
own 'mesh dp = 2, tp = 2; microbatches = 2; sync = "server"; split heads, ffn, vocab by tp' >rows
own 'mesh pp = 2, dp = 2; microbatches = 4; stage before h[1]; shard optimizer by dp' >>rows
rows "with a server and in stages" f32 f64
beside=1
rows "with communication beside computing" f32 f64
