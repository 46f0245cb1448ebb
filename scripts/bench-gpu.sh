#!/usr/bin/env bash
# Checks and measures this machine's GPU, and writes a Markdown section for BENCHMARKS.md: tests of the kernels, then
# SmolLM2 and synthetic models of 1, 3 and 8 thousand million weights in Q4_K and Q8_0 (`peregrine debug synth`), each
# decoding at a short and at a long context and reading a prompt of 512 tokens, step by step beside what the device
# could do at best by its own measured ceilings.
#
#   scripts/bench-gpu.sh                   everything: needs 9 GB of disk and of GPU memory
#   scripts/bench-gpu.sh --quick           SmolLM2 and 8b in Q4_K: under 6 minutes, apart from the build
#
#   --out FILE           where the section goes (bench-gpu.md); one that is there is replaced
#   --gpu NAME           the adapter that is measured, by number or part of its name (`peregrine devices` lists them)
#   --shapes "1b 8b"     synthetic models: tiny, 1b, 3b, 8b
#   --formats "Q4_K"     their formats
#   --long N             tokens of the long prompt (8192)
#   --limit S            seconds that one measurement may take (300; quick: 60)
#   --binary FILE        this program instead of one that is built here; the tests are then those of --tests
#   --tests "FILE .."    test programs that are built already
#
# A step that fails or takes too long is told in the section and the rest goes on; the exit code is then 1.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
PATH="$PATH:$HOME/.cargo/bin"
export NODEVICE_SELECT=1

command_line="scripts/bench-gpu.sh $*"
quick='' out=bench-gpu.md gpu='' shapes='' formats='' long=8192 limit='' binary='' tests=''
while [ $# != 0 ]; do
    case $1 in
        --quick) quick=1; shift; continue ;;
        --out | --gpu | --shapes | --formats | --long | --limit | --binary | --tests)
            [ $# -ge 2 ] || { echo "$1 needs a value" >&2; exit 2; }
            printf -v "${1#--}" %s "$2"; shift 2 ;;
        *) echo "unknown option $1; the head of scripts/bench-gpu.sh lists them all" >&2; exit 2 ;;
    esac
done
[ -n "$shapes" ] || shapes=${quick:+8b} && shapes=${shapes:-1b 3b 8b}
[ -n "$formats" ] || formats=${quick:+Q4_K} && formats=${formats:-Q4_K Q8_0}
limit=${limit:-${quick:+60}} limit=${limit:-300}

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
failures=() skipped=()
say() { echo "== $*" >&2; }
fail() { failures+=("$*"); echo "FAILED: $*" >&2; }
skip() { skipped+=("$*"); echo "SKIPPED: $*" >&2; }

if [ -z "$binary" ]; then
    say "Building"
    cargo build --release
    cargo test --release --no-run --test kernels --test model
    binary=target/release/peregrine
    tests=cargo
fi
# The time for a quick run begins here.
SECONDS=0
deadline=$([ -n "$quick" ] && echo 350 || echo 1000000)

command -v timeout >/dev/null || timeout() { "${@:2}"; } # macOS: nothing is cut
# within S COMMAND..: for at most S seconds, and never beyond the deadline. 124: it took too long.
within() {
    local left=$((deadline - SECONDS)) most=$1
    [ $left -ge 1 ] || return 124
    timeout $((most < left ? most : left)) "${@:2}"
}

# why STATUS FILE: what became of a step, by its exit code and the last line of its standard error.
why() { if [ "$1" = 124 ]; then echo "took too long"; else tail -n 1 "$2" | cut -c 1-300; fi; }

say "Devices"
devices=$("$binary" devices)
echo "$devices"

# run_tests NAME COMMAND..
tested=''
run_tests() {
    say "Tests: $1"
    local status=0 counts
    within "$limit" "${@:2}" >"$temporary/tests" 2>&1 || status=$?
    counts=$(sed -n 's/^test result: [a-zA-Z]*\. \([0-9]* passed; [0-9]* failed\).*/\1/p' "$temporary/tests" | paste -sd, -)
    tested+="${tested:+, }$1: ${counts:-no result}"
    if [ $status != 0 ]; then
        [ $status = 124 ] || tail -n 40 "$temporary/tests" >&2
        fail "tests of $1: $(if [ $status = 124 ]; then echo took too long; else echo "${counts:-they did not run}"; fi)"
    fi
}
if [ "$tests" = cargo ]; then
    # one program at a time: a test that loses the device shows in its own result
    run_tests kernels cargo test --release --test kernels
    run_tests model cargo test --release --test model
