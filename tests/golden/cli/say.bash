# What a case prints: each command, what it said, and its exit status.
try() { echo "\$ $*"; "$@" </dev/null; echo "= $?"; }
# The same without the command's paths of this machine.
shell() { echo "\$ $1"; bash -c "$1" </dev/null; echo "= $?"; }
