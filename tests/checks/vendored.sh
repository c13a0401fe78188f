#!/bin/bash
# Two include paths (include, src), src/all.cpp and the system libraries are enough: vendored.sh OUTPUT COMPILER...
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
output=$1
shift

mkdir -p "$output"
# Without CUDA, wherever it is.
args=(-std=c++20 -foptimize-sibling-calls -I"$root/include" -I"$root/src" -DMANYWORLDS_HAS_NCCL=0)
# Without run-time type information, as some build.
"$@" "${args[@]}" -fno-rtti -c "$root/src/all.cpp" -o "$output/all.o"
"$@" "${args[@]}" "$root/tests/consumers/program.cpp" "$output/all.o" -luring -lcrypto -lcares \
  -o "$output/program"
bash "$root/tests/consumers/runs_right.sh" "$output/program"
# With CUDA it is what a user's optimized build compiles, and no build of the tests.
[ -z "${CUDA_ARGS-}" ] || "$@" -std=c++20 -foptimize-sibling-calls -I"$root/include" -I"$root/src" \
  $CUDA_ARGS -fsyntax-only "$root/src/all.cpp"

"$@" "${args[@]}" -DDOCTEST_CONFIG_IMPLEMENT_WITH_MAIN "$root/tests/nccl/without_test.cpp" \
  "$output/all.o" -luring -lcrypto -lcares -o "$output/without"
"$output/without" --minimal
