"""Makes source.hpp, the implementation as one header, and launch_source.hpp, which holds that of the layer
`launch` and of the etcd store: amalgamate.py ALL_CPP SOURCE LAUNCH_SOURCE DEPFILE

What src/all.cpp includes of src/ is put in its place, once; public and system headers are
included as they are. A header whose first place lies inside an #if is put again, guarded, where
another condition may need it."""

import pathlib
import re
import sys

src = pathlib.Path(sys.argv[1]).resolve().parent
include = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
condition = re.compile(r"^\s*#\s*(if|ifdef|ifndef|else|elif|endif)\b")

head = """\
// The implementation of Manyworlds: core, serve and GPU worlds. Include it in exactly one source
// file of a program that links no library of Manyworlds:
//
//     #include <manyworlds/source.hpp>
//
// It needs -luring, and -lcrypto and -lcares where their headers are found (else define
// MANYWORLDS_HAS_SECRET or MANYWORLDS_HAS_C_ARES as 0 in all files). fmt is used as a header.
// With MANYWORLDS_TESTING defined it holds the simulation of testing.hpp too.
//
// It is made from src/ when the library is built.
#pragma once
"""

launch_head = """\
// The implementation of launch.hpp. Include it in the source file that includes source.hpp:
//
//     #include <manyworlds/source.hpp>
//     #include <manyworlds/launch_source.hpp>
//
// The etcd store is in it if the headers of libcurl and nlohmann-json are found.
// It is made from src/ when the library is built.
#pragma once

#include "manyworlds/source.hpp"
"""

body_head = """
// Constructors name their parameters like the members that they set.
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#if !defined(__clang__)
// Of coroutines that are lambdas of members: their frames are this file's alone.
#pragma GCC diagnostic ignored "-Wsubobject-linkage"
#endif
#endif

"""

tail = """
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
"""


class amalgam:
    def __init__(self):
        self.lines = []
        self.launching = []  # the sources of launch_source.hpp, which has what source.hpp lacks
        self.placed = {}  # header: the conditions of its places
        self.conditions = []
        self.read = []

    def find(self, name, user):
        for base in (user.parent, src):
            if (base / name).is_file():
                return (base / name).resolve()
        return None

    def is_placed(self, path):
        here = tuple(self.conditions)
        return any(here[: len(there)] == there for there in self.placed.get(path, []))

    def put(self, path):
        header = path.suffix == ".hpp"
        if header:
            if self.is_placed(path):
                return
            guard = "MANYWORLDS_SOURCE_" + re.sub(r"\W", "_", str(path.relative_to(src))).upper()
            again = path in self.placed
            self.placed.setdefault(path, []).append(tuple(self.conditions))
            needs_guard = again or self.conditions
            if needs_guard:
                self.lines.append(f"#ifndef {guard}\n#define {guard}")
        depth = len(self.conditions)
        self.read.append(str(path))
        for line in path.read_text().splitlines():
            self.put_line(line, path)
        assert len(self.conditions) == depth, path
        if header and needs_guard:
            self.lines.append(f"#endif  // {guard}")

    def put_line(self, line, path):
        included = include.match(line)
        found = included and self.find(included.group(1), path)
        is_launching = found and (found.parent == src / "launch" or found.name.startswith("etcd_"))
        if is_launching and path.name == "all.cpp":
            self.launching.append(found)
            return
        if found:
            self.put(found)
            return
        if re.match(r"\s*#\s*pragma once", line):
            return
        changes = condition.match(line)
        if changes:
            kind = changes.group(1)
            if kind == "endif":
                self.conditions.pop()
            elif kind in ("else", "elif"):
                self.conditions[-1] = f"{self.conditions[-1]} {line.strip()}"
            else:
                self.conditions.append(f"{path}:{len(self.lines)} {line.strip()}")
        self.lines.append(line)


made = amalgam()
made.put(pathlib.Path(sys.argv[1]).resolve())
pathlib.Path(sys.argv[2]).write_text(head + body_head + "\n".join(made.lines) + "\n" + tail)
made.lines = []
for source in made.launching:
    made.put(source)
pathlib.Path(sys.argv[3]).write_text(launch_head + body_head + "\n".join(made.lines) + "\n" + tail)
pathlib.Path(sys.argv[4]).write_text(f"{sys.argv[2]} {sys.argv[3]}: {' '.join(made.read)}\n")
