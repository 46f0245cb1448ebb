# shellcheck shell=bash
# What the scripts share: where things are found. Sourced, not run.

# The software GPUs' driver files, by their first known place; nothing where they are not installed.
lavapipe_icd() { first_file /usr/share/vulkan/icd.d/lvp_icd*.json /etc/vulkan/icd.d/lvp_icd*.json; }
swiftshader_icd() { first_file /usr/lib/chromium/vk_swiftshader_icd.json /opt/google/chrome/vk_swiftshader_icd.json; }

first_file() {
    local file
    for file in "$@"; do
        if [ -f "$file" ]; then
            echo "$file"
            return
        fi
    done
}

# The oldest Rust that builds the package.
needed_rust() { sed -n 's/^rust-version = "\([0-9.]*\)".*/\1/p' Cargo.toml; }

# at_least 1.95.0 1.87: whether the first version is the second or newer.
at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

is_debian() { [ -f /etc/debian_version ] && command -v apt-get >/dev/null; }

# Installs Debian packages, as root or through sudo.
apt_install() {
    local as_root=()
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "Please install as root: apt-get install --no-install-recommends $*" >&2
            return 1
        fi
        as_root=(sudo)
    fi
    echo "Installing: $*"
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
