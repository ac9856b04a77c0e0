#!/usr/bin/env bash
# A network of PyTorch learns on a microcontroller and returns: the steps of docs/emit.md. Fetches PyTorch from PyPI, and
# skips where that fails. Usage: emit_pytorch_test.sh BUILD_FOLDER
set -euo pipefail
build=$(realpath "$1")
weft=$build/tools/weft
subject=emit_pytorch
cd "$(dirname "$0")/../.."
root=$PWD
# shellcheck source=tests/real/packages.sh
. tests/real/packages.sh
needs "$weft"
command -v gcc >/dev/null || skip "gcc is not installed"
python_with 'torch, onnx, safetensors.torch' torch 'onnx>=1.16,<2' safetensors numpy
make_work
cp examples/emit/* "$work"
cd "$work"
python3 "$root/tests/docs/page.py" --file "$root/docs/emit.md" export.py .
"$python" -W ignore export.py
"$weft" emit net.onnx --train --loss cross-entropy --optimizer sgd -o net_step.c
"$weft" emit net.onnx --weights extern -o net.c
gcc -std=c99 -O2 -Wall device.c net.c net_step.c -o device
./device | tee printed.txt
while IFS= read -r line; do
    grep -qxF "       $line" "$root/docs/emit.md" || { echo "docs/emit.md lacks \"$line\""; exit 1; }
done <printed.txt
cp learned.safetensors here.safetensors
if command -v arm-none-eabi-gcc >/dev/null && command -v qemu-system-arm >/dev/null; then
    rm learned.safetensors
    arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -mfpu=fpv4-sp-d16 -mfloat-abi=hard -Os device.c net.c net_step.c \
        cortex_m4.c -T cortex_m4.ld -nostartfiles --specs=nano.specs --specs=nosys.specs -o device.elf
    timeout 600 qemu-system-arm -M mps2-an386 -nographic -monitor none -serial none \
        -semihosting-config enable=on,target=native -kernel device.elf </dev/null >there.txt 2>&1
    cmp there.txt printed.txt
    cmp learned.safetensors here.safetensors
    echo "Cortex-M4: the same lines, and the same file"
else
    echo "skipped: $subject on a Cortex-M4: gcc-arm-none-eabi or qemu-system-arm is not installed"
fi
cat >>export.py <<'PY'
import safetensors.torch
before = net[2].weight.clone()
print(net.load_state_dict(safetensors.torch.load_file("learned.safetensors")))
assert not torch.equal(before, net[2].weight)
PY
"$python" -W ignore export.py
