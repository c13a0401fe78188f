"""Counts what `meson test` ran: tally.py TESTLOG.json prints "PASSED FAILED".

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


def main():
    passed = failed = 0
    with open(sys.argv[1]) as log:
        for line in log:
            more_passed, more_failed = count(json.loads(line))
            passed, failed = passed + more_passed, failed + more_failed
    print(passed, failed)


main()
