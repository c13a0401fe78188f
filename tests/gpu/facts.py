"""Tells what the machine is: python3 facts.py

Prints one JSON object a line, each with one fact, as soon as it is known: where the driver hangs or
crashes, what was said before remains. A fact that cannot be had is a text that begins with "unknown"
and says why. CUDA and NCCL are those that LD_LIBRARY_PATH leads to. `of` runs it within a limit."""

import contextlib
import ctypes
import datetime
import functools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile

import processes

# What CUDA, NCCL and the tests read. Not what may be a secret.
PREFIXES = ("CUDA_", "NCCL_", "NVIDIA_", "EMULATED_", "MANYWORLDS_", "LD_LIBRARY_PATH", "OMP_")
SECRETS = ("KEY", "SECRET", "TOKEN", "PASSW", "CREDENTIAL")
# Told although they are not set.
ALWAYS = ("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MODULE_LOADING", "CUDA_VISIBLE_DEVICES",
          "CUDA_MPS_PIPE_DIRECTORY", "CUDA_LAUNCH_BLOCKING")

# cudaDeviceAttr: its numbers never change.
ATTRIBUTES = {
    "multiprocessors": 16,
    "compute_mode": 20,
    "ecc": 32,
    "l2_bytes": 38,
    "copy_engines": 40,
    "memory_pools": 115,
    "clusters": 120,
    "mps": 133,
}
# The first fields of cudaDeviceProp: the name, and totalGlobalMem. The whole is below 2 KiB.
NAME_BYTES = 256
MEMORY_OFFSET = 288
PROPERTIES_BYTES = 16384

SMI_FIELDS = ("index", "name", "driver_version", "memory.total", "memory.used", "pci.bus_id",
              "mig.mode.current", "compute_mode", "persistence_mode", "clocks.max.sm", "power.limit")


class Unknown(Exception):
    pass


def refuse(why):
    raise Unknown(why)


def first_line(path):
    with open(path) as file:
        return file.readline().strip()


def line_with(path, begin, separator=":"):
    with open(path) as file:
        for line in file:
            if line.startswith(begin):
                return line.split(separator, 1)[1].strip()
    raise Unknown(f"{path} has no {begin}")


def limit_of_group(*paths):
    for path in paths:
        if os.path.exists(path):
            return first_line(path)
    raise Unknown("no control group is shown")


