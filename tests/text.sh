#!/bin/bash
# The text of `make demo` and the entropies its loss is compared with.
entropy=$RELEASE/bench/text/entropy
cd "$TMP" || exit 2
check() { if eval "$2"; then echo "ok $1"; else echo "not ok $1"; fi; }

# Alternating letters: ln 2 nats alone, nothing left once the last letter is known.
printf 'abababababababab' >ab
check "unigram of two letters is ln 2" '$entropy ab | grep -qx "unigram 0.6931"'
check "bigram of a fixed order is 0" '$entropy ab | grep -qx "bigram 0.0000"'

# a follows a and b equally often (aabaab...: a->a, a->b, b->a): 2/3 of ln 2, as 24 of 35 pairs start with a.
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do printf aab; done >aab
check "bigram counts pairs by their first letter" '$entropy aab | grep -qx "bigram 0.4753"'

printf x >one
check "one byte is refused" '! $entropy one 2>/dev/null'
check "a missing file is an error of the machine" '$entropy nowhere 2>/dev/null; [ $? -eq 3 ]'

for i in 1 2; do "$TOP/bench/text/make_text.sh" "t$i" || exit 1; done
check "the text is the same twice" 'cmp t1/train.txt t2/train.txt && cmp t1/val.txt t2/val.txt'
check "the text has its size" '[ "$(cat t1/*.txt | wc -c)" -eq 4139037 ]'
check "a tenth of it is held out" '[ "$(wc -c <t1/val.txt)" -eq 383539 ]'
check "no verse number is left" '! grep -qE "^[0-9]?[A-Z][A-Za-z]*[0-9]+:[0-9]+ " t1/train.txt t1/val.txt'
check "no other file is left" '[ "$(ls t1 | tr "\n" " ")" = "train.txt val.txt " ]'
