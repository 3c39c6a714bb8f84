# tests/run/no_memory.sh with ten times as many calls that fail.
NO_MEMORY_MOST=240
. "$TESTS/run/no_memory.sh"
