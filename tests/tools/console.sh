#!/bin/bash
# console.sh FILE.md -- FILE with what its commands print now.
#
# A block ```pmodel NAME is a file of that name; in a block ```console the lines '$ COMMAND' are executed, in
# order and in the folder it is called in, and what stood below each is replaced by its output.

# A reader that leaves early would, on a busy machine, now and then end the writer with a message.
head() { command head "$@"; cat >/dev/null; }
export -f head

while IFS= read -r line; do
    case $mode:$line in
    :'```console') mode=console ;;
    :'```pmodel '*) mode=file name=${line#'```pmodel '} && : >"$name" ;;
    *:'```') mode= ;;
    console:'$ '*) printf '%s\n' "$line"; bash -c "${line#'$ '}" 2>&1 </dev/null; continue ;;
    console:*) continue ;;
    file:*) printf '%s\n' "$line" >>"$name" ;;
    esac
    printf '%s\n' "$line"
done <"$1"
