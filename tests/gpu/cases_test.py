"""What cases.py tells of a program that hangs, crashes, fails and skips, or does so around its
cases: cases_test.py"""

import io
import os
import stat
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import cases

# Says what doctest would, of six cases.
PROGRAM = """#!{python}
import os, sys, time
told = dict(a.split("=") for a in sys.argv[1:] if "=" in a)
names = ["passes", "hangs", "crashes", "fails &amp; says so", "is skipped", "passes too"]
if "--list-test-cases" in sys.argv:
    print("[doctest] listing all test case names\\n" + "=" * 79)
    print(*names, "=" * 79, sep="\\n")
    print("[doctest] unskipped test cases passing the current filters: 6")
    sys.exit()
first, last = int(told["--first"]), int(told.get("--last", 6))
print("<doctest>", flush=True)
print('<TestCase name="never asked for" skipped="true"/>', flush=True)
for name in names[first - 1:last]:
    print(f'<TestCase name="{{name}}" filename="x.cpp" line="1">', flush=True)
    if name == "hangs":
        time.sleep(60)
    if name == "crashes":
        os.abort()
    if name == "is skipped":
        print("<Message><Text>\\nskipped: nothing here\\n</Text></Message>", flush=True)
    good = "false" if name.startswith("fails") else "true"
    print(f'<OverallResultsAsserts successes="1" test_case_success="{{good}}"/></TestCase>', flush=True)
if last == 6:
    print('leaked in "passes too": threads 1 -> 2')
"""

# One case each time, of a program that hangs or dies around it, or has a child that keeps its output.
AROUND = """#!{python}
import os, subprocess, sys, time
names = ["hangs at its start", "dies at its start", "hangs at its end", "leaves a child", "passes"]
if "--list-test-cases" in sys.argv:
    print(*names, sep="\\n")
    sys.exit()
name = names[int([a for a in sys.argv if a.startswith("--first=")][0][8:]) - 1]
if name == "hangs at its start":
    time.sleep(60)
if name == "dies at its start":
    sys.exit(127)
print(f'<TestCase name="{{name}}" filename="x.cpp" line="1">', flush=True)
print('<OverallResultsAsserts successes="1" test_case_success="true"/></TestCase>', flush=True)
if name == "hangs at its end":
    time.sleep(60)
if name == "leaves a child":
    with open(sys.argv[0] + ".child", "w") as file:
        print(subprocess.Popen(["sleep", "60"]).pid, file=file)
"""
MUTE = """#!{python}
import time
time.sleep(60)
"""


def put(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(text.format(python=sys.executable))
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return path


def took(call):
    began = time.monotonic()
    return call(), time.monotonic() - began


with tempfile.TemporaryDirectory() as folder:
    program = put(folder, "program", PROGRAM)
    around = put(folder, "around", AROUND)
    mute = put(folder, "mute", MUTE)
    told = cases.run([program], dict(os.environ), 2, 30, io.StringIO())
    each = cases.run_each([program], dict(os.environ), 2, 30, io.StringIO(), 3)
    too_long = cases.run_each([program], dict(os.environ), 20, 5, io.StringIO(), 1)
    cut_short = cases.run([program], dict(os.environ), 20, 5, io.StringIO())
    beyond, seconds = took(lambda: cases.run_each([around], dict(os.environ), 2, 50, io.StringIO(), 5))
    unlisted, unlisted_seconds = took(
        lambda: cases.run_each([mute], dict(os.environ), 2, 50, io.StringIO(), 5))
    with open(around + ".child") as file:
        left = int(file.read())
    assert not os.path.exists(f"/proc/{left}") or open(f"/proc/{left}/stat").read().split()[2] == "Z"

results = [(case["name"], case["result"]) for case in told]
assert results == [
    ("passes", "passed"),
    ("hangs", "hung"),
    ("crashes", "crashed"),
    ("fails & says so", "failed"),
    ("is skipped", "skipped"),
    ("passes too", "failed"),
], results
assert told[4]["why"] == "skipped: nothing here", told[4]
assert "threads" in told[5]["why"], told[5]
assert [case["result"] for case in cut_short] == ["passed", "hung", "failed"], cut_short
assert cut_short[-1]["why"] == "no time was left", cut_short
# The same, but for what the program says of the last when the crash has ended another.
assert [case["result"] for case in each] == [
    "passed", "hung", "crashed", "failed", "skipped", "failed"], each
assert too_long[0]["result"] == "passed" and too_long[-1]["why"].endswith("did not run"), too_long
# Whatever of its process hangs has the case's name, and its time.
assert [(case["name"], case["result"]) for case in beyond] == [
    ("hangs at its start", "hung"),
    ("dies at its start", "crashed"),
    ("hangs at its end", "hung"),
    ("leaves a child", "passed"),
    ("passes", "passed"),
], beyond
assert "127" in beyond[1]["why"] and "process did not" in beyond[2]["why"], beyond
assert seconds < 20, seconds
assert [case["result"] for case in unlisted] == ["failed"] and unlisted_seconds < 20, unlisted
