#!/usr/bin/env python3
"""PyTorch's side of the tests of the store: its own clients and servers of a TCPStore.

usage: PYTHON torch_peer.py record > transcripts/torch-VERSION.txt
       PYTHON torch_peer.py serve
       PYTHON torch_peer.py use OPERATION=PORT...

PYTHON is one that has torch; in a changed root it reads this from its standard input. `record` writes what client and
server say to each other, for transcript_test.cpp. `serve` makes a server for each operation, prints their ports, and
stays until its input ends. `use` performs operations with the servers that it is told. What the operations are stands
here and, for our client, in torch_operations.hpp.
"""
import contextlib
import datetime
import inspect
import os
import socket
import sys
import threading
import time
import traceback

import torch
from torch.distributed import TCPStore

LOCK = threading.Lock()
lines = []  # of the transcript that is being made: (connection, "<", ">" or "connects", bytes)


def pump(source, sink, name, arrow):
    with contextlib.suppress(OSError):  # as at a process's end
        while data := source.recv(65536):
            with LOCK:
                lines.append((name, arrow, data))
            sink.sendall(data)


def pass_on(door, port):
    """Connections are named by letters, in the order in which they come."""
    for letter in "abcd":
        client, _ = door.accept()
        server = socket.create_connection(("127.0.0.1", port))
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with LOCK:
            lines.append((letter, "connects", b""))
        for words in ((client, server, letter, ">"), (server, client, letter, "<")):
            threading.Thread(target=pump, args=words, daemon=True).start()


def text_of(recorded):
    together = []
    for name, arrow, data in recorded:
        if together and together[-1][:2] == (name, arrow):
            together[-1] = (name, arrow, together[-1][2] + data)
        else:
            together.append((name, arrow, data))
    for name, arrow, data in together:
        if arrow == "connects":
            yield f"{name} connects"
        for at in range(0, len(data), 16):
            part = data[at:at + 16]
            shown = "".join(chr(b) if 32 <= b < 127 else "." for b in part)
            yield f"{name}{arrow} {part.hex(' '):47}  |{shown}|"


def has_libuv_server(store):
    return getattr(store, "libuvBackend", False)


def store(port, is_master=False, world_size=None, limit=20):
    # Debian's builds have no libuv and want to be told so.
    knows_libuv = "use_libuv" in (TCPStore.__init__.__doc__ or "")
    options = {"use_libuv": False} if knows_libuv and os.environ.get("USE_LIBUV") == "0" else {}
    return TCPStore("127.0.0.1", port, world_size, is_master, datetime.timedelta(seconds=limit),
                    wait_for_workers=world_size is not None, **options)


def settle():
    """What was sent without a reply has arrived."""
    time.sleep(0.1)


def beside(call, *words):
    thread = threading.Thread(target=call, args=words, daemon=True)
    thread.start()
    settle()
    return thread


def times_out(call, *words):
    try:
        call(*words)
    except Exception:  # of another type in each version
        return
    raise AssertionError("it did not time out")


SHORT = datetime.timedelta(milliseconds=100)


