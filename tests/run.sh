#!/bin/bash
# Builds and runs the tests: bash tests/run.sh [--quick | --slow | --full] [--strict]
#   --quick   unit tests
#   default   also process tests, all of it as in Docker, a soak, consumers, headers, format
#   --slow    instead: both sanitizers, fuzzing, planted bugs, the GPU suite on the emulation
#   --full    both, and clang-tidy, many more seeds, and processes under the address sanitizer
#   --strict  a warning is an error (what CI runs)
# Installs what it needs first (Debian 12 or 13, Ubuntu 24.04; as root or with sudo). What fails is
# run once more: what passes then is listed at the end as "flaky: NAME" with what it printed, and does
# not fail the run. The last line is "N passed, N failed".
set -uo pipefail
. "$(dirname "$0")/setup.sh"
. "$(dirname "$0")/counting.sh"
# Says when, too: where the minutes go is seen in any log.
say() { printf '== %d:%02d %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"; }

level=default
warnings=()
for argument in "$@"; do
  case $argument in
    --quick | --slow | --full) level=${argument#--} ;;
    --strict) warnings=(-Dwerror=true) ;;
    *) die "unknown argument: $argument (--quick, --slow, --full, --strict)" ;;
  esac
done

# For tests alone: eight sources at a time, half of the time to compile one being for its headers, and
# only the library optimized. `--full` builds as users do, and file by file, which finds what a source
# forgot to include.
# The build type is not named: meson would put its optimization in place of ours when it configures again.
few_steps=(-Dunity=on -Dunity_size=8 -Dfor_tests_only=true)

declare -A sanitizers=([asan]=address,undefined [tsan]=thread) suites_of=(
  [asan]='--suite unit --suite fuzz' [tsan]='--suite threaded')

configure_sanitized() {
  local folder=$root/build-$1
  local how=("${few_steps[@]}" -Doptimization=0 -Dcpp_args=-g1 -Dexamples=disabled -Dbenchmarks=disabled)
  [ "$level" = full ] && how=(-Dunity=on -Dunity_size=8 -Dfor_tests_only=false -Doptimization=1
    -Dcpp_args= -Dexamples=enabled -Dbenchmarks=enabled)
  CC=clang CXX=clang++ configure "$folder" -Db_sanitize="${sanitizers[$1]}" -Db_lundef=false \
    -Ddebug=true -Dtests=enabled "${how[@]}" "${warnings[@]}"
}

# What takes the better part of an hour, since it compiles everything twice more.
is_slow() { [ "$level" = slow ] || [ "$level" = full ]; }

# Each "runs" under true, as meson has no word for building tests alone.
build_ahead() {
  configure_sanitized "$1" >"$build/ahead-$1.log" 2>&1 &&
    meson test -C "$root/build-$1" --logbase ahead --wrapper true ${suites_of[$1]} \
      >>"$build/ahead-$1.log" 2>&1
  touch "$build/ahead-$1.done"
}

# What was not built ahead is built here, and its errors are printed.
sanitized() {
  while [ ! -e "$build/ahead-$1.done" ] && kill -0 "$beside" 2>/dev/null; do sleep 1; done
  say "${sanitizers[$1]} sanitizer, in $root/build-$1"
  if configure_sanitized "$1"; then
    run_tests "$root/build-$1" testlog 5 ${suites_of[$1]}
  else
    count 0 1
  fi
}

everything_builds() {
  ninja -C "$build" >"$build/everything.log" 2>&1 || { cat "$build/everything.log"; return 1; }
}

format_is_right() {
  if ! command -v clang-format-14 >/dev/null; then
    say "skipped: clang-format 14 cannot be installed here, and other versions format otherwise"
    return
  fi
  (cd "$root" && find include src tests examples benchmarks -name '*.[ch]pp' -print0 |
    xargs -0 clang-format-14 --dry-run -Werror)
}

consumer_works() {
  bash "$root/tests/consumers/run.sh" "$1" "$build" "$build/consumers/$1" \
    >"$build/consumer-$1.log" 2>&1 || { cat "$build/consumer-$1.log"; return 1; }
}

# What is compiled to see whether it compiles. Without ninja, as another one may run in this folder.
compiled_checks() {
  say "headers, refused lines, and the library as one file"
  run_tests "$build" compiled 1 --no-rebuild --suite compiled
  for consumer in pkgconfig cmake meson source; do
    step "a $consumer project uses the library" consumer_works "$consumer"
  done
}

# Most tests wait, and compiling keeps the processors busy: it is done beside them, at a low priority. What
# runs what it has compiled gets a fourth of a busy processor. Its output and its counts are kept for the end.
compile_beside() {
  if is_slow; then
    (
      renice -n 19 "$BASHPID" >/dev/null
      build_ahead asan
      build_ahead tsan
    )
  fi
  [ "$level" = slow ] && return
  renice -n 5 "$BASHPID" >/dev/null
  passed=0 failed=0
  compiled_checks >"$build/compiled.log" 2>&1
  echo "$passed $failed" >"$build/compiled.counts"
}

