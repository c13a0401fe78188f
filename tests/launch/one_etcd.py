"""An etcd for a test."""
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
    """One member with its data in memory, at this address; `through` is the command that runs it elsewhere."""

    def __init__(self, address="127.0.0.1", through=()):
        program = shutil.which("etcd")
        if not program:
            raise FileNotFoundError("etcd is not installed")
        self.folder = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        ports = [free_port(), free_port()]
        self.endpoint = f"{address}:{ports[0]}"
        client, peer = (f"http://{address}:{port}" for port in ports)
        self.process = subprocess.Popen(
            [*through, program, "--data-dir", self.folder, "--listen-client-urls", client,
             "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
             "--initial-cluster", f"default={peer}", "--unsafe-no-fsync", "--log-level", "error"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            if self.listens(ports[0]):
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
