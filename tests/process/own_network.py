"""Network namespaces for tests: of their own, so that no port is taken, and joined by a cable that can be cut."""
import itertools
import os
import select
import socket
import subprocess
import sys


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def in_own_network():
    """Runs the calling script again in a network of its own; True there. False where that is refused."""
    if os.environ.get("MANYWORLDS_OWN_NETWORK") == str(os.getpid()):
        ip("link", "set", "lo", "up")
        return True
    if subprocess.run(["unshare", "--net", "ip", "link", "set", "lo", "up"], capture_output=True).returncode != 0:
        return False
    # unshare replaces itself by the script: the process stays the same.
    os.environ["MANYWORLDS_OWN_NETWORK"] = str(os.getpid())
    os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])


def port_is_free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class TwoNetworks:
    """10.9.9.1 and 10.9.9.2, each with a network of its own, joined by a cable. OSError where that is refused."""

    def __init__(self):
        self.names = [f"mw{os.getpid()}{side}" for side in "ab"]
        self.made = []
        try:
            for name in self.names:
                ip("netns", "add", name)
                self.made.append(name)
                ip("-n", name, "link", "set", "lo", "up")
            ip("-n", self.names[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable",
               "netns", self.names[1])
            for number, name in enumerate(self.names, 1):
                ip("-n", name, "addr", "add", f"10.9.9.{number}/24", "dev", "cable")
                ip("-n", name, "link", "set", "cable", "up")
        except (OSError, subprocess.CalledProcessError) as e:
            self.remove()
            raise OSError((getattr(e, "stderr", None) or str(e).encode()).decode().strip()) from e

    def inside(self, side, *words):
        """The command that runs there; ip replaces itself by it."""
        return ["ip", "netns", "exec", self.names[side], *words]

    def cut(self):
        ip("-n", self.names[0], "link", "set", "cable", "down")

    def mend(self):
        ip("-n", self.names[0], "link", "set", "cable", "up")

    def remove(self):
        for name in self.made:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


class Wire:
    """A cable that delays, loses and reorders, between two of WiredNetworks: tests/support/wire.cpp."""

    def __init__(self, program, rules, ends):
        self.process = subprocess.Popen([program, *rules, *ends], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        if self.answer() != "ready":
            raise OSError(self.process.communicate(timeout=10)[1].strip())

    def answer(self):
        if not select.select([self.process.stdout], [], [], 10)[0]:
            self.process.kill()
        return self.process.stdout.readline().strip()

    def tell(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.answer()

    def remove(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


class WiredNetworks:
    """10.9.9.1, 10.9.9.2 and so on: each has a network of its own, and a wire to each other one.

    OSError where that is refused. `delay` and `jitter` are in milliseconds, `loss` and `reorder` shares.
    """

    def __init__(self, program, count, **rules):
        self.names = [f"mw{os.getpid()}{side}" for side in "abcdefgh"[:count]]
        self.made = []
        self.wires = {}
        words = [word for name, value in rules.items() for word in (f"--{name}", str(value))]
        try:
            for name in self.names:
                ip("netns", "add", name)
                self.made.append(name)
                ip("-n", name, "link", "set", "lo", "up")
            for pair in itertools.combinations(range(count), 2):
                self.join_by(program, words, *pair)
        except (OSError, subprocess.CalledProcessError) as e:
            self.remove()
            raise OSError((getattr(e, "stderr", None) or str(e).encode()).decode().strip()) from e

    def join_by(self, program, rules, a, b):
        ends = [(a, f"to{b}", b), (b, f"to{a}", a)]
        self.wires[a, b] = Wire(program, rules, [f"{self.names[own]}/{device}" for own, device, _ in ends])
        for own, device, other in ends:
            ip("-n", self.names[own], "addr", "add", self.address(own), "peer", self.address(other), "dev", device)
            ip("-n", self.names[own], "link", "set", device, "up")

    @staticmethod
    def address(side):
        return f"10.9.9.{side + 1}"

    def inside(self, side, *words):
        """The command that runs there; ip replaces itself by it."""
        return ["ip", "netns", "exec", self.names[side], *words]

    def cut(self, sender, receiver):
        """What one sends to the other is lost from now on; what comes back is not."""
        pair = (min(sender, receiver), max(sender, receiver))
        assert self.wires[pair].tell(f"cut {'a' if sender == pair[0] else 'b'}") == "done"

    def join(self):
        for wire in self.wires.values():
            assert wire.tell("join") == "done"

    def counts(self):
        """How many packets were sent, lost, and overtook others, on all wires."""
        numbers = [wire.tell("count").split() for wire in self.wires.values()]
        return tuple(sum(int(each[at]) + int(each[at + 4]) for each in numbers) for at in (1, 2, 3))

    def remove(self):
        for wire in self.wires.values():
            wire.remove()
        for name in self.made:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
