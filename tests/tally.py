"""Counts what `meson test` ran.

    tally.py failed LOG            prints the tests that failed, one a line, as `meson test` takes them
    tally.py count LOG AGAIN FAILURES FLAKY
                                   prints "PASSED FAILED"

LOG is the JSON that `meson test` wrote, AGAIN that of a second run of what had failed (it need not
exist). A test that passed the second time counts as it did then, and is appended to the file FLAKY
with what it printed when it failed; one that failed twice is appended to FAILURES.

A doctest program counts by its test cases, any other test as one. A program that crashed, hung or
leaked counts at least one failure, whatever it printed before."""

import json
import os
import re
import sys

summary = re.compile(r"^\[doctest\] test cases: +\d+ \| +(\d+) passed \| +(\d+) failed", re.M)
leaks = re.compile(r"^\[leaks\] test cases: (\d+)", re.M)


def count(test):
    ended_well = test["result"] in ("OK", "EXPECTEDFAIL")
    if test["result"] == "SKIP":
        return 0, 0
    output = re.sub(r"\x1b\[[0-9;]*m", "", test.get("stdout") or "")
    counted = summary.findall(output)
    if not counted:
        return (1, 0) if ended_well else (0, 1)
    passed, failed = map(int, counted[-1])
    leaked = sum(map(int, leaks.findall(output)))
    passed, failed = passed - leaked, failed + leaked
    return (passed, failed) if ended_well else (passed, max(failed, 1))


def last_words(heading, test):
    lines = [f"{heading}{test['name']}: {test['result']}, status {test['returncode']}"]
    for stream in ("stdout", "stderr"):
        lines += ["  " + line for line in (test.get(stream) or "").splitlines()[-40:]]
    return "\n".join(lines) + "\n"


def tests_of(path):
    if not os.path.exists(path):
        return []
    with open(path) as log:
        return [json.loads(line) for line in log]


def print_failed(path):
    for test in tests_of(path):
        if count(test)[1]:
            # "project:suites / name"
            project, colon, name = test["name"].rpartition(" / ")[0].partition(":")
            name = test["name"].rpartition(" / ")[2]
            print(f"{project}:{name}" if colon else name)


def print_counts(path, path_again, failures_path, flaky_path):
    again = {test["name"]: test for test in tests_of(path_again)}
    passed = failed = 0
    with open(failures_path, "a") as failures, open(flaky_path, "a") as flaky:
        for test in tests_of(path):
            counted = count(test)
            if test["result"] == "SKIP":
                # Beside the counts: its last line says why.
                reason = (test.get("stdout") or "").strip().splitlines()[-1:]
                print(f"== skipped: {test['name']}:", *reason, file=sys.stderr)
            second = again.get(test["name"])
            if counted[1] and second is not None and count(second)[1] == 0 and count(second)[0]:
                counted = count(second)
                flaky.write(last_words("flaky: ", test))
            elif counted[1]:
                failures.write(last_words("", second or test))
            passed, failed = passed + counted[0], failed + counted[1]
    print(passed, failed)


if sys.argv[1] == "failed":
    print_failed(sys.argv[2])
else:
    print_counts(*sys.argv[2:])
