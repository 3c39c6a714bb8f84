#!/bin/bash
# make install, uninstall and deb: the files, their places, programs that run from there, manual
# pages and completions that know every option of the table.
cd "$TOP" || exit 2
# What is built stays as it is: another choice of GPUs would compile their kernels again, under other tests.
[ ! -f build/cuda/archs ] || export CUDA_ARCHS="$(cat build/cuda/archs)"
check() { if eval "$2"; then echo "ok $1"; else cat "$TMP/log"; echo "not ok $1"; fi; }
make -s install DESTDIR="$TMP/at" PREFIX=/opt/p >"$TMP/log" 2>&1 || { cat "$TMP/log"; exit 1; }

root=$TMP/at/opt/p
# A plug-in is there where what it needs is.
plugin=$([ ! -f build/release/libprun_mpi.so ] || echo "./lib/prun/libprun_mpi.so ")
check "programs, models, manuals and completions are where they belong, and nothing else" \
    '[ "$(cd "$root" && find . -type f ! -path "./share/pplan/models/*" ! -name libprun_cuda.so | LC_ALL=C sort | tr "\n" " ")" = \
"./bin/pplan ./bin/prun $plugin./share/bash-completion/completions/pplan ./share/bash-completion/completions/prun \
./share/fish/vendor_completions.d/pplan.fish ./share/fish/vendor_completions.d/prun.fish ./share/man/man1/pplan.1 ./share/man/man1/prun.1 \
./share/man/man5/pmodel.5 ./share/man/man5/pplan-rules.5 \
./share/zsh/site-functions/_pplan ./share/zsh/site-functions/_prun " ]'
check "all bundled models are installed" 'diff -r models "$root/share/pplan/models"'
check "pplan runs, and finds its models beside it" '(cd / && "$root/bin/pplan" check tiny/tiny_gpt2.pmodel) >"$TMP/log" 2>&1'
if [ -f build/release/libprun_cuda.so ]; then
    check "the plug-in for GPUs is where prun looks for it" '"$root/bin/prun" --version >"$TMP/log" && grep -q "^cuda: CUDA" "$TMP/log"'
else
    echo "skip the plug-in for GPUs is where prun looks for it (it was not built)"
fi
check "prun runs" '"$root/bin/prun" --version >"$TMP/log"'
mv "$TMP/at" "$TMP/moved"
check "what is installed can be moved" '(cd / && "$TMP/moved/opt/p/bin/pplan" tiny/tiny_gpt2.pmodel -c laptop1) >"$TMP/log" 2>&1'
mv "$TMP/moved" "$TMP/at"

# ---- manuals and completions ----

# long: all options but those that this version has not.
long() { grep -v 'NO_SAMPLING)$' cli/options.def | sed -nE 's/^OPTION\([a-z_]+, *([^,]*), *"([^"]+)",.*/--\2/p'; }
grep '^OPTION' cli/options.def | grep -vc 'NO_SAMPLING)$' >"$TMP/rows"
check "the test reads every row of the table" '[ "$(long | wc -l)" = "$(cat "$TMP/rows")" ]'
known() { cat "$root/share/man/man1/pplan.1" "$root/share/man/man1/prun.1" | sed 's/\\-/-/g' | grep -oE -- "--[a-z][a-z-]*" | sort -u; }
check "the manuals have every option" '[ -z "$(comm -23 <(long | sort -u) <(known))" ]'
for page in pmodel pplan-rules; do
    file=$root/share/man/man5/$page.5
    check "$page.5 has a title, a version, and no Markdown" 'grep -q "^.TH .* 5 .*$(cat VERSION)" "$file" && ! grep -nE "^[#|]|[^\\]\`|\*\*|\]\(" "$file" | grep -v "^[0-9]*:# " >"$TMP/log"'
    check "$page.5 sends nobody to a page of the source tree, and doubles no mark" '! sed "s/\\\\f[BR]//g" "$file" | grep -nE "\.md|[;,:][;,:]" | grep -v "README.md of the bundled" >"$TMP/log"'
    if command -v groff >/dev/null; then
        check "$page.5 is set without a warning" '[ -z "$(groff -man -Tutf8 -ww "$file" 2>&1 >/dev/null)" ]'
    else
        echo "skip $page.5 is set without a warning (no groff)"
    fi
