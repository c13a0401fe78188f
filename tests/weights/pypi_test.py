#!/usr/bin/env python3
"""disco A33, A40: files that PyPI's safetensors has written are read as numpy has them, whole and by parts, and damaged
ones that it refuses are refused.

usage: pypi_test.py WEIGHT_USER

It needs a Python with safetensors and numpy: this one, or MANYWORLDS_SAFETENSORS_PYTHON (python3 -m venv DIR;
DIR/bin/pip install safetensors numpy). Without them it is skipped: weight_files_test.cpp has a file of theirs.
"""
import os
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../process"))
from watched_program import PROGRAM, claim, failures  # noqa: E402

PYTHON = shlex.split(os.environ.get("MANYWORLDS_SAFETENSORS_PYTHON", sys.executable))
# Writes a file, a folder with an index, and damaged files, and says what is to be found in them.
PEER = r"""
import json, os, pathlib, sys, zlib
import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import load, save, save_file
folder = pathlib.Path(sys.argv[1])
random = np.random.default_rng(20)
kinds = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8,
         "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8, "BOOL": np.bool_}
shapes = [(), (0,), (6,), (6, 4), (3, 0, 2), (2, 6, 3), (12, 5)]
tensors = {f"{kind}.{i}": random.integers(0, 2, shape).astype(kinds[kind]) for kind in kinds for i, shape in enumerate(shapes)}
tensors["rows"] = random.standard_normal((1536, 1024)).astype(np.float32)
kind_of = {np.dtype(kind): name for name, kind in kinds.items()}

def crc(part):
    return zlib.crc32(np.ascontiguousarray(part).tobytes())

def lines(of):
    for name in sorted(of):
        a = of[name]
        yield f"{name} is {kind_of[a.dtype]} [{', '.join(map(str, a.shape))}]"
        yield f"{name} whole {crc(a)}"
        for d in range(a.ndim):
            for parts in (2, 3):
                if a.shape[d] % parts == 0:
                    for part, piece in enumerate(np.split(a, parts, axis=d)):
                        yield f"{name} {d}:{part}/{parts} {crc(piece)}"

save_file(tensors, folder / "whole.safetensors", metadata={"made by": "safetensors"})
(folder / "sharded").mkdir()
names = sorted(tensors)
index = {}
for n in range(3):
    file = f"model-{n + 1:05}-of-00003.safetensors"
    mine = {name: tensors[name] for name in names[n::3]}
    save_file(mine, folder / "sharded" / file)
    index |= dict.fromkeys(mine, file)
(folder / "sharded/model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": index}))
(folder / "expected").write_text("".join(line + "\n" for line in lines(tensors)))
small = save({"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(4, np.uint8)})
damaged = {"cut": small[:-1], "longer": small + b"\0", "length": b"\xff" + small[1:], "offsets": small.replace(b"[0,24]", b"[0,20]"),
           "shape": small.replace(b"[2,3]", b"[2,4]"), "kind": small.replace(b'"F32"', b'"F99"'), "json": small.replace(b"{", b"[", 1),
           "tiny": small[:5], "header": small[:20]}
for name, content in damaged.items():
    try:
        deserialize(content)
        sys.exit(f"{name} is no damaged file to it")
    except SafetensorError:
        (folder / f"damaged-{name}").write_bytes(content)
(folder / "fine").write_bytes(small)
"""


def read(path):
    done = subprocess.run([PROGRAM, path], stdout=subprocess.PIPE, text=True, timeout=120, check=False)
    return done.returncode, done.stdout


if subprocess.run([*PYTHON, "-c", "import numpy, safetensors"], stderr=subprocess.DEVNULL, check=False).returncode:
    print(f"skipped: {shlex.join(PYTHON)} has no safetensors and numpy (pip install safetensors numpy)")
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    subprocess.run([*PYTHON, "-c", PEER, folder], check=True, timeout=120)
    with open(os.path.join(folder, "expected")) as file:
        expected = file.read()
    for path, what in (("whole.safetensors", "one file"), ("sharded", "three files with an index")):
        code, out = read(os.path.join(folder, path))
        wrong = [line for line in zip(expected.splitlines(), out.splitlines()) if line[0] != line[1]]
        claim(f"disco A33: {len(expected.splitlines())} tensors and parts of {what} are as numpy has them",
              code == 0 and out == expected, wrong[:3])
    claim("an undamaged file is read", read(os.path.join(folder, "fine"))[0] == 0)
    for name in sorted(os.listdir(folder)):
        if name.startswith("damaged-"):
            code, out = read(os.path.join(folder, name))
            claim(f"disco A40: {name} is refused by name, as PyPI's safetensors refuses it",
                  code == 1 and out.startswith(f"error: {os.path.join(folder, name)}: "), out.strip())
sys.exit(bool(failures))
