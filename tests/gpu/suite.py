"""What run.sh runs once everything is built: tests case by case, then benchmarks, a short table last.

Every part has its own limit, and none lasts beyond the whole's. Writes into the results' folder:
suite.json (the machine's facts, parts and cases), benchmarks.json (mwdevice's rows, one object a
line), README.md (both as tables), log.txt."""

import argparse
import concurrent.futures
import json
import os
import signal
import sys
import tempfile
import threading
import time

import cases
import facts
import page
import processes

# Of the conformance of NCCL, as tests/machines has it: what hangs is said to hang on its stream, and a
# first collective that connects its ranks would hang in the caller.
CONFORMANCE = {"NCCL_RUNTIME_CONNECT": "0"}

# Seconds that a case has, with the start and the end of its process, where each has its own; and
# those in which the machine tells what it is.
CASE_SECONDS = 25
FACTS_SECONDS = 15

# NCCL among ranks that share a GPU, each a host of its own by NCCL_HOSTID: sockets over loopback,
# few and small channels, no kernel that a spinning one could keep from being loaded.
SHARED_GPU = {
    "NCCL_NET": "Socket",
    "NCCL_IB_DISABLE": "1",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_ALGO": "Ring",
    "NCCL_PROTO": "Simple",
    "NCCL_MAX_NCHANNELS": "2",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_RAS_ENABLE": "0",
    "NCCL_BUFFSIZE": "1048576",
    "NCCL_LAUNCH_RACE_FATAL": "1",
    "CUDA_MODULE_LOADING": "EAGER",
}


def tests(part, quick):
    """Name, program, seconds, arguments."""
    worlds = "tests/nccl/gpu_worlds_test"
    first = "*is ready after*,*what its device is*,*opposite orders*,law 2*"
    conformance = "tests/conformance/conformance_"
    if part == 1:
        return [
            ("conformance cuda", conformance + "cuda_test", 120, []),
            ("worlds, first", worlds, 150, ["-tc=" + first]),
            ("device memory", "tests/nccl_test", 180, []),
        ]
    if part == 2:
        return [
            ("worlds, all others", worlds, 240, ["-tce=" + first]),
            ("conformance nccl", conformance + "nccl_test", 215, []),
        ]
    if part == 3:
        return []
    if quick:
        return [("worlds", worlds, 80, ["-tc=law*,*opposite orders*,sixty-four*,sessions*"])]
    return [
        ("worlds", worlds, 180, []),
        ("conformance nccl", "tests/conformance/conformance_nccl_test", 180, []),
        ("conformance cuda", "tests/conformance/conformance_cuda_test", 60, []),
        ("device memory", "tests/nccl_test", 60, []),
    ]


def benchmarks(emulated, quick):
    """Name, seconds, arguments of mwdevice."""
    small = {"rounds": "1", "few": "10", "pings": "5", "messages": "2", "repeat": "2", "seconds": "0.5",
             "stops": "1", "sizes": "1K,64K", "worlds": "8" if quick else "64",
             "crowds": "1,4" if quick else "1,2,4,8,16"}
    real = {"rounds": "5", "few": "20", "pings": "20", "messages": "4", "repeat": "6", "seconds": "2",
            "stops": "2", "sizes": "1K,16K,128K,1M", "worlds": "64", "crowds": "1,2,4,8,16,32"}
    n = small if emulated else real
    many = "20" if emulated else "300"
    return [
        ("await", 45, ["await", "--sizes", n["sizes"], "--rounds", n["rounds"], "--operations", many]),
        ("await of two", 40, ["await", "--ranks", "2", "--sizes", "1K,128K", "--rounds", "1",
                              "--operations", n["few"]]),
        ("matched", 40, ["matched", "--sizes", "1K,1M", "--pings", n["pings"],
                         "--messages", n["messages"]]),
        ("create", 50, ["create", "--repeat", n["repeat"], "--seconds", n["seconds"]]),
        ("create of two", 50, ["create", "--ranks", "2", "--repeat", n["repeat"], "--seconds",
                               n["seconds"]]),
        ("worlds", 35, ["worlds", "--worlds", n["worlds"], "--seconds", n["seconds"]]),
        ("order", 55, ["order", "--worlds", n["crowds"], "--rounds", many]),
        ("kill", 45, ["kill", "--repeat", n["repeat"]]),
        ("kill in cudaFree", 45, ["kill", "--frees", "--repeat", n["repeat"]]),
        ("stop", 40, ["kill", "--fault", "stop", "--repeat", n["stops"]]),
    ]


def rows_of(output):
    """mwdevice's, of which the last may be cut short where it was ended."""
    rows = []
    for line in output.splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


