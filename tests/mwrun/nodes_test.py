#!/usr/bin/env python3
"""Jobs of several nodes: each node is an mwrun of this machine, and some are killed, stopped, told to go, or come late.

usage: nodes_test.py MWRUN MWSTORE

The numbers are those of the acceptance cases L and P. Where MANYWORLDS_TEST_LONG is set, torchrun is one of two nodes
(MANYWORLDS_TORCHRUN is its command).
"""
import itertools
import os
import random
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

for folder_of_tests in ("../launch", "../process"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), folder_of_tests))
from jobs import CLEAN, agent_of, claim, is_gone, until
from nodes_of_a_job import LIMIT, STAYS, Job
from one_etcd import Etcd, free_port  # noqa: E402
from own_network import TwoNetworks  # noqa: E402
from watched_program import ARGUMENTS, PROGRAM, claim_nothing_is_left, failures

STORE = os.path.abspath(ARGUMENTS[0])
# A first round of all nodes does not wait for it, however late the machine lets them come.
LATE = "last_call_timeout=20"


def command_lines():
    """The two of the TorchElastic RFC, and roles."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "prog")
        with open(program, "w", encoding="ascii") as file:
            # In one write, so that lines of two workers do not mix.
            file.write("import os, sys; os.write(1, f\"{os.environ['RANK']} {os.environ['WORLD_SIZE']} \"\n"
                       "                            f\"{sys.argv[1:]}\\n\".encode())\n")
        lines = {"standalone": ["--nproc_per_node", "2", "--nnodes", "2", "--rdzv_backend", "standalone", "--rdzv_id",
                                "J", "--master_port", str(port), program, "--arg1"],
                 "static": ["--node_rank", "0", "--master_addr", "127.0.0.1", "--master_port", "8080", program]}
        both = [subprocess.Popen([PROGRAM, *lines["standalone"]], env=CLEAN, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT) for _ in range(2)]
        said = sorted(line for each in both for line in each.communicate(timeout=LIMIT)[0].decode().splitlines()
                      if "arg1" in line)
        claim("the RFC's command line of two nodes runs as printed",
              said == [f"{rank} 4 ['--arg1']" for rank in range(4)] and [n.returncode for n in both] == [0, 0], said)
        one = subprocess.run([PROGRAM, *lines["static"]], env=CLEAN, capture_output=True, text=True, timeout=LIMIT,
                             check=False)
        claim("and so does that of a static run", (one.returncode, one.stdout) == (0, "0 1 []\n"), one)
    with Job("--nnodes=2", script='echo "$ROLE_RANK $ROLE_WORLD_SIZE $LOCAL_WORLD_SIZE 0 $RANK" >> "$PLACES"') as job:
        job.add("--role=small", workers=1)
        job.add("--role=large", workers=2)
        codes = job.codes()
        seen = sorted((each["rank"], each["size"], each["attempt"]) for each in job.all_places())
        claim("L11 roles of unequal nodes have ranks of their own",
              codes == [0, 0] and seen == [(0, 1, 1), (0, 2, 2), (1, 2, 2)], seen)
    for said, what in ((["--rdzv-backend=zeus"], "--rdzv-backend"), (["--rdzv-backend=c10d"], "--rdzv-endpoint"),
                       (["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:1", "--rdzv-conf=join_timeout=x"],
                        "--rdzv-conf"),
                       (["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:1", "--secret-file=/none"],
                        "--secret-file"),
                       (["--local-addr=no.such.interface"], "--local-addr")):
        one = subprocess.run([PROGRAM, "--nnodes=2", *said, "--no-python", "true"], env=CLEAN, capture_output=True,
                             text=True, timeout=LIMIT, check=False)
        claim(f"L3 a wrong {what} is one line that names it",
              one.returncode == 2 and one.stderr.startswith(f"mwrun: {what}") and one.stderr.count("\n") == 1,
              one.stderr)


def over_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as some:
            some.bind(("::1", 0))
            port = some.getsockname()[1]
    except OSError as e:
        print(f"skipped IPv6: {e}")
        return
    with Job("--nnodes=2", "--local-addr=::1", endpoint=f"[::1]:{port}",
             script='echo "$RANK $WORLD_SIZE 0 0 0" >> "$PLACES"; echo "$MASTER_ADDR" >> "$PLACES.addresses"') as job:
        job.add(count=2)
        codes = job.codes()
        with open(job.places + ".addresses", encoding="ascii") as file:
            addresses = file.read()
        claim("L13 nodes meet at an endpoint of IPv6, and workers get its address as PyTorch wants it",
              codes == [0, 0] and addresses == "::1\n::1\n", (codes, addresses, job.text()))


def failing():
    with Job("--nnodes=2", "--max-restarts=1", workers=2, script="trap 'exit 0' TERM; " + STAYS) as job:
        job.add(count=2)
        claim("two nodes run one job", until(lambda: job.stands(4, 0)), job.text())
        os.kill(job.living()[3]["pid"], signal.SIGKILL)
        claim("L61 a failure starts all nodes' workers again, and they agree on the attempt",
              until(lambda: job.stands(4, 1)), job.text())
        os.kill(job.living()[0]["pid"], signal.SIGKILL)
        codes = job.codes()
        roots = re.findall(r"Root Cause .*?\n.*?\n.*?\n.*?\n\s+rank +: (\d)", job.text(), re.S)
        claim("L23, L39 without restarts left all nodes fail with one root cause",
              codes == [1, 1] and roots == ["0", "0"], (codes, job.text()))
    late = "[ $RANK = 0 ] || { while [ ! -e $PLACES.go ]; do sleep 0.02; done; exit 5; }"
    with Job("--nnodes=2", script=late) as job:
        job.add(count=2)
        time.sleep(0.5)
        open(job.places + ".go", "w", encoding="ascii").close()
        claim("L28 a node that is done fails as soon as another one fails", job.codes(10) == [1, 1], job.text())
    with Job("--nnodes=2", "--exit-barrier-timeout=1", script="[ $RANK = 1 ] || exec sleep 3") as job:
        job.add(count=2)
        until(lambda: any(node.poll() is not None for node in job.nodes))
        claim("L28 how long a node waits for the others is an option",
              sorted(str(node.poll()) for node in job.nodes) == ["0", "None"], job.text())
        claim("and the others' work goes on", job.codes() == [0, 0], job.text())
    with Job("--nnodes=2", script="[ $RANK = 1 ] || exec sleep 1000") as job:
        job.add(count=2)
        time.sleep(0.5)
        for node in job.nodes:
            node.terminate()
        claim("L28 a signal ends the exit barrier", job.codes(10) == [1, 1], job.text())


def coming_and_going():
    with Job("--nnodes=1:3", "--max-restarts=1", "--rdzv-conf=last_call_timeout=0.1") as job:
        job.add(count=2)
        claim("two nodes of at most three run", until(lambda: job.stands(2)), job.text())
        job.add()
        claim("L50 a third node gives all others new ranks", until(lambda: job.stands(3)), job.text())
        job.node_of(2).terminate()
        claim("L54 a node that is told to end drains: the others go on with new ranks",
              until(lambda: job.stands(2)), job.text())
        job.kill_agent_of(1)
        claim("L51 the survivor of a killed node goes on", until(lambda: job.stands(1)), job.text())
        claim("L54 of these only the killed node was a restart",
              until(lambda: "restart 1 of 1" in job.text()), job.text())
    with Job("--nnodes=3", "--max-restarts=1", "--rdzv-conf=join_timeout=2") as job:
        job.add(count=3)
        until(lambda: job.stands(3))
        job.kill_agent_of(2)
        codes = job.codes()
        claim("L52 fewer nodes than the minimum wait for the join limit, and say what is missing",
              codes is not None and sorted(codes) == [-9, 1, 1] and "2 of at least 3 nodes" in job.text(), job.text())
    with Job("--nnodes=2", "--max-restarts=2", f"--rdzv-conf={LATE}") as job:
        job.add(count=3)
        until(lambda: job.stands(2))
        job.kill_agent_of(1)
        claim("L53 a node beyond the maximum is a spare, and takes a lost one's place",
              until(lambda: job.stands(2, 1)), job.text())
        job.add()
        job.kill_agent_of(1)
        claim("L60 restarts of lost nodes are counted", until(lambda: job.stands(2, 2)), job.text())
        job.kill_agent_of(1)
        codes = job.codes()
        claim("L60 and end the job when none is left", codes is not None and "no restarts are left" in job.text(),
              (codes, job.text()))
    with Job("--nnodes=1", "--rdzv-conf=last_call_timeout=0.1", script="sleep 2") as job:
        job.add()
        time.sleep(1)
        job.add()
        claim("a spare that was not needed says so",
              job.codes() == [0, 0] and "is over: no worker is started here" in job.text(),
              job.text())
    with tempfile.TemporaryDirectory() as folder:
        def again():
            with Job("--nnodes=1", "--local-addr=127.0.0.1", backend="file", endpoint=folder, script="true") as job:
                job.add()
                return job.codes(), job.text()
        again()
        codes, text = again()
        claim("E6 a run that is over is not run again under its id, and says so",
              codes == [1] and "the run job was closed before: no worker is started, and a new run needs another id" in text,
              (codes, text))


def replaced_alone():
    with Job("--nnodes=2", "--restart-scope=worker", "--max-restarts=4", workers=2) as job:
        job.add(count=3)
        claim("two nodes run under the worker's scope", until(lambda: job.stands(4)), job.text())
        before = job.living()
        os.kill(before[3]["pid"], signal.SIGKILL)
        until(lambda: job.living().get(3, before[3])["incarnation"] == 2)
        after = job.living()
        claim("L62 a dead worker of any node is started again alone",
              after[3]["incarnation"] == 2 and [after[i] for i in range(3)] == [before[i] for i in range(3)], after)
        job.kill_agent_of(3)
        claim("L64 a spare takes a lost node's ranks",
              until(lambda: job.living().get(2, before[2])["pid"] != before[2]["pid"] and job.stands(4, 0)), job.text())
        after = job.living()
        claim("L64 which start again there, and no others do",
              [after[0], after[1]] == [before[0], before[1]] and
              [after[i]["incarnation"] for i in (2, 3)] == [2, 3], after)
        returned = job.add()
        time.sleep(1)
        claim("L64 the node that returns is a spare", returned.poll() is None and job.living() == after, job.text())
        job.kill_agent_of(0)
        claim("a lost node with the store is a restart of the group", until(lambda: job.stands(4, 2)), job.text())


def silent():
    with Job("--nnodes=2", "--max-restarts=3", "--agent-lost-after=1", f"--rdzv-conf={LATE}") as job:
        job.add(count=3)
        until(lambda: job.stands(2))
        paused = job.node_of(1)
        old = job.living()[1]["pid"]
        agent = agent_of(paused.pid)
        os.kill(agent, signal.SIGSTOP)
        # Its worker runs on, and is not of the next attempt.
        claim("L57 a stopped node is lost, and a spare takes its place",
              until(lambda: {(e["rank"], e["attempt"]) for e in job.all_places()} >= {(0, 1), (1, 1)}), job.text())
        os.kill(agent, signal.SIGCONT)
        claim("L57 when it goes on its workers are ended", until(lambda: is_gone(old)), job.text())
        time.sleep(0.5)
        claim("L57 and it is a spare", paused.poll() is None and job.stands(2, 1), job.text())


def store_lost(endpoint):
    """The node that serves the store or coordinates is killed."""
    with Job("--nnodes=1:2", "--max-restarts=1", f"--rdzv-conf={LATE}") as job:
        job.add(count=2)
        until(lambda: job.stands(2))
        host = next(node for node in job.nodes if serves(node, int(job.endpoint.rsplit(":", 1)[1])))
        other = next(node for node in job.nodes if node is not host)
        os.kill(agent_of(host.pid), signal.SIGKILL)
        claim("L55 where the built-in store was on a lost host the others may serve it anew, or end",
              until(lambda: other.poll() is not None or job.stands(1)), job.text())
    if not endpoint:
        return
    with Job("--nnodes=1:2", "--max-restarts=1", f"--rdzv-conf={LATE}", backend="etcd", endpoint=endpoint) as job:
        job.add(count=2)
        until(lambda: job.stands(2))
        job.kill_agent_of(0)
        claim("L55 with etcd the others go on", until(lambda: job.stands(1)), job.text())


def serves(node, port):
    """Whether a process listens at that port."""
    try:
        agent = agent_of(node.pid)
        sockets = {os.readlink(f"/proc/{agent}/fd/{fd}") for fd in os.listdir(f"/proc/{agent}/fd")}
    except OSError:
        return False
    with open("/proc/net/tcp", encoding="ascii") as file:
        fields = [line.split() for line in file][1:]
    return any(f[1].endswith(f":{port:04X}") and f[3] == "0A" and f"socket:[{f[9]}]" in sockets for f in fields)


def secret():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "secret")
        with open(path, "w", encoding="ascii") as file:
            file.write("Xyzzy1234567890")
        os.chmod(path, stat.S_IRUSR)
        script = 'env > "$PLACES.$RANK"; echo "$RANK $WORLD_SIZE 0 0 $$" >> "$PLACES"; exec sleep 1000'
        with Job("--nnodes=2", f"--secret-file={path}", script=script) as job:
            job.add(count=2)
            claim("L67 two nodes that share a secret run", until(lambda: job.stands(2)), job.text())
            told = job.text()
            for node in job.nodes:
                for pid, what in itertools.product((node.pid, agent_of(node.pid)), ("cmdline", "environ")):
                    with open(f"/proc/{pid}/{what}", "rb") as file:
                        told += file.read().decode(errors="replace")
            for rank in range(2):
                with open(f"{job.places}.{rank}", encoding="utf-8") as file:
                    told += file.read()
            claim("L67 the secret is neither in arguments, environment nor logs",
                  "Xyzzy" not in told and f"MANYWORLDS_SECRET_FILE={path}" in told)
        with open(path + "2", "w", encoding="ascii") as file:
            file.write("another")
        os.chmod(path + "2", stat.S_IRUSR)
        with Job("--nnodes=2", "--rdzv-conf=join_timeout=2") as job:
            job.add(f"--secret-file={path}")
            job.add(f"--secret-file={path}2")
            codes = job.codes()
            claim("L67 nodes of other secrets form no job", codes == [1, 1], (codes, job.text()))


def same_kills(endpoint, folder):
    """L70: over each backend the same schedule of kills ends the same way."""
    seed = int(os.environ.get("MANYWORLDS_SEED", random.randrange(1 << 30)))
    print(f"seed {seed}")
    backends = [("standalone", None), ("c10d", None), ("file", folder)] + ([("etcd", endpoint)] if endpoint else [])
    for backend, where in backends:
        chance = random.Random(seed)
        # Each is a rank and a signal for its worker; or a node is killed, which the spare replaces.
        schedule = [(chance.randrange(2), chance.choice([signal.SIGKILL, signal.SIGSEGV])) for _ in range(3)]
        schedule.insert(chance.randrange(4), None)
        with Job("--nnodes=2", "--max-restarts=4", f"--rdzv-conf={LATE}", "--local-addr=127.0.0.1", backend=backend,
                 endpoint=where, run="same") as job:
            first = job.add()
            if where is None:
                # It is not the node that is killed.
                until(lambda job=job, first=first: serves(first, int(job.endpoint.rpartition(":")[2])))
            job.add(count=2)
            claim(f"L70 a job starts over {backend}", until(lambda job=job: job.stands(2, 0)), job.text())
            for attempt, kill in enumerate(schedule, 1):
                if kill is None:
                    job.kill_agent_of(next(rank for rank in range(2) if job.node_of(rank) is not first))
                else:
                    os.kill(job.living()[kill[0]]["pid"], kill[1])
                claim(f"L70 over {backend} kill {attempt} is one restart",
                      until(lambda job=job, at=attempt: job.stands(2, at)), (schedule, job.text()))
            seen = {(e["rank"], e["attempt"]) for e in job.all_places()}
            for node in job.nodes:
                node.terminate()
            codes = job.codes()
            claim(f"L70 over {backend} every kill was one restart, and a signal ends the job",
                  codes is not None and sorted(codes) == [-9, 1, 1] and
                  seen == {(r, a) for r in range(2) for a in range(5)}, (schedule, codes, seen, job.text()))


def networks():
    """Two nodes with a network each: the cable is cut, and the host of the store is lost."""
    try:
        two = TwoNetworks()
    except OSError as e:
        print(f"skipped two networks: {e}")
        return
    try:
        refused = subprocess.run(two.inside(0, PROGRAM, "--nnodes=2", "--rdzv-backend=c10d",
                                            "--rdzv-endpoint=10.9.9.1:29400", "--no-python", "true"), env=CLEAN,
                                 capture_output=True, text=True, timeout=LIMIT, check=False)
        claim("beyond loopback a secret is needed, or the word that the network is trusted",
              refused.returncode == 2 and refused.stderr.startswith("mwrun: --secret-file"), refused)
        with Job("--nnodes=1:2", "--max-restarts=2", "--insecure", "--agent-lost-after=1", f"--rdzv-conf={LATE}",
                 endpoint="10.9.9.1:29400") as job:
            job.add(through=two.inside(0))
            job.add(through=two.inside(1))
            claim("L12 nodes of two networks run, at the addresses that lead to each other",
                  until(lambda: job.stands(2)), job.text())
            two.cut()
            claim("L58 of two that are cut off from each other only the coordinator's goes on",
                  until(lambda: job.stands(1)), job.text())
            claim("L55 and the other ends within seconds, and says what would have outlived the endpoint",
                  until(lambda: job.nodes[1].poll() == 1 and "etcd would have outlived" in job.text(), 20), job.text())
    finally:
        two.remove()


def torchruns_store():
    """P10: the state of c10d is refused, and static is shared."""
    store = subprocess.Popen([STORE, "serve", "--listen=127.0.0.1:0"], env=CLEAN, stdout=subprocess.PIPE, text=True)
    try:
        address = re.search(r"127\.0\.0\.1:\d+", store.stdout.readline()).group()
        subprocess.run([STORE, "set", f"tcp://{address}", "torch.rendezvous.job", "pickled"], env=CLEAN, check=True,
                       timeout=LIMIT)
        with Job("--nnodes=2", endpoint=address) as job:
            job.add()
            claim("P10 a store that holds torchrun's state is refused in one line",
                  job.codes() == [1] and "pickled Python" in job.text() and job.text().count("\n") == 1, job.text())
    finally:
        store.kill()
        store.wait()
        store.stdout.close()
    words = shlex.split(os.environ.get("MANYWORLDS_TORCHRUN", "torchrun"))
    if not os.environ.get("MANYWORLDS_TEST_LONG") or not shutil.which(words[0]):
        print("skipped: torchrun as a node (MANYWORLDS_TEST_LONG, and torchrun or MANYWORLDS_TORCHRUN)")
        return
    for place in range(2):
        port = str(free_port())
        codes = []
        said = ""
        both = [subprocess.Popen([*program, "--nnodes=2", f"--node-rank={rank}", "--nproc-per-node=2",
                                  "--master-addr=127.0.0.1", f"--master-port={port}", "--no-python", "sh", "-c",
                                  "echo rank $RANK of $WORLD_SIZE at $MASTER_PORT"], env=CLEAN, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, text=True)
                for program, rank in (([PROGRAM], place), (words, 1 - place))]
        for each in both:
            said += each.communicate(timeout=2 * LIMIT)[0]
            codes.append(each.returncode)
        claim(f"P10 with torchrun as the other node mwrun is node {place} of a static run",
              codes == [0, 0] and sorted(said.splitlines()) == [f"rank {r} of 4 at {port}" for r in range(4)], said)


def main():
    etcd = None
    try:
        etcd = Etcd()
    except FileNotFoundError:
        print("skipped etcd: it is not installed")
    endpoint = etcd.endpoint if etcd else None
    try:
        command_lines()
        over_ipv6()
        failing()
        coming_and_going()
        replaced_alone()
        silent()
        store_lost(endpoint)
        secret()
        networks()
        torchruns_store()
        with tempfile.TemporaryDirectory() as folder:
            same_kills(endpoint, folder)
    finally:
        if etcd:
            etcd.end()
    claim_nothing_is_left()
    sys.exit(1 if failures else 0)


main()
