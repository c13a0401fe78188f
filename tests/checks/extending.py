"""The lines with a `+` that src/EXTENDING.md shows are added to copies of their sources, beside the lines that
it shows with them, and what comes out compiles, with its static_asserts. The code of a store, of an engine and of a
transport compiles from top to bottom, each as one source.

extending.py FOLDER COMPILER ..."""

import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]
folder = pathlib.Path(sys.argv[1])
compiler = sys.argv[2:]
page = (root / "src/EXTENDING.md").read_text()
changed = {}


def add(name, lines):
    """Lines are (sign, text): those without a sign stand in the source, and nowhere twice."""
    before = "\n".join(text for sign, text in lines if sign == " ")
    after = "\n".join(text for _, text in lines)
    source = changed.setdefault(name, (root / name).read_text())
    if source.count(before) != 1:
        sys.exit(f"src/EXTENDING.md: {name} has {source.count(before)} times\n{before}")
    changed[name] = source.replace(before, after)


for block in re.findall(r"^```diff\n(.*?)^```", page, re.M | re.S):
    for part in re.split(r"^--- ", block, flags=re.M)[1:]:
        name, *lines = part.splitlines()
        add(name, [(line[0], line[1:]) for line in lines])
if not changed:
    sys.exit("src/EXTENDING.md adds nothing")

overlay = folder / "src"
for name, text in changed.items():
    copy = folder / name
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(text)

users, inside = [f"-I{root}/include"], [f"-I{root}/include", f"-I{root}/src"]
compiled = [(folder / name, [f"-I{overlay}", *inside]) for name in changed if name.endswith(".cpp")]
for title, sees in {"A store": users, "An engine": inside, "A transport": inside}.items():
    (section,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    source = folder / (title.split()[1] + ".cpp")
    source.write_text("\n".join(re.findall(r"^```cpp\n(.*?)^```", section, re.M | re.S)))
    compiled.append((source, sees))
for source, sees in compiled:
    subprocess.run([*compiler, "-std=c++20", "-Wall", "-Wextra", "-fsyntax-only", *sees, str(source)], check=True)
