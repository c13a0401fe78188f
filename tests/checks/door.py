"""The door between users and the library stays narrow: public headers include only listed ones
and detail/, every name outside `detail` is documented, and what an include costs is bounded.
door.py COMPILER..."""

import pathlib
import re
import subprocess
import sys

include = pathlib.Path(__file__).resolve().parents[2] / "include"
umbrellas = ["manyworlds", "serve", "gpu", "launch", "spmd", "mpmd", "testing", "mw"]
# They adapt other libraries, so that no umbrella includes them.
alone = ["format", "interop/asio", "interop/reply_feed", "interop/resume_on", "interop/zpp_bits"]
most_headers = 145
most_names = 360
# Lines of ours that manyworlds.hpp brings, without comments: a measure that no clock disturbs.
most_lines = 6500

opening = "namespace manyworlds::inline v0 {\n"
includes = re.compile(r'^#include "(manyworlds/[^"]+)"', re.M)
named = re.compile(
    r"(?:class|struct|enum class|concept|using)\s+(?:MANYWORLDS_EXPORT\s+|MANYWORLDS_MUST_AWAIT\s+|\[\[nodiscard[^\]]*\]\]\s+)?(\w+)"
)


def path_of(name):
    return include / "manyworlds" / f"{name}.hpp"


def listed():
    """The umbrellas, what they include, and what stands alone."""
    found = {path_of(name) for name in umbrellas + alone}
    for name in umbrellas:
        found |= {include / used for used in includes.findall(path_of(name).read_text())}
    return found


def without_comments(line):
    return re.sub(r"//.*", "", re.sub(r'"(\\.|[^"\\])*"', '""', line))


def entities(text):
    """The declarations of the public namespace, each with the comment above it."""
    text = text[text.index(opening) + len(opening) :]
    lines, comment, depth, inside, follows = [], False, 0, False, False
    for line in text.splitlines():
        code = without_comments(line)
        if not inside and depth == 0:
            if line.startswith("///"):
                comment = True
                continue
            if not line.strip() or line.startswith(("//", "#")):
                comment = comment and line.startswith("//")
                follows = False
                continue
            if line.startswith("}"):
                return
        inside = True
        lines.append(line)
        depth += code.count("{") + code.count("(") - code.count("}") - code.count(")")
        if depth == 0 and code.rstrip().endswith((";", "}")):
            # One comment may stand above several lines.
            comment = comment or follows
            yield "\n".join(lines), comment
            follows = comment and len(lines) <= 2
            lines, comment, inside = [], False, False


def name_of(entity):
    """The name that an entity makes public; none for blocks of detail and repetitions."""
    text = re.sub(r"^template <(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>\s*", "", entity)
    if "static_assert" in text.split("(")[0] or text.startswith(("namespace", "template", "friend")):
        return None
    found = named.match(text)
    if found:
        declares_only = text.startswith(("class", "struct")) and "{" not in text
        return None if declares_only else found.group(1)
    if text.startswith(("requires", "object", "return")):
        return None
    before = text.split("(")[0].split("=")[0].rstrip(" ;{")
    name = re.split(r"[\s*&]", before)[-1]
    return None if "::" in name or name in ("co_await", "sizeof", "decltype", "") else name


def check_headers(public):
    wrong, names, undocumented = [], set(), {}
    for header in sorted(public):
        text = header.read_text()
        shown = header.relative_to(include)
        for used in includes.findall(text):
            if "/detail/" not in used and include / used not in public:
                wrong.append(f"{shown} includes {used}, which no umbrella lists")
        if opening not in text:
            continue
        for entity, documented in entities(text):
            name = name_of(entity)
            if not name:
                continue
            if not documented and name not in names:
                undocumented.setdefault(name, shown)
            names.add(name)
            if documented:
                undocumented.pop(name, None)
    return wrong, names, undocumented


def lines_of(header, compiler):
    command = compiler + ["-std=c++20", f"-I{include}", "-x", "c++", "-E", str(header)]
    ours, count = False, 0
    for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines():
        place = re.match(r'# \d+ "([^"]+)"', line)
        if place:
            ours = place.group(1).startswith(str(include))
        elif ours and line.strip():
            count += 1
    return count


def main():
    public = listed()
    wrong, names, undocumented = check_headers(public)
    for header in include.rglob("*.hpp"):
        if "detail" not in header.parts and header not in public:
            wrong.append(f"{header.relative_to(include)} is public, and no umbrella lists it")
    wrong += [f"{place}: {name} is not documented" for name, place in undocumented.items()]
    if len(public) > most_headers:
        wrong.append(f"{len(public)} public headers: at most {most_headers}")
    if len(names) > most_names:
        wrong.append(f"{len(names)} public names: at most {most_names}")
    lines = lines_of(path_of("manyworlds"), sys.argv[1:])
    if not 0 < lines <= most_lines:
        wrong.append(f"manyworlds.hpp brings {lines} lines: at most {most_lines}")
    print("\n".join(wrong))
    print(f"{len(public)} public headers, {len(names)} names, {lines} lines by manyworlds.hpp")
    return 1 if wrong else 0


sys.exit(main())
