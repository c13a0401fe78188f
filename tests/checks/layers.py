"""Each layer includes only the ones below it; public headers keep their dependencies private."""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
below_to_above = "coro io memory link store backend host nccl world serve launch weights spmd mpmd testing".split()
# Beside the layers: anyone may report to observe, and interop may adapt anything.
free = {"observe": True, "interop": False}
private = re.compile(r"liburing|linux/io_uring|fmt/|cuda|nccl|openssl/|ares|nlohmann/|toml|sqlite|CLI/")
include = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)


def layer_of(name):
    parts = name.removeprefix("manyworlds/").split("/")
    return parts[0] if len(parts) > 1 and parts[0] in below_to_above + list(free) else None


def allowed(user, used):
    if used is None or user == used or user in free:
        return True
    if used in free:
        return free[used]
    return below_to_above.index(used) < below_to_above.index(user)


def main():
    wrong = []
    for base in (root / "include/manyworlds", root / "src"):
        for path in sorted(base.rglob("*.?pp")):
            user = layer_of(str(path.relative_to(base)))
            for name in include.findall(path.read_text()):
                shown = f"{path.relative_to(root)} includes {name}"
                if user and not allowed(user, layer_of(name)):
                    wrong.append(f"{shown}: {user} is below {layer_of(name)}")
                if base.name == "manyworlds" and path.name != "format.hpp" and private.match(name):
                    wrong.append(f"{shown}: a public header may not")
    print("\n".join(wrong) or "every include points downwards")
    return 1 if wrong else 0


sys.exit(main())
