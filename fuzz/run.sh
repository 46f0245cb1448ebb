#!/usr/bin/env bash
# Fuzzes the GGUF reader for so many seconds (600 unless told).
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p fuzz/corpus/gguf
find tests/data -name '*.gguf' -size -200k -exec cp {} fuzz/corpus/gguf/ \;
head -c 60000 models/tales-2m.Q8_0.gguf > fuzz/corpus/gguf/tales-header
RUSTC_BOOTSTRAP=1 cargo fuzz run --sanitizer none gguf -- -max_total_time="${1:-600}" -rss_limit_mb=1024 -max_len=70000 -timeout=10
