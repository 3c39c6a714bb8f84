# Rows of the layout matrix by ranks that MPI started.
. "$TESTS/run/rows.bash"
. "$TESTS/run/mpi.bash"
. "$TESTS/run/hosted_rows.bash"
"$MATRIX" write "$TMP" processes >rows
rows "of the layout matrix" f64 f32 bf16
{ own 'mesh dp = 4; microbatches = 2; sync = "server"'; own 'mesh dp = 2, tp = 2; microbatches = 2; sync = "server"; split heads, ffn, vocab by tp'; } >rows
rows "with a server" f32 bf16
beside=1
{ own 'mesh pp = 2, dp = 2; microbatches = 4; stage before h[1]; shard optimizer by dp'; own 'mesh dp = 2, tp = 2; microbatches = 2; split heads, ffn, vocab by tp; split seq by tp'; } >rows
rows "with communication beside computing" f32 f64
