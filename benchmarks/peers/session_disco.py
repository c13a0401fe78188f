"""Disco, of Apache TVM: what `mwbench session` asks, of a session of threads. See README.md.

    session_disco.py WORKERS,... COUNT

One JSON object a number of workers. The functions that it calls are C++ of the library: no worker waits for the
interpreter's lock."""

import ctypes
import glob
import json
import os
import statistics
import sys
import time

TOGETHER = 32


def load_library():
    """0.27's package does not load by itself the library that has Disco's functions."""
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    for name in ("libtvm_ffi.so", "libtvm_runtime.so", "libtvm_runtime_extra.so"):
        for path in glob.glob(os.path.join(packages, "*", "lib", name)):
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


def times_of(count, each):
    """Microseconds of each."""
    times = []
    for i in range(count):
        begin = time.perf_counter_ns()
        each(i)
        times.append((time.perf_counter_ns() - begin) / 1e3)
    return times


def measure(session, count):
    issued = []
    give_back = session.get_global_func("testing.echo")

    def value(i):
        if session.call_packed(give_back, i).debug_get_from_remote(0) != i:
            raise SystemExit("another value came back")

    def issue(_):
        begin = time.perf_counter_ns()
        for i in range(TOGETHER):
            session.call_packed(give_back, i)
        issued.append((time.perf_counter_ns() - begin) / 1e3 / TOGETHER)
        session.sync_worker_0()

    times_of(50, value)
    values = times_of(count, value)
    syncs = times_of(count, lambda _: session.sync_worker_0())
    times_of(count // TOGETHER, issue)
    return {"value_us": statistics.median(values), "sync_us": statistics.median(syncs),
            "issue_us": statistics.median(issued)}


def main():
    load_library()
    from tvm.runtime import disco
    count = int(sys.argv[2])
    for workers in map(int, sys.argv[1].split(",")):
        session = disco.ThreadedSession(num_workers=workers)
        print(json.dumps({"size": workers, **measure(session, count)}), flush=True)
        session.shutdown()


main()