def host():
    yield "time", lambda: datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    yield "kernel", lambda: " ".join(platform.uname()[index] for index in (0, 2, 4))
    yield "system", lambda: line_with("/etc/os-release", "PRETTY_NAME", "=").strip('"')
    yield "libc", lambda: os.confstr("CS_GNU_LIBC_VERSION")
    yield "python", platform.python_version
    yield "processor", lambda: line_with("/proc/cpuinfo", "model name")
    yield "cpus", os.cpu_count
    yield "usable_cpus", lambda: len(os.sched_getaffinity(0))
    yield "cpu_limit", lambda: limit_of_group("/sys/fs/cgroup/cpu.max",
                                              "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
    yield "load", lambda: first_line("/proc/loadavg")
    yield "memory", lambda: line_with("/proc/meminfo", "MemTotal")
    yield "memory_limit", lambda: limit_of_group("/sys/fs/cgroup/memory.max",
                                                 "/sys/fs/cgroup/memory/memory.limit_in_bytes")
    yield "shared_memory", lambda: room_in("/dev/shm")
    yield "descriptors", descriptors
    yield "environment", environment


def room_in(folder):
    found = os.statvfs(folder)
    return f"{found.f_bavail * found.f_frsize >> 20} MiB free"


def descriptors():
    import resource
    return " of ".join(map(str, resource.getrlimit(resource.RLIMIT_NOFILE)))


def environment():
    told = {name: "unset" for name in ALWAYS}
    told |= {name: value for name, value in os.environ.items()
             if name.startswith(PREFIXES) and not any(word in name for word in SECRETS)}
    return dict(sorted(told.items()))


@functools.cache
def answer_of(*command):
    """What it prints, and why it is of no use. Asked once: one that hangs costs its time once."""
    program = shutil.which(command[0])
    if not program:
        return "", f"there is no {command[0]}"
    try:
        ran = subprocess.run([program, *command[1:]], capture_output=True, text=True, timeout=4)
    except subprocess.TimeoutExpired:
        return "", f"{command[0]} had not ended after 4 s"
    if ran.returncode == 0:
        return ran.stdout.rstrip(), ""
    said = (ran.stderr.strip() or ran.stdout.strip()).splitlines()
    return "", f"{command[0]} ended with status {ran.returncode}{': ' + said[0] if said else ''}"


def run(*command):
    said, why = answer_of(*command)
    if why:
        raise Unknown(why)
    return said


def of_smi():
    asked = run("nvidia-smi", "--query-gpu=" + ",".join(SMI_FIELDS), "--format=csv,noheader")
    return [dict(zip(SMI_FIELDS, (cell.strip() for cell in line.split(","))))
            for line in asked.splitlines()]


def driver():
    """As nvidia-smi shows it; CUDA knows only which CUDA a driver is for."""
    try:
        return of_smi()[0]["driver_version"]
    except Unknown as why:
        told = "/proc/driver/nvidia/version"
        return first_line(told) if os.path.exists(told) else refuse(f"{why}, nor {told}")


def mig():
    modes = {gpu["mig.mode.current"] for gpu in of_smi()}
    parts = sum(" MIG " in line for line in run("nvidia-smi", "-L").splitlines())
    return ", ".join(sorted(modes)) + (f", {parts} parts" if parts else "")


def mps():
    """The control daemon or a server, or the pipe through which one is asked."""
    seen = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            name = first_line(f"/proc/{process}/comm")
        except OSError:
            continue
        if name.startswith("nvidia-cuda-mps"):
            seen.append(name)
    pipe = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    if os.path.exists(os.path.join(pipe, "control")):
        seen.append(pipe)
    return ", ".join(sorted(set(seen))) or "not seen"


def from_tools():
    yield "driver", driver
    yield "nvidia_smi", of_smi
    yield "mig", mig
    yield "mps", mps
    yield "topology", lambda: run("nvidia-smi", "topo", "-m").splitlines()


def path_of(library):
    """Where what is loaded lies."""
    with open("/proc/self/maps") as file:
        for line in file:
            if library in line:
                return line.split()[-1]
    raise Unknown("nothing of this name is loaded")


def opened(*names):
    reasons = []
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            reasons.append(str(error))
    raise Unknown(reasons[0])


def version_text(number):
    if number == 0:
        raise Unknown("there is none")
    return f"{number // 1000}.{number % 1000 // 10}"


class Cuda:
    """The runtime, by its C interface."""

    def __init__(self):
        self.library = opened("libcudart.so.13", "libcudart.so.12", "libcudart.so")

    def call(self, name, *arguments):
        try:
            function = getattr(self.library, name)
        except AttributeError:
            raise Unknown(f"the runtime has no {name}") from None
        error = function(*arguments)
        if error == 0:
            return
        text = f"error {error}"
        name_of = getattr(self.library, "cudaGetErrorName", None)
        if name_of:
            name_of.restype = ctypes.c_char_p
            text = name_of(error).decode()
        raise Unknown(f"{name}: {text}")

    def number(self, name, *arguments):
        value = ctypes.c_int()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    def count(self):
        return self.number("cudaGetDeviceCount")

    def attribute(self, which, ordinal):
        return self.number("cudaDeviceGetAttribute", which, ordinal)

    def properties(self, ordinal):
        space = ctypes.create_string_buffer(PROPERTIES_BYTES)
        # The name that the header of CUDA 12 gives it, then that of 13.
        name = ("cudaGetDeviceProperties_v2" if hasattr(self.library, "cudaGetDeviceProperties_v2")
                else "cudaGetDeviceProperties")
        self.call(name, space, ordinal)
        memory = int.from_bytes(space.raw[MEMORY_OFFSET:MEMORY_OFFSET + 8], "little")
        return space.raw[:NAME_BYTES].split(b"\0")[0].decode(errors="replace"), memory

    def bus(self, ordinal):
        text = ctypes.create_string_buffer(64)
        self.call("cudaDeviceGetPCIBusId", text, len(text), ordinal)
        return text.value.decode()

    def gpu(self, ordinal):
        told = {
            "name": attempt(lambda: self.properties(ordinal)[0]),
            "memory_mib": attempt(lambda: self.properties(ordinal)[1] >> 20),
            "compute_capability": attempt(
                lambda: f"{self.attribute(75, ordinal)}.{self.attribute(76, ordinal)}"),
            "bus": attempt(lambda: self.bus(ordinal)),
        }
        return told | {name: attempt(lambda: self.attribute(which, ordinal))
                       for name, which in ATTRIBUTES.items()}

    def reaches(self, one, other):
        # The device itself is no peer.
        return 1 if one == other else self.number("cudaDeviceCanAccessPeer", one, other)


def from_libraries():
    try:
        cuda = Cuda()
    except Unknown as none:
        why = str(none)
        yield "cuda_runtime", lambda: refuse(why)
    else:
        yield "cuda_runtime", lambda: version_text(cuda.number("cudaRuntimeGetVersion"))
        yield "cuda_runtime_file", lambda: path_of("libcudart")
        yield "emulated", lambda: hasattr(cuda.library, "cudaEmulatedEnqueue")
        yield "cuda_driver", lambda: version_text(cuda.number("cudaDriverGetVersion"))
        yield "gpu_count", cuda.count
        yield "gpus", lambda: [cuda.gpu(ordinal) for ordinal in range(cuda.count())]
        yield "peer_access", lambda: [
            [attempt(lambda: cuda.reaches(one, other)) for other in range(cuda.count())]
            for one in range(cuda.count())]
    yield "nccl", nccl
    yield "nccl_file", lambda: path_of("libnccl")


def nccl():
    number = ctypes.c_int()
    result = opened("libnccl.so.2").ncclGetVersion(ctypes.byref(number))
    if result != 0:
        raise Unknown(f"ncclGetVersion: error {result}")
    value = number.value
    return f"{value // 10000}.{value // 100 % 100}.{value % 100}"


def attempt(question):
    try:
        return question()
    except Exception as error:  # Whatever it is, it is one fact less.
        return f"unknown: {error or type(error).__name__}"


def of(environment, seconds):
    """The facts as a dictionary, from a process that is killed when it takes too long."""
    told, why = {}, ""
    with tempfile.TemporaryFile("w+") as said:
        process = processes.start([sys.executable, os.path.abspath(__file__)], env=environment,
                                  stdout=said, stderr=subprocess.DEVNULL)
        status = processes.status_of(process, seconds)
        if status != 0:
            why = (f"it had not ended after {seconds:g} s" if status is None else
                   f"it ended with status {status}")
        said.seek(0)
        for line in said:
            with contextlib.suppress(ValueError):
                told |= json.loads(line)
    if why:
        told["not_asked"] = f"unknown: what comes after {list(told)[-1] if told else 'the start'}: {why}"
    return told


def main():
    for group in (host(), from_tools(), from_libraries()):
        for name, question in group:
            print(json.dumps({name: attempt(question)}), flush=True)
    # Not by way of what the libraries do at the end of a process.
    os._exit(0)


if __name__ == "__main__":
    main()
