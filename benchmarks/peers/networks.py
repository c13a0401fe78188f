"""Where two processes are that talk over tcp: on loopback, or each in a network namespace of its own.

Traffic never leaves the namespaces. They and what joins them are those of the tests (tests/process/own_network.py)."""

import os
import subprocess
import sys

from programs import Failed, HERE, run

ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "process"))

from own_network import TwoNetworks, WiredNetworks, ip  # noqa: E402

DELAY_MS, LOSS = 1, 0.001


class Loopback:
    devices = "lo"
    addresses = ("127.0.0.1", "127.0.0.1")
    far = None

    @staticmethod
    def inside(_, *words):
        return list(words)

    @staticmethod
    def remove():
        pass


class Apart:
    """What the contestants are told of two networks."""

    addresses = ("10.9.9.1", "10.9.9.2")

    devices = "cable"

    def __init__(self, networks):
        self.networks = networks
        self.inside = networks.inside
        self.remove = networks.remove
        self.far = networks.names[1]


def veth(_):
    return Apart(TwoNetworks())


def wire(build):
    """A cable of the tests: each packet is handed on by a process, which takes CPU as well."""
    program = os.path.join(build, "wire")
    source = os.path.join(ROOT, "tests", "support", "wire.cpp")
    if not os.path.exists(program) or os.path.getmtime(program) < os.path.getmtime(source):
        os.makedirs(build, exist_ok=True)
        run(["g++", "-std=c++20", "-O2", "-o", program + ".new", source])
        os.replace(program + ".new", program)
    made = WiredNetworks(program, 2, delay=DELAY_MS, loss=LOSS)
    # One name for both: what a library reads of /sys is the other side's.
    for name, device in zip(made.names, ("to1", "to0")):
        for change in (["down"], ["name", "cable"], ["up"]):
            ip("-n", name, "link", "set", "cable" if change == ["up"] else device, *change)
    return Apart(made)


def netem(_):
    """The same by the kernel, where it has netem."""
    made = TwoNetworks()
    try:
        for name in made.names:
            subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "cable", "root", "netem", "limit", "100000",
                            "delay", f"{DELAY_MS}ms", "loss", f"{100 * LOSS}%"], check=True, capture_output=True,
                           text=True)
    except (OSError, subprocess.CalledProcessError) as e:
        made.remove()
        raise OSError((getattr(e, "stderr", None) or str(e)).strip()) from e
    return Apart(made)


# Each with what is asked over it: sizes, and the most round trips of each. Where packets are lost a stream
# is slow for everyone.
ALL = [8, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
SLOW = [([8], 200), ([64 << 10], 40), ([1 << 20], 4)]
KINDS = {"loopback": (lambda _: Loopback(), [(ALL, 2000)]), "veth": (veth, [(ALL, 2000)]), "wire": (wire, SLOW),
         "netem": (netem, SLOW)}


def text_of(kind):
    slow = f"with {DELAY_MS} ms of delay each way and {100 * LOSS:g} % loss"
    return {"loopback": "loopback", "veth": "veth between two namespaces", "wire": f"the tests' wire, {slow}",
            "netem": f"veth and netem, {slow}"}[kind]


def make(kind, build):
    """Failed where the machine refuses it."""
    try:
        return KINDS[kind][0](build)
    except OSError as refusal:
        raise Failed(f"no {kind} here: {refusal}") from refusal


def asked_of(kind, largest):
    return [([size for size in sizes if size <= largest], pings) for sizes, pings in KINDS[kind][1]
            if sizes[0] <= largest]
