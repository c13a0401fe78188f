"""Each public header compiles alone and without warnings, and says itself, first of all, that it
needs exceptions: headers.py OUTPUT COMPILER..."""

import concurrent.futures
import os
import pathlib
import subprocess
import sys

include = pathlib.Path(__file__).resolve().parents[2] / "include"
output, *compiler = sys.argv[1:]
warnings = "-Wall -Wextra -Wconversion -Wshadow -Werror".split()
needs_exceptions = "manyworlds needs exceptions: compile without -fno-exceptions"
# Adapters of libraries that Debian does not package, by the header that they need.
adapters = {"manyworlds/interop/zpp_bits.hpp": "zpp_bits.h"}


def is_here(header):
    unit = pathlib.Path(output) / "is_here.cpp"
    unit.write_text(f"#include <{header}>\n")
    command = compiler + ["-std=c++20", "-fsyntax-only", str(unit)]
    return subprocess.run(command, capture_output=True).returncode == 0


def compile_alone(header):
    name = str(header.relative_to(include))
    unit = pathlib.Path(output) / (name.replace("/", "-") + ".cpp")
    unit.write_text(f"#include <{name}>\n#include <{name}>\n")
    command = compiler + ["-std=c++20", *warnings, f"-I{include}", "-fsyntax-only", str(unit)]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        return name, ran.stderr
    # It stops at the first error: what follows is not read.
    command = compiler + ["-std=c++20", "-fno-exceptions", "-Wfatal-errors", f"-I{include}", "-E", str(unit)]
    told = subprocess.run(command + ["-o", os.devnull], capture_output=True, text=True).stderr
    errors = [line for line in told.splitlines() if "error:" in line]
    is_told = errors and needs_exceptions in errors[0] and len(errors) == 1
    return name, "" if is_told else f"-fno-exceptions: {told}"


def main():
    os.makedirs(output, exist_ok=True)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, messages in pool.map(compile_alone, sorted(include.rglob("*.hpp"))):
            if messages and name in adapters and not is_here(adapters[name]):
                print(f"{name} was not compiled: there is no {adapters[name]}")
            elif messages:
                failed += 1
                print(f"{name} does not compile alone:\n{messages}")
    print(f"{failed} headers do not compile alone")
    return 1 if failed else 0


sys.exit(main())
