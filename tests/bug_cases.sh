#!/bin/bash
# docs/bug-cases.md says what there is: the tests that it names, the rows that these have tests of, and which run on the emulator of GPUs.
cd "$TOP" || exit 2

# What there is, as lines "KIND WORD..": tests by the names that the page has for them, scripts that run plans on the emulator, rows of each program.
facts() {
    (cd tests && ls -- *.sh run/*.sh slow/*.sh) | sed 's/^/test /'
    basename -a -s .c tests/unit/test_*.c | sed 's/^/test /'
    basename -a tests/cudaemu/test_*.* | sed 's/^\([a-z_]*\)[.].*/test emu\/\1/'
    (cd tests && find golden -type f -name '*.cases') | sed 's/^\(.*\)[.]cases$/test \1/'
    (cd tests && find golden -mindepth 2 -maxdepth 2 -type d) | sed 's/^/test /'
    (cd tests && grep -lE 'on_devices|cudaemu' -- gpu_*.sh run/*.sh) | sed 's/^/gpus /'
    grep -E '^static void [A-Z][0-9]{2}_' tests/unit/test_bug_*.c | sed 's/.*test_\(bug_[a-z]*\)[.]c:static void \(...\).*/row \1 \2/'
}

read -r -d '' judge <<'AWK'
# words(CELL, REGEX): the parts of a cell that match, into word[1..n].
function words(cell, regex,    n) {
    for (n = 0; match(cell, regex); cell = substr(cell, RSTART + RLENGTH)) word[++n] = substr(cell, RSTART, RLENGTH)
    return n
}
function named(cell,    n, i) {
    n = words(cell, "`((test_|emu/|golden/)[^` ]+|[^` ]+[.]sh)`")
    for (i = 1; i <= n; i++) gsub("`", "", word[i])
    return n
}
function there_is(row, cell,    n, i) {
    n = named(cell)
    for (i = 1; i <= n; i++) if (!(("test", word[i]) in fact)) print row ": there is no " word[i]
}
# A program of bug reports has tests of the cell's row, or of one that the cell names.
function has_tests(row, cell,    n, i, k, program, found) {
    n = words(cell, "[*]bug_[a-z]+[*]")
    for (i = 1; i <= n; i++) program[i] = substr(word[i], 2, length(word[i]) - 2)
    k = words(row " " cell, "[A-Z][0-9][0-9]")
    for (i = 1; i <= n; i++) {
        found = 0
        for (j = 1; j <= k; j++) if (("row", program[i] " " word[j]) in fact) found = 1
        if (!found) print row ": test_" program[i] " has no test of that row"
    }
}
# Scripts of the last column run there, and one of all columns where it says both.
function on_gpus(row, cell, all,    n, i, found) {
    n = named(cell)
    for (i = 1; i <= n; i++) if (word[i] !~ /^emu/ && !(("gpus", word[i]) in fact)) print row ": " word[i] " does not run on the emulator"
    if (cell ~ /[*]rows[*]/ && !(("row", "bug_layouts " row) in fact) && !(("row", "bug_experts " row) in fact))
        print row ": neither test_bug_layouts nor test_bug_experts has a test of it"
    n = named(all)
    for (i = 1; i <= n; i++) if (("gpus", word[i]) in fact) found = 1
    if (cell ~ /[*]both[*]/ && !found) print row ": none of its scripts runs on both"
}
FNR == NR { kind = $1; $1 = ""; fact[kind, substr($0, 2)] = 1; if (kind == "row") tested[$3] = 1; next }
!/^[|] [A-Z][0-9][0-9] [|]/ { next }
{
    split($0, column, / *[|] */)
    row = column[2]
    if (row in seen) print row " has two rows"
    seen[row] = 1
    if (split($0, column, / *[|] */) != 7) print row ": a row has five columns"
    all = column[4] " " column[5] " " column[6]
    there_is(row, all)
    has_tests(row, column[4])
    has_tests(row, column[5])
    on_gpus(row, column[6], all)
}
END { for (row in tested) if (!(row in seen)) print row " has a test and no row" }
AWK

facts >"$TMP/facts"
problems() { awk "$judge" "$TMP/facts" "$1"; }

verdict() {                            # NAME PROBLEMS
    if [ -z "$2" ]; then echo "ok $1"; else printf '%s\n' "$2"; echo "not ok $1"; fi
}

# What SED changes in a copy of the page is told as PROBLEM.
sees() {
    sed "$1" docs/bug-cases.md >"$TMP/page.md"
    [ "$(problems "$TMP/page.md")" = "$2" ] || { echo "$1 wants: $2"; problems "$TMP/page.md"; }
}
planted() {
    sees '/^| A01 /s/- |/`run\/nothing.sh` |/' 'A01: there is no run/nothing.sh'
    sees '/^| A01 /s/bug_layouts/bug_memory/' 'A01: test_bug_memory has no test of that row'
    sees '/^| A01 /s/\*rows\*/`run\/ranks.sh`/' 'A01: run/ranks.sh does not run on the emulator'
    sees '/^| L07 /s/host |$/*rows* |/' 'L07: neither test_bug_layouts nor test_bug_experts has a test of it'
    sees '/^| A01 /s/\*rows\*/*both*/' 'A01: none of its scripts runs on both'
    sees '/^| A01 /s/ |$/ | more |/' 'A01: a row has five columns'
    sees '/^| F01 /d' 'F01 has a test and no row'
    sees '/^| L07 /s/L07/L08/' 'L08 has two rows'
}

verdict "the page of bug reports names tests that there are" "$(problems docs/bug-cases.md)"
verdict "it has 55 rows and one of ours" "$(awk '/^[|] [A-Z][0-9][0-9] [|]/ { n++ } END { if (n != 56) print n " rows" }' docs/bug-cases.md)"
verdict "what is wrong in it is seen" "$(planted)"
