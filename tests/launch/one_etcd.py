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
    """One member with its data in memory."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        ports = [free_port(), free_port()]
        self.endpoint = f"127.0.0.1:{ports[0]}"
        client, peer = (f"http://127.0.0.1:{port}" for port in ports)
        self.process = subprocess.Popen(
            ["etcd", "--data-dir", self.folder, "--listen-client-urls", client, "--advertise-client-urls", client,
             "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
             "--unsafe-no-fsync", "--log-level", "error"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", ports[0])) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError("etcd does not listen")

    def end(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
