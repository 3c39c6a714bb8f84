#!/bin/bash
# The page that teaches says what the commands on it print.  UPDATE=1 rewrites it.
cd "$TMP" || exit 2
"$TOP/tests/tools/console.sh" "$TOP/README.md" >now.md
if [ -n "${UPDATE:-}" ]; then cat now.md >"$TOP/README.md"; fi
if diff "$TOP/README.md" now.md; then echo "ok README.md prints what it says"; else echo "not ok README.md prints what it says"; fi
if grep -q '^\$ pplan' now.md; then echo "ok it has commands"; else echo "not ok it has commands"; fi