class Operations:
    """Each takes a client, and makes another where two are needed."""

    def connect(self, new):
        new(world_size=1)

    def set(self, new):
        s = new()
        for key, value in (("k", "v"), ("empty", ""), ("bytes", b"\0\xff\r\n\x7f"), ("schlüssel", "größe"), ("k", "w")):
            s.set(key, value)
        assert s.num_keys() == 4

    def get(self, new):
        s = new()
        s.set("k", "value")
        s.set("empty", "")
        assert s.get("k") == b"value" and s.get("empty") == b""

    def get_blocked(self, new):
        s, other = new(), new()
        waiting = beside(s.get, "k")
        other.set("k", "value")
        waiting.join()

    def add(self, new):
        s = new()
        assert [s.add("n", by) for by in (5, -7, 0, 1 << 40)] == [5, -2, -2, (1 << 40) - 2]
        assert s.get("n") == b"1099511627774"

    def check(self, new):
        s = new()
        s.set("k", "v")
        assert s.check(["k"]) and not s.check(["k", "none"]) and s.check(["k", "k"])

    def wait(self, new):
        s = new()
        s.set("a", "1")
        s.set("b", "2")
        s.wait(["a"])
        s.wait(["a", "b"])

    def wait_blocked(self, new):
        s, other = new(), new()
        waiting = beside(s.wait, ["a", "b"])
        other.set("a", "1")
        other.add("b", 1)
        waiting.join()

    def wait_timeout(self, new):
        s = new()
        times_out(s.wait, ["never"], SHORT)
        assert s.add("n", 1) == 1

    def compare_set(self, new):
        s = new()
        # The truth table: not set and set, with what is expected and not.
        found = [s.compare_set("k", *words) for words in (("x", "y"), ("", "1"), ("2", "3"), ("1", "4"), ("", "5"))]
        assert found == [b"x", b"1", b"1", b"4", b"4"], found

    def delete_key(self, new):
        s = new()
        s.set("k", "v")
        assert s.delete_key("k") and not s.delete_key("k")

    def num_keys(self, new):
        s = new()
        assert s.num_keys() == 0
        s.set("k", "v")
        assert s.num_keys() == 1

    def append(self, new):
        s = new()
        s.append("k", "one")
        s.append("k", ", two")
        assert s.get("k") == b"one, two"

    def multi_get(self, new):
        s = new()
        s.set("a", "1")
        s.set("b", "")
        assert s.multi_get(["a", "b", "a"]) == [b"1", b"", b"1"]

    def multi_set(self, new):
        s = new()
        s.multi_set(["a", "b"], ["1", ""])
        assert s.get("a") == b"1"

    def queue_push(self, new):
        s = new()
        s.queue_push("q", "first")
        s.queue_push("q", "")
        assert s.queue_len("q") == 2 and s.queue_len("none") == 0

    def queue_pop(self, new):
        s = new()
        s.queue_push("q", "first")
        s.queue_push("q", "second")
        assert s.queue_pop("q") == b"first" and s.queue_pop("q", False) == b"second"

    def queue_pop_blocked(self, new):
        s, other = new(), new()
        waiting = beside(s.queue_pop, "q")
        other.queue_push("q", "value")
        waiting.join()

    def list_keys(self, new):
        s = new()
        s.set("only", "1")
        assert s.list_keys() == ["only"]

    def barrier(self, new):
        s, other = new(), new()
        waiting = beside(s.barrier, "all", 2)
        other.barrier("all", 2)
        waiting.join()

    def barrier_timeout(self, new):
        s = new()
        times_out(s.barrier, "all", 2, SHORT)
        assert s.add("n", 1) == 1


def perform(operation, door, tell):
    """The process that has the server and its clients: some calls of torch hold up all other Python of theirs."""
    server = store(0, is_master=True)
    os.write(tell, b"%d\n" % server.port)
    clients = []

    def new(**how):
        clients.append(store(door.getsockname()[1], **how))
        return clients[-1]

    try:
        operation(new)
        settle()
    except (AttributeError, NotImplementedError):
        print(f"torch {torch.__version__} has no {operation.__name__}", file=sys.stderr)
        os._exit(1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # the server's threads have no end of their own


def record(operation):
    """Returns the lines of one operation; none if it failed."""
    lines.clear()
    door = socket.create_server(("127.0.0.1", 0))
    hear, tell = os.pipe()
    child = os.fork()
    if child == 0:
        perform(operation, door, tell)
    threading.Thread(target=pass_on, args=(door, int(os.read(hear, 16))), daemon=True).start()
    good = os.waitpid(child, 0)[1] == 0
    with LOCK:
        return list(text_of(lines)) if good else []


def record_all():
    print(f"# What torch {torch.__version__} says and hears, by torch_peer.py.")
    for name, operation in OPERATIONS:
        recorded = record(operation)
        if recorded:
            print(f"\n== {name}", *recorded, sep="\n", flush=True)


def serve():
    servers = [(name, store(0, is_master=True)) for name, _ in OPERATIONS]
    print(f"torch {torch.__version__} {'libuv' if has_libuv_server(servers[0][1]) else 'poll'}",
          *(f"{name}={server.port}" for name, server in servers), flush=True)
    while os.read(0, 1):
        pass


def use(where):
    ports = dict(word.split("=") for word in where)
    for name, operation in OPERATIONS:
        if name not in ports:
            continue
        try:
            operation(lambda **how: store(int(ports[name]), **how))
            print(f"ok {name}", flush=True)
        except (AttributeError, NotImplementedError):
            print(f"none {name}", flush=True)  # in this version
        except BaseException as e:
            print(f"FAILED {name}: {e!r}", flush=True)


OPERATIONS = inspect.getmembers(Operations(), inspect.ismethod)
if sys.argv[1:] == ["record"]:
    record_all()
elif sys.argv[1:] == ["serve"]:
    serve()
elif sys.argv[1:2] == ["use"]:
    use(sys.argv[2:])
else:
    sys.exit(__doc__)
sys.stdout.flush()
os._exit(0)  # what is left of torch's threads may keep it
