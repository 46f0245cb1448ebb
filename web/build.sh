#!/usr/bin/env bash
# Builds what browsers need: the WebAssembly module into web/pkg, the package's TypeScript types into web/types, and the demo
# page, a static site, into web/dist. Takes Rust's own wasm32 target where rustup has it, else the Rust that Debian keeps for building browsers.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
PATH="$PATH:$HOME/.cargo/bin"

target=wasm32-unknown-unknown
debian_std=/usr/lib/rustlib/src/rust/library/std
build=(cargo build)
if [ ! -d "$(rustc --print target-libdir --target $target)" ]; then
    if [ "$(id -u)" = 0 ] && is_debian; then
        packages=()
        [ -d $debian_std ] && [ -x /usr/bin/cargo ] || packages+=(rustc-web cargo-web rust-web-src)
        command -v wasm-ld >/dev/null || packages+=(lld)
        [ ${#packages[@]} = 0 ] || apt_install "${packages[@]}"
    fi
    if [ ! -d $debian_std ] || ! command -v wasm-ld >/dev/null; then
        echo "Rust's $target target is missing: rustup target add $target" >&2
        exit 1
    fi
    # Debian ships no compiled std for this target but its source, and building that is an unstable flag.
    export RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld
    build=(/usr/bin/cargo build "-Zbuild-std=std,panic_abort")
fi
CARGO_TARGET_DIR=web/target "${build[@]}" --lib --profile web --target $target --no-default-features --features tokenizer,chat,peft

# wasm-bindgen's program must have the very version of its library. It is kept outside the clone, for the next one.
version=$(sed -n '/^name = "wasm-bindgen"$/{n;s/version = "\(.*\)"/\1/p}' Cargo.lock)
bindgen=$(command -v wasm-bindgen || true)
if [ -z "$bindgen" ] || [ "$($bindgen --version)" != "wasm-bindgen $version" ]; then
    tools="${XDG_CACHE_HOME:-$HOME/.cache}/peregrine/wasm-bindgen-$version"
    bindgen=$tools/bin/wasm-bindgen
    [ -x "$bindgen" ] || env -u RUSTC -u RUSTC_BOOTSTRAP cargo install -q wasm-bindgen-cli --version "$version" \
        --no-default-features --bin wasm-bindgen --root "$tools"
fi
"$bindgen" --target web --remove-name-section --remove-producers-section --out-dir web/pkg web/target/$target/web/peregrine.wasm
echo '{"type":"module"}' >web/pkg/package.json # lets Node.js load the face too

cd web
[ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --no-audit --no-fund
npx tsc
node site.mjs

wasm=pkg/peregrine_bg.wasm
echo "web/$wasm: $(wc -c <$wasm) bytes, $(gzip -9 -c $wasm | wc -c) with gzip"
