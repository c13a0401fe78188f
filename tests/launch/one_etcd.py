"""An etcd for a test, of one member or of three."""
import os
import shutil
import socket
import subprocess
import tempfile
import time

LIMIT = 30  # seconds until it listens


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Etcd:
    """A member with its data in memory, at this address; `through` is the command that runs it elsewhere. It is alone,
    or that one of several, the ports of which are given for clients and for peers."""

    def __init__(self, address="127.0.0.1", through=(), number=0, ports=None):
        program = shutil.which("etcd")
        if not program:
            raise FileNotFoundError("etcd is not installed")
        self.folder = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.ports = ports or [(free_port(), free_port())]
        self.port = self.ports[number][0]
        self.endpoint = f"{address}:{self.port}"
        client, peer = (f"http://{address}:{port}" for port in self.ports[number])
        all_of_it = ",".join(f"m{n}=http://{address}:{peers}" for n, (_, peers) in enumerate(self.ports))
        self.process = subprocess.Popen(
            [*through, program, "--name", f"m{number}", "--data-dir", self.folder, "--listen-client-urls", client,
             "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
             "--initial-cluster", all_of_it, "--unsafe-no-fsync", "--log-level", "error"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if len(self.ports) == 1:
            self.wait()

    def wait(self):
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            if self.listens(self.port):
                return
            time.sleep(0.02)
        self.end()
        raise AssertionError("etcd does not listen")

    def listens(self, port):
        """Whether the network that it is in has a listener at that port."""
        try:
            with open(f"/proc/{self.process.pid}/net/tcp", encoding="ascii") as file:
                fields = [line.split() for line in file][1:]
        except OSError:
            return False
        return any(each[1].endswith(f":{port:04X}") and each[3] == "0A" for each in fields)

    def end(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class ThreeEtcds:
    """A cluster of three, which goes on when one of them is killed."""

    def __init__(self):
        ports = [(free_port(), free_port()) for _ in range(3)]
        self.members = [Etcd(number=n, ports=ports) for n in range(3)]
        for each in self.members:
            each.wait()
        self.endpoint = ",".join(each.endpoint for each in self.members)

    def end(self):
        for each in self.members:
            each.end()
