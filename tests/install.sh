#!/bin/bash
# make install: the files, their places, and programs that run from there.
cd "$TOP" || exit 2
prefix=$(cat build/gen/prefix)
make -s install DESTDIR="$TMP" PREFIX="$prefix" >"$TMP/log" 2>&1 || { cat "$TMP/log"; exit 1; }
check() { if eval "$2"; then echo "ok $1"; else cat "$TMP/log"; echo "not ok $1"; fi; }

root=$TMP$prefix
check "programs and models are where they belong, and nothing else" \
    '[ "$(cd "$root" && echo * bin/* share/* share/pplan/*)" = "bin share bin/pplan bin/prun share/pplan share/pplan/models" ]'
check "all bundled models are installed" 'diff -r models "$root/share/pplan/models"'
check "pplan runs" '"$root/bin/pplan" --version'
check "prun runs" '"$root/bin/prun" --version'
make -s uninstall DESTDIR="$TMP" PREFIX="$prefix"
check "uninstall removes it all" '[ -z "$(find "$root" -type f)" ]'