done
for p in pplan prun; do
    page=$root/share/man/man1/$p.1
    if command -v groff >/dev/null; then
        check "$p.1 is set without a warning" '[ -z "$(groff -man -Tutf8 -ww "$page" 2>&1 >/dev/null)" ]'
    else
        echo "skip $p.1 is set without a warning (no groff)"
    fi
    check "$p.1 lists pages under SEE ALSO alone" 'awk "/SEE ALSO/ { exit } /^\.BR .*,\$/ { bad = 1 } END { exit bad }" "$page"'
    check "$p.1 names the version and no placeholder" 'grep -q "$(cat VERSION)" "$page" && ! grep -qE "@[A-Z]+@" "$page"'
    for shell in zsh fish; do
        file=$(ls "$root"/share/$shell/*/*$p*)
        if command -v $shell >/dev/null; then
            check "$shell reads the completions of $p" '$shell -n "$file" >"$TMP/log" 2>&1'
        else
            echo "skip $shell reads the completions of $p (no $shell)"
        fi
        check "$shell's completions of $p have its options" \
            '[ -z "$(comm -23 <("$root/bin/$p" --help | sed -nE "s/^  --([a-z-]+) .*/\1/p" | grep -v version | sort) <(grep -oE -- "(--| -l )[a-z-]+" "$file" | sed -E "s/^(--| -l )//" | sort -u))" ]'
    done
done

# completions WORD...: what bash offers for the last of the words.
completions() {
    bash --norc -c '. "$1"; p=$2; shift 2; PATH=$0:$PATH; COMP_WORDS=("$p" "$@"); COMP_CWORD=$#
        last=${COMP_WORDS[COMP_CWORD]}; "_$p" "$p" "$last" "${COMP_WORDS[COMP_CWORD - 1]}"; printf "%s\n" "${COMPREPLY[@]}"' \
        "$root/bin" "$root/share/bash-completion/completions/$1" "$@" 2>"$TMP/log"
}
check "bash completes commands" '[ "$(completions pplan es)" = estimate ]'
check "bash completes options of the command" '[ "$(completions pplan check --op)" = --ops ] && [ -z "$(completions pplan check --to)" ]'
check "bash completes bundled clusters" '[ "$(completions pplan plan x -c laptop | tr "\n" " ")" = "$(cd models/clusters && ls laptop*.pcluster | sed "s/.pcluster//" | tr "\n" " ")" ]'
check "bash completes bundled profiles" '[ "$(completions pplan plan x --profile meg | tr "\n" " ")" = "megatron megatron_sp " ]'
bundled_models() { (cd models && find . -name "*.pmodel" ! -path "./std/*" | sed "s|^./||" | LC_ALL=C sort); }
check "bash completes bundled models, below folders too" '[ "$(completions pplan plan "" | grep pmodel)" = "$(bundled_models)" ] && [ "$(completions pplan tiny/tiny_g)" = tiny/tiny_gpt2.pmodel ]'
check "and none where no model is wanted" '! completions pplan fmt "" | grep -q pmodel && ! completions pplan dump "" | grep -q pmodel && ! completions prun "" | grep -q pmodel'
# named FILE: every word of it.
named() { grep -oE "[a-z0-9_./]+" "$1" | sort -u; }
for shell in zsh fish; do
    file=$(ls "$root"/share/$shell/*/*pplan*)
    check "$shell completes every bundled model, cluster and profile" \
        '[ -z "$(comm -23 <({ bundled_models; ls models/clusters models/profiles | sed -nE "s/\.p(cluster|profile)\$//p"; } | sort) <(named "$file"))" ]'
done
cp -R models "$TMP/models" && touch "$TMP"/models/tiny/added.pmodel "$TMP"/models/std/added.pmodel "$TMP"/models/clusters/added.pcluster
for shell in bash zsh fish; do
    build/release/pages $shell pplan "$TMP/models" >"$TMP/made"
    check "$shell: they are those of the folder" '[ "$(named "$TMP/made" | grep added | tr "\n" " ")" = "added tiny/added.pmodel " ]'
done
check "bash completes values" '[ "$(completions prun x.plan --ranks t)" = threads ]'
check "bash completes files" '[ "$(completions prun Makef)" = Makefile ]'

make -s uninstall DESTDIR="$TMP/at" PREFIX=/opt/p
check "uninstall removes it all, its folders too" '[ ! -e "$TMP/at" ]'

# ---- the Debian package ----

if ! command -v dpkg-deb >/dev/null; then
    echo "skip a Debian package (no dpkg-deb)"
    return 0 2>/dev/null || exit 0
fi
make -s deb >"$TMP/log" 2>&1
deb=$(ls build/pplan_"$(cat VERSION)"_*.deb)
check "make deb names what it made" 'grep -qx "$deb" "$TMP/log"'
check "its control file has what dpkg needs" 'dpkg-deb -I "$deb" >"$TMP/log" && grep -qE "^ Version: $(cat VERSION)$" "$TMP/log" && grep -qE "^ Depends: .*libc6 \(>= .*libdnnl.*libjansson4" "$TMP/log"'
check "it has programs, manuals, completions and models" '[ "$(dpkg-deb -c "$deb" | grep -cE " ./usr/(bin/(pplan|prun)|share/man/man1/(pplan|prun).1.gz|share/bash-completion/completions/pplan|share/pplan/models/gpt2.pmodel)$")" = 6 ]'
check "all its manual pages are compressed" '[ "$(dpkg-deb -c "$deb" | grep -c "/man/man./.*[^/]$")" = 4 ] && [ "$(dpkg-deb -c "$deb" | grep -c "/man/man./.*\.gz$")" = 4 ]'
check "all files belong to root" '[ -z "$(dpkg-deb -c "$deb" | grep -v " root/root ")" ]'
dpkg-deb -x "$deb" "$TMP/deb" && dpkg-deb -e "$deb" "$TMP/deb/DEBIAN"
check "its sums are right" '(cd "$TMP/deb" && md5sum -c --quiet DEBIAN/md5sums) && [ "$(wc -l <"$TMP/deb/DEBIAN/md5sums")" = "$(find "$TMP/deb/usr" -type f | wc -l)" ]'
check "its programs run" '(cd / && "$TMP/deb/usr/bin/pplan" tiny/tiny_gpt2.pmodel -c laptop1 -o "$TMP/g.plan" && "$TMP/deb/usr/bin/prun" "$TMP/g.plan" --data random --steps 1) >"$TMP/log" 2>&1'
# The serial OpenBLAS is asked for by its folder; a licence and an address are the distributor's.
if command -v lintian >/dev/null; then
    lintian --no-cfg -F "$deb" 2>/dev/null | grep "^E:" | grep -vE "custom-library-search-path|no-copyright-file|bogus-mail-host" >"$TMP/log"
    check "lintian finds no other error" '[ ! -s "$TMP/log" ]'
else
    echo "skip lintian finds no other error (no lintian)"
fi
