"""Every source is in src/all.cpp and in its folder's meson.build. --write makes src/all.cpp."""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2] / "src"
layers = "coro io memory link store backend host world serve observe interop".split()


def sources():
    found = [path for path in root.glob("*.cpp") if path.name != "all.cpp"]
    for layer in layers:
        found += (root / layer).rglob("*.cpp")
    return sorted(str(path.relative_to(root)) for path in found)


def main():
    text = (root / "all.cpp").read_text()
    listed = re.findall(r'^#include "(.+\.cpp)"$', text, re.M)
    if "--write" in sys.argv:
        head = text[: text.index('#include "')]
        (root / "all.cpp").write_text(head + "".join(f'#include "{s}"\n' for s in sources()))
        return 0

    wrong = [f"src/all.cpp does not include {s}" for s in sources() if s not in listed]
    wrong += [f"src/all.cpp includes {s}, which is not there" for s in listed if s not in sources()]
    for source in sources():
        path = root / source
        build = root / source.split("/")[0] / "meson.build" if "/" in source else root / "meson.build"
        if f"'{path.relative_to(build.parent)}'" not in build.read_text():
            wrong.append(f"src/{source} is not listed in {build.relative_to(root.parent)}")
    print("\n".join(wrong) or "every source is listed")
    if wrong:
        print("python3 tests/checks/all_cpp.py --write makes src/all.cpp anew")
    return 1 if wrong else 0


sys.exit(main())
