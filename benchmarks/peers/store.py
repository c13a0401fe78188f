"""Our store beside PyTorch's TCPStore, and our client of etcd beside etcd's own: in one run, in turns. See README.md."""

import argparse
import contextlib
import json
import os
import select
import shlex
import shutil
import socket
import statistics
import subprocess
import tempfile

from contestants import Mwbench
from machine import Busy, machine, text_of
from notes import Notes
from programs import HERE, LIMIT_S, Failed, end, rows_of, run, version_in
from python_peers import PythonPeer
from tables import OURS, number, ratio
from turns import present_of, turns_of

ROOT = os.path.dirname(os.path.dirname(HERE))
OPERATIONS = ["get", "set", "set, unanswered", "add", "check", "compare_set"]
NEAR = "manyworlds, near"
TORCH, ETCD, ETCD_GO = "PyTorch", "our client of etcd", "etcd's Go client"
OURS_THERE, TORCH_HERE = "our client, PyTorch's server", "PyTorch's client, our server"


class Torch:
    """PyTorch's interpreter: install.sh's, or the first that has it, or what --torch names."""

    def __init__(self, options):
        self.named = shlex.split(options.torch)
        self.found = PythonPeer("torch", "torch", "torch", "python3-torch (or install.sh --torch)", options)
        self.package = self.found.package
        with open(os.path.join(HERE, "store_torch.py")) as text:
            self.text = text.read()

    name = TORCH

    def missing(self):
        return not self.named and self.found.missing()

    def command(self, *arguments):
        # As text: an interpreter below another root does not see this folder.
        return [*(self.named or [self.found.interpreter()]), "-W", "ignore", "-c", self.text, *map(str, arguments)]

    def version(self):
        return rows_of(run(self.command("version")))[0]["version"]


class Etcd:
    name = "etcd"
    package = "etcd-server"

    def missing(self):
        return not shutil.which("etcd")

    def version(self):
        return version_in(["etcd", "--version"])


class Go:
    """The program over etcd's own client, compiled of Debian's packages."""

    name = "Go"
    package = "golang-go golang-etcd-server-dev (or install.sh --etcd)"

    def __init__(self, options):
        self.source = os.path.join(HERE, "store_etcd.go")
        self.folder = options.build
        self.program = os.path.join(options.build, "store_etcd")

    def missing(self):
        return not shutil.which("go")

    def build(self):
        if os.path.exists(self.program) and os.path.getmtime(self.program) > os.path.getmtime(self.source):
            return
        os.makedirs(self.folder, exist_ok=True)
        packages = {"GO111MODULE": "off", "GOPATH": os.environ.get("GOPATH", "/usr/share/gocode")}
        packages["GOCACHE"] = os.path.join(self.folder, "go-cache")
        run(["go", "build", "-o", self.program, self.source], packages)

    def version(self):
        return version_in(["go", "version"])


def first_line(server):
    """What a server prints once it serves."""
    ready = select.select([server.stdout], [], [], LIMIT_S)[0]
    line = server.stdout.readline() if ready else ""
    if not line:
        raise Failed(f"{server.args[0]} serves nothing")
    return line.strip()


