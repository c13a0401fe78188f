"""Runs PROGRAM on NVIDIA's own libcudart and libnccl, where there is no driver:
real_libraries.py PROGRAM FOLDER [PLACE...]

They are those of the first PLACE that has both; else the wheels of PyPI (250 MB, into FOLDER, once),
where MANYWORLDS_TEST_FETCH is set. What is missing is skipped by name."""

import ctypes
import os
import pathlib
import subprocess
import sys
import zipfile

wheels = ["nvidia-cuda-runtime==13.0.96", "nvidia-nccl-cu13==2.28.9"]
names = ["libcudart.so.13", "libnccl.so.2"]
patience = 400


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def fetched(folder):
    if all((folder / name).exists() for name in names):
        return folder
    if not os.environ.get("MANYWORLDS_TEST_FETCH"):
        skip("no CUDA 13 and NCCL here; MANYWORLDS_TEST_FETCH=1 fetches them from PyPI")
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(folder), *wheels]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        skip(f"pip did not end within {patience} s")
    if ran.returncode:
        skip((ran.stderr.strip().splitlines() or ["pip failed"])[-1])
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as file:
            for each in file.namelist():
                if pathlib.PurePath(each).name in names:
                    (folder / pathlib.PurePath(each).name).write_bytes(file.read(each))
        wheel.unlink()
    return folder


def main():
    program, folder, *places = sys.argv[1:]
    try:
        ctypes.CDLL("libcuda.so.1")
        skip("a driver is here")
    except OSError:
        pass
    found = next(
        (p for p in map(pathlib.Path, places) if all((p / name).exists() for name in names)),
        None,
    )
    libraries = found or fetched(pathlib.Path(folder))
    environment = dict(os.environ, LD_LIBRARY_PATH=str(libraries))
    sys.exit(subprocess.run([program], env=environment, timeout=60).returncode)


main()
