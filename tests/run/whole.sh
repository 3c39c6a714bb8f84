# Inputs of whole numbers and truths that are computed with: `cast` makes of them what data of f32 would have been.
. "$TESTS/run/lib.bash"
cat >whole.pmodel <<'END'
model whole {
  dim batch = 8, row = 4, col = 6, hidden = 8, class = 4
  param dtype = f32
  precision { compute = dtype }
  optimizer sgd { lr = 0.1 }
  input image[batch, row, col] : u8
  input keep[batch, hidden]    : bool
  input label[batch]           : i32
  pixels = cast(image, to = dtype)
  shown = kept: cast(keep, to = dtype)
  x = fc: linear(pixels / 255, hidden, over = [row, col]) * shown
  minimize cross_entropy(head: linear(x, class), label)
}
END
# The same of reals, by their names.
sed -E 's/image(.*) : u8/pixels\1 : f32/; s/keep(.*) : bool/kept\1 : f32/; /^ *pixels =/d; s/shown = .*/shown = kept/' whole.pmodel >real.pmodel
plan() { "$RELEASE/pplan" plan "$1.pmodel" -c ${5:-laptop4} --with "$3" ${4:+-D "$4"} -o "$2.plan" >said 2>&1 || { cat said; exit 2; }; }
reals() { "$RELEASE/prun" real.plan --data pixels=pixels.st --data kept=kept.st --data label=label.st --steps 1 --log many.log 2>said; }
plan real real 'devices = [0]'

trains() {
    local name rules
    while IFS='|' read -r name rules; do
        plan whole many "$rules"
        check "$name: the loss of reals ($device)" '"$RELEASE/prun" many.plan $on --data random --steps 1 --log one.log --dump pixels@1=pixels.st --dump kept@1=kept.st --dump label@1=label.st 2>said &&
            reals && near loss 1e-6 1 && near grad_norm 1e-5 1' || cat said
    done <<'END'
one rank|devices = [0]
samples split|mesh dp = 2; devices = [0, 1]; microbatches = 2
rows split|mesh tp = 2; devices = [0, 1]; split row by tp
stages|mesh pp = 2; devices = [0, 1]; stage before head; microbatches = 2
END
}
on_devices trains

plan whole one 'devices = [0]'
"$RELEASE/prun" one.plan --data random --steps 1 --dump image@1=image.st --dump keep@1=keep.st 2>said || cat said
bytes() { tail -c +$((9 + $(od -An -t u8 -N8 "$1"))) "$1" | od -An -v -t u1 -w1 | tr -d ' '; }
check "random pixels are all there are" '[ "$(bytes image.st | sort -n | head -n 1)" -lt 20 ] && [ "$(bytes image.st | sort -n | tail -n 1)" -gt 235 ]'
check "random truths are 0 and 1" '[ "$(bytes keep.st | sort -u | tr "\n" " ")" = "0 1 " ]'
check "files of u8 and bool are read" '"$RELEASE/prun" one.plan --data image=image.st --data keep=keep.st --data label=label.st --steps 1 --log one.log 2>said' || cat said
cat >bf16.pcluster <<'END'
device core { backend = cpu, threads = 2, memory = 2 GiB, bandwidth = 12 GB/s, peak.bf16 = 80 GFLOP/s, peak.f32 = 80 GFLOP/s }
cluster one { level s = 1 * core {} }
END
plan whole half 'devices = [0]' dtype=bf16 bf16.pcluster
check "in bf16, too" '"$RELEASE/prun" half.plan --data image=image.st --data keep=keep.st --data label=label.st --steps 1 --log many.log 2>said && near loss 1e-2 1' || cat said

# A part in another order; without labels pixels are no tokens.
cat >part.pmodel <<'END'
model part {
  dim batch = 8, row = 4, col = 6, hidden = 8
  optimizer sgd { lr = 0.1 }
  input image[batch, row, col] : u8
  turned[batch, col, row] = image
  x = cast(turned[row = 1])
  y = fc: linear(x / 255, hidden)
  minimize mean(mean(y * y, over = hidden), over = batch)
}
END
plan part part 'devices = [0]'
second_rows() { bytes image.st | awk '{ at = (NR - 1) % 24 } at >= 6 && at < 12 { print $1 }'; }
parts() {
    "$RELEASE/prun" part.plan $on --data random --steps 1 --log one.log --dump image@1=image.st --dump x@1=x.st 2>said || return
    diff <(second_rows) <(tail -c +$((9 + $(od -An -t u8 -N8 x.st))) x.st | od -An -v -t f4 -w4 | awk '{ print $1 }') && [ "$(field tokens one.log)" = 8 ]
}
of_devices() { check "a part of an input in another order ($device)" 'parts' || cat said; }
on_devices of_devices
