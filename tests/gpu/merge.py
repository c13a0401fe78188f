"""Merges the results of several runs of the GPU suite: merge.py --into FOLDER RESULTS...

Each of RESULTS is a folder that run.sh has filled; of a part that ran more than once the last counts.
FOLDER gets suite.json, benchmarks.json and README.md: the machine's facts first, the parts, what did
not pass and why, figures, and of every conformance case whether a GPU has been seen to do what it
says. Runs on machines that differ are not merged."""

import argparse
import json
import pathlib
import re
import sys

sys.dont_write_bytecode = True
import page

# TEST_CASE("name" * unseen): the name may be several strings.
CASE = re.compile(r'TEST_CASE\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)(\*[^)]*)?\)')
conformance = pathlib.Path(__file__).resolve().parent.parent / "conformance"


def claims():
    """The conformance cases by name, and which of them no GPU has been seen to do."""
    found = {}
    for source in sorted(conformance.glob("*_test.cpp")):
        for match in CASE.finditer(source.read_text()):
            if "skip" in (match[2] or ""):
                continue  # run by another, in a process of its own
            name = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', match[1])).replace('\\"', '"')
            found[name] = "unseen" in (match[2] or "")
    return found


def same_machine(one, other):
    """Whether they agree in what results and figures depend on."""
    def gpus(told):
        found = told.get("gpus")
        return [gpu["name"] for gpu in found] if isinstance(found, list) else found

    return gpus(one) == gpus(other) and all(
        one.get(name) == other.get(name) for name in ("driver", "cuda_runtime", "nccl"))


def merged(folders):
    parts, rows, machine, facts, emulated = {}, [], {}, {}, False
    for folder in folders:
        suite = json.loads((folder / "suite.json").read_text())
        if facts and not same_machine(facts, suite["facts"]):
            sys.exit(f"{folder} is of another machine than what comes before it")
        facts = facts or suite["facts"]
        machine = suite["machine"] or machine
        emulated = emulated or suite["emulated"]
        parts |= {part["part"]: part for part in suite["parts"]}
        lines = (folder / "benchmarks.json").read_text().splitlines()
        rows += [row for row in map(json.loads, lines) if row.get("bench") != "machine"]
    return {"facts": facts, "machine": machine, "emulated": emulated,
            "parts": list(parts.values())}, rows


def conformance_page(suite):
    yield "## Conformance: what a GPU has been seen to do"
    yield ""
    told = {case["name"]: case["result"] for part in suite["parts"]
            if part["part"].startswith("conformance") for case in part["cases"]}
    rows = []
    for name, is_unseen in claims().items():
        result = told.get(name, "did not run")
        if result == "passed" and not suite["emulated"]:
            result = "seen: the mark `unseen` comes off" if is_unseen else "seen"
        rows.append((name, "unseen" if is_unseen else "seen before", result))
    yield from page.table(("case", "before", "this run"), rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--into", required=True, type=pathlib.Path)
    parser.add_argument("results", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    suite, rows = merged(options.results)
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / "suite.json").write_text(json.dumps(suite, indent=1) + "\n")
    told = [suite["machine"], *rows] if suite["machine"] else rows
    (options.into / "benchmarks.json").write_text("".join(json.dumps(row) + "\n" for row in told))
    lines = [*page.page(suite, rows), "", *conformance_page(suite)]
    (options.into / "README.md").write_text("\n".join(lines) + "\n")


main()
