# H06 on the emulator of GPUs: ranks and prun killed at eight moments, every other one at a call of a save.
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
. "$TESTS/run/gpu.bash"
device=cudaemu dtype=f32 MOMENTS=8 SEED=3
killed() { . "$TESTS/run/ranks_killed.sh"; }
on_gpus killed