elif [ -n "$tests" ]; then
    for program in $tests; do run_tests "$(basename "$program")" "$program"; done
else
    skip "the tests: --binary was given without --tests"
fi

# field KEY FILE: a string or number of a JSON object on one line.
field() { sed -nE "s/.*\"$1\":(\"([^\"]*)\"|([^,}]*)).*/\2\3/p" "$2" | head -n 1; }

# The JSON as lines, one an object, so that awk can take them apart: value(key) is a number or string of the line.
objects() { tr '{' '\n' <"$1"; }
value='function value(key) { return match($0, "\"" key "\":\"?[^,\"}]*") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) : "" }
       function text(key) { v = value(key); sub(/^"/, "", v); return v }'

# row FILE NAME PROMPT: a line of the table of speeds.
row() {
    objects "$1" | awk -v name="$2" -v prompt="$3" "$value"'
        function range(key) {
            if (!match($0, "\"" key "\":\\[[^]]*")) return ""
            list = substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 4)
            n = split(list, runs, ","); low = high = runs[1] + 0
            for (i = 2; i <= n; i++) { if (runs[i] + 0 < low) low = runs[i] + 0; if (runs[i] + 0 > high) high = runs[i] + 0 }
            return sprintf("%.1f to %.1f", low, high)
        }
        /"decode_tps"/ {
            prefill = value("prefill_tps"); decode = value("decode_tps"); read = value("bandwidth_fraction")
            bytes = value("bytes_per_token"); dispatches = value("dispatches_per_token")
            ranges = range("prefill_runs") " | " range("decode_runs")
        }
        /"read_gbps"/ { f32 = value("f32_gflops") }
        /"pass"/ { pass = text("pass"); tokens[pass] = value("tokens") }
        /"step"/ { best[pass] += value("best_seconds"); flops[pass] += value("flops") }
        END {
            split(ranges, range_of, " [|] ")
            # The first pass of the prompt was profiled. Of a long prompt it tells little: attention grows.
            per_pass = tokens["prefill"] / prefill
            share = prompt > 4 * tokens["prefill"] ? "- | -" : sprintf("%.0f %% | %.0f %%",
                100 * flops["prefill"] / per_pass / f32 / 1e9, 100 * best["prefill"] / per_pass)
            printf "| %s | %d | %.1f (%s) | %s | %.1f (%s) | %.0f %% | %.0f %% | %d | %.3f |\n", name, prompt,
                prefill, range_of[1], share, decode, range_of[2], 100 * read, 100 * best["decode"] * decode, dispatches,
                bytes / 1e9
        }'
}

# steps FILE PASS: the table of one profiled pass, those steps first that lose the most.
steps() {
    objects "$1" | awk -v wanted="$2" "$value"'
        /"pass"/ { pass = text("pass"); if (pass == wanted) printf "\n%s, %d tokens after %d:\n\n", pass, value("tokens"), value("position") }
        /"pass"/ && pass == wanted { print "| step | kernel | steps | ms | GB/s | GFLOP/s | of best |\n|---|---|--:|--:|--:|--:|--:|" }
        /"step"/ && pass == wanted {
            s = value("seconds"); if (s == 0) s = 1e-9
            printf "| %s | %s | %d | %.3f | %.1f | %.1f | %.0f %% |\n", text("step"), text("kernel"), value("steps"), s * 1e3,
                value("bytes") / s / 1e9, value("flops") / s / 1e9, 100 * value("best_seconds") / s
        }'
}

speeds='' details='' first=''
# bench NAME MODEL PROMPT TOKENS RUNS PASS: one measurement: a row, and the steps of the pass that it is about.
bench() {
    local name=$1 model=$2 prompt=$3 tokens=$4 runs=$5 pass=$6 status=0 json
    json=$temporary/$(echo "$name-$prompt" | tr -c 'a-zA-Z0-9_\n-' _).json
    local args=(bench "$model" -p "$prompt" -n "$tokens" -r "$runs" --ctx $((prompt + tokens + 64)) --profile --json)
    [ -z "$gpu" ] || args+=(--gpu "$gpu")
    say "$name: prompt of $prompt, $tokens decoded"
    within "$limit" "$binary" "${args[@]}" >"$json" 2>"$temporary/error" || status=$?
    if [ $status != 0 ]; then
        fail "$name with a prompt of $prompt: $(why $status "$temporary/error")"
        return
    fi
    first=${first:-$json}
    speeds+=$(row "$json" "$name" "$prompt")$'\n'
    details+=$'\n'"<details><summary>$name: $pass with a prompt of $prompt</summary>"$'\n'
    details+=$(steps "$json" "$pass")$'\n\n</details>\n'
}

# model NAME FILE
model() {
    bench "$1" "$2" 16 64 3 decode
    bench "$1" "$2" 512 16 3 prefill
    bench "$1" "$2" "$long" 32 1 decode
}

smol=tests/data/fetched/SmolLM2-135M-Instruct.Q4_1.gguf
if [ ! -f $smol ]; then
    within 120 scripts/fetch-test-models.sh >&2 || true
fi
if [ -f $smol ]; then
    model "SmolLM2 135M Q4_1" $smol
else
    skip "SmolLM2: it is not in tests/data/fetched and cannot be fetched from here"
fi
for shape in $shapes; do
    for format in $formats; do
        file=$temporary/$shape-$format.gguf status=0
        say "Making $shape in $format"
        within "$limit" "$binary" debug synth --shape "$shape" --format "$format" --out "$file" 2>"$temporary/error" >&2 || status=$?
        if [ $status = 0 ]; then
            model "synthetic $shape $format" "$file"
        else
            fail "synthetic $shape $format: $(why $status "$temporary/error")"
        fi
        rm -f "$file"*
    done
done

machine() {
    local cpu
    cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)
    echo "$(uname -srm)${cpu:+, $cpu}, $(getconf _NPROCESSORS_ONLN) cores"
}
list() { local item; for item in "$@"; do echo "- $item"; done; }
{
    echo "## ${first:+$(field device "$first")}${first:+ ($(field backend "$first"))}, $(date -u +%Y-%m-%d)"
    echo
    commit=$(git describe --always --dirty 2>/dev/null || echo unknown)
    echo "\`$command_line\` at commit $commit took $SECONDS seconds after the build. Weights of synthetic models are random; the"
    echo "prompt is arbitrary tokens. \"Of the ceiling\": prefill, of the f32 arithmetic, which matrix hardware exceeds; decode,"
    echo "weights alone, of what the device reads. \"Of best\": the time that the ceilings allow for every step, over the time taken. Every"
    echo "measurement takes the ceilings anew; those below are the first's."
    echo
    echo "| | |"
    echo "|---|---|"
    if [ -n "$first" ]; then
        echo "| device | $(field device "$first") |"
        echo "| driver | $(field driver "$first") |"
    fi
    if command -v nvidia-smi >/dev/null; then
        query=name,driver_version,memory.total,power.limit,clocks.max.sm,clocks.max.mem
        echo "| nvidia-smi | $(nvidia-smi --query-gpu=$query --format=csv,noheader | paste -sd '/' -) |"
    fi
    echo "| machine | $(machine) |"
    if [ -n "$first" ]; then
        ceilings=$temporary/ceilings
        objects "$first" | grep read_gbps >"$ceilings"
        printf '| reads | %.1f GB/s |\n' "$(field read_gbps "$ceilings")"
        printf '| f32 multiply-adds | %.1f GFLOP/s |\n' "$(field f32_gflops "$ceilings")"
        printf '| dot products of bytes | %.1f Gop/s |\n' "$(field int8_gops "$ceilings")"
        printf '| an empty dispatch | %.2f us |\n' "$(field dispatch_us "$ceilings")"
    fi
    [ -z "$tested" ] || echo "| tests | $tested |"
    echo
    echo "| model | prompt | prefill tokens/s (runs) | of the ceiling | of best | decode tokens/s (runs) | of the ceiling | of best | dispatches a token | GB a token |"
    echo "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    printf %s "$speeds"
    echo
    if [ ${#failures[@]} != 0 ]; then echo "Failed:"; list "${failures[@]}"; echo; fi
    if [ ${#skipped[@]} != 0 ]; then echo "Skipped:"; list "${skipped[@]}"; echo; fi
    echo "<details><summary>Devices</summary>"
    echo
    echo '```'
    echo "$devices"
    echo '```'
    echo
    echo "</details>"
    printf %s "$details"
} >"$temporary/section"
mv "$temporary/section" "$out"
say "Written: $out, after $SECONDS seconds"
[ ${#failures[@]} = 0 ]
