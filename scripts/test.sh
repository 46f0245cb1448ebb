#!/usr/bin/env bash
# The whole test suite: sets the machine up, fetches the test model, builds for the web, and tests on every GPU kind
# that is here: the machine's own, and two software GPUs that differ in what they can (lavapipe, SwiftShader).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
PATH="$PATH:$HOME/.cargo/bin"

scripts/setup.sh --tests
scripts/fetch-test-models.sh
web/build.sh
node web/smoke.mjs
