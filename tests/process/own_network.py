"""Network namespaces for tests: of their own, so that no port is taken, and joined by a cable that can be cut."""
import os
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
