"""The questions of driver.c and collectives.c, asked of a library for Python: the same counts, clock,
buffers and checks; and one more, for fail.py. One JSON object a size, by rank 0.

  driver.py LIBRARY p2p SIZES ROUNDS PINGS
  driver.py LIBRARY KIND SIZES SECONDS MEMBERS
  driver.py LIBRARY wait OPERATION        rank 0 waits for rank 1, which does nothing more

LIBRARY is torch or multiworld. Coroutines, since MultiWorld has no other form; torch's calls block
inside one that never suspends, which costs less than a microsecond."""

import asyncio
import ctypes
import importlib
import json
import os
import signal
import socket
import sys
import time

import torch

IN_FLIGHT = 4
LEAST_CALLS, MOST_CALLS = 5, 20000
ROUND_S = 1.0
LIMIT_S = 300
KINDS = ("broadcast", "reduce", "all_reduce", "gather", "all_gather", "scatter", "reduce_scatter",
         "all_to_all", "barrier")
ADDS = ("reduce", "all_reduce", "reduce_scatter")
DIVIDES = ("gather", "all_gather", "scatter", "reduce_scatter", "all_to_all")


def now_us():
    return time.monotonic_ns() / 1e3


def quantile(ordered, part):
    return ordered[int(part * (len(ordered) - 1) + 0.5)]


def within(wanted, most):
    return max(2, min(wanted, most))


def say(row):
    """In one piece: another member may say something too."""
    os.write(1, (json.dumps(row) + "\n").encode())


def rounded(**values):
    return {name: float(f"{value:.4g}") for name, value in values.items()}


def pin(rank, members):
    """With a CPU for each, one for each."""
    if members <= os.cpu_count():
        os.sched_setaffinity(0, {rank})


class Buffer:
    """Memory that the library sees as a tensor, and we as bytes: a tensor's index is slow."""

    def __init__(self, size):
        self.bytes = bytearray(b"x") * size
        self.tensor = torch.frombuffer(self.bytes, dtype=torch.uint8)


async def ping(peer, buffer, count, end, halves):
    """Half round trips; `count` of them, or until `end`: the last message says that it is."""
    last = False
    while not last:
        begin = now_us()
        last = len(halves) + 1 == count or begin >= end
        buffer.bytes[0] = ord("q" if last else "x")
        await peer.send(buffer.tensor, 1)
        await peer.receive(buffer.tensor, 1)
        halves.append((now_us() - begin) / 2)


async def echo(peer, buffer):
    more = True
    while more:
        await peer.receive(buffer.tensor, 0)
        more = buffer.bytes[0] != ord("q")
        await peer.send(buffer.tensor, 0)


async def flow(peer, start, tensors, count):
    """`count` messages, IN_FLIGHT of them under way, each slot with its own tensor."""
    slots = [None] * IN_FLIGHT
    for i in range(count):
        slot = i % IN_FLIGHT
        if slots[slot] is not None:
            await peer.finish(slots[slot])
        slots[slot] = start(tensors[slot], 1 - peer.rank)
    for started in slots:
        await peer.finish(started)


