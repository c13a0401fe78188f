"""The GPU part compiles without warnings against the headers of the oldest CUDA that is
supported, of the newest, and of two between: cuda_headers.py OUTPUT COMPILER...

The headers are taken from the wheels on PyPI, once for each OUTPUT. What cannot be fetched is
skipped, by name; the NCCL header is the machine's."""

import concurrent.futures
import pathlib
import shutil
import subprocess
import sys
import zipfile

root = pathlib.Path(__file__).resolve().parents[2]
skipped = 77
patience = 300

# The runtime's headers, and those of the compiler that they include.
releases = {
    "12.4": ["nvidia-cuda-runtime-cu12==12.4.127", "nvidia-cuda-nvcc-cu12==12.4.131"],
    "12.9": ["nvidia-cuda-runtime-cu12==12.9.79", "nvidia-cuda-nvcc-cu12==12.9.86"],
    "13.0": ["nvidia-cuda-runtime==13.0.96", "nvidia-cuda-crt==13.0.88"],
    "newest 13": ["nvidia-cuda-runtime>=13.2,<14", "nvidia-cuda-crt>=13.2,<14"],
}
warnings = "-Wall -Wextra -Wconversion -Werror".split()


class Absent(Exception):
    pass


def fetch(folder, packages):
    """Leaves their headers in FOLDER. What is named without an exact version is asked anew."""
    if folder.exists() and all("==" in p for p in packages):
        return
    wheels = folder.with_suffix(".wheels")
    shutil.rmtree(wheels, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(wheels), *packages]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        raise Absent(f"pip did not end within {patience} s")
    if ran.returncode:
        raise Absent((ran.stderr.strip().splitlines() or ["pip failed"])[-1])
    unpacked = folder.with_suffix(".new")
    shutil.rmtree(unpacked, ignore_errors=True)
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(unpacked, [n for n in file.namelist() if "/include/" in n])
    shutil.rmtree(wheels)
    shutil.rmtree(folder, ignore_errors=True)
    unpacked.rename(folder)


def nccl_header(compiler):
    """Where the machine's is."""
    ran = subprocess.run(
        [*compiler, "-M", "-x", "c++", "-"],
        input="#include <nccl.h>\n", capture_output=True, text=True, check=True,
    )
    return next(path for path in ran.stdout.split() if path.endswith("/nccl.h"))


def compile_against(folder, output, compiler, nccl):
    """What the compiler said; empty if it compiled."""
    unit = output / (folder.name + ".cpp")
    sources = sorted((root / "src/nccl").glob("*.cpp"))
    sources.append(root / "benchmarks/device/by_hand.cpp")
    unit.write_text("".join(f'#include "{each}"\n' for each in sources))
    headers = [nccl, *(str(each) for each in folder.glob("nvidia/*/include"))]
    command = [*compiler, "-std=c++20", *warnings, "-fsyntax-only"]
    # Compiled together, a source is a header to g++; see also meson.build.
    if "clang" not in subprocess.run(
        [*compiler, "--version"], capture_output=True, text=True
    ).stdout:
        command += ["-Wno-subobject-linkage", "-Wno-restrict", "-Wno-stringop-overflow"]
    command += [f"-I{root / 'include'}", f"-I{root / 'src'}", "-DMANYWORLDS_HAS_NCCL=1"]
    # Before those of the machine; behind the compiler's name, which may be two words (ccache).
    first_option = next(i for i, word in enumerate(command) if word.startswith("-"))
    command[first_option:first_option] = [a for each in headers for a in ("-isystem", each)]
    version = "".join(
        line.split()[-1]
        for header in folder.glob("nvidia/*/include/cuda_runtime_api.h")
        for line in header.read_text().splitlines()
        if line.startswith("#define CUDART_VERSION")
    )
    # Fails if another is found before it.
    command.append(f"-DMANYWORLDS_EXPECTED={version}")
    with unit.open("a") as file:
        file.write("static_assert(CUDART_VERSION == MANYWORLDS_EXPECTED);\n")
    return subprocess.run([*command, str(unit)], capture_output=True, text=True).stderr


def main():
    output = pathlib.Path(sys.argv[1])
    compiler = sys.argv[2:]
    output.mkdir(parents=True, exist_ok=True)
    # Its folder may have the machine's CUDA too.
    nccl = output / "nccl"
    nccl.mkdir(exist_ok=True)
    shutil.copy(nccl_header(compiler), nccl)

    def check(release):
        folder = output / release.replace(" ", "-").replace(".", "_")
        try:
            fetch(folder, releases[release])
        except Absent as why:
            return "skipped", f"its headers cannot be fetched: {why}"
        said = compile_against(folder, output, compiler, str(nccl))
        return ("failed", said) if said else ("passed", "")

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        outcomes = dict(zip(releases, pool.map(check, releases)))
    for release, (outcome, why) in outcomes.items():
        print(f"CUDA {release}: {outcome}{': ' if why else ''}{why}")
    ends = [outcome for outcome, _ in outcomes.values()]
    if "failed" in ends:
        return 1
    return skipped if "skipped" in ends else 0


sys.exit(main())
