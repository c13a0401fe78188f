"""The code that pages show is code that is built: the pieces of the pages below, without regard to their
indentation, and the calls that examples/coming_from.md gives in place of others'. A job's fields are told."""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
# In the order in which a page shows them.
SOURCES = {
    "README.md": [
        "examples/hello.cpp",
        "examples/workers.cpp",
        "examples/service.cpp",
    ],
    "examples/starting.md": ["examples/launched.cpp"],
    "examples/graphs.md": ["examples/serving/roles.hpp"],
    "examples/README.md": [
        "examples/hello.cpp",
        "examples/send_recv.cpp",
        "examples/all_reduce.cpp",
        "tests/interface/programs.cpp",
        "examples/pipeline/stage.hpp",
        "examples/service.cpp",
        "examples/service.cpp",
    ],
    "examples/coming_from.md": ["tests/interface/add_up.cpp"],
    "src/nccl/using.md": [
        "examples/gpu_world.cpp",
        "tests/interface/programs.cpp",
        "examples/kv_transfer/decode.hpp",
    ],
    "src/EXTENDING.md": [
        *["tests/interface/folder_store.hpp"] * 9,
        "tests/host/all_to_all_in_rounds.hpp",
        "tests/host/added_algorithm_test.cpp",
        *["tests/io/poll_engine.hpp"] * 2,
        "tests/world/late_backend.hpp",
        *["tests/world/toy_backend.hpp"] * 17,
        "tests/world/own_transport.cpp",
    ],
}
MOST_LINES = 140
CALLS = "examples/coming_from.md"
CALLED = "tests/interface/coming_from.cpp"


def without_indentation(code):
    return "\n".join(line.strip() for line in code.strip().splitlines())


def pieces():
    for page, sources in SOURCES.items():
        shown = re.findall(r"^```cpp\n(.*?)^```", (root / page).read_text(), re.M | re.S)
        if len(shown) != len(sources):
            yield f"{page} shows {len(shown)} pieces of code, and {len(sources)} are known here"
        for code, source in zip(shown, sources):
            if without_indentation(code) not in without_indentation((root / source).read_text()):
                yield f"{page} does not show {source} as it is"


def calls():
    """Of a call like `f(a, ...)` the part before the dots counts."""
    called = re.sub(r"\s+", " ", (root / CALLED).read_text())
    for number, line in enumerate((root / CALLS).read_text().splitlines(), 1):
        if not line.startswith("|"):
            continue
        for call in re.findall(r"`([^`]+)`", line.rstrip("| ").split("|")[-1]):
            missing = [part for part in call.split("...") if part.strip(" ,()}") and part.strip(" ,") not in called]
            if missing and re.search(r"[(.:]", call):
                yield f"{CALLS}:{number}: {CALLED} has no {call}"


def fields():
    """What a job's file may say stands in the tables of its page."""
    page = (root / "examples/graphs.md").read_text()
    walked = (root / "src/mpmd/graph_fields.hpp").read_text()
    for name in sorted(set(re.findall(r'\.\w+\("(\w+)"', walked))):
        if f"`{name}`" not in page:
            yield f"examples/graphs.md does not name the field {name}"


wrong = [*pieces(), *calls(), *fields()]
lines = len((root / "README.md").read_text().splitlines())
if lines > MOST_LINES:
    wrong.append(f"README.md has {lines} lines: at most {MOST_LINES}")
print("\n".join(wrong))
sys.exit(bool(wrong))
