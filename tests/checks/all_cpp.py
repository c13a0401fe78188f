"""Every source is in src/all.cpp and in its folder's meson.build, and none asks for a type at run
time (-fno-rtti). --write makes src/all.cpp."""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2] / "src"
layers = "coro io memory link store backend host nccl world serve launch weights spmd observe interop testing".split()


def sources():
    found = [path for path in root.glob("*.cpp") if path.name != "all.cpp"]
    for layer in layers:
        found += (root / layer).rglob("*.cpp")
    return sorted(str(path.relative_to(root)) for path in found)


def listing():
    """What needs CUDA is left out of a build without it, and what stands in for it put in; the
    simulation is there for those who ask for it."""
    device = [s for s in sources() if s.startswith("nccl/")]
    without = [s for s in device if s.startswith("nccl/without/")]
    with_cuda = [s for s in device if s not in without]
    lines = {s: f'#include "{s}"\n' for s in sources()}
    pick = lambda names: "".join(lines[name] for name in names)
    testing = [s for s in sources() if s.startswith("testing/")]
    rest = [s for s in sources() if s not in device + testing]
    if not device:
        return pick(rest)
    guarded = f"#if MANYWORLDS_HAS_NCCL\n{pick(with_cuda)}#else\n{pick(without)}#endif\n"
    simulated = f"#if defined(MANYWORLDS_TESTING)\n{pick(testing)}#endif\n"
    return pick(rest) + "\n" + guarded + "\n" + simulated


def main():
    text = (root / "all.cpp").read_text()
    listed = re.findall(r'^#include "(.+\.cpp)"$', text, re.M)
    if "--write" in sys.argv:
        head = text[: re.search(r'^#include ".+\.cpp"$', text, re.M).start()]
        (root / "all.cpp").write_text(head + listing())
        return 0

    wrong = [f"src/all.cpp does not include {s}" for s in sources() if s not in listed]
    wrong += [f"src/all.cpp includes {s}, which is not there" for s in listed if s not in sources()]
    if listing() not in text:
        wrong.append("src/all.cpp is not what --write makes")
    for source in sources():
        path = root / source
        build = root / source.split("/")[0] / "meson.build" if "/" in source else root / "meson.build"
        if f"'{path.relative_to(build.parent)}'" not in build.read_text():
            wrong.append(f"src/{source} is not listed in {build.relative_to(root.parent)}")
    for path in [*root.rglob("*.[ch]pp"), *(root.parent / "include").rglob("*.hpp")]:
        if re.search(r"\b(dynamic_cast|dynamic_pointer_cast|typeid)\b", path.read_text()):
            wrong.append(f"{path.relative_to(root.parent)} needs run-time type information")
    print("\n".join(wrong) or "every source is listed")
    if wrong:
        print("python3 tests/checks/all_cpp.py --write makes src/all.cpp anew")
    return 1 if wrong else 0


sys.exit(main())
