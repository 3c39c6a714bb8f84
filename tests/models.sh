#!/bin/bash
# Parameter counts of the bundled models.  Each model says its own, in lines
#   # expect: 124,439,808 parameters
#   # expect: 354,823,168 parameters with -D layers=24 -D hidden=1024     (a remark)
# and pplan check must find the same.
cd "$TOP" || exit 2

check_count() {
    local file=$1 count=$2 options=$3 out name
    name="$file${options:+ $options}: $count"
    out=$("$ASAN/pplan" check "$file" $options 2>&1)
    if grep -qE "^parameters +$count in [0-9]+ weights\$" <<<"$out"; then
        echo "ok $name"
    else
        printf '%s\n' "$out" | head -n 20
        echo "not ok $name"
    fi
}

for file in $(find models -name '*.pmodel' ! -path 'models/std/*' | sort); do
    expects=$(sed -nE 's/^# expect: ([0-9,]+) parameters( with )?([^(]*).*/\1 \3/p' "$file")
    [ -n "$expects" ] || { echo "not ok $file says how many parameters it has"; continue; }
    while read -r count options; do check_count "$file" "$count" "$options"; done <<<"$expects"
done
