#!/bin/sh
# nvcc without candle's kernels for quantised models: training never runs them, and they take most of the build time. Code
# that refers to them still links; calling it aborts the program. toolkit.sh installs this script next to nvcc.
set -eu
nvcc=$(dirname "$0")/nvcc
left_out=
for word; do
    case $word in
    *quantized.cu | *moe/moe_*.cu | *mmvq_gguf.cu | *mmq_gguf/mmq_*.cu) left_out=$word ;;
    esac
done
[ -n "$left_out" ] || exec "$nvcc" "$@"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
empty=$folder/$(basename "$left_out")
: >"$empty"
# One of the files defines a placeholder for each function that the excluded files would define.
case $left_out in
*moe_gguf.cu)
    {
        echo '#include <stdlib.h>'
        grep -oh 'pub fn [A-Za-z0-9_]*' src/ffi.rs | sort -u | sed 's/pub fn \(.*\)/extern "C" void \1() { abort(); }/'
    } >"$empty"
    ;;
esac
count=$#
while [ "$count" -gt 0 ]; do
    word=$1
    shift
    [ "$word" = "$left_out" ] && word=$empty
    set -- "$@" "$word"
    count=$((count - 1))
done
"$nvcc" "$@"
