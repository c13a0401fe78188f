"""A job of several nodes: each is an mwrun of this machine."""
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../launch"))
from jobs import CLEAN, agent_of, is_gone, stat_of, until
from one_etcd import free_port  # noqa: E402
from watched_program import PROGRAM

LIMIT = 30
# Each worker says what it is, and stays.
STAYS = 'echo "$RANK $WORLD_SIZE $MANYWORLDS_ATTEMPT $MANYWORLDS_INCARNATION $$" >> "$PLACES"; exec sleep 1000'


class Job:
    """The nodes of one run, and the places that their workers have said to have."""

    def __init__(self, *options, backend="c10d", endpoint=None, script=STAYS, workers=1, run="job"):
        self.folder = tempfile.TemporaryDirectory()
        self.places = os.path.join(self.folder.name, "places")
        self.endpoint = endpoint or f"127.0.0.1:{free_port()}"
        where = [f"--rdzv-endpoint={self.endpoint}"]
        if backend == "standalone":
            where = [f"--master-port={self.endpoint.rpartition(':')[2]}"]
        self.options = [f"--rdzv-backend={backend}", *where, f"--rdzv-id={run}", *options]
        self.script = script
        self.workers = workers
        self.nodes = []
        self.said = {}
        self.readers = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            if node.poll() is None:
                node.send_signal(signal.SIGCONT)
                node.kill()
            node.wait()
        for reader in self.readers:
            reader.join(LIMIT)
        for node in self.nodes:
            node.stderr.close()
        until(lambda: all(is_gone(each["pid"]) for each in self.all_places()), 10)
        self.folder.cleanup()

    def add(self, *more, count=1, workers=None, through=()):
        """Starts nodes, and returns the last one."""
        for _ in range(count):
            node = subprocess.Popen(
                [*through, PROGRAM, *self.options, *more, f"--nproc-per-node={workers or self.workers}", "--no-python",
                 "sh", "-c", self.script], env={**CLEAN, "PLACES": self.places}, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, start_new_session=True, text=True)
            self.nodes.append(node)
            self.said[node] = []
            reader = threading.Thread(target=lambda n: self.said[n].extend(n.stderr), args=(node,), daemon=True)
            reader.start()
            self.readers.append(reader)
        return self.nodes[-1]

    def all_places(self):
        if not os.path.exists(self.places):
            return []
        with open(self.places, encoding="ascii") as file:
            lines = [line.split() for line in file]
        return [dict(zip(("rank", "size", "attempt", "incarnation", "pid"), map(int, line)))
                for line in lines if len(line) == 5]

    def living(self):
        """The places of workers that live, by their ranks."""
        alive = [each for each in self.all_places() if not is_gone(each["pid"])]
        return {each["rank"]: each for each in alive}

    def stands(self, size, attempt=None):
        """Whether that many workers run, and are of one attempt."""
        alive = [each for each in self.all_places() if not is_gone(each["pid"])]
        return (sorted(each["rank"] for each in alive) == list(range(size)) and
                {each["size"] for each in alive} == {size} and
                len({each["attempt"] for each in alive}) == 1 and attempt in (None, alive[0]["attempt"]))

    def node_of(self, rank):
        """The node the agent of which has started the worker of a rank."""
        agent = int(stat_of(self.living()[rank]["pid"])[1])
        guard = int(stat_of(agent)[1])
        return next(node for node in self.nodes if node.pid == guard)

    def kill_agent_of(self, rank):
        """With no time to say anything to the other nodes."""
        node = self.node_of(rank)
        os.kill(agent_of(node.pid), signal.SIGKILL)
        return node

    def codes(self, limit=LIMIT):
        end = time.monotonic() + limit
        for node in self.nodes:
            try:
                node.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                return None
        # What they said last is read, too.
        for reader in self.readers:
            reader.join(max(0.1, end - time.monotonic()))
        return [node.returncode for node in self.nodes]

    def text(self):
        return "\n".join(f"[{i}] " + "".join(self.said[node]) for i, node in enumerate(self.nodes))
