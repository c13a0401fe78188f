"""Checks what a packed part has left behind: pack_check.py RESULTS SECONDS [HUNG]

SECONDS is what it took by its caller's clock. HUNG is a case that was made to hang: then that it was
named and killed in its time, that the others went on, and that nothing else did not pass."""

import json
import pathlib
import sys

PART_SECONDS = 480
CASE_SECONDS = 25
# Until a process that was killed has gone, on a machine that others use.
GRACE = 5

results, took = pathlib.Path(sys.argv[1]), float(sys.argv[2])
hung = sys.argv[3:]
suite = json.loads((results / "suite.json").read_text())
page = (results / "README.md").read_text()

assert took <= PART_SECONDS, f"it took {took} s"
assert suite["case_limit"] <= CASE_SECONDS, suite["case_limit"]
assert suite["limit"] <= PART_SECONDS and suite["seconds"] <= suite["limit"], suite["seconds"]
assert suite["parts"], "nothing ran"
for part in suite["parts"]:
    assert part["seconds"] <= part["limit"] + GRACE, (part["part"], part["seconds"], part["limit"])
    assert part["cases"], part["part"]
    if suite["part"] == 3:
        continue
    for case in part["cases"]:
        assert case["seconds"] <= suite["case_limit"] + GRACE, (part["part"], case)

bad = [(case["name"], case["result"]) for part in suite["parts"] for case in part["cases"]
       if case["result"] not in ("passed", "skipped")]
assert bad == [(name, "hung") for name in hung], bad
for name in hung:
    part, at = next((part["cases"], at) for part in suite["parts"]
                    for at, case in enumerate(part["cases"]) if case["name"] == name)
    assert part[at]["seconds"] >= suite["case_limit"] - GRACE, part[at]
    assert [case for case in part[at + 1:] if case["result"] == "passed"], "the others did not go on"
    assert f"| {name} | hung |" in page

facts = suite["facts"]
assert "not_asked" not in facts, facts["not_asked"]
for name in ("time", "kernel", "usable_cpus", "memory", "cuda_runtime", "cuda_driver", "nccl", "mps"):
    assert not str(facts[name]).startswith("unknown"), (name, facts[name])
    assert f"| {name} | {facts[name]} |" in page, name
assert facts["gpu_count"] == len(facts["gpus"]) == len(facts["peer_access"])
for gpu in facts["gpus"]:
    for name in ("name", "memory_mib", "compute_capability", "multiprocessors"):
        assert not str(gpu[name]).startswith("unknown"), gpu
assert "CUDA_DEVICE_MAX_CONNECTIONS" in facts["environment"]
print(f"part {suite['part']}: {took:.0f} s, {sum(len(part['cases']) for part in suite['parts'])} cases, "
      f"the longest {max(case['seconds'] for part in suite['parts'] for case in part['cases'])} s")
