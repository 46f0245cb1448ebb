#!/usr/bin/env bash
# The whole test suite: sets the machine up, fetches the test model, builds for the web, and tests on every GPU kind
# that is here: the machine's own, and two software GPUs that differ in what they can (lavapipe, SwiftShader).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
PATH="$PATH:$HOME/.cargo/bin"
# Mesa asks Wayland which GPU the desktop uses, and complains where there is no desktop.
export NODEVICE_SELECT=1

scripts/setup.sh --tests
scripts/fetch-test-models.sh
web/build.sh

echo "== Tests in the browser"
cargo test -q --test shaders every_kernel_is_written_for_browsers # shaders.test.mjs reads what this writes
for file in web/test/*.test.mjs; do node --test --test-reporter=spec "$file"; done

# Each example runs to its end and prints something.
example() {
    echo "== Example $1"
    cargo run -q --example "$@" | tail -n 3 | grep .
}
example generate
example inspect
example embed
example train_tiny examples/verses.txt 20
example finetune_lora models/tales-2m.Q8_0.gguf examples/verses.txt 4
example chat tests/data/fetched/SmolLM2-135M-Instruct.Q4_1.gguf <<<"What is the capital of France?"

# Vulkan's loader gives a program the drivers that this variable names.
tests_on() {
    echo "== Tests on $1"
    VK_DRIVER_FILES=$2 cargo test "${@:3}"
}
if [ "$(uname)" != Linux ] || cargo run -q -- devices --json | grep -qE '"type": ?"(Discrete|Integrated|Virtual)'; then
    echo "== Tests on this machine's own GPU"
    cargo test
fi
if [ "$(uname)" = Linux ]; then
    tests_on lavapipe "$(lavapipe_icd)"
    if [ -n "$(swiftshader_icd)" ]; then
        # How a training run is managed is the same on every device, and its tests start the program many times: once is enough.
        tests=(--lib --bins)
        for file in tests/*.rs; do
            [ "$file" = tests/train_cli.rs ] || tests+=(--test "$(basename "$file" .rs)")
        done
        tests_on SwiftShader "$(swiftshader_icd)" "${tests[@]}"
    else
        echo "SKIPPED: the tests on SwiftShader, which comes with Chromium or Chrome and is not here"
    fi
fi
