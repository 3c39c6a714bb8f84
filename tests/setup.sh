#!/bin/bash
# .ci/setup with dpkg-query, apt-get, id and sudo replaced by small stand-ins:
# `have` lists the installed packages, `log` records what was called.
mkdir -p "$TMP/bin" && cd "$TMP" || exit 2
for tool in bash env mktemp rm tail grep cat; do ln -s "$(command -v $tool)" bin/; done

cat >bin/dpkg-query <<'END'
#!/bin/bash
echo dpkg-query >>log
for p in "${@:4}"; do
    if grep -qx "$p" have; then echo "$p installed"; else echo "dpkg-query: no packages found matching $p" >&2; fi
done
END
cat >bin/apt-get <<'END'
#!/bin/bash
echo "apt-get $*" >>log
case $1 in
update) : >lists ;;
install)
    [ -e lists ] || { echo "E: Unable to locate package"; exit 100; }
    for p in "$@"; do case $p in install | -*) ;; nowhere) echo "E: no nowhere"; exit 100 ;; *) echo "$p" >>have ;; esac; done ;;
esac
END
cat >bin/id <<'END'
#!/bin/bash
cat uid
END
chmod +x bin/*

setup() { : >log; PATH=$TMP/bin "$TOP/.ci/setup" "$@" >out 2>&1; }
check() { if eval "$2"; then echo "ok $1"; else cat out log; echo "not ok $1"; fi; }

echo 0 >uid
printf 'one\ntwo\n' >have
setup one two
check "nothing missing: one question, no apt-get, no output" '[ $? -eq 0 ] && [ "$(cat log)" = dpkg-query ] && [ ! -s out ]'

setup one three
check "a missing package is installed after an update of the lists" \
    '[ $? -eq 0 ] && grep -qx three have && grep -q "apt-get update" log && grep -q "installing three$" out'

setup one three
check "the second run has nothing to do" '[ $? -eq 0 ] && ! grep -q apt-get log'

setup four
check "fresh lists are not updated again" '[ $? -eq 0 ] && grep -qx four have && ! grep -q "apt-get update" log'

setup nowhere
check "a package that does not exist is named, with what to type" \
    '[ $? -eq 1 ] && grep -q "apt-get install --no-install-recommends nowhere" out'

echo 1000 >uid
setup five
check "without root and sudo it says so" '[ $? -eq 1 ] && grep -q "neither root nor sudo" out && ! grep -q apt-get log'

printf '#!/bin/bash\necho sudo >>log\nexec "$@"\n' >bin/sudo
chmod +x bin/sudo
setup five
check "with sudo it installs" '[ $? -eq 0 ] && grep -qx five have && grep -qx sudo log'

rm bin/apt-get
setup six
check "without apt-get it says so" '[ $? -eq 1 ] && grep -q "no apt-get" out'
