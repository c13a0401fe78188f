"""What strangers do to ports that listen, for tests: they are silent, talk garbage, or repeat what they have heard."""
import contextlib
import os
import random
import select
import socket
import threading

LIMIT = 10


def listening_ports(pid):
    """Returns the ports at which a process of this machine listens."""
    own = set()
    for each in os.listdir(f"/proc/{pid}/fd"):
        try:
            own.add(os.readlink(f"/proc/{pid}/fd/{each}"))
        except OSError:
            continue
    with open(f"/proc/{pid}/net/tcp", encoding="ascii") as file:
        fields = [line.split() for line in file][1:]
    return [int(each[1].split(":")[1], 16) for each in fields if each[3] == "0A" and f"socket:[{each[9]}]" in own]


def connected(address):
    return socket.create_connection(address, timeout=LIMIT)


def say(address, parts):
    """Says one part after another, each when the last was answered, and returns what was answered to each."""
    answers = []
    # A server that ends connections as they come ends this one, too.
    with contextlib.suppress(ConnectionError), connected(address) as one:
        one.settimeout(LIMIT)
        for part in parts:
            try:
                one.sendall(part)
                answers.append(one.recv(65536) if select.select([one], [], [], 0.3)[0] else None)
            except OSError:
                answers.append(b"")
            if answers[-1] == b"":
                break
    return answers


def garbage(seed):
    """Returns texts that are no words of ours: random ones, and such as begin like ours."""
    chance = random.Random(seed)
    texts = [chance.randbytes(length) for length in (1, 7, 40, 400, 70000)]
    begun = [b"MWSTORE" + chance.randbytes(n) for n in (0, 1, 20)]
    lengths = [(n).to_bytes(4, "little") + chance.randbytes(60) for n in (0, 60, 1024, 2**31, 2**32 - 1)]
    return [*texts, *begun, *lengths, b"GET / HTTP/1.1\r\n\r\n"]


class Recorder:
    """Stands between clients and a server, and keeps what clients say, a list of parts for each. From the part on
    that contains `held` it goes no further."""

    def __init__(self, server, held=None):
        self.server, self.held = server, held
        self.said = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        self.is_closed = False
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.is_closed:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.relay, args=(client,), daemon=True).start()

    def relay(self, client):
        said, is_held = [], False
        self.said.append(said)
        with client, connected(self.server) as server:
            while True:
                for each in select.select([client, server], [], [])[0]:
                    text = each.recv(65536)
                    if not text:
                        return
                    if each is server:
                        client.sendall(text)
                        continue
                    said.append(text)
                    is_held = is_held or (self.held is not None and self.held in text)
                    if not is_held:
                        server.sendall(text)

    def close(self):
        self.is_closed = True
        self.listener.close()