async def p2p(peer, size, rounds, most):
    """As long as a second lasts: what takes half a millisecond each need not be asked 10,000 times."""
    pings = within((64 << 20) // size, most)
    messages = IN_FLIGHT * within((128 << 20) // size // IN_FLIGHT, most)
    buffer = Buffer(size)
    landing = [Buffer(size).tensor for _ in range(IN_FLIGHT)] if peer.rank == 1 else None
    agreed = torch.zeros(1, dtype=torch.int64)
    halves, speeds = [], []
    for _ in range(rounds):
        await peer.barrier()
        if peer.rank == 0:
            end = now_us() + ROUND_S * 1e6
            await ping(peer, buffer, pings // 20 + 1, end, [])
            of_round = []
            await ping(peer, buffer, pings, now_us() + ROUND_S * 1e6, of_round)
            halves += of_round
            fit = int(ROUND_S * 1e6 * len(of_round) / sum(of_round))
            agreed[0] = max(IN_FLIGHT, min(messages, fit))
            await peer.send(agreed, 1)
            begin = now_us()
            await flow(peer, peer.start_send, [buffer.tensor] * IN_FLIGHT, int(agreed[0]))
            await peer.receive(agreed, 1)
            speeds.append(size * int(agreed[0]) / 1e3 / (now_us() - begin))
        else:
            await echo(peer, buffer)
            await echo(peer, buffer)
            await peer.receive(agreed, 0)
            await flow(peer, peer.start_receive, landing, int(agreed[0]))
            await peer.send(agreed, 0)
    if peer.rank == 0:
        halves.sort()
        speeds.sort()
        say({"size": size} | rounded(p50_us=quantile(halves, 0.5), p99_us=quantile(halves, 0.99),
                                     gb_s=quantile(speeds, 0.5)))


class Collective:
    """One kind at one size: `whole` elements, of which each member has `part` where they are divided."""

    def __init__(self, kind, size, rank, members):
        self.kind, self.rank, self.members = kind, rank, members
        element = 4 if kind in ADDS else 1
        parts = members if kind in DIVIDES else 1
        self.part = max(1, size // element // parts)
        self.whole = self.part * parts
        self.type = torch.float32 if kind in ADDS else torch.uint8
        self.source = self.values(rank)
        self.target = self.values(rank)

    def values(self, of_rank):
        """Small enough for sums to be exact."""
        return ((torch.arange(self.whole) + of_rank * 5) % 61).to(self.type)

    def expected(self):
        """What this member's target begins with."""
        own = slice(self.rank * self.part, (self.rank + 1) * self.part)
        of_all = [self.values(r) for r in range(self.members)]
        if self.rank != 0 and self.kind in ("reduce", "gather"):
            return self.target
        return {"broadcast": lambda: of_all[0],
                "reduce": lambda: sum(of_all),
                "all_reduce": lambda: sum(of_all),
                "reduce_scatter": lambda: sum(of_all)[own],
                "scatter": lambda: of_all[0][own],
                "gather": lambda: torch.cat([v[:self.part] for v in of_all]),
                "all_gather": lambda: torch.cat([v[:self.part] for v in of_all]),
                "all_to_all": lambda: torch.cat([v[own] for v in of_all]),
                "barrier": lambda: self.target}[self.kind]()

    def check(self):
        wanted = self.expected()
        if not torch.equal(self.target[:len(wanted)], wanted):
            raise ValueError(f"rank {self.rank} has not what it should")

    def silence(self):
        """What adds up in place would grow from call to call."""
        if self.kind in ADDS:
            self.source.zero_()
            self.target.zero_()


async def calls(peer, kind, run, count):
    """Each begins when all members are ready for it."""
    times = []
    for _ in range(count):
        if kind != "barrier":
            await peer.barrier()
        begin = now_us()
        await run()
        times.append(now_us() - begin)
    return times


async def count_for(peer, kind, run, seconds):
    """As many as fit into the time, as rank 0 finds by calls that last an eighth of it, and not by the first ones
    unless those fill it."""
    growth, count, enough = 8, LEAST_CALLS, seconds * 1e6
    while True:
        begin = now_us()
        await calls(peer, kind, run, count)
        took = (await peer.gather_numbers([now_us() - begin]))[0][0]
        fitting = int(max(LEAST_CALLS, min(MOST_CALLS, seconds * 1e6 * count / took)))
        if took > enough or count >= fitting:
            return fitting
        count, enough = min(fitting, growth * count), seconds * 1e6 / growth


async def collective(peer, kind, size, seconds):
    c = Collective(kind, size, peer.rank, peer.members)
    run = peer.prepare(c)
    await run()
    c.check()
    c.silence()
    times = await calls(peer, kind, run, await count_for(peer, kind, run, seconds))
    mean = sum(times) / len(times)
    times.sort()
    of_all = await peer.gather_numbers([mean, times[len(times) // 2],
                                        times[(len(times) - 1) * 99 // 100]])
    if peer.rank == 0:
        means, p50s, p99s = zip(*of_all)
        say({"size": size} | rounded(time_us=sum(means) / peer.members, p50_us=max(p50s),
                                     p99_us=max(p99s)))


async def wait(peer, operation):
    """Says who may be struck, and when the waiter had its error."""
    await peer.barrier()
    say({"survivor" if peer.rank == 0 else "victim": os.getpid()})
    if peer.rank != 0:
        await asyncio.sleep(LIMIT_S)
    buffer = Buffer(8)
    try:
        if operation == "recv":
            await peer.receive(buffer.tensor, 1)
        else:
            await peer.prepare(Collective(operation, 8, peer.rank, peer.members))()
        told = "success, though nothing came"
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
    say({"noticed": time.monotonic(), "told": told[:300]})


async def answer(peer, question, arguments):
    if question == "wait":
        return await wait(peer, *arguments)
    for size in map(int, arguments[0].split(",")):
        if question == "p2p":
            await p2p(peer, size, int(arguments[1]), int(arguments[2]))
        else:
            await collective(peer, question, size, float(arguments[1]))


async def take_part(library, rank, members, port, question, arguments):
    peer = library.Peer(rank, members)
    await peer.open(port)
    if question != "wait":
        pin(rank, members)
    try:
        await answer(peer, question, arguments)
        await peer.barrier()
    except Exception as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    # What is left running here (threads, stores) would wait for each other.
    os._exit(0)


def start_others(members):
    """Forked, so that only the first waits for the library to be loaded; the others end with it."""
    first = os.getpid()
    for rank in range(1, members):
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
            if os.getppid() != first:
                os._exit(1)
            return rank
    return 0


def main():
    library = importlib.import_module(f"transport_{sys.argv[1]}")
    question, arguments = sys.argv[2], sys.argv[3:]
    members = int(arguments[2]) if question in KINDS else 2
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    rank = start_others(members)
    signal.alarm(LIMIT_S)
    asyncio.run(take_part(library, rank, members, port, question, arguments))


main()
