"""Programs that are run: what they print, within a time."""

import json
import os
import re
import signal
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_S = 120


class Failed(Exception):
    """A contestant did not answer; the others go on."""


def run(command, environment=None):
    """What the command printed. Nothing that it started outlives LIMIT_S."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env=os.environ | (environment or {}), start_new_session=True)
    try:
        out, err = child.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        end(child)
        raise Failed(f"{command[0]}: no answer within {LIMIT_S} s") from None
    if child.returncode != 0:
        last = [line for line in (out + err).splitlines() if line.strip()][-1:]
        raise Failed(f"{os.path.basename(command[0])} ended with {child.returncode}: "
                     f"{''.join(last)[-300:]}")
    return out


def end(child):
    """First asks, since a launcher ends its ranks, then kills the group that is our child's."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, sign)
            child.communicate(timeout=5)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def rows_of(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def version_in(command):
    """The first thing that looks like one in what the command prints."""
    try:
        found = re.search(r"\d+\.\d+[\w.+~-]*", run(command))
    except (Failed, FileNotFoundError):
        return "unknown"
    return found.group() if found else "unknown"
