#!/usr/bin/env python3
"""The example serving answers as one process would, although a decode and the master are killed: serving_test.py
SERVING MWGRAPH"""
import json
import os
import subprocess
import sys

program, mwgraph = (os.path.abspath(path) for path in sys.argv[1:3])
line = [program, "--mwgraph", mwgraph, "--requests", "200"]
done = subprocess.run([*line, "--json"], capture_output=True, text=True, timeout=60)
assert done.returncode == 0, done.stdout + done.stderr
told = json.loads(done.stdout)
assert told["requests"] == 200 and told["lost"] == 0 and told["wrong"] == 0, told
assert told["restarted"] == 1 and told["untouched"] == 4 and told["job_restarts"] == 0, told
# Wide: the machine may be busy.
assert 0 < told["longest_pause_ms"] < 10_000, told
# The same is told for people.
done = subprocess.run(line, capture_output=True, text=True, timeout=60)
assert done.returncode == 0, done.stdout + done.stderr
assert "200 requests: 0 lost, 0 wrong" in done.stdout.splitlines()[-1], done.stdout
# Without mwgraph it says what is missing.
done = subprocess.run([program, "--mwgraph", "/nowhere/mwgraph"], capture_output=True, text=True, timeout=60)
assert done.returncode != 0 and "/nowhere/mwgraph" in done.stderr, done.stderr
