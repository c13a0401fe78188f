"""Processes that are ended with all that they have started, and never waited for without a limit: a
kill does not end what stands in a driver."""

import contextlib
import os
import signal
import subprocess
import threading
import time

_running = set()
# A handler of signals may come in between.
_lock = threading.RLock()


def start(command, **how):
    process = subprocess.Popen(command, start_new_session=True, **how)
    with _lock:
        _running.add(process)
    return process


def kill(process):
    """With all of its group. The number is no other's before the process is waited for."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def has_ended(process, seconds):
    """Whether it ends so soon. It is still to be waited for."""
    until = time.monotonic() + seconds
    while True:
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(0.01)


def status_of(process, seconds):
    """Its status, or None where it had to be killed: it had not ended after `seconds`. What it
    has left behind is killed too."""
    in_time = has_ended(process, seconds)
    kill(process)
    status = process.wait() if has_ended(process, 2) else None
    with _lock:
        _running.discard(process)
    return status if in_time else None


def kill_all():
    with _lock:
        for process in list(_running):
            kill(process)
