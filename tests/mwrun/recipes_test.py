#!/usr/bin/env python3
"""mwrun under another launcher, as examples/starting.md says: a node is killed, and the job goes on with the other.

usage: recipes_test.py MWRUN MWSTORE ELASTIC slurm|open_mpi

The commands are those of the page: this test reads them there. Slurm runs as two nodes in namespaces of its own. Both
run where MANYWORLDS_TEST_LONG is set; what is missing is skipped by name.
"""
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../process"))
from jobs import agent_of, claim, until  # noqa: E402
from watched_program import ARGUMENTS, PROGRAM, claim_nothing_is_left, failures  # noqa: E402

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/starting.md")
RECIPE = os.environ.get("MANYWORLDS_SLURM", "/work/shared/recipes/slurm-on-one-machine.sh")
CLEAN = {name: value for name, value in os.environ.items() if not re.match(r"SLURM|PMI|OMPI|RANK|WORLD_SIZE|MASTER_", name)}

# The nodes' names are looked up as on a cluster. The second node's agent is killed, with no time to say anything.
DRIVER = """
echo "10.99.0.1 n1 n2" >> /etc/hosts
export PATH={programs}:$PATH
cd {folder}
mwstore secret job.key || exit 1
timeout 60 sbatch --wait --output=job.log job.sh &
job=$!
wait_for() {{
  for _ in $(seq 400); do grep -q "$1" job.log 2>/dev/null && return 0; sleep 0.05; done
  echo "never seen: $1"; return 1
}}
wait_for "rank 3: 2-3@1 is up"
for pid in $(pgrep -x mwrun-agent); do
  grep -qz SLURM_NODEID=1 /proc/$pid/environ && kill -9 $pid
done
wait_for "round 2, attempt 2: 2 workers on 1 node"
wait_for "in 1 world,"
sleep 1
scancel --signal=TERM --full $(squeue -h -o %A)
wait $job
echo "=="
cat job.log
echo "== left: $(pgrep mwrun) $(pgrep -x elastic)"
"""


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def page():
    with open(PAGE, encoding="utf-8") as file:
        return file.read()


def slurm():
    for tool in ("sbatch", "slurmctld", "slurmd", "munged"):
        if not shutil.which(tool):
            skip(f"{tool} is missing (Debian: slurmctld slurmd slurm-client munge)")
    if not os.path.exists(RECIPE) or os.geteuid() != 0:
        skip("Slurm runs as root by the script that MANYWORLDS_SLURM names")
    script = re.search(r"```sh\n(#!/bin/bash\n#SBATCH.*?)```", page(), re.S)[1]
    with tempfile.TemporaryDirectory() as folder:
        programs = os.path.join(folder, "programs")
        os.mkdir(programs)
        for each in (PROGRAM, *ARGUMENTS[:2]):
            os.symlink(os.path.abspath(each), os.path.join(programs, os.path.basename(each)))
        with open(os.path.join(folder, "job.sh"), "w", encoding="utf-8") as file:
            file.write(script)
        driver = os.path.join(folder, "driver.sh")
        with open(driver, "w", encoding="utf-8") as file:
            file.write(DRIVER.format(folder=folder, programs=programs))
        done = subprocess.run(["unshare", "-m", "-n", "-p", "-f", "--mount-proc", "-u", "bash", RECIPE, folder, "bash",
                               driver], env={**CLEAN, "LIMIT": "150"}, capture_output=True, text=True, timeout=200)
    said = done.stdout + done.stderr
    claim("L66 the nodes of a Slurm job meet", "round 1: 4 workers on 2 nodes" in said, said)
    claim("L66 a node that is killed is named by the other", re.search(r"mwrun: node \d on [\d.]+ is gone", said) is not None, said)
    claim("L66 which goes on with its workers", "round 2, attempt 2: 2 workers on 1 node" in said and
          "never seen" not in said)
    claim("nothing is left on the nodes", re.search(r"^== left:\s*$", said, re.M) is not None,
          re.findall("^== left.*", said, re.M))
    claim_nothing_is_left()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def open_mpi():
    """Both nodes are this machine."""
    mpirun = shutil.which("mpirun.openmpi")
    if not mpirun:
        skip("Open MPI is missing (Debian: openmpi-bin)")
    line = re.search(r"^(mpirun --enable-recovery .*?[^\\])\n", page(), re.S | re.M)[1].replace("\\\n", " ")
    known = {"mpirun": mpirun, "mwrun": PROGRAM, "elastic": os.path.abspath(ARGUMENTS[1]), "ppr:1:node": "ppr:2:node",
             "node1:29400": f"127.0.0.1:{free_port()}"}
    words = [known.get(each, each) for each in shlex.split(line)]
    words[1:1] = ["--oversubscribe", "--allow-run-as-root"]
    said = []

    def has_said(pattern):
        return re.search(pattern, "".join(said)) is not None

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([os.path.abspath(ARGUMENTS[0]), "secret", "job.key"], cwd=folder, check=True)
        with subprocess.Popen(words, cwd=folder, env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              start_new_session=True) as running:
            reader = threading.Thread(target=lambda: said.extend(running.stdout))
            reader.start()
            claim("L66 the nodes of an mpirun meet", until(lambda: "".join(said).count(" is up") == 12, 30), said)
            os.kill(agent_of(guard_of(1, running.pid)), signal.SIGKILL)
            claim("L66 a node that is killed is named by the other", until(lambda: has_said(r"node \d on [\d.]+ is gone"), 30),
                  said)
            claim("L66 which goes on with its workers",
                  until(lambda: has_said("round 2, attempt 2: 2 workers on 1 node") and has_said("in 1 world,"), 30), said)
            running.terminate()
            if not until(lambda: running.poll() is not None, 30):
                os.killpg(running.pid, signal.SIGKILL)
            reader.join(30)
    claim_nothing_is_left()


def guard_of(rank, mpirun):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                parent = int(stat.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{pid}/environ", "rb") as environment:
                if parent == mpirun and f"OMPI_COMM_WORLD_RANK={rank}".encode() in environment.read().split(b"\0"):
                    return int(pid)
        except OSError:
            pass  # ended meanwhile
    raise AssertionError(f"no process of rank {rank}")


if not os.environ.get("MANYWORLDS_TEST_LONG"):
    skip("it runs where MANYWORLDS_TEST_LONG is set (tests/run.sh --full)")
{"slurm": slurm, "open_mpi": open_mpi}[ARGUMENTS[2]]()
sys.exit(bool(failures))
