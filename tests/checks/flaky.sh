#!/bin/bash
# What fails once and then passes does not fail the run and is listed; what fails twice fails; a hung
# test and one that does not start count: bash flaky.sh FOLDER
set -uo pipefail
folder=$1
tests=$(cd "$(dirname "$0")/.." && pwd)
rm -rf "$folder"
mkdir -p "$folder"
cat >"$folder/meson.build" <<'PROJECT'
project('flaky')
sh = find_program('sh')
test('steady', sh, args: ['-c', 'exit 0'])
test('once', sh, args: ['-c', 'test -e seen || { touch seen; echo sad story; exit 1; }'],
     workdir: meson.current_build_dir(), suite: ['unit', 'threaded'])
test('twice', sh, args: ['-c', 'exit 1'], suite: 'unit')
test('hangs', sh, args: ['-c', 'sleep 60'], timeout: 1)
PROJECT
meson setup "$folder/build" "$folder" >/dev/null || exit 1

output=$(
  . "$tests/setup.sh"
  . "$tests/counting.sh"
  jobs=2
  run_tests "$folder/build" testlog 1
  run_tests "$folder/nowhere" testlog 1
  finish
)
status=$?

wants() {
  grep -qE -- "$1" <<<"$output" || { echo "no line like '$1' in:"; echo "$output"; exit 1; }
}
wants '^flaky: .*once: FAIL'
wants '^  sad story$'
wants '^.*twice: FAIL'
wants '^.*hangs: TIMEOUT'
wants 'failed: nothing ran in .*nowhere'
wants '^2 passed, 3 failed$'
[ "$status" -eq 1 ] || { echo "a run with failures ended with $status"; exit 1; }
