#!/bin/bash
# The program that compares predictions with measured runs, on a few made-up rows: what it uses,
# what it refuses and why, and what it says of files that are wrong.  Profiles read back.
cd "$TOP" || exit 2
check() { if [ "$2" = "$3" ]; then echo "ok $1"; else printf 'expected: %s\nfound: %s\n' "$3" "$2"; echo "not ok $1"; fi; }

cp tests/accuracy/*.csv "$TMP" || exit 2
out=$("$ASAN/accuracy" --rows "$TMP/rows.csv" 2>&1)
check "the program succeeds" $? 0
line() { sed -nE "s/ +/ /g; /$1/p" <<<"$out" | head -n "${2:-1}" | tail -n 1; }
check "classes are counted" "$(line ': 14 rows' | sed 's/^[^:]*: //')" \
    "14 rows, class A 12, class B 0, class C 1, class M 0, without a class 1; used: class A, and the memory of those without"
check "rows used and refused" "$(line '^refused')" "refused 9 of 13, used 4"
for why in 'experts \(MoE\)' 'precision fp8' 'sharded weights' 'chunks' 'heads or ffn do not divide' 'no tp' "malformed: tp is 'two'" \
    'no profile for a runtime nobody' 'malformed: 5 cells, not 37'; do
    check "refused by name: $why" "$(line "^ 1 .*$why" | wc -l)" 1
done
check "times of class A alone" "$(line '^all ' | cut -d' ' -f2)" 2
check "Korthikanti's rows stand apart" "$(line '^Korthikanti' | cut -d' ' -f5)" 1
check "memory of rows without a class too" "$(sed -nE '/^peak memory/,$s/^all +([0-9]+) .*/\1/p' <<<"$out")" 2
check "a line for each row" "$(grep -cE '^(one|two|unknown|reserved),' <<<"$out")" 4

# Two layers and a head that cost as much as one another: a sum that just reaches half of all ends the stage.
{ head -n 1 tests/accuracy/rows.csv; sed -n '2s/,8,bf16,8,1,1,/,8,bf16,4,1,2,/p' tests/accuracy/rows.csv; } >"$TMP/even.csv"
cut() { sed "2s/,1.342,2,256,512,4,4,1024,/,1.342,$1,256,512,4,4,$2,/" "$TMP/even.csv" >"$TMP/cut.csv"; "$ASAN/accuracy" --commands "$TMP/cut.csv" 2>&1 | sed -nE 's/.*stage before ([a-z0-9]+(\[[0-9]+\])?).*/\1/p'; }
check "a stage ends where its part is reached" "$(cut 3 2560)" "layer[2]"
check "a stage ends where its part is passed" "$(cut 3 2561) $(cut 3 2559)" "norm layer[2]"

# A published run with times of our own: what is fitted to them, and what a run that is far off does to it.
fitted() {
    local s k=0 rows=bench/accuracy/rows/published.csv
    { head -n 1 $rows; for s in "${@:2}"; do sed -nE "s/^$1,(.*,flash,)[0-9.]+,/r$((k++)),\1$s,/p" $rows; done; } >"$TMP/fit.csv"
    "$ASAN/accuracy" --fit "$TMP/fit.csv"
}
efficiency() { sed -nE 's/^h100 efficiency +([0-9.]+) .*/\1/p'; }
out=$(fitted usp-1B-n1-d8t1p1z0m2-0 3.4 3.43)
check "a fit comes near to the times" "$(line '^ fitted all 2 rows' | sed -nE 's/.*most (0\.[0-9])$/within 1 %/p')" "within 1 %"
check "a run three times as slow hardly moves a fit" \
    "$(awk -v a="$(efficiency <<<"$out")" -v b="$(fitted usp-1B-n1-d8t1p1z0m2-0 3.4 3.43 9 | efficiency)" 'BEGIN { print (a > 0 && b > 0.993 * a && b < 1.007 * a) }')" 1
out=$(fitted dgxc-v25.02.02-nemotron4-15b-H100-1024-bf16 $(seq 2 0.01 2.1))
check "the measure of a GPU's matmuls is not fitted" "$(grep -oE '^(h100|nemo) (efficiency|slowdown.m[a-z]+) ' <<<"$out" | xargs)" "h100 efficiency nemo slowdown.memory"

said() { "$ASAN/accuracy" "$@" 2>&1 >/dev/null; echo "= $?"; }
check "a file that is not there" "$(said "$TMP/none.csv")" "error: cannot read '$TMP/none.csv': No such file or directory
= 3"
printf 'id,source\na,b\n' >"$TMP/few.csv"
check "columns that are missing" "$(said "$TMP/few.csv" | grep -c "lacks the column 'model_name', 'layers'.*few.csv")" 1
check "an option that is none" "$(said --rosw | head -n 1)" "error: unknown option '--rosw'"

for file in models/profiles/*.pprofile; do
    name=$(basename "$file" .pprofile)
    "$ASAN/pplan" fmt "$file" >"$TMP/$name.pprofile" 2>"$TMP/err"
    tell() { "$ASAN/pplan" estimate tiny/tiny_gpt2.pmodel -c dgx_h100 -D dtype=bf16 --with 'devices = [0]' --profile "$1" 2>&1; }
    check "profile $name reads back" "$(tell "$TMP/$name.pprofile" | md5sum)" "$(tell "$name" | md5sum)"
    check "profile $name is used" "$(tell "$name" | grep -c "under profile $name")" 1
done
