# Ranks and prun killed at three times as many moments, others than those of the short form.
MOMENTS=60 SEED=2
. "$TESTS/run/ranks_killed.sh"
