#!/usr/bin/env bash
# Installs what Peregrine needs to build and run and this machine lacks. What is there stays as it is.
#
#   scripts/setup.sh            a C compiler, Rust, a Vulkan driver (a software one where there is none)
#   scripts/setup.sh --tests    also the two software GPUs that the tests run on, pip and Node.js
#
# On Debian and its relatives it installs packages, as root or through sudo. Elsewhere it names what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

missing=() # Debian packages
tell=()    # what no package of ours brings

# rustup puts Rust into this folder; a shell that was open before does not know it yet.
PATH="$PATH:$HOME/.cargo/bin"

command -v cc >/dev/null || missing+=(gcc libc6-dev)

# Debian's packages of a Rust that is new enough: the distribution's own, or the one it keeps for building browsers.
debian_rust() {
    local packages candidate
    for packages in "rustc cargo" "rustc-web cargo-web"; do
        candidate=$(apt-cache policy "${packages%% *}" 2>/dev/null | sed -n 's/ *Candidate: \([0-9.]*\).*/\1/p')
        if [ -n "$candidate" ] && at_least "$candidate" "$(needed_rust)"; then
            echo "$packages"
            return
        fi
    done
}
rust=$(rustc --version 2>/dev/null | cut -d ' ' -f 2 || true)
if ! command -v cargo >/dev/null || [ -z "$rust" ] || ! at_least "$rust" "$(needed_rust)"; then
    packages=$(if [ -z "$rust" ] && is_debian; then debian_rust; fi)
    if [ -n "$packages" ]; then
        # shellcheck disable=SC2206 # a list of words
        missing+=($packages)
    else
        tell+=("Rust $(needed_rust) or newer${rust:+ (here is $rust)}: install it with rustup, https://rustup.rs")
    fi
fi

if [ "$(uname)" = Linux ]; then
    loader=$(PATH="$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null | grep -c 'libvulkan\.so\.1' || true)
    [ "$loader" != 0 ] || missing+=(libvulkan1)
    driver=${VK_DRIVER_FILES:-${VK_ICD_FILENAMES:-$(first_file /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json \
        /usr/local/share/vulkan/icd.d/*.json "$HOME"/.local/share/vulkan/icd.d/*.json)}}
    [ -n "$driver" ] || missing+=(mesa-vulkan-drivers)
fi

if [ "${1:-}" = --tests ]; then
    if [ "$(uname)" = Linux ]; then
        [ -n "$(lavapipe_icd)" ] || missing+=(mesa-vulkan-drivers)
        # Ubuntu's chromium is a snap without the driver file.
        if [ -z "$(swiftshader_icd)" ] && grep -q '^ID=debian' /etc/os-release 2>/dev/null; then missing+=(chromium); fi
    fi
    python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
    command -v node >/dev/null || missing+=(nodejs)
    command -v npm >/dev/null || missing+=(npm)
fi

if [ ${#missing[@]} != 0 ] && is_debian; then
    apt_install "${missing[@]}"
elif [ ${#missing[@]} != 0 ]; then
    tell+=("what Debian calls: ${missing[*]}
  (Fedora: mesa-vulkan-drivers vulkan-loader; Arch: vulkan-swrast vulkan-icd-loader; or your GPU's own Vulkan driver)")
fi
if [ ${#tell[@]} != 0 ]; then
    printf 'Peregrine also needs %s\n' "${tell[@]}" >&2
    exit 1
fi
