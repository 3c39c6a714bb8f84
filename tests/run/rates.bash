# A schedule of twenty steps, and the rates that it has; a script sources it after lib.bash.
schedule=(--set lr=1e-3 --set min_lr=1e-4 --set warmup=4 --set decay=cosine --set steps=20)

# Linear to 1e-3 at step 4, then 1e-4 + 4.5e-4 (1 + cos(pi (t - 4) / 16)).
cat >want <<'END'
1 2.5e-4
4 1e-3
8 8.68198e-4
9 8.00007e-4
12 5.5e-4
20 1e-4
END
right() {                            # LOG: its rates are those wanted
    paste -d ' ' <(field step "$1") <(field lr "$1") | awk 'NR == FNR { want[$1] = $2; n++; next }
        $1 in want { d = $2 / want[$1] - 1; if (d < 0) d = -d; if (d < 2e-6) good++; else print } END { exit good != n }' want -
}
