#!/bin/bash
# make_text.sh OUTDIR -- write OUTDIR/train.txt and OUTDIR/val.txt: real English.
#
# The text is the King James Bible (1611, public domain), which Debian packages
# as bible-kjv: 4.2 MB, one verse a line, a blank line between chapters.  Verse
# numbers are dropped, since they are not prose and easy to predict.  The split
# is by whole books: the held-out part is the last tenth (Romans to
# Revelation), so nothing of a held-out book is seen in training.
set -eu

out=${1:?usage: make_text.sh OUTDIR}
first_held_out=Rom
command -v bible >/dev/null || { echo "make_text: no 'bible' program; run 'make setup' (package bible-kjv)" >&2; exit 1; }

mkdir -p "$out"
tmp=$(mktemp -d "$out/text.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

# Lines are "Ge1:1 In the beginning ...": book, chapter, verse, text.
bible -f gen1:1-rev22:21 </dev/null | LC_ALL=C awk -v held="$first_held_out" -v dir="$tmp" '
    BEGIN { file = dir "/train.txt" }
    {
        chapter = $1; sub(/:.*/, "", chapter)
        if (chapter == held "1" && $1 ~ /:1$/) { file = dir "/val.txt"; last = chapter }
        if (last != "" && chapter != last) print "" >file
        last = chapter
        sub(/^[^ ]+ /, "")
        print >file
    }'

[ -s "$tmp/train.txt" ] && [ -s "$tmp/val.txt" ] || { echo "make_text: the text of package bible-kjv is not as expected" >&2; exit 1; }
mv "$tmp/train.txt" "$tmp/val.txt" "$out"
