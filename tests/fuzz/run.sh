#!/bin/bash
# Replays a corpus, then looks for more for MANYWORLDS_FUZZ_SECONDS: run.sh PROGRAM CORPUS WORK
# What crashes it, and what it finds, lie in WORK; a named copy of either belongs in CORPUS.
set -euo pipefail
program=$1 corpus=$2 work=$3 seconds=${MANYWORLDS_FUZZ_SECONDS:-10}
mkdir -p "$work/found"
# libFuzzer ends with 77, which Meson takes for a test that was skipped.
trap 'exit 1' ERR

# To weigh inputs by how rare is what they reach costs more than to run them: each program has
# the counters of the whole library.
"$program" -entropic=0 -runs=0 -timeout=10 -artifact_prefix="$work/" "$corpus"
[ "$seconds" -eq 0 ] ||
  "$program" -entropic=0 -max_total_time="$seconds" -max_len=12288 -timeout=10 -rss_limit_mb=1024 \
    -artifact_prefix="$work/" -verbosity=0 -print_final_stats=1 "$work/found" "$corpus"