class Suite:
    def __init__(self, options):
        self.options = options
        self.began = time.monotonic()
        self.parts, self.rows, self.facts = [], [], {}
        self.log = open(os.path.join(options.results, "log.txt"), "w")
        self.lock = threading.Lock()
        self.environment = os.environ | SHARED_GPU
        path = [options.libraries, os.environ.get("LD_LIBRARY_PATH", "")]
        self.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, path))
        self.environment["MANYWORLDS_TEST_HAS_DEVICE"] = "1"
        if options.emulated:
            # Ranks share a GPU here as they do on a machine with one.
            self.environment["EMULATED_CUDA_DEVICES"] = "1"

    def left(self):
        return self.options.seconds - (time.monotonic() - self.began)

    def say(self, text):
        print(f"[{time.monotonic() - self.began:3.0f} s] {text}", flush=True)

    def program(self, path):
        return os.path.join(self.options.build, path)

    def look(self):
        self.facts = facts.of(self.environment, min(FACTS_SECONDS, self.left()))
        for line in page.short(self.facts):
            self.say(line)
        self.write()

    def tell(self, name, began, limit, told):
        count = {kind: sum(case["result"] == kind for case in told) for kind in page.RESULTS}
        part = {"part": name, **count, "seconds": round(time.monotonic() - began, 1),
                "limit": limit, "cases": told}
        self.parts.append(part)
        # After each part: the machine may be taken away before the next ends.
        self.write()
        bad = count["failed"] + count["hung"] + count["crashed"]
        self.say(f"{name}: {count['passed']} passed, {count['skipped']} skipped, {bad} failed")
        for case in told:
            if case["result"] not in ("passed", "skipped"):
                print(f"        {case['result']}: {case['name']} {case['why']}", flush=True)

    def test(self, name, program, seconds, arguments):
        self.say(f"{name} ...")
        began = time.monotonic()
        # On a GPU each process takes seconds to load NCCL's kernels.
        case_seconds = 30 if self.options.emulated else 90
        command = [self.program(program), *arguments]
        environment = self.environment | (CONFORMANCE if "conformance" in program else {})
        with tempfile.TemporaryFile("w+") as log:
            if self.options.part:
                # Six ranks' processes start at the same time, on 16 cores.
                told = cases.run_each(command, environment, CASE_SECONDS,
                                      min(seconds, self.left()), log,
                                      2 if self.options.emulated else 6)
            else:
                told = cases.run(command, environment, case_seconds,
                                 min(seconds, self.left()), log)
            log.seek(0)
            with self.lock:
                self.log.write(log.read())
                self.tell(name, began, seconds, told)

    def benchmark(self, name, limit, arguments):
        self.say(f"mwdevice {' '.join(arguments)} ...")
        began = time.monotonic()
        # It ends itself and its processes; the other limit is for one that cannot.
        seconds = int(min(limit, self.left())) - 5
        command = [self.program("benchmarks/device/mwdevice"), "--json", *arguments, "--limit",
                   str(seconds)]
        result, why = "failed", "no time was left"
        if seconds > 0:
            with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
                process = processes.start(command, stdout=out, stderr=errors, env=self.environment)
                status = processes.status_of(process, seconds + 3)
                for file in (out, errors):
                    file.seek(0)
                said, wrong = out.read(), errors.read()
            self.log.write(said + wrong)
            self.log.flush()
            rows = rows_of(said)
            self.rows += rows
            if status == 0 and len(rows) > 1:
                result, why = "passed", ""
            elif status is None:
                result, why = "hung", wrong.strip()[-300:]
            else:
                why = f"status {status}: {wrong.strip()[-300:]}"
        self.tell(name, began, limit, [{"name": name, "result": result, "why": why,
                                        "seconds": round(time.monotonic() - began, 2)}])

    def run(self):
        self.look()
        # Most of a test's time on a GPU is its processes' start, on the CPU.
        beside = 1 if self.options.emulated or self.options.part else 2
        with concurrent.futures.ThreadPoolExecutor(beside) as pool:
            for done in [pool.submit(self.test, *test)
                         for test in tests(self.options.part, self.options.quick)]:
                done.result()
        if self.options.part in (None, 3):
            for benchmark in benchmarks(self.options.emulated, self.options.quick):
                self.benchmark(*benchmark)
        self.write()
        self.table(self.machine())
        return all(part[kind] == 0 for part in self.parts for kind in ("failed", "hung", "crashed"))

    def machine(self):
        return next((row for row in self.rows if row["bench"] == "machine"), {})

    def write(self):
        machine = self.machine()
        summary = {"facts": self.facts, "machine": machine, "part": self.options.part,
                   "seconds": round(time.monotonic() - self.began, 1),
                   "limit": round(self.options.seconds, 1), "case_limit": CASE_SECONDS,
                   "emulated": self.options.emulated, "parts": self.parts}
        with open(os.path.join(self.options.results, "suite.json"), "w") as file:
            json.dump(summary, file, indent=1)
        with open(os.path.join(self.options.results, "benchmarks.json"), "w") as file:
            # The machine once, since it is the same.
            told = [machine] + [row for row in self.rows if row["bench"] != "machine"]
            file.writelines(json.dumps(row) + "\n" for row in told if row)
        with open(os.path.join(self.options.results, "README.md"), "w") as file:
            file.writelines(line + "\n" for line in page.page(summary, self.rows))

    def table(self, machine):
        for bench, columns in page.FIGURES.items():
            rows = [row for row in self.rows if row["bench"] == bench]
            if rows:
                print(f"\n{bench:<8}" + "".join(f"  {column:>10}" for column in columns))
            for row in rows:
                print(" " * 8 + "".join(f"  {row.get(column)!s:>{max(10, len(column))}}"
                                        for column in columns))
        print(f"\n{'part':<18}" + "".join(f"{kind:>8}" for kind in page.RESULTS) + f"{'seconds':>9}")
        for part in self.parts:
            print(f"{part['part']:<18}" + "".join(f"{part[kind]:>8}" for kind in page.RESULTS) +
                  f"{part['seconds']:>9}")
        if "note" in machine:
            print(machine["note"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--results", required=True)
    parser.add_argument("--libraries", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--emulated", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", type=int, choices=(1, 2, 3))
    # What has been written stays; what runs must not outlive this.
    signal.signal(signal.SIGTERM, lambda *_: (processes.kill_all(), os._exit(1)))
    sys.exit(0 if Suite(parser.parse_args()).run() else 1)


if __name__ == "__main__":
    main()
