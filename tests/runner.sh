#!/bin/bash
# The runner itself: planted failures of every kind must be seen and counted.
unset CHECK_ALL UPDATE              # of the run this is part of: the inner one has its own
mkdir -p "$TMP/t/golden/sub" && cd "$TMP/t" || exit 2

printf '# run: cat %%\nhello\n' >golden/right.case
printf '# run: cat %%\nhello\nexit 0\n' >golden/right.expect
printf '# run: echo new\n' >golden/sub/wrong.case
printf 'old\nexit 0\n' >golden/sub/wrong.expect
printf '# run: exit 3\n' >golden/sub/status.case
printf 'exit 0\n' >golden/sub/status.expect
printf '# run: true\n' >golden/unwritten.case
printf 'not a case\n' >golden/sub/other.txt
echo 'exit 0' >good.sh
echo 'exit 1' >bad.sh
echo 'echo no device; exit 77' >skipped.sh
printf 'echo "ok one"\necho "not ok two"\n' >lines.sh
printf 'echo "ok one"\nexit 4\n' >crash.sh
printf 'echo "ok one"\nset -e\nfalse\necho "ok two"\n' >dies.sh
printf 'echo "ok one"\nexit\necho "ok two"\n' >leaves.sh

# They tell when they begin and end; two of them are to be alone.
for name in beside1 beside2 alone1 alone2; do
    printf '# %s: a reason\necho "begin %s" >>"%s/times"; sleep 0.3; echo "end %s" >>"%s/times"\n' "${name%?}" $name "$PWD" $name "$PWD" >$name.sh
done

# expect NAME PATTERN: the line must stand in the report.
expect() {
    if grep -qxE -- "$2" "$TMP/report"; then echo "ok $1"; else cat "$TMP/report"; echo "not ok $1"; fi
}

TESTS=$PWD "$TOP/tests/run.sh" >"$TMP/report"
status=$?
[ $status -eq 1 ] && echo "ok failures give exit status 1" || echo "not ok failures give exit status 1"
expect "a matching golden passes" 'ok +golden/right.case \(clang\)'
expect "a differing golden fails" 'FAIL golden/sub/wrong.case \(asan\)'
expect "a differing exit status fails" 'FAIL golden/sub/status.case \(asan\)'
expect "a golden without expectation fails" 'FAIL golden/unwritten.case \(asan\)'
expect "a good script passes" 'ok +script/good'
expect "a bad script fails" 'FAIL script/bad'
expect "exit 77 is a skip" 'skip script/skipped: no device'
expect "a line 'not ok' fails" 'FAIL script/lines: two'
expect "a crash after 'ok' fails" 'FAIL script/crash'
expect "a script that dies in the middle fails" 'FAIL script/dies'
expect "one that leaves in the middle fails, whatever its status" 'FAIL script/leaves'
expect "the closing line adds up" '11 passed, 11 failed, 1 skipped'

if [ "$(wc -l <times)" = 8 ] && [ "$(tail -n 4 times)" = $'begin alone1\nend alone1\nbegin alone2\nend alone2' ]; then
    echo "ok one that is to be alone runs alone, after the others"
else
    cat times
    echo "not ok one that is to be alone runs alone, after the others"
fi

TESTS=$PWD UPDATE=1 "$TOP/tests/run.sh" golden/ >/dev/null
TESTS=$PWD "$TOP/tests/run.sh" golden/ >"$TMP/report"
expect "UPDATE=1 writes what is printed" '8 passed, 0 failed'
[ "$(cat golden/sub/wrong.expect)" = $'new\nexit 0' ] && echo "ok the new text is right" || echo "not ok the new text is right"

TESTS=$PWD "$TOP/tests/run.sh" nothing-like-this >"$TMP/report"
[ $? -eq 1 ] && echo "ok no matching test is a failure" || echo "not ok no matching test is a failure"
