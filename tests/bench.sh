#!/bin/bash
# The programs of the benchmarks, which no other test runs: what they import from each other is there, and shell and Python
# scripts are what their languages allow.
cd "$TOP" || exit 2

# Problems of the Python files in a folder: "from MODULE import NAME" where the folder has no such file, nor the language
# such a module, or where the file has no such name.  PyTorch is installed by `make bench` alone.
imports() {
    python3 - "$1" <<'END'
import ast, importlib.util, pathlib, sys

folder = pathlib.Path(sys.argv[1])
trees = {f.stem: ast.parse(f.read_text(), str(f)) for f in sorted(folder.glob("*.py"))}
LATER = {"torch", "numpy"}

def names(tree):
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (a.asname or a.name for a in node.names)
        elif isinstance(node, ast.Assign):
            yield from (n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name))

def asked(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((a.name.split(".")[0], None) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module.split(".")[0], a.name) for a in node.names)

for file, tree in trees.items():
    for module, name in asked(tree):
        if module in trees:
            if name and name not in names(trees[module]):
                print("%s.py: %s.py has no '%s'" % (file, module, name))
        elif module not in LATER and importlib.util.find_spec(module) is None:
            print("%s.py: no module '%s'" % (file, module))
if not trees:
    print("no Python file in " + sys.argv[1])
END
}

# verdict NAME PROBLEMS: it passes when the text of problems is empty.
verdict() {
    if [ -z "$2" ]; then echo "ok $1"; else printf '%s\n' "$2"; echo "not ok $1"; fi
}

# What is planted in a folder of one's own is seen.
planted() {
    mkdir -p "$TMP/planted" && cd "$TMP/planted" || exit 2
    printf 'import os\nfrom gone import x\nfrom b import there, absent\n' >a.py
    printf 'there = 1\n' >b.py
    [ "$(imports .)" = "$(printf "a.py: no module 'gone'\na.py: b.py has no 'absent'")" ] || imports .
}

verdict "shell scripts of the benchmarks" "$(for f in bench/*.sh bench/*.bash bench/*/*.sh bench/gpu/*.bash; do bash -n "$f" 2>&1; done)"
if command -v python3 >/dev/null; then
    verdict "what the benchmarks import is there" "$(imports bench 2>&1)"
    verdict "an import that is missing is seen" "$(planted 2>&1)"
else
    echo "skip what the benchmarks import is there: python3 is not installed"
fi
