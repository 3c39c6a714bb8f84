# All plans of the layout matrix, of as many models at a time as there are cores, in the
# optimised build: about half an hour of processor time.
export MATRIX=$RELEASE/tests/unit/test_layout_matrix

run_model() {
    CMOCKA_MESSAGE_OUTPUT=TAP "$MATRIX" "$1" >"$TMP/$1" 2>&1 || echo "not ok plans of $1: status $?" >>"$TMP/$1"
    grep -v "^1\.\." "$TMP/$1"
}
export -f run_model

"$MATRIX" models | xargs -P "$(nproc)" -I{} bash -c 'run_model {}'
