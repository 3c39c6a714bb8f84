#!/bin/bash
# probe.sh FILE -- whether an MPI is there to build for: 'found: VERSION' or 'absent: WHY'.  What was
# found is kept in FILE, for as long as mpicc is the same.
mpicc=$(command -v mpicc) || { echo "absent: there is no mpicc (Debian: openmpi-bin, libopenmpi-dev)"; exit; }

[ -f "$1" ] && [ "$(head -n 1 "$1")" = "$mpicc" ] && { tail -n 1 "$1"; exit; }

# Some mpicc is there without the library it compiles for.
work=$(mktemp -d "${TMPDIR:-/tmp}/mpi.XXXXXX") || exit
trap 'rm -rf "$work"' EXIT
printf '#include <mpi.h>\nint main(void) { return MPI_Init(0, 0); }\n' >"$work/try.c"
if mpicc -o "$work/try" "$work/try.c" >"$work/said" 2>&1; then
    said="found: $mpicc"
else
    said="absent: mpicc does not compile: $(head -n 1 "$work/said" | tr -d "'\"\`")"
fi
mkdir -p "${1%/*}" && printf '%s\n%s\n' "$mpicc" "$said" >"$1"
echo "$said"
