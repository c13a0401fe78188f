#!/usr/bin/env python3
"""The example serving answers as one process would, although a decode and the master are killed, and leaves nothing
behind: serving_test.py SERVING MWGRAPH"""
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mpmd"))

import remains  # noqa: E402

program, mwgraph = (os.path.abspath(path) for path in sys.argv[1:3])


def ended(*line):
    """Runs it, and remembers meanwhile what its programs have open."""
    end = time.monotonic() + 60
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while True:
            try:
                out, err = process.communicate(timeout=0.2)
                return process.returncode, out, err
            except subprocess.TimeoutExpired:
                if time.monotonic() > end:
                    process.kill()
                    raise
                remains.look()


def answers_as_one_process_would():
    line = [program, "--mwgraph", mwgraph, "--requests", "200"]
    code, out, err = ended(*line, "--json")
    assert code == 0, out + err
    told = json.loads(out)
    assert told["requests"] == 200 and told["lost"] == 0 and told["wrong"] == 0, told
    assert told["restarted"] == 1 and told["untouched"] == 4 and told["job_restarts"] == 0, told
    # Wide: the machine may be busy.
    assert 0 < told["longest_pause_ms"] < 10_000, told
    # The same is told for people.
    code, out, err = ended(*line)
    assert code == 0, out + err
    assert "200 requests: 0 lost, 0 wrong" in out.splitlines()[-1], out
    # Without mwgraph it says what is missing.
    code, out, err = ended(program, "--mwgraph", "/nowhere/mwgraph")
    assert code != 0 and "/nowhere/mwgraph" in err, err


with tempfile.TemporaryDirectory() as folder:
    # Its own folders are made in this one, and its programs are known by it.
    os.environ["TMPDIR"] = folder
    remains.begin(folder)
    try:
        answers_as_one_process_would()
        remains.need_nothing()
        assert not os.listdir(folder), os.listdir(folder)
    finally:
        remains.end_what_is_left(os.path.realpath(folder))
