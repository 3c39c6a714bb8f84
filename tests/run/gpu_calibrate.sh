# `prun calibrate` of GPUs, on the emulator: its file is planned with, and the plan runs; what cannot be measured is refused, and leaves
# nothing behind.
# alone: it measures, and refuses a machine that others keep busy
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
. "$TESTS/run/gpu.bash"
export CUDAEMU_MEMORY=80M                            # little, which makes for small instructions

# calibrate FILE
calibrate() { "$PRUN" calibrate --device "${gpu:-cudaemu}" -o "$1"; }

# no_file STATUS TEXT: refused in one line; what was there is left as it was, and nothing else is there.
no_file() {
    echo old >old.pcluster
    refused "$1" "$2" calibrate old.pcluster && [ "$(wc -l <said)" = 1 ] && [ "$(cat old.pcluster)" = old ] && [ -z "$(find . -name ".*.tmp")" ] || { cat said; false; }
}

refusals() {
    check "without a plug-in" 'gpu=cuda PRUN_PLUGINS=$TMP no_file 3 "error: --device cuda: this prun came without libprun_cuda.so"'
    check "without a driver" 'CUDAEMU_FAIL=cudaGetDeviceCount:1=35 no_file 3 "error: --device cudaemu: "'
    check "without a device" 'CUDAEMU_DEVICES=0 no_file 3 "error: --device cudaemu: no CUDA-capable device is detected"'
    check "a driver that fails later" 'CUDAEMU_FAIL=cudaGetDeviceProperties:1=999 no_file 3 "error: --device cudaemu: "'
    check "devices of two kinds" 'CUDAEMU_KINDS=2 no_file 1 "error: devices 0 and 1 are of two kinds, "'
    check "too little memory" 'CUDAEMU_MEMORY=36M no_file 3 "of memory on cudaemu device 0: it has "'
    check "a call that fails while it measures" 'CUDAEMU_FAIL=kernel:10=700 no_file 3 "error: rank 0, cudaemu 0: "'
    check "a folder that is not there" 'refused 3 "error: cannot write into " calibrate missing/new.pcluster'
}

interrupted() {
    echo old >old.pcluster
    "$PRUN" calibrate --device cudaemu -o old.pcluster 2>said &
    sleep 0.5
    kill -TERM $! && wait $!
    [ $? = 143 ] && [ "$(cat old.pcluster)" = old ] && [ -z "$(find . -name ".*.tmp")" ]
}

# has_key KEY...: lines of the device.
has_key() {
    local key
    for key; do
        grep -Eq "^  $key += " two.pcluster || { echo "no $key"; return 1; }
    done
}

measures() {
    local status begun=$SECONDS
    CUDAEMU_DEVICES=2 calibrate two.pcluster 2>said
    status=$?
    if [ $status = 3 ] && grep -q "too busy to be measured" said; then
        echo "skip figures of emulated devices: the machine is too busy"
        return
    fi
    check "two devices are measured, without a word" '[ $status = 0 ] && [ ! -s said ] || ! cat said'
    check "within 180 seconds, however slow they are ($((SECONDS - begun)) s)" '[ $((SECONDS - begun)) -le 180 ]'
    check "by the driver's names" 'grep -q "^device emulated_device \"emulated device\"" two.pcluster && grep -q "^cluster emulated_device_x2 \"2 x emulated device\"" two.pcluster'
    check "all there is to measure" 'has_key backend memory reserve bandwidth peak.f32 peak.bf16 launch efficiency efficiency.{memory,attention,attention.bias,adamw,gelu,gelu.exact,gelu.bf16,contract.bf16}'
    check "peaks of f32 and bf16 alone" '[ "$(grep -c "^  peak" two.pcluster)" = 2 ]'
    check "the host and its link" 'grep -q "^  host.memory = " two.pcluster && grep -q "^  host.link   = " two.pcluster'
    check "two ranks are what a level says" 'grep -q "^    link  *= " two.pcluster && grep -q "^    latency  *= " two.pcluster'
    check "in canonical form" '"$RELEASE/pplan" fmt two.pcluster >fmt && cmp two.pcluster fmt'
    cp two.pcluster machine.pcluster
    plan both.plan gpt2 "layers=1" "mesh dp = 2; devices = [0, 1]" emulated_device_x2 && plan one.plan gpt2 "layers=1 devices=1" "devices = [0]" emulated_device_x2
    check "a plan for both runs in their memory" 'train cudaemu both.plan log && ! grep -q "note: the plan is for device" said'
    check "and one for the first of them" 'train cudaemu one.plan log'
}

all() {
    refusals
    check "an interrupted run leaves the old file" interrupted
    measures
}
make_text t.txt $((64 * 16 + 1))
on_gpus all
