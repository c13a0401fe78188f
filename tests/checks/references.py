"""What a README names is there: its links, and the headers and sources in backticks, which stand
beside it, in the folder of the same name in include/manyworlds/, in detail/, or under the path given.
In the pages of NAMING each `type::member` stands in a file that the same paragraph or row names."""

import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]
installed = {"source.hpp", "launch_source.hpp", "manyworlds/source.hpp"}  # made when the library is built
NAMING = ["src/README.md", "src/EXTENDING.md"]
bases = ["", "include", "include/manyworlds", "include/manyworlds/detail", "src", "tests", "examples"]


def pages():
    for page in sorted(root.rglob("*.md")):
        parts = page.relative_to(root).parts
        if not parts[0].startswith("build") and parts[0] not in ("subprojects",) and "results" not in parts:
            yield page


def places_of(page):
    layer = page.parent.name
    places = [page.parent, page.parent.parent, root / "include/manyworlds" / layer, root / "src" / layer]
    places += [root / base for base in bases]
    # Pages of tests and examples name sources of the layer that they are about.
    if page.relative_to(root).parts[0] in ("tests", "examples"):
        places += [root / "src" / each.name for each in (root / "src").iterdir() if each.is_dir()]
        places += [root / "examples" / each for each in ("shared", "quickstart")]
    return places


def is_there(name, page):
    return name in installed or any((place / name).is_file() for place in places_of(page))


def blocks(page):
    """(line, text) of paragraphs, items and rows, without what stands in code."""
    text = re.sub(r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), page.read_text(), flags=re.M | re.S)
    began, block = 1, []
    for number, line in enumerate(text.splitlines() + [""], 1):
        if not line.strip() or re.match(r"\d+\. |[-|#]", line):
            yield began, " ".join(block)
            began, block = number, []
        block.append(line)
    yield began, " ".join(block)


def strangers(page):
    """Members that no file of their paragraph has."""
    for number, text in blocks(page):
        names = re.findall(r"`([\w/.]+\.(?:hpp|cpp))`", text)
        files = [place / name for name in names for place in places_of(page) if (place / name).is_file()]
        words = [set(re.findall(r"\w+", each.read_text())) for each in files]
        for member in re.findall(r"`(?!std::|manyworlds::)(\w+(?:::\w+)+)`", text):
            if not any(set(member.split("::")) <= each for each in words):
                yield f"{page.relative_to(root)}:{number}: no file named there has {member}"


wrong = []
for page in pages():
    shown = page.relative_to(root)
    in_code = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        in_code ^= line.startswith("```")
        if in_code or line.startswith("```"):
            continue
        for name in re.findall(r"`([\w/.]+\.(?:hpp|cpp))`", line):
            if not is_there(name, page):
                wrong.append(f"{shown}:{number}: there is no {name}")
        for link in re.findall(r"\]\(([\w./][^)#\s]*)(?:#[^)]*)?\)", re.sub(r"`[^`]*`", "", line)):
            if not link.startswith("http") and not (page.parent / link).exists():
                wrong.append(f"{shown}:{number}: {link} leads nowhere")
for name in NAMING:
    wrong += strangers(root / name)
print("\n".join(wrong) or "every page names what is there")
sys.exit(bool(wrong))
