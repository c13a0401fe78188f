#!/bin/bash
# benchmarks/reproduce.sh without a program builds the project's own, and takes the one that it is given:
# reproduce.sh OUTPUT
#
# Nothing is compiled: the meson and ninja that it finds here make what it looks for.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
output=$1
rm -rf "$output"
mkdir -p "$output/bin"
cat > "$output/bin/meson" <<'STUB'
#!/bin/bash
echo "meson $*" >> "$STUB_LOG"
STUB
cat > "$output/bin/ninja" <<'STUB'
#!/bin/bash
echo "ninja $*" >> "$STUB_LOG"
mkdir -p "$2/benchmarks" && touch "$2/$3"
STUB
chmod +x "$output"/bin/*
export STUB_LOG=$output/log MANYWORLDS_BENCH_BUILD=$output/build
reproduce() { PATH=$output/bin:$PATH bash "$root/benchmarks/reproduce.sh" "$@" 2>"$output/errors"; }

expect() {
  [ "$1" = "$2" ] && return
  echo "expected $2, got $1"
  cat "$output/errors"
  exit 1
}

expect "$(reproduce --build-only)" "$output/build/benchmarks/mwbench"
expect "$(reproduce --quick --build-only)" "$output/build/benchmarks/mwbench"
grep -q -- '--buildtype=release' "$STUB_LOG"
grep -q -- '-Dbenchmarks=enabled' "$STUB_LOG"

touch "$output/mine"
: > "$STUB_LOG"
expect "$(reproduce --build-only "$output/mine")" "$output/mine"
expect "$(wc -c < "$STUB_LOG")" 0

reproduce --build-only "$output/none/mwbench" && { echo "a program that is not there was taken"; exit 1; }
grep -q "there is no program $output/none/mwbench" "$output/errors"
reproduce --nonsense && { echo "an unknown option was taken"; exit 1; }
grep -q 'reproduce.sh \[--quick\]' "$output/errors"
echo "it builds what it is not given"
