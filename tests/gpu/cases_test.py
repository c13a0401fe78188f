"""What cases.py tells of a program that hangs, crashes, fails and skips: cases_test.py"""

import io
import os
import stat
import sys
import tempfile

sys.dont_write_bytecode = True
import cases

# Says what doctest would, of six cases.
PROGRAM = """#!{python}
import os, sys, time
told = dict(a.split("=") for a in sys.argv[1:] if "=" in a)
if "--count" in sys.argv:
    print("[doctest] unskipped test cases passing the current filters: 6")
    sys.exit()
first, last = int(told["--first"]), int(told.get("--last", 6))
names = ["passes", "hangs", "crashes", "fails &amp; says so", "is skipped", "passes too"]
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

with tempfile.TemporaryDirectory() as folder:
    program = os.path.join(folder, "program")
    with open(program, "w") as file:
        file.write(PROGRAM.format(python=sys.executable))
    os.chmod(program, os.stat(program).st_mode | stat.S_IXUSR)
    told = cases.run([program], dict(os.environ), 2, 30, io.StringIO())
    each = cases.run_each([program], dict(os.environ), 2, 30, io.StringIO(), 3)
    too_long = cases.run_each([program], dict(os.environ), 20, 1, io.StringIO(), 1)
    cut_short = cases.run([program], dict(os.environ), 20, 1, io.StringIO())

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
