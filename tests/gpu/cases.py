"""Runs a doctest program to the end although cases of it hang or crash: each is told by its name.

`run`: one process, and after a case that hung or crashed a new one for the next. `run_each`: a
process for each case, several at a time."""

import concurrent.futures
import html
import io
import os
import re
import select
import subprocess
import tempfile
import time

import processes

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


def run_from(first, command, environment, case_seconds, until, log, is_alone=False):
    """Runs the cases from the first-th on; gives them, and whether the program got to its end.

    A case has `case_seconds`, and so has whatever comes before and between them. One that `is_alone`
    has them with its program's start and end."""
    process = processes.start([*command, "--reporters=xml", f"--first={first}"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    cases, running, leaked = [], None, {}
    began = since = time.monotonic()

    def deadline():
        return min(until, since + case_seconds)

    for line in lines_of(process, deadline):
        if line is None:
            continue
        log.write(line + "\n")
        if match := begin.search(line):
            if not match[2]:
                running = Case(html.unescape(match[1]))
                cases.append(running)
                since = began if is_alone else running.began
        elif running and (match := end.search(line)):
            good = match[1] == "true"
            running.ends("failed" if not good else "skipped" if running.why else "passed")
            running = None
            since = began if is_alone else time.monotonic()
        elif running and (match := skip.search(line)):
            running.why = html.unescape(match[1])
        elif match := leak.search(line):
            leaked[match[1]] = match[2]
    late = "" if time.monotonic() < until else "no time was left"
    # Its output may have ended before it.
    status = processes.status_of(process, min(5, deadline() - time.monotonic()))
    if running:
        running.ends("crashed" if status is not None else "hung",
                     late if status is None else f"status {status}")
    elif status is None and cases:
        cases[-1].ends("hung", late or "the case ended, and its process did not")
    elif not cases and status != 0:
        # Nothing is known of its name here.
        nameless = Case("...")
        nameless.ends("hung" if status is None else "crashed",
                      (late or "no case began") if status is None else
                      f"status {status} before a case began")
        cases.append(nameless)
    for case in cases:
        if case.name in leaked:
            case.result, case.why = "failed", "leaked: " + leaked[case.name]
    process.stdout.close()
    log.flush()
    return cases, running is None and status is not None


def run(command, environment, case_seconds, seconds, log):
    """All cases of a program, as dictionaries; one more named "..." if time did not suffice."""
    until = time.monotonic() + seconds
    told, first = [], 1
    while True:
        cases, is_whole = run_from(first, command, environment, case_seconds, until, log)
        told += [case.told() for case in cases]
        if is_whole or not cases or cases[-1].name == "...":
            break
        first += len(cases)
        if time.monotonic() >= until:
            break
    if not told or time.monotonic() >= until:
        told.append({"name": "...", "result": "failed", "seconds": 0,
                     "why": "no time was left" if told else "no case began"})
    return told


def names(command, environment, seconds):
    """Those of the cases that the program would run; None if it does not tell."""
    with tempfile.TemporaryFile("w+") as said:
        process = processes.start([*command, "--list-test-cases"], stdout=said,
                                  stderr=subprocess.DEVNULL, env=environment)
        if processes.status_of(process, seconds) != 0:
            return None
        said.seek(0)
        # Each on a line, among others that doctest begins so.
        found = [line.rstrip("\n") for line in said]
    return [line for line in found if line and not line.startswith(("[doctest]", "==="))]


def run_each(command, environment, case_seconds, seconds, log, beside):
    """As `run`, each case in a process of its own and `beside` of them at the same time."""
    until = time.monotonic() + seconds
    named = names(command, environment, min(case_seconds, seconds))
    if not named:
        return [{"name": "...", "result": "failed", "seconds": 0, "why":
                 "the program did not say its cases" if named is None else "no case began"}]

    def one(number):
        own = io.StringIO()
        if time.monotonic() >= until:
            return [], own
        told, _ = run_from(number, [*command, f"--last={number}"], environment, case_seconds, until,
                           own, is_alone=True)
        for case in told:
            if case.name == "...":
                case.name = named[number - 1]
        return told, own

    told = []
    with concurrent.futures.ThreadPoolExecutor(beside) as pool:
        for found, own in pool.map(one, range(1, len(named) + 1)):
            told += [case.told() for case in found]
            log.write(own.getvalue())
    if len(told) < len(named):
        told.append({"name": "...", "result": "failed", "seconds": 0,
                     "why": f"{len(named) - len(told)} cases did not run"})
    return told
