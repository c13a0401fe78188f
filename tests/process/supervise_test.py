#!/usr/bin/env python3
"""The example supervise restarts, shows reasons, ends in order and leaves nothing: supervise_test.py PROGRAM"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

program = sys.argv[1]


def run(*arguments, limit=20):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=limit)


def ends(pid, limit=5):
    until = time.monotonic() + limit
    while time.monotonic() < until:
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.01)
    return False


def failures_are_shown_and_started_again():
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log"
        ran = run("--restarts", "2", "--log", str(log), "--", "sh", "-c", "echo ready; exit 3")
        assert ran.returncode == 3, ran
        shown = re.sub(r"pid \d+", "pid N", re.sub(r"after [\d.]+ m?s", "after T", ran.stdout)).splitlines()
        said = 'supervise: "sh" (pid N) exited with code 3 after T'
        assert shown == ["  | ready", said + "; again in 50 ms", "  | ready", said + "; again in 100 ms",
                         "  | ready", said], ran.stdout
        assert log.read_text() == "ready\n" * 3, log.read_text()


def what_cannot_be_started_is_named():
    ran = run("/nowhere/engine")
    assert ran.returncode == 127, ran
    assert ran.stdout == 'supervise: cannot execute "/nowhere/engine": no such file or directory\n', ran.stdout


def a_signal_ends_it_in_order_and_a_kill_with_all():
    for number in (signal.SIGTERM, signal.SIGKILL):
        with tempfile.TemporaryDirectory() as folder:
            pid = pathlib.Path(folder) / "pid"
            script = f"setsid sh -c 'echo $$ > {pid}.begun; mv {pid}.begun {pid}; exec sleep 1000' & wait"
            running = subprocess.Popen([program, "--", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
            until = time.monotonic() + 20
            while not pid.exists() and time.monotonic() < until:
                time.sleep(0.01)
            descendant = int(pid.read_text())
            os.kill(running.pid, number)
            said, _ = running.communicate(timeout=20)
            assert ends(descendant), f"{descendant} is left after {number}"
            if number == signal.SIGTERM:
                assert running.returncode == 0, running.returncode
                assert "supervise: SIGTERM: stopping\n" in said and "was stopped by SIGTERM" in said, said


failures_are_shown_and_started_again()
what_cannot_be_started_is_named()
a_signal_ends_it_in_order_and_a_kill_with_all()
print("[doctest] test cases: 3 | 3 passed | 0 failed")
