"""Compares the emulated libraries with the real ones: abi.py EMULATED_FOLDER REAL_FOLDER...

Every name that an emulated library exports, and its version, must be one of the real library's;
only the hooks between the two emulated libraries, and for tests, are their own. Exits with 77 (skipped) where
there is no real library to compare with."""

import pathlib
import re
import subprocess
import sys

OWN = re.compile(r"(cuda|nccl)Emulated")
LIBRARIES = ["libcudart.so.13", "libnccl.so.2"]


def exported(library):
    """NAME@@VERSION of each defined dynamic symbol, without the version's own."""
    listed = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--with-symbol-versions", library],
        check=True, capture_output=True, text=True).stdout
    names = {line.split()[2] for line in listed.splitlines() if line.split()[1] != "A"}
    return {name for name in names if not OWN.match(name)}


def soname(library):
    listed = subprocess.run(["readelf", "-d", library], check=True, capture_output=True,
                            text=True).stdout
    return re.search(r"SONAME.*\[(.*)\]", listed).group(1)


def main():
    emulated_folder, *real_folders = map(pathlib.Path, sys.argv[1:])
    compared = 0
    wrong = []
    for name in LIBRARIES:
        emulated = emulated_folder / name
        real = next((folder / name for folder in real_folders if (folder / name).exists()), None)
        if not emulated.exists() or real is None:
            continue
        compared += 1
        if soname(emulated) != soname(real):
            wrong.append(f"{name} calls itself {soname(emulated)}")
        wrong += [f"{name}: {symbol}" for symbol in sorted(exported(emulated) - exported(real))]
        print(f"{name}: {len(exported(emulated))} names compared with {real}")
    for line in wrong:
        print("not in the real library:", line)
    sys.exit(1 if wrong else 0 if compared else 77)


main()
