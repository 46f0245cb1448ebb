#!/usr/bin/env bash
# Fuzzes the GGUF reader for so many seconds (600 unless told).
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p fuzz/corpus/gguf
for seed in tests/data/variants/*.gguf; do # headers: the target puts data behind them
    head -c 8000 "$seed" > "fuzz/corpus/gguf/$(basename "$seed" .gguf)"
done
head -c 64128 models/tales-2m.Q8_0.gguf > fuzz/corpus/gguf/tales-2m
RUSTC_BOOTSTRAP=1 cargo fuzz run --sanitizer none gguf -- -max_total_time="${1:-600}" -rss_limit_mb=1024 \
    -malloc_limit_mb=64 -max_len=70000 -timeout=10 -dict=fuzz/gguf.dict
