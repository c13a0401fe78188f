"""A plugin that links the static library exports of it only the classes that cross a border as
exceptions and what is one in a process, and two such plugins work side by side: exported.py PLUGIN OUTPUT"""

import ctypes
import pathlib
import re
import shutil
import subprocess
import sys

include = pathlib.Path(__file__).resolve().parents[2] / "include"
plugin, output = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])


def marked_classes():
    """What the headers mark MANYWORLDS_EXPORT."""
    marked = re.compile(r"^(?:class|struct) MANYWORLDS_EXPORT (\w+)", re.M)
    return {name for header in include.rglob("*.hpp") for name in marked.findall(header.read_text())}


# A mangled name of namespace manyworlds: a function, a type's information, a guard, a thunk. What
# the standard library is instantiated with has its visibility from there.
own_name = re.compile(r"_Z(?:T[VTISHW]|GV|GR|T[hv]n?\d+_)?N[KVrRO]*10manyworlds")


def exported_names():
    def names(*options):
        text = subprocess.run(["nm", "--dynamic", "--defined-only", *options, str(plugin)],
                              check=True, capture_output=True, text=True).stdout
        return [line.split(" ", 2)[2] for line in text.splitlines()]
    pairs = zip(names("--no-sort"), names("--no-sort", "--demangle"))
    return [demangled for mangled, demangled in pairs if own_name.match(mangled)]


def main():
    marked = marked_classes()
    names = exported_names()
    # And what is one in all of a process: the executor of a thread, the identities of types.
    allowed = re.compile(r"(?:(?:typeinfo|typeinfo name|vtable) for )?manyworlds::v0::(?:" +
                         "|".join(marked) + r")(?:::|$)|manyworlds::v0::executor::current_$|"
                         r"manyworlds::v0::detail::type_identity_of<.*>::here$")
    failed = [name for name in names if not allowed.match(name)]
    for name in failed:
        print(f"exported: {name}")
    if "typeinfo for manyworlds::v0::world_error" not in names:
        failed.append("world_error")
        print("world_error is hidden: what a plugin throws is not caught outside of it")
    output.mkdir(exist_ok=True)
    for name in "one", "other":
        copy = output / f"{name}.so"
        shutil.copy(plugin, copy)
        answer = ctypes.CDLL(str(copy)).sum_of_a_world()
        if answer != 3:
            failed.append(name)
            print(f"{copy} answered {answer}")
    return 1 if failed else 0


sys.exit(main())
