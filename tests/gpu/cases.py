"""Runs a doctest program to the end although cases of it hang or crash: each is told by its name.

`run`: one process, and after a case that hung or crashed a new one for the next. `run_each`: a
process for each case, several at a time."""

import concurrent.futures
import html
import io
import os
import re
import select
import signal
import subprocess
import time

begin = re.compile(r'<TestCase name="([^"]*)"[^>]*?(skipped="true")?\s*/?>')
end = re.compile(r'<OverallResultsAsserts [^>]*test_case_success="(true|false)"')
skip = re.compile(r"(skipped: .*)")
leak = re.compile(r'^leaked in "(.*)": (.*)$')


class Case:
    def __init__(self, name):
        self.name, self.result, self.why = name, "running", ""
        self.began, self.seconds = time.monotonic(), 0.0

    def ends(self, result, why=""):
        self.result, self.why = result, why or self.why
        self.seconds = time.monotonic() - self.began

    def told(self):
        return {"name": self.name, "result": self.result, "seconds": round(self.seconds, 2),
                "why": self.why}


def lines_of(process, deadline):
    """Its lines, and None whenever a tenth of a second brought none."""
    rest = b""
    while time.monotonic() < deadline():
        if not select.select([process.stdout], [], [], 0.1)[0]:
            yield None
            continue
        data = os.read(process.stdout.fileno(), 65536)
        if not data:
            return
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")


def run_from(first, command, environment, case_seconds, until, log):
    """Runs the cases from the first-th on; gives them, and whether the program got to its end."""
    process = subprocess.Popen(
        [*command, "--reporters=xml", f"--first={first}"], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, env=environment, start_new_session=True)
    cases, running, leaked = [], None, {}

    def deadline():
        return min(until, running.began + case_seconds) if running else until

    for line in lines_of(process, deadline):
        if line is None:
            continue
        log.write(line + "\n")
        if match := begin.search(line):
            if not match[2]:
                running = Case(html.unescape(match[1]))
                cases.append(running)
        elif running and (match := end.search(line)):
            good = match[1] == "true"
            running.ends("failed" if not good else "skipped" if running.why else "passed")
            running = None
        elif running and (match := skip.search(line)):
            running.why = html.unescape(match[1])
        elif match := leak.search(line):
            leaked[match[1]] = match[2]
    if running:
        os.killpg(process.pid, signal.SIGKILL)
    elif process.poll() is None:
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    if running:
        crashed = status != -signal.SIGKILL
        why = f"status {status}" if crashed else "" if time.monotonic() < until else "no time was left"
        running.ends("crashed" if crashed else "hung", why)
    for case in cases:
        if case.name in leaked:
            case.result, case.why = "failed", "leaked: " + leaked[case.name]
    log.flush()
    return cases, running is None


def run(command, environment, case_seconds, seconds, log):
    """All cases of a program, as dictionaries; one more named "..." if time did not suffice."""
    until = time.monotonic() + seconds
    told, first = [], 1
    while True:
        cases, is_whole = run_from(first, command, environment, case_seconds, until, log)
        told += [case.told() for case in cases]
        if is_whole or not cases:
            break
        first += len(cases)
        if time.monotonic() >= until:
            break
    if not told or time.monotonic() >= until:
        told.append({"name": "...", "result": "failed", "seconds": 0,
                     "why": "no time was left" if told else "no case began"})
    return told


def count(command, environment):
    """How many cases the program would run."""
    said = subprocess.run([*command, "--count"], capture_output=True, text=True, env=environment,
                          timeout=60).stdout
    found = re.search(r"unskipped test cases passing the current filters: (\d+)", said)
    return int(found[1]) if found else 0


def run_each(command, environment, case_seconds, seconds, log, beside):
    """As `run`, each case in a process of its own and `beside` of them at the same time."""
    until = time.monotonic() + seconds

    def one(number):
        own = io.StringIO()
        if time.monotonic() >= until:
            return [], own
        told, _ = run_from(number, [*command, f"--last={number}"], environment, case_seconds, until, own)
        return told, own

    told = []
    numbers = range(1, count(command, environment) + 1)
    with concurrent.futures.ThreadPoolExecutor(beside) as pool:
        for found, own in pool.map(one, numbers):
            told += [case.told() for case in found]
            log.write(own.getvalue())
    if len(told) < len(numbers) or not numbers:
        told.append({"name": "...", "result": "failed", "seconds": 0,
                     "why": f"{len(numbers) - len(told)} cases did not run" if numbers else "no case began"})
    return told
