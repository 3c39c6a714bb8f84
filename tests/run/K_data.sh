# K01, K03, K04 through prun: bad data stop it before step 1, with the reason.
. "$TESTS/run/lib.bash"
make_plan p.plan -D vocab=64 -D hidden=8 -D heads=2
no() { check "$1" 'refused 1 "'"$2"'" prun p.plan --data '"$3"' --steps 1 --log l && [ ! -e l ]'; }
u16() { for t; do printf "\\x$(printf %x $((t % 256)))\\x$(printf %x $((t / 256)))"; done; }
bytes() { head -c "$2" /dev/zero | tr '\0' "$1"; }

# 200 tokens of 1; in sample 3 token 50 is 64.
{ for i in $(seq 50); do u16 1; done; u16 64; for i in $(seq 149); do u16 1; done; } >bad.bin
no "K01 an id outside the vocabulary" "byte 100 (sample 3): 64 cannot be a number of 'ids': 'wte' has 64 rows, so it is 0..63" bad.bin
bytes '\001' 399 >odd.bin
no "K03 an odd number of bytes" "tokens of 2 bytes, but it has 399 bytes" odd.bin
bytes '\001' 16 >short.txt
no "K04 as many tokens as a sample has" "it has 16 tokens, but one sample of 16 needs 17" short.txt
bytes '\001' 113 >seven.txt
no "K04 fewer samples than a batch" "the data have 7 samples, but a step takes a batch of 8" seven.txt
: >empty.txt
no "K04 no tokens" "it has 0 tokens, but one sample of 16 needs 17" empty.txt
bytes '\001' 129 >good.txt
check "K04 as many samples as a batch" 'prun p.plan --data good.txt --steps 1 --log l 2>err && rm l'
check "K04 an empty held-out set is an error" 'refused 1 "it has 0 tokens" prun p.plan --data good.txt --eval empty.txt --steps 1 --log l && [ ! -e l ]'
check "a missing file is a mistake of the user" 'refused 1 "cannot open '"'"'none.txt'"'"'" prun p.plan --data none.txt --steps 1'
