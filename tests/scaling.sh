#!/bin/bash
# What planning costs grows with the model, not with its square.  Four times the
# layers take about four times as long; something quadratic takes up to sixteen.
# Machines are noisy: the least of several runs counts, one after the other.
# alone: neighbours take caches and share cores, which processor time shows, too
cd "$TMP" || exit 2

few=100 many=400 limit=8

# seconds LAYERS: of processor time that planning a toy GPT takes.  User and system
# together: the clock is exact, but only ticks tell the two apart.
seconds() {
    local TIMEFORMAT='%3U %3S'
    { time timeout 120 "$RELEASE/pplan" plan "$TOP/models/tiny/char_gpt.pmodel" -c laptop1 -D layers="$1" -o "$1.plan" >/dev/null; } 2>&1 |
        awk '{ print $1 + $2 }'
}

least() { sort -g | head -n 1; }

for _ in 1 2 3 4 5; do
    seconds "$few" >>few
    seconds "$many" >>many
done
short=$(least <few) long=$(least <many)
if [ -s "$few.plan" ] && [ -s "$many.plan" ] &&
    awk -v a="$short" -v b="$long" -v limit="$limit" 'BEGIN { exit !(a + 0 > 0 && b + 0 < limit * a) }'; then
    echo "ok planning $many layers takes less than $limit times what $few take"
else
    echo "planning took $short s with $few layers, $long s with $many"
    echo "not ok planning $many layers takes less than $limit times what $few take"
fi
