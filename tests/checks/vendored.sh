#!/bin/bash
# An include path, src/all.cpp and the system libraries are enough: vendored.sh OUTPUT COMPILER...
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
output=$1
shift

mkdir -p "$output"
args=(-std=c++20 -foptimize-sibling-calls -I"$root/include")
"$@" "${args[@]}" -c "$root/src/all.cpp" -o "$output/all.o"
"$@" "${args[@]}" "$root/tests/consumers/program.cpp" "$output/all.o" -luring -lcrypto \
  -o "$output/program"
bash "$root/tests/consumers/runs_right.sh" "$output/program"
