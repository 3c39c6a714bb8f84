#!/bin/bash
# The shape of the source tree: who includes whom, sizes, unfinished marks, folders.
cd "$TOP" || exit 2
folders="base ir frontend planner codegen kernels runtime cli"
present=$(for d in $folders; do [ -d "$d" ] && echo "$d"; done)

# verdict NAME PROBLEMS: one test; it passes when the text of problems is empty.
verdict() {
    if [ -z "$2" ]; then echo "ok $1"; else printf '%s\n' "$2"; echo "not ok $1"; fi
}

sources() { find $present tests bench -name '*.[chly]' -o -name '*.cpp' -o -name '*.cu' -o -name '*.def' -o -name '*.sh' -o -name '*.py' | sort; }

# The folders whose headers a folder may include, beside its own (DESIGN, section 2).
allowed() {
    case $1 in
    base) echo base ;;
    ir) echo ir base ;;
    frontend | codegen | kernels) echo "$1" ir base ;;
    planner) echo planner codegen ir base ;;
    runtime) echo runtime codegen kernels ir base ;;
    cli) echo $folders ;;
    esac
}

includes() {
    local d
    for d in $present; do
        grep -rnE "^ *# *include *(\"|<(${folders// /|})/)" "$d" --include='*.[chly]' --include='*.def' |
            sed -E 's/^([^:]*:[0-9]+):[^"<]*["<]([^">]*)[">].*/\1 \2/' |
            while read -r where path; do
                case " $(allowed "$d") " in
                *" ${path%%/*} "*) ;;
                *) echo "$where: $d/ must not include \"$path\"" ;;
                esac
            done
    done
}

# Lengths, in lines, above a limit: "NAME LENGTH" a line.
file_lengths() { sources | xargs -r wc -l | awk -v limit="$1" '$2 != "total" && $1 > limit { print $2, $1 }'; }

# The folders hold no generated source.
# In the style of this project a function is a line that begins with its name or type, a line
# '{', and what follows up to a line '}'.
functions() {
    sources | grep -E '\.([chly]|cpp|cu)$' | xargs -r awk 'FNR == 1 { name = ""; open = 0 }
        /^[a-zA-Z].*\(/ && !open { name = $0; first = FNR }
        /^\{$/ && name != "" { open = 1 }
        /^\}$/ && open { sub(/\(.*/, "", name); sub(/.*[ *]/, "", name); print FILENAME ":" first ":" name, FNR - first + 1; name = ""; open = 0 }'
}
function_lengths() { functions | awk -v limit="$1" '$2 > limit'; }

# lengths NAME COUNTER LIMIT: names what is above the limit.
lengths() { verdict "$1 above $3 lines" "$($2 "$3")"; }

unfinished() {
    grep -rnwE 'TO''DO|FIX''ME|XX''X|HA''CK' $present tests bench docs models Makefile README.md .ci \
        --exclude='*.expect' 2>/dev/null
}

no_blas() {
    ldd "$1/pplan" | grep -E 'dnnl|blas|lapack' | sed "s|^|${1##*/}/pplan links |"
}

readmes() {
    local d
    for d in $present models tests bench docs; do
        [ -f "$d/README.md" ] || echo "$d/ has no README.md"
    done
}

top_level() {
    local d
    for d in $(find . -mindepth 1 -maxdepth 1 -type d ! -name .git ! -name build ! -name shared -printf '%f\n' | sort); do
        case " $folders models tests bench docs .ci " in
        *" $d "*) ;;
        *) echo "$d/ is not one of the project's folders" ;;
        esac
    done
}

verdict "includes follow the layers" "$(includes)"
lengths "no file" file_lengths 600
lengths "no function" function_lengths 75
verdict "the test sees functions" "$(functions | awk 'END { if (NR < 3000) print NR " were found" }')"
# One in a hundred may be longer than a screen.
verdict "no more than one function in a hundred has more than 60 lines" "$(functions | awk '$2 > 60 { n++ } END { if (100 * n > NR) print n " of " NR }')"
verdict "no unfinished marks" "$(unfinished)"
verdict "every folder has a README" "$(readmes)"
verdict "no folder beside the known ones" "$(top_level)"
# What is planted in a tree of one's own is seen: an include of every pair that is not allowed, in both forms; what is
# too long; a mark; a folder.
planted() {
    local d e n=0
    mkdir -p "$TMP/planted/docs" "$TMP/planted/tests" "$TMP/planted/bench" "$TMP/planted/strange" && cd "$TMP/planted" || exit 2
    for d in $folders; do
        mkdir -p "$d" && : >"$d/README.md"
        for e in $folders tests; do
            echo "#include \"$e/x.h\"" >>"$d/own.c"
            case " $(allowed "$d") " in
            *" $e "*) continue ;;
            esac
            n=$((n + 1))
            if [ $((n % 2)) = 0 ] || [ $e = tests ]; then printf '#include "%s/x.h"\n' "$e"; else printf '# include <%s/x.h>  // why\n' "$e"; fi >>"$d/wrong.h"
            sed -i '$d' "$d/own.c"
        done
        echo '#include <stdio.h>' >>"$d/own.c"
    done
    { printf 'int long_one(void)\n{\n'; seq 74 | sed 's|.*|    x();|'; echo '}'; } >base/function.c
    seq 601 | sed 's|.*|/* */|' >ir/file.c
    echo '/* TO''DO */' >cli/mark.h
    present=$folders
    [ "$(includes | wc -l)" = $n ] && [ "$(includes | grep -vc '/wrong.h:')" = 0 ] || { echo "of $n wrong includes were seen:"; includes; }
    [ "$(function_lengths 75)" = "base/function.c:1:long_one 77" ] || function_lengths 75
    [ "$(file_lengths 600)" = "ir/file.c 601" ] || file_lengths 600
    [ -n "$(unfinished)" ] || echo "no mark"
    [ "$(top_level)" = "strange/ is not one of the project's folders" ] && [ "$(readmes | wc -l)" = 4 ] || { top_level; readmes; }
}
verdict "each of these sees what is planted" "$(planted)"
for build in "$ASAN" "$CLANG" "$RELEASE"; do
    if [ -x "$build/pplan" ]; then
        verdict "pplan links no BLAS (${build##*/})" "$(no_blas "$build")"
    else
        verdict "pplan links no BLAS (${build##*/})" "$build/pplan is not built"
    fi
done