@contextlib.contextmanager
def serving(command):
    """A server of its own process, which tells where it listens."""
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              start_new_session=True)
    try:
        said = first_line(server)
        server.address = json.loads(said)["address"] if said.startswith("{") else said
        yield server
    finally:
        end(server)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def etcd():
    """One member, with its data on this machine's disk, as it is installed."""
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(
            ["etcd", "--data-dir", folder, "--listen-client-urls", client, "--advertise-client-urls", client,
             "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster",
             f"default={peer}", "--log-level", "error"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        server.address = client.removeprefix("http://")
        try:
            yield server
        finally:
            end(server)


def mebibytes(pid, what):
    with open(f"/proc/{pid}/status") as table:
        return next(int(line.split()[1]) for line in table if line.startswith(what)) / 1024


class Contestant:
    def __init__(self, name, server, client, crowd, parts):
        """`server()` is a context with an address; `client` and `crowd` make a command of that address."""
        self.name = name
        self.server, self.client, self.crowd = server, client, crowd
        self.parts = parts
        self.package = " and ".join(part.package for part in parts if part.missing())

    def missing(self):
        return any(part.missing() for part in self.parts)

    def operations(self):
        for part in self.parts:
            if isinstance(part, Go):
                part.build()
        with self.server() as server:
            rows = rows_of(run(self.client(server.address)))
        return {row["operation"]: row for row in rows if row.get("operation") in OPERATIONS}

    def meeting(self):
        """The server's growth is to its peak, since its clients are gone afterwards."""
        with self.server() as server:
            before = mebibytes(server.pid, "VmRSS")
            rows = rows_of(run(self.crowd(server.address)))
            grown = mebibytes(server.pid, "VmHWM") - before
        row = next(row for row in rows if row.get("operation") == "connect and barrier")
        return {row["operation"]: {"took_ms": row["took_ms"], "server_mib": grown}}


def contestants(options):
    ours, torch, etcd_server, go = Mwbench(options.mwbench, options), Torch(options), Etcd(), Go(options)
    asked = ["--json", "--no-launcher", "--limit", str(LIMIT_S), "store"]
    count, size, clients = (str(value) for value in (options.count, options.size, options.clients))

    def our_client(address, *more):
        return [ours.program, *asked, "--count", count, "--size", size, "--clients", "0", "--server", address, *more]

    def our_crowd(address):
        return [ours.program, *asked, "--count", "10", "--clients", clients, "--server", address]

    def our_etcd(address):
        return [ours.program, *asked, "--count", count, "--size", size, "--etcd", address]

    def torch_client(address):
        return torch.command("ask", *address.split(":"), count, size)

    def torch_crowd(address):
        return torch.command("crowd", *address.split(":"), clients)

    def our_server():
        return serving([ours.program, "--no-launcher", "--limit", str(2 * LIMIT_S), "store", "--serve"])

    def torch_server():
        return serving(torch.command("serve"))

    stores = [Contestant(OURS, our_server, our_client, our_crowd, [ours]),
              Contestant(NEAR, our_server, lambda address: our_client(address, "--near"), None, [ours]),
              Contestant(TORCH, torch_server, torch_client, torch_crowd, [torch]),
              Contestant(TORCH_HERE, our_server, torch_client, torch_crowd, [ours, torch])]
    if not torch.missing() and not torch.version().startswith("1."):
        # Our client speaks no dialect of before 2.2.
        stores.append(Contestant(OURS_THERE, torch_server, our_client, None, [ours, torch]))
    etcds = [Contestant(ETCD, etcd, our_etcd, None, [ours, etcd_server]),
             Contestant(ETCD_GO, etcd, lambda address: [go.program, address, count, size], None, [etcd_server, go])]
    return stores, etcds


def gather(question, ask, present, rounds, note):
    """Rows with the medians over the rounds."""
    gathered = {}
    for one, answer in turns_of(question, ask, present, rounds, note):
        for operation, row in answer.items():
            into = gathered.setdefault((one.name, operation), {})
            for what, value in row.items():
                if what.endswith(("_us", "_ms", "_mib")):
                    into.setdefault(what, []).append(float(f"{value:.4g}"))
    rows = []
    for (who, operation), values in gathered.items():
        row = {"bench": "store", "who": who, "operation": operation}
        for what, of_rounds in values.items():
            row |= {what: float(f"{statistics.median(of_rounds):.4g}"), what + "_rounds": of_rounds}
        rows.append(row)
    return rows


def table(title, rows, names, ours, theirs, what="p50_us"):
    """One line an operation, and in the last column what theirs takes by what ours does."""
    value = {(row["who"], row["operation"]): row.get(what) for row in rows}
    lines = [f"**{title}**", "", f"| operation | {' | '.join(names)} | {theirs} / {ours} |",
             "|---" * (len(names) + 2) + "|"]
    for operation in dict.fromkeys(row["operation"] for row in rows if what in row):
        cells = [operation, *(number(value.get((name, operation))) for name in names),
                 ratio(value.get((theirs, operation)), value.get((ours, operation)))]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def arguments():
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("mwbench", help="built with --buildtype=release")
    parse.add_argument("--rounds", type=int, default=5, help="turns of each contestant")
    parse.add_argument("--count", type=int, default=5000, help="operations of a kind in a turn")
    parse.add_argument("--size", type=int, default=8, help="bytes of a value")
    parse.add_argument("--clients", type=int, default=1000, help="that connect and meet")
    parse.add_argument("--torch", metavar="COMMAND", default=os.environ.get("MANYWORLDS_TORCH_PYTHON", ""),
                       help="in place of a python3 that has torch, as: chroot /trixie python3")
    parse.add_argument("--json", metavar="FILE")
    parse.add_argument("--build", default=os.environ.get("PEERS_BUILD", os.path.join(
        ROOT, "build", "peers")), help="for the drivers")
    return parse.parse_args()


def main():
    options = arguments()
    note = Notes()
    stores, etcds = (present_of(each, note) for each in contestants(options))
    about, busy = machine({part.name: part for one in [*stores, *etcds] for part in one.parts}.values()), Busy()
    of_stores = gather("store", Contestant.operations, stores, options.rounds, note)
    of_etcd = gather("etcd", Contestant.operations, etcds, options.rounds, note)
    crowds = gather("crowd", Contestant.meeting, [one for one in stores if one.crowd], options.rounds, note)
    crowds = [row | {"clients": options.clients} for row in crowds]
    about |= busy.fields()

    print(text_of(about))
    names = [one.name for one in stores]
    print(table("An operation over tcp, us (p50)", of_stores, names, OURS, TORCH))
    print(table("The same, p99", of_stores, names, OURS, TORCH, "p99_us"))
    met = [name for name in names if any(row["who"] == name for row in crowds)]
    print(table(f"{options.clients} clients, ms", crowds, met, OURS, TORCH, "took_ms"))
    print(table("The server's growth by them, MiB", crowds, met, OURS, TORCH, "server_mib"))
    if etcds:
        print(table("An operation of etcd, us (p50)", of_etcd, [ETCD, ETCD_GO], ETCD, ETCD_GO))
    note.conclude(about, [*of_stores, *of_etcd, *crowds], options.json)


main()
