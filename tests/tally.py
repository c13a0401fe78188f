"""Counts what `meson test` ran: tally.py TESTLOG.json FAILURES prints "PASSED FAILED", and appends
to the file FAILURES what each program that failed printed last.

A doctest program counts by its test cases, any other test as one. A program that crashed, hung or
leaked counts at least one failure, whatever it printed before."""

import json
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


def last_words(test):
    lines = [f"{test['name']}: {test['result']}, status {test['returncode']}"]
    for stream in ("stdout", "stderr"):
        lines += ["  " + line for line in (test.get(stream) or "").splitlines()[-40:]]
    return "\n".join(lines) + "\n"


def main():
    passed = failed = 0
    with open(sys.argv[1]) as log, open(sys.argv[2], "a") as failures:
        for line in log:
            test = json.loads(line)
            more_passed, more_failed = count(test)
            passed, failed = passed + more_passed, failed + more_failed
            if more_failed:
                failures.write(last_words(test))
    print(passed, failed)


main()