count_compiled() {
  wait "$beside"
  cat "$build/compiled.log"
  count $(cat "$build/compiled.counts" || echo 0 1)
}

# In a sanitized build the library is src/all.cpp: all sources, and their headers once.
tidy_finds_nothing() {
  local log=$root/build-asan/tidy.log
  (cd "$root" && run-clang-tidy -quiet -p build-asan "$root/src/all\.cpp" "$root/src/tools/.*\.cpp") \
    >"$log" 2>&1 || { grep -A3 -E 'warning:|error:' "$log"; return 1; }
  grep -q 'all\.cpp' "$log" || { say "src/all.cpp is not in build-asan's list"; return 1; }
}

# Everything that asks the kernel for something, once more where a container refuses it; the
# long suites only in --full.
as_in_docker() {
  say "the same, where a seccomp profile like Docker's default refuses system calls"
  local refusing=tests/support/refusing
  local suites=(io link host serve launch observe)
  [ "$level" = full ] && suites+=(store world interop process)
  if ninja -C "$build" "$refusing"; then
    run_tests "$build" as_in_docker 1 "--wrapper='$build/$refusing' docker --" "${suites[@]}"
  else
    count 0 1
  fi
}

packages=("${build_packages[@]}" "${test_packages[@]}" mold)
# One of the consumers is built by clang, and what is refused is tried with both.
[ "$level" = quick ] || packages+=(clang)
is_slow && packages+=(libclang-rt-dev llvm)
if [ "$level" = default ] || [ "$level" = full ]; then
  apt-cache show clang-format-14 >/dev/null 2>&1 && packages+=(clang-format-14)
fi
[ "$level" = full ] && packages+=(clang-tidy clang-tools)
require_packages "${packages[@]}"

# First, as it takes seconds: an hour is too long to wait for news of a space.
if [ "$level" = default ] || [ "$level" = full ]; then
  step "clang-format agrees" format_is_right || finish
fi

command -v mold >/dev/null && export CXX_LD=mold
# Most tests wait.
jobs=$((2 * $(nproc)))
# How many seeds the simulation tries: tests read it, the library reads no environment.
declare -A seeds=([quick]=100 [default]=200 [slow]=200 [full]=20000)
export MANYWORLDS_TEST_SEEDS=${seeds[$level]}
[ "$level" = full ] && export MANYWORLDS_TEST_CROWD=128 MANYWORLDS_ROLL_OUT_SECONDS=60 \
  MANYWORLDS_TEST_KILLS=100 MANYWORLDS_TEST_LONG=1 MANYWORLDS_TEST_FETCH=1 \
  MANYWORLDS_FUZZ_SECONDS=60
# Each planted bug is compiled and linked: a fourth of them, which depend on the sources, is enough for a change.
[ "$level" = full ] || export MANYWORLDS_PLANTED_PART=4
# Up to LLVM 16 the leak checker guesses from an address that a thread's dynamic TLS has the header
# of a glibc before 2.25, reads its length there and at times crashes (google/sanitizers#1322).
export ASAN_OPTIONS=intercept_tls_get_addr=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=$root/tests/thread_sanitizer.supp

say "building, in $build"
how=("${few_steps[@]}" -Doptimization=g)
[ "$level" = full ] && how=(-Dunity=off -Dfor_tests_only=false -Doptimization=3 -Done_file=false
  -Dzpp_bits=enabled)
if ! configure "$build" -Ddebug=false "${how[@]}" -Dtests=enabled "${warnings[@]}"; then
  count 0 1
  finish
fi
if [ "$level" = quick ]; then
  run_tests "$build" unit 1 --suite unit --suite checks --no-suite more_machines
  finish
fi

# Processes mostly wait, and what they run is what the unit tests run: without the sanitizers but in --full.
if [ "$level" = full ]; then
  suites_of[asan]+=' --suite process --suite soak'
else
  suites_of[asan]+=' --no-suite more_machines'
  suites_of[tsan]+=' --no-suite more_machines'
fi
[ "$level" = slow ] || step "everything builds" everything_builds
rm -f "$build"/ahead-*.done "$build/compiled.counts"
compile_beside &
beside=$!

if [ "$level" != slow ]; then
  say "unit and process tests"
  crowded=()
  [ "$level" = full ] && crowded=(--suite crowded)
  run_tests "$build" unit 1 --suite unit --suite checks --suite process "${crowded[@]}"
  as_in_docker
  say "soak: 60 s of 8 processes in 30 worlds, hurt at random"
  run_tests "$build" soak 1 --suite soak
fi
if is_slow; then
  say "planted bugs, and the GPU suite on the emulation"
  run_tests "$build" slow_checks 1 --suite slow_checks
  export MANYWORLDS_TEST_SEEDS=$((${seeds[$level]} / 20))
  unset MANYWORLDS_TEST_CROWD
  sanitized asan
  sanitized tsan
fi
[ "$level" = slow ] || count_compiled
[ "$level" = full ] && step "clang-tidy finds nothing" tidy_finds_nothing
finish
