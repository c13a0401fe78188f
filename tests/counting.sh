# Sourced by tests/run.sh: runs tests, once more where they fail, and counts them. Expects setup.sh, and
# `jobs`, how many may run at a time.

passed=0
failed=0
# What failed, and what failed and then passed: said again at the end, of which a CI may keep no more.
failures=$(mktemp)
flaky=$(mktemp)
trap 'rm -f "$failures" "$flaky"' EXIT

count() {
  passed=$((passed + $1))
  failed=$((failed + $2))
}

# step NAME COMMAND...: a check that counts as one. Its status is that of the command.
step() {
  local name=$1
  shift
  say "$name"
  if "$@"; then
    count 1 0
  elif say "once more: $name" && "$@"; then
    echo "flaky: $name (its output stands where it ran)" >>"$flaky"
    count 1 0
  else
    say "failed: $name" | tee -a "$failures"
    count 0 1
    return 1
  fi
}

# meson_test FOLDER LOG TIMES [MESON TEST ARGUMENT...]
meson_test() {
  local folder=$1 log=$2 times=$3
  shift 3
  # A wrapper's name is appended to it.
  rm -f "$folder/meson-logs/$log".json "$folder/meson-logs/$log"-*.json
  meson test -C "$folder" --logbase "$log" --timeout-multiplier "$times" --num-processes "$jobs" \
    --print-errorlogs "$@"
}

# result_of FOLDER LOG: the JSON file of that run, if it wrote one.
result_of() {
  local file
  for file in "$1/meson-logs/$2".json "$1/meson-logs/$2"-*.json; do
    [ -s "$file" ] && { echo "$file"; return; }
  done
  return 1
}

# run_tests FOLDER LOG TIMES [--wrapper=COMMAND] [MESON TEST ARGUMENT...]: builds what the tests
# need, then counts their test cases. TIMES stretches the time limits for slower builds.
run_tests() {
  local folder=$1 log=$2 times=$3 result again='' wrapper=() suspects
  meson_test "$@"
  if ! result=$(result_of "$folder" "$log"); then
    say "failed: nothing ran in $folder (does it build?)" | tee -a "$failures"
    count 0 1
    return
  fi
  mapfile -t suspects < <(python3 "$root/tests/tally.py" failed "$result")
  if [ ${#suspects[@]} -gt 0 ]; then
    [[ ${4:-} == --wrapper=* ]] && wrapper=("$4")
    say "once more, what failed: ${suspects[*]}"
    # Alone: what fails only beside others is flaky, and said to be.
    jobs=1 meson_test "$folder" "once_more_$log" "$times" --no-rebuild "${wrapper[@]}" "${suspects[@]}"
    again=$(result_of "$folder" "once_more_$log")
  fi
  count $(python3 "$root/tests/tally.py" count "$result" "$again" "$failures" "$flaky")
}

finish() {
  [ -s "$flaky" ] && { say "what failed once and then passed: a defect, in the product or in the test"; cat "$flaky"; }
  [ -s "$failures" ] && { say "what failed"; cat "$failures"; }
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
  exit
}
