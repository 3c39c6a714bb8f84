# No output destroys a file: an input, another output, a checkpoint, or a file that
# happens to have the name under which something is written first.
. "$TESTS/run/lib.bash"
make_text t.txt 600
cp -r "$MODELS/std" . && sed 's|include "\.\./std/|include "std/|' "$MODELS/tiny/tiny_gpt2.pmodel" >m.pmodel && cp "$MODELS/clusters/laptop1.pcluster" c.pcluster
plan=(pplan plan m.pmodel -c c.pcluster -D layers=1)
"${plan[@]}" -o p.plan >/dev/null 2>said || { cat said; exit 2; }
prun p.plan --data t.txt --steps 2 --save d --save-every 1 2>said || { cat said; exit 2; }
ln -s t.txt link && ln t.txt hard && ln -s new dangling
find . -type f ! -name said ! -name sums -exec sha1sum {} + | sort >sums
untouched() { find . -type f ! -name said ! -name sums -exec sha1sum {} + | sort | cmp - sums; }
no() { local name=$1 text=$2; shift 2; run=("$@"); wanted=$text; check "$name" 'refused 2 "$wanted" "${run[@]}" && untouched'; }

for f in m.pmodel c.pcluster ./std/../m.pmodel std/gpt.pmodel; do
    no "pplan -o $f" "error: -o '$f' would overwrite the input '${f#./std/../}'" "${plan[@]}" -o "$f"
done
no "pplan -o of what standard input is" "would overwrite the input '-'" bash -c "pplan plan - -c c.pcluster -D layers=1 -o m.pmodel <m.pmodel"
train=(prun p.plan --data t.txt --eval hard --steps 3)
no "the plan as log" "error: --log 'p.plan' would overwrite the input" "${train[@]}" --log p.plan
no "the data as log" "error: --log 't.txt' would overwrite --data 't.txt': give it another name" "${train[@]}" --log t.txt
no "the data behind a link" "error: --log 'link' would overwrite --data" "${train[@]}" --log link
no "the data under another name" "error: --dump weights@1 'hard' would overwrite --data" prun p.plan --data t.txt:bytes --steps 3 --dump weights@1=hard
no "the held-out data" "would overwrite --eval 'hard'" prun p.plan --data d/latest --eval hard --steps 3 --log t.txt
no "a checkpoint's weights" "would overwrite checkpoint file 'd/step-00000002/weights.safetensors'" \
    "${train[@]}" --resume d --log d/step-00000002/weights.safetensors
no "the state of the checkpoint itself" "would overwrite checkpoint file 'd/step-00000001/state.json'" \
    "${train[@]}" --resume d/step-00000001 --dump weights@2=d/step-00000001/state.json
no "the marker" "would overwrite checkpoint file 'd/latest'" "${train[@]}" --resume d --save d --log d/latest
no "the marker that is not there yet" "would overwrite checkpoint file 'e/latest'" "${train[@]}" --save e --log ./e//latest
no "a name a checkpoint will have" "this name belongs to the checkpoints in 'e'" "${train[@]}" --save e --log e/step-00000003
no "a name inside a checkpoint" "this name belongs to the checkpoints in 'd'" "${train[@]}" --resume d --save d --dump weights@3=d/step-00000002/w
no "log and dump in one file" "error: --log 'new' and --dump weights@1 './new' are one file: give each its own" "${train[@]}" --log new --dump weights@1=./new
no "two dumps in one file" "are one file" "${train[@]}" --dump weights@1=new --dump moments@1=new
no "two outputs behind a link to nothing" "are one file" "${train[@]}" --dump weights@1=new --dump moments@1=dangling
no "log and dump on standard output" "error: --log '-' and --dump weights@1 '-' are one file" "${train[@]}" --log - --dump weights@1=-
no "standard output and a file by name" "are one file" bash -c 'prun p.plan --data t.txt --steps 3 --log - --dump weights@1=said 1>>said'
check "/dev/null takes several" 'prun p.plan --data t.txt --steps 1 --log /dev/null --dump weights@1=/dev/null --dump moments@1=/dev/null 2>err && [ -c /dev/null ]'
check "a log beside the checkpoints is fine" 'prun p.plan --data t.txt --steps 1 --save f --log f/log 2>err && [ -s f/log ] && [ -s f/latest ]'
check "nor one beside what is not there" 'refused 3 "cannot write the log '"'g/h/log'"': No such file" prun p.plan --data t.txt --steps 1 --save g --log g/h/log && [ ! -e g/latest ]'

# Files that have the names of old temporary ones, or would have those of new ones.
echo mine >x.plan.tmp && echo mine >w.tmp && echo old >w && chmod 600 w
check "a user's FILE.tmp stays" '"${plan[@]}" -o x.plan >/dev/null 2>said && prun p.plan --data t.txt --steps 1 --dump weights@1=w 2>said &&
    [ "$(cat x.plan.tmp w.tmp | sort -u)" = mine ] && [ -s x.plan ] && ! grep -q old w && [ -z "$(find . -name ".*.tmp")" ]'
check "a new file has the usual mode" '(umask 027; "${plan[@]}" -o y.plan >/dev/null) && [ "$(stat -c %a y.plan)" = 640 ]'
check "a taken temporary name is not touched" '(for k in 0 1; do echo mine >.z.plan.$BASHPID.$k.tmp; done; exec "${plan[@]}" -o z.plan) >/dev/null &&
    [ -s z.plan ] && [ "$(cat .z.plan.*.tmp | tr "\n" " ")" = "mine mine " ]'
check "pplan -o follows links" 'ln -s real.plan l.plan && "${plan[@]}" -o l.plan >/dev/null && [ -L l.plan ] && cmp l.plan y.plan && cmp real.plan y.plan'
check "a name of 250 bytes will do" 'n=$(printf %0250d 0) && "${plan[@]}" -o $n >/dev/null && cmp $n y.plan && rm $n'
quota() (ulimit -f 1; exec "${plan[@]}" -o q.plan)
check "a plan cut off leaves nothing" 'refused 3 "cannot write '"'q.plan'"'" quota && [ -z "$(find . -name "*q.plan*")" ]'

# Standard output.
check "a dump to standard output is that of a file" 'prun p.plan --data t.txt --steps 1 --dump weights@1=- --log l 2>said >piped && cmp piped w && [ ! -e - ]'
check "a full standard output is said" 'refused 3 "cannot write '"'standard output'"'" bash -c "prun p.plan --data t.txt --steps 1 --dump weights@1=- >/dev/full"'
command -v script >/dev/null && check "a terminal is refused" 'script -qec "prun p.plan --data t.txt --steps 1 --dump weights@1=-" /dev/null </dev/null >said 2>&1
    grep -q "standard output is a terminal" said'
