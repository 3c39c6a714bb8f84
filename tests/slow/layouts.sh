# Every layout of every model of test_layout_matrix, as many models at a time as there are
# cores: about half an hour of processor time.

run_model() {
    if "$ASAN/tests/unit/test_layout_matrix" "$1" >"$TMP/$1" 2>&1; then
        echo "ok every layout of $1"
    else
        tail -20 "$TMP/$1"
        echo "not ok every layout of $1"
    fi
}
export -f run_model

"$ASAN/tests/unit/test_layout_matrix" models | xargs -P "$(nproc)" -I{} bash -c 'run_model {}'
