# docs/language.md and docs/rules.md name all that there is: every word, op, argument, setting, start, unit and rule of the tables.
cd "$TOP" || exit 2
language=docs/language.md rules=docs/rules.md

# missing PAGE WORD..: the words that do not stand in the page as a word of their own.
missing() { local page=$1 w; shift; for w in "$@"; do grep -qE -- "(^|[^A-Za-z0-9_.])$w($|[^A-Za-z0-9_])" "$page" || echo "$w"; done; }
# all NAME PAGE LEAST WORD..: there are so many words at least, and none is missing.
all() {
    local name=$1 page=$2 least=$3 left
    shift 3
    left=$(missing "$page" "$@")
    if [ $# -ge "$least" ] && [ -z "$left" ]; then echo "ok $page has every $name"; else echo "of $# words are missing:" $left; echo "not ok $page has every $name"; fi
}
words() { sed -nE "s/^X\([A-Z]+, *\"([a-z]+)\", *($1)\).*/\1/p" frontend/words.def; }
# Signatures of what users may call: names of ops, and of their arguments that have a default.
signatures() { sed -nE 's/^OP\(([a-z0-9_]+), (USER|SYNTAX), "([^"]*)".*/\1 \3/p' ir/ops.def; }
all "reserved word" $language 25 $(words 'ALWAYS|ITEM|OWNER')
all "word of plans" $rules 18 $(words 'RULES|HEAD')
all op $language 25 $(signatures | cut -d ' ' -f 1)
all "argument with a default" $language 20 $(signatures | grep -oE '[a-z_]+ = [^,>]+' | sed 's/ =.*//' | sort -u)
all start $language 7 $(sed -nE 's/^#define INIT_LIST\(X\) (.*)/\1/p' ir/graph.h | grep -oE 'X\([a-z_]+' | sed 's/X(//' | grep -v fan_in)
all "optimizer and its settings" $language 13 $(sed -n '/^static const OptimizerRow optimizers/,/^}/p; /^void model_optimizer/,/^}/p' frontend/settings.c | grep -oE '\{\{?"[a-z0-9_]+", (KEY|OPT)' | grep -oE '[a-z0-9_]{2,}')
all "setting of precision" $language 5 $(sed -n '/^void model_precision/,/^}/p' frontend/settings.c | grep -oE '\{"[a-z]+", KEY' | grep -oE '[a-z]{4,}')
all type $language 12 $(sed -n '/define DTYPE_LIST/,/[^\\]$/p' ir/dtype.h | grep -oE 'X\([a-z0-9]+, ' | tr -d 'X(, ')
all unit $language 10 $(sed -n '/^static const UnitScale plain_units/,/^};/p; /^static const UnitScale prefixed_units/,/^};/p' frontend/number.c | grep -oE '\{"[A-Za-z/]+' | tr -d '{"' | sed -E 's/^(B|b|FLOP)/[kMGT]?i?\1/')
all "setting of a plan" $rules 6 $(sed -n '/^static void read_setting/,/^}/p' frontend/rules.c | grep -oE 'names\[\] = .*' | grep -oE '"[a-z]+"' | tr -d '"')
all "word of a rule" $rules 7 $(sed -nE 's/^static const Word [a-z_]+\[\] = (.*)/\1/p' frontend/rules.c | grep -oE '"[a-z]+"' | tr -d '"')
all schedule $rules 3 $(sed -n '/^static void read_setting/,/^}/p' frontend/rules.c | grep -oE 'strcmp\(rule->text, "[a-z0-9]+"' | grep -oE '"[a-z0-9]+"' | tr -d '"')
all "mesh axis" $rules 5 pp dp cp ep tp

# The defaults that the page tells are those that a model without settings has.
printf 'model m { dim batch = 2, d = 4\n optimizer %s { }\n input x[batch, d] : f32\n input y[batch] : i32\n minimize cross_entropy(linear(x, d), y) }\n' adamw >"$TMP/m.pmodel"
said=$("$ASAN/pplan" check "$TMP/m.pmodel" 2>&1 | grep '^optimizer')
for pair in 'lr 0.001' 'betas 0.9 0.999' 'weight decay 0.01' 'clip 0'; do
    if grep -qF "$pair" <<<"$said"; then echo "ok adamw begins with $pair"; else echo "$said"; echo "not ok adamw begins with $pair"; fi
done
