#!/bin/bash
# one.sh 'KIND/NAME [VARIANT]' -- run one test and report it; called by run.sh.
#
# Unit programs and scripts print lines 'ok NAME', 'not ok NAME' or 'skip NAME',
# one per test; a script that prints none is one test by its exit status (77 is a
# skip).  The exit status counts in any case: a crash after the last 'ok' fails.
# So does leaving a script in the middle after an 'ok', whatever the status: the tests
# that were to come are missing.
#
# A golden case is a file whose first line is '# run: COMMAND'.  The command runs
# in the case's folder, with '%' standing for the file's name and pplan and prun
# of the build under test on PATH; what it prints (both streams) and its exit
# status must equal NAME.expect beside the case.
set -u
kind=${1%%/*}
rest=${1#*/}
name=${rest%% *}
variant=${rest#"$name"}
variant=${variant# }

work=$(mktemp -d "$RESULTS/work.XXXXXX")
out=$work/out said=$work/said
export TMP=$work/tmp
mkdir "$TMP"
: >"$said"

# say VERDICT NAME: one line of the report.
say() {
    printf '%-4s %s\n' "$1" "$2" >>"$said"
    echo "$1" >>"$RESULTS/verdicts"
}

fail_with_output() {
    say FAIL "$1"
    sed 's/^/     | /' "$out" | tail -n 60 >>"$said"
}

# seconds COMMAND...: run it with a limit, output in $out.
limited() {
    local seconds=$1
    shift
    timeout -k 5 "$seconds" "$@" >"$out" 2>&1 </dev/null
    local status=$?
    [ "$status" -ne 124 ] || echo "stopped: it ran longer than $seconds s" >>"$out"
    return "$status"
}

# A script as it is run: one that leaves in the middle does not get to make the file.
whole=$work/whole
whole_script=". \"\$0\"; status=\$?; : >'$whole'; exit \$status"

# Turn the lines of a program into verdicts; $1 is its name, $2 its exit status.
report_lines() {
    local bad=0 good=0 line test
    while read -r line; do
        test=$(sed -E 's/^(not ok|ok|skip) ([0-9]+ - )?//' <<<"$line")
        case $line in
        "ok "*) say ok "$1: $test"; good=$((good + 1)) ;;
        "skip "*) say skip "$1: $test"; good=$((good + 1)) ;;
        "not ok "*) say FAIL "$1: $test"; bad=$((bad + 1)) ;;
        esac
    done < <(grep -E '^(not ok|ok|skip) ' "$out")
    if [ "$bad" -gt 0 ]; then
        grep -vE '^(ok|skip) ' "$out" | sed 's/^/     | /' | tail -n 60 >>"$said"
    elif [ "$2" -eq 77 ] && [ "$good" -eq 0 ]; then
        say skip "$1: $(tail -n 1 "$out")"
    elif [ "$2" -ne 0 ]; then
        echo "exit $2" >>"$out"
        fail_with_output "$1"
    elif [ "$good" -gt 0 ] && [ "$kind" = script ] && [ ! -e "$whole" ]; then
        echo "it ended in the middle, with status 0" >>"$out"
        fail_with_output "$1"
    elif [ "$good" -eq 0 ] && [ "$kind" != script ]; then
        echo "it ran no test" >>"$out"
        fail_with_output "$1"
    elif [ "$good" -eq 0 ]; then
        say ok "$1"
    fi
}

run_golden() {
    local case_=$TESTS/golden/$name file want command
    file=${case_##*/}
    want=${case_%.*}.expect
    command=$(sed -n '1s/^# run: //p' "$case_")
    cd "${case_%/*}" || exit 2
    PATH=$TOP/build/$variant:$PATH limited "$limit" bash -c "${command//%/$file}"
    echo "exit $?" >>"$out"
    if [ -n "${UPDATE:-}" ]; then
        cmp -s "$out" "$want" || { cp "$out" "$want" && say new "$name"; }
        say ok "golden/$name"
    elif [ ! -f "$want" ]; then
        echo "there is no ${want##*/}; 'make update' writes it" >>"$out"
        fail_with_output "golden/$name ($variant)"
    elif diff -u "$want" "$out" >"$work/diff" 2>&1; then
        say ok "golden/$name ($variant)"
    else
        mv "$work/diff" "$out"
        fail_with_output "golden/$name ($variant)"
    fi
}

# The emulator's tests; one of them has the thread sanitizer, whose places must not be taken (see threads.sh).
run_emulator() {
    local fixed=
    setarch -R true 2>/dev/null && fixed="setarch -R"
    if [ ! -x "$TOP/build/emu/$name" ] && [ -f "$TOP/build/emu/absent" ]; then
        say skip "$kind/$name: $(cut -c 9- "$TOP/build/emu/absent")"
    else
        limited "$limit" env CMOCKA_MESSAGE_OUTPUT=TAP $fixed "$TOP/build/emu/$name"
        report_lines "$kind/$name" $?
    fi
}

# For what hangs.
limit=${CHECK_ALL:+3600}
limit=${limit:-1800}
case $kind in
script) PATH=$ASAN:$PATH limited "$limit" bash -c "$whole_script" "$TESTS/$name"; report_lines "$kind/${name%.sh}" $? ;;
golden) run_golden ;;
emu) run_emulator ;;
*) limited "$limit" env CMOCKA_MESSAGE_OUTPUT=TAP "$ASAN/tests/$kind/$name"; report_lines "$kind/$name" $? ;;
esac

# One block per test, whole, whoever finishes first.
grep -E '^(FAIL| +\|)' "$said" >>"$RESULTS/failures"
times >"$work/times"                   # of this shell, then of its children: 1m2.345s 0m6.789s
awk -v test="$kind/${rest%.sh}" -v wall="$SECONDS" -F '[ ms]+' 'NR == 2 { print int(60 * ($1 + $3) + $2 + $4 + 0.5), wall, test }' "$work/times" >>"$RESULTS/times"
flock "$RESULTS" cat "$said"
rm -rf "$work"
