"""What does not compile says why, and what to write: refused.py OUTPUT COMPILER...

Each file of refused/ has wrong lines and right ones. With -DWRONG=1, 2 ... (as many as its
"cases" says, or 1) it must not compile, and the compiler's words must contain what its "says"
lines give; without WRONG it compiles. "flags" are added to the wrong ones, "only" names the
compiler that a file is for, "both" are added to all. In a file that "drops", each line with a mark "// dropped" is
warned of in the words of "says", and no other. In one that "marks", each line with "// refused: ..." is refused with
these words, and no other: so one run of the compiler serves many mistakes.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
include = here.parents[1] / "include"
output = pathlib.Path(sys.argv[1])
given = sys.argv[2:]


def notes(text, name):
    return [m.strip() for m in re.findall(rf"^// {name}: (.*)$", text, re.M)]


def is_clang(compiler):
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True).stdout
    return "clang" in version


class toolchain:
    """A compiler with the library's headers precompiled."""

    def __init__(self, compiler):
        self.compiler = compiler
        self.name = "clang++" if is_clang(compiler) else "g++"
        self.all_errors = ["-w", "-ferror-limit=0" if self.name == "clang++" else "-fmax-errors=0"]
        self.flags = ["-std=c++20", "-Wall", "-Wextra", f"-I{include}"]
        folder = output / self.name
        folder.mkdir(parents=True, exist_ok=True)
        header = folder / "prelude.hpp"
        header.write_text((here / "refused/prelude.hpp").read_text())
        suffix = ".pch" if self.name == "clang++" else ".gch"
        made = f"{header}{suffix}"
        subprocess.run(
            [*compiler, *self.flags, "-x", "c++-header", str(header), "-o", made], check=True)
        self.prelude = ["-include-pch", made] if suffix == ".pch" else ["-include", str(header)]

    def says(self, source, *flags, prelude=True):
        command = [*self.compiler, *self.flags, *(self.prelude if prelude else []), *flags,
                   "-fsyntax-only", str(source)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
        return ran.returncode, ran.stdout + ran.stderr


def check_dropped(tool, source, text):
    wanted = {n for n, line in enumerate(text.splitlines(), 1) if "// dropped" in line}
    status, words = tool.says(source)
    told = {int(n) for n in re.findall(rf"{source.name}:(\d+):\d+: warning: ignoring return", words)}
    if status or wanted != told:
        return [f"not warned of: {sorted(wanted - told)}, of these it was: {sorted(told - wanted)}\n{words}"]
    warnings = [line for line in words.splitlines() if f"{source.name}:" in line and "warning: ignoring" in line]
    return [f"does not say why: {line}" for line in warnings if not any(part in line for part in notes(text, "says"))]


def check_marked(tool, source, text, flags):
    marked = {n: line.split("// refused: ")[1] for n, line in enumerate(text.splitlines(), 1) if "// refused: " in line}
    own_prelude = "#include <manyworlds" not in text
    _, words = tool.says(source, "-DWRONG", *flags, *tool.all_errors, prelude=own_prelude)
    # An error, and where g++ (before it) and clang (behind it) say that it comes from.
    begins = r"(?=^[^\n]*(?:In instantiation of|In function|In member function))" if tool.name == "g++" else r"(?=^[^\n]*error:)"
    # Compilers print the line with its mark.
    words = re.sub(r"// refused: .*", "", words)
    wrong = []
    parts = re.split(begins, words, flags=re.M)
    told = re.findall(rf"{source.name}:(\d+):(?=\d+: error:|.*(?:required from here|requested here))", words)
    for line, said in marked.items():
        of_it = [part for part in parts if f"{source.name}:{line}:" in part]
        if not any(said in " ".join(part.split()) for part in of_it):
            wrong.append(f"line {line} does not say: {said}\n{''.join(of_it)[:1500]}")
    if odd := {int(line) for line in told} - marked.keys():
        wrong.append(f"lines {sorted(odd)} are refused too")
    status, words = tool.says(source, *flags, prelude=own_prelude)
    if status:
        wrong.append(f"what is right does not compile:\n{words[:3000]}")
    return wrong


def check(tool, source):
    text = source.read_text()
    if notes(text, "only") not in ([], [tool.name]):
        return []
    if notes(text, "drops"):
        return check_dropped(tool, source, text)
    both = " ".join(notes(text, "both")).split()
    if notes(text, "marks"):
        return check_marked(tool, source, text, both)
    wrong = []
    flags = " ".join(notes(text, "flags")).split()
    wanted = notes(text, "says")
    own_prelude = "#include <manyworlds" not in text
    for case in range(1, int((notes(text, "cases") or ["1"])[0]) + 1):
        status, words = tool.says(source, f"-DWRONG={case}", *flags, *both, prelude=own_prelude)
        words = " ".join(words.split())
        if not status:
            wrong.append(f"case {case} compiles")
        wrong += [f"case {case} does not say: {part}\n{words[:3000]}" for part in wanted
                  if part not in words]
    status, words = tool.says(source, *both, prelude=own_prelude)
    if status:
        wrong.append(f"what is right does not compile:\n{words[:3000]}")
    return wrong


def main():
    compilers = [given]
    other = "g++" if is_clang(given) else "clang++"
    if shutil.which(other):
        compilers.append([other])
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        tools = list(pool.map(toolchain, compilers))
        work = [(t, s) for t in tools for s in sorted((here / "refused").glob("*.cpp"))]
        for (tool, source), wrong in zip(work, pool.map(lambda w: check(*w), work)):
            failed += bool(wrong)
            for each in wrong:
                print(f"{tool.name}: {source.name}: {each}")
    print(f"{len(work) - failed} of {len(work)} files are refused as they say")
    return 1 if failed or not work else 0


sys.exit(main())
