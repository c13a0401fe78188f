"""What `mwbench session` asks, of libraries for Python. See README.md.

    session_python.py {disco | gloo | ray} WORKERS,... COUNT

One JSON object a number of workers."""

import ctypes
import glob
import json
import os
import socket
import statistics
import subprocess
import sys
import time

TOGETHER = 32


def times_of(count, each):
    """Microseconds of each."""
    times = []
    for i in range(count):
        begin = time.perf_counter_ns()
        each(i)
        times.append((time.perf_counter_ns() - begin) / 1e3)
    return times


def check(got, wanted):
    if got != wanted:
        raise SystemExit("another value came back")


# --- Disco, of Apache TVM: threads, which call a C++ function of the library ------------------------


def load_tvm():
    """0.27's package does not load by itself the library that has Disco's functions."""
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    for name in ("libtvm_ffi.so", "libtvm_runtime.so", "libtvm_runtime_extra.so"):
        for path in glob.glob(os.path.join(packages, "*", "lib", name)):
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


def ask_disco(workers, count):
    load_tvm()
    from tvm.runtime import disco
    session = disco.ThreadedSession(num_workers=workers)
    give_back = session.get_global_func("testing.echo")
    issued = []

    def value(i):
        check(session.call_packed(give_back, i).debug_get_from_remote(0), i)

    def issue():
        begin = time.perf_counter_ns()
        for i in range(TOGETHER):
            session.call_packed(give_back, i)
        issued.append((time.perf_counter_ns() - begin) / 1e3 / TOGETHER)
        session.sync_worker_0()

    times_of(50, value)
    values = times_of(count, value)
    syncs = times_of(count, lambda _: session.sync_worker_0())
    for _ in range(count // TOGETHER):
        issue()
    session.shutdown()
    return {"value_us": statistics.median(values), "sync_us": statistics.median(syncs),
            "issue_us": statistics.median(issued)}


# --- Gloo, of torch.distributed: an object to all, and one of each ----------------------------------


def exchange(distributed, rank, size, number, more):
    asked = [(number, more)] if rank == 0 else [None]
    distributed.broadcast_object_list(asked, src=0)
    told = [None] * size if rank == 0 else None
    distributed.gather_object(asked[0][0] + rank, told, dst=0)
    if rank == 0:
        check(told, [number + each for each in range(size)])


def ask_gloo_as(rank, size, port, count):
    import torch.distributed as distributed
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    large = bytes(64 << 10)
    small = times_of(count, lambda i: exchange(distributed, rank, size, i, b""))
    whole = times_of(max(1, count // 10), lambda i: exchange(distributed, rank, size, i, large))
    distributed.destroy_process_group()
    return {"call_us": statistics.median(small), "call_64k_us": statistics.median(whole)}


def ask_gloo(workers, count):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    others = [subprocess.Popen([sys.executable, __file__, "gloo-worker", str(rank), str(workers + 1), str(port),
                                str(count)], stdout=subprocess.DEVNULL) for rank in range(1, workers + 1)]
    try:
        return ask_gloo_as(0, workers + 1, port, count)
    finally:
        for one in others:
            one.wait()


# --- Ray: an actor a worker ------------------------------------------------------------------------


def ask_ray(workers, count):
    import ray
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, configure_logging=False)

    @ray.remote
    class Worker:
        def give_back(self, x, _more=b""):
            return x

    all_of_them = [Worker.remote() for _ in range(workers)]
    large = bytes(64 << 10)
    issued = []

    def call(i, more=b""):
        check(ray.get([one.give_back.remote(i, more) for one in all_of_them]), [i] * workers)

    def issue():
        begin = time.perf_counter_ns()
        waiting = [one.give_back.remote(i) for i in range(TOGETHER) for one in all_of_them]
        issued.append((time.perf_counter_ns() - begin) / 1e3 / TOGETHER)
        ray.get(waiting)

    times_of(20, call)
    calls = times_of(count // 10, call)
    values = times_of(count // 10, lambda i: check(ray.get(all_of_them[0].give_back.remote(i)), i))
    whole = times_of(max(1, count // 50), lambda i: call(i, large))
    for _ in range(max(1, count // TOGETHER // 10)):
        issue()
    ray.shutdown()
    return {"call_us": statistics.median(calls), "value_us": statistics.median(values),
            "call_64k_us": statistics.median(whole), "issue_us": statistics.median(issued)}


def main():
    if sys.argv[1] == "gloo-worker":
        ask_gloo_as(*map(int, sys.argv[2:]))
        return
    ask = {"disco": ask_disco, "gloo": ask_gloo, "ray": ask_ray}[sys.argv[1]]
    for workers in map(int, sys.argv[2].split(",")):
        print(json.dumps({"size": workers, **ask(workers, int(sys.argv[3]))}), flush=True)


main()
