#!/usr/bin/env python3
"""One program under a real launcher: its members find their places, meet in a world, and end as they should.

usage: launchers_test.py PROGRAM by_hand|open_mpi|mpich|slurm|torchrun

What is missing here is skipped by name. slurm and torchrun run where MANYWORLDS_TEST_LONG is set. Slurm runs as
two nodes in namespaces of its own. MANYWORLDS_TORCHRUN is the command to take in place of `torchrun`.
"""
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../process"))
from watched_program import ARGUMENTS, PROGRAM, claim, claim_nothing_is_left, failures  # noqa: E402

LIMIT = 60
LAUNCHER = ARGUMENTS[0]
ATTEMPTS = int(os.environ.get("MANYWORLDS_TEST_KILLS", "20"))
# What a launcher around this test says is not meant for its members.
OURS = re.compile(r"RANK|WORLD_SIZE|LOCAL_|GROUP_|ROLE_|MASTER_|TORCHELASTIC_|MANYWORLDS_(?!TEST)|SLURM|PMI|OMPI|MPI_")
CLEAN = {name: value for name, value in os.environ.items() if not OURS.match(name)}


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def by_hand_variables(rank, size, port):
    return {**CLEAN, "RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "localhost", "MASTER_PORT": port}


def start(environment, *words):
    return subprocess.Popen([PROGRAM, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def finish(process, limit=LIMIT):
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += "\n(it did not end in time)"
    return process.returncode, out, err


def run(*command, environment=None, limit=LIMIT):
    """Runs a launcher in a session of its own, so that one that hangs leaves nothing."""
    process = subprocess.Popen(command, env=environment or CLEAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, start_new_session=True)
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        err += "\n(it did not end in time)"
    return process.returncode, out, err


def claim_sums(what, size, launcher, done, nodes=1):
    code, out, err = done
    total = size * (size + 1) // 2
    found = re.findall(rf"rank (\d+) of {size}, local (\d+) of (\d+), node (\d+) of (\d+), {launcher}: "
                       rf"the sum is {total}$", out, re.M)
    good = code == 0 and sorted(int(each[0]) for each in found) == list(range(size))
    good = good and all(int(each[4]) == nodes and int(each[1]) < int(each[2]) for each in found)
    claim(f"C1 {what}: {size} members found their places and met", good, "" if good else f"{code}: {out}{err}"[-2000:])


def together(size):
    """What all members of a run by hand have printed."""
    port = free_port()
    # The last one comes first, and hosts nothing.
    members = [start(by_hand_variables(rank, size, port)) for rank in reversed(range(size))]
    ends = [finish(each) for each in members]
    return max(end[0] for end in ends), "".join(end[1] for end in ends), "".join(end[2] for end in ends)


def claim_dies(what, environment, *parts):
    began = time.monotonic()
    code, out, err = finish(start(environment))
    took = time.monotonic() - began
    good = code != 0 and all(part in err for part in parts) and took < 20
    claim(what, good, "" if good else f"{code} after {took:.1f} s: {out}{err}")


def bad_variables():
    port = free_port()
    good = by_hand_variables(0, 2, port)
    claim_dies("C1 a rank that is not below the size is named", {**good, "RANK": "2"}, 'RANK="2" was given: expected')
    claim_dies("C1 an empty size is named", {**good, "WORLD_SIZE": ""}, 'WORLD_SIZE="" was given: expected')
    without = dict(good)
    del without["MASTER_PORT"]
    claim_dies("C1 a port that is missing is named", without, "MASTER_PORT is not set: expected")
    claim_dies("C1 two launchers that disagree are named", {**good, "OMPI_COMM_WORLD_RANK": "1"}, 'RANK="0"',
               'OMPI_COMM_WORLD_RANK="1"')
    step = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_ID": "0",
            "PMIX_RANK": "0", "PMIX_NAMESPACE": "prterun-7"}
    claim_dies("C1 a PMIx of another launcher that does not answer is named inside of a step too", {**CLEAN, **step},
               'PMIX_NAMESPACE="prterun-7" was given: expected a PMIx')
    with tempfile.NamedTemporaryFile() as secret:
        secret.write(b"secret")
        secret.flush()
        os.chmod(secret.name, 0o644)
        claim_dies("a secret that others can read is refused by name", {**good, "MANYWORLDS_SECRET_FILE": secret.name},
                   secret.name, "mode 0644")
    claim_dies("beyond loopback a secret is asked for", {**good, "MASTER_ADDR": "192.0.2.77"}, "MANYWORLDS_SECRET_FILE")


def wait_for_line(process, part):
    for line in process.stdout:
        if part in line:
            return True
    return False


def signals():
    for number, words, expected in ((signal.SIGTERM, [], 143), (signal.SIGINT, [], 130), (signal.SIGTERM, ["7"], 7)):
        port = free_port()
        members = [start(by_hand_variables(rank, 2, port), "wait", *words) for rank in range(2)]
        waits = all([wait_for_line(each, "waits") for each in members])
        for each in members:
            each.send_signal(number)
        codes = [finish(each, 20)[0] for each in members]
        claim(f"{number.name} cancels the task, and the exit code is {expected}", waits and codes == [expected] * 2,
              codes)


def exception():
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, f"error{rank}.json") for rank in range(2)]
        members = [start({**by_hand_variables(rank, 2, port), "TORCHELASTIC_ERROR_FILE": files[rank]}, "throw", "1")
                   for rank in range(2)]
        code, _, err = finish(members[1], 20)
        members[0].terminate()
        finish(members[0], 20)
        lines = [line for line in err.splitlines() if line.startswith("manyworlds[")]
        claim("an exception is an exit code and one line", code == 1 and len(lines) == 1 and
              "rank 1 of 2 (by_hand, run none): the model cannot be loaded" in lines[0], f"{code}: {err}")
        with open(files[1]) as written:
            message = json.load(written)["message"]
        claim("P4 and an error file", message["message"] == "std::runtime_error: the model cannot be loaded" and
              message["errorCode"] == 1, message)
        claim("the other member, which was told to end, wrote none", not os.path.exists(files[0]))


def by_hand():
    claim_sums("alone", 1, "none", finish(start(CLEAN)))
    for size in (2, 4):
        claim_sums("by hand", size, "by_hand", together(size))
    bad_variables()
    signals()
    exception()


def open_mpi():
    mpirun = shutil.which("mpirun.openmpi")
    if not mpirun:
        skip("Open MPI is missing (Debian: openmpi-bin)")
    command = [mpirun, "--oversubscribe", "--allow-run-as-root"]
    for size in (2, 4):
        claim_sums("mpirun, by PMIx", size, "open_mpi", run(*command, "-n", str(size), PROGRAM))
    named = {**CLEAN, "MASTER_ADDR": "localhost", "MASTER_PORT": free_port()}
    claim_sums("mpirun, with the store named", 2, "open_mpi", run(*command, "-n", "2", PROGRAM, environment=named))
    code, out, err = run(*command, "-n", "2", PROGRAM, "throw", "1")
    claim("a member's exception ends the job", code == 1 and "the model cannot be loaded" in err, (code, out, err))


def mpich():
    mpiexec = shutil.which("mpiexec.hydra")
    if not mpiexec:
        skip("MPICH is missing (Debian: mpich)")
    for size in (2, 4):
        named = {**CLEAN, "MASTER_ADDR": "localhost", "MASTER_PORT": free_port()}
        claim_sums("mpiexec", size, "hydra", run(mpiexec, "-n", str(size), PROGRAM, environment=named))
    code, out, err = run(mpiexec, "-n", "2", PROGRAM)
    claim("C1 without a store's address the variable is named", code != 0 and "MASTER_ADDR is not set" in err, err)


def slurm():
    recipe = os.environ.get("MANYWORLDS_SLURM", "/work/shared/recipes/slurm-on-one-machine.sh")
    for tool in ("srun", "slurmctld", "slurmd", "munged"):
        if not shutil.which(tool):
            skip(f"{tool} is missing (Debian: slurmctld slurmd slurm-client munge)")
    if not os.path.exists(recipe) or os.geteuid() != 0:
        skip("Slurm runs as root by the script that MANYWORLDS_SLURM names")
    with tempfile.TemporaryDirectory() as folder:
        secret = os.path.join(folder, "secret")
        with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write("the job's secret\n")
        jobs = os.path.join(folder, "jobs.sh")
        with open(jobs, "w") as file:
            file.write(f"""echo "10.99.0.1 n1 n2" >> /etc/hosts
export MANYWORLDS_SECRET_FILE={secret}
for command in "-N2 -n2" "-N2 -n4" "-N2 -n4 --resv-ports=2" "-N1 -n2" "-N1 -n2 --mpi=pmi2" "-N1 -n2 --mpi=pmix"; do
  echo "== $command"
  timeout 40 srun $command {shlex.quote(PROGRAM)} 2>&1
  echo "== ended with $?"
done
unset MANYWORLDS_SECRET_FILE
echo "== without a secret"
timeout 40 srun -N2 -n2 {shlex.quote(PROGRAM)} 2>&1
echo "== ended with $?"
""")
        done = run("unshare", "-m", "-n", "-p", "-f", "--mount-proc", "-u", "bash", recipe, folder, "bash", jobs,
                   environment={**CLEAN, "LIMIT": "250"}, limit=300)
        parts = re.findall(r"^== (.*)\n((?:(?!== ).*\n)*)== ended with (\d+)", done[1], re.M)
        claim("all jobs ran", len(parts) == 7, "" if len(parts) == 7 else done)
        for what, out, code in parts[:6]:
            size = int(re.search(r"-n(\d+)", what)[1])
            claim_sums(f"srun {what}", size, "slurm", (int(code), out, ""), nodes=int(what[2]))
        what, out, code = parts[6] if len(parts) == 7 else ("", "", "0")
        claim("two nodes without a secret are refused by name", code != "0" and "MANYWORLDS_SECRET_FILE" in out, out)


def torchrun():
    words = shlex.split(os.environ.get("MANYWORLDS_TORCHRUN", "torchrun"))
    if not shutil.which(words[0]):
        skip("torchrun is missing (pip install torch, or MANYWORLDS_TORCHRUN names it)")
    command = [*words, "--no-python", "--standalone"]
    for size in (2, 4):
        claim_sums("P1 torchrun", size, "torchrun", run(*command, "--nproc-per-node", str(size), PROGRAM))
    claim_sums("P2 torchrun, static", 2, "torchrun",
               run(*words, "--no-python", "--nnodes", "1", "--node-rank", "0", "--master-addr", "127.0.0.1",
                   "--master-port", free_port(), "--nproc-per-node", "2", PROGRAM))
    own = {**CLEAN, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    claim_sums("P2 torchrun with an agent that has no store for us", 2, "torchrun",
               run(*command, "--nproc-per-node", "2", PROGRAM, environment=own))
    good = 0
    for attempt in range(ATTEMPTS):
        # Now before the store is made, now with the world up; now rank 0, now another.
        when = "die-early" if attempt % 4 == 3 else "die-once"
        rank = str(attempt % 2)
        code, out, err = run(*command, "--max-restarts=1", "--nproc-per-node", "2", PROGRAM, when, rank)
        good += code == 0 and len(re.findall("the sum is 3$", out, re.M)) >= 2
        if code != 0:
            print(f"{when} {rank}: {code}: {out}{err}"[-3000:])
    claim(f"P3 a member killed in attempt 0 is no matter in attempt 1: {ATTEMPTS} times", good == ATTEMPTS, good)
    code, out, err = run(*command, "--nproc-per-node", "2", PROGRAM, "throw", "1")
    claim("P4 torchrun's summary shows our exception", code == 1 and "the model cannot be loaded" in err and
          "rank 1 of 2 (torchrun, run" in err, err)


if LAUNCHER in ("slurm", "torchrun") and not os.environ.get("MANYWORLDS_TEST_LONG"):
    skip(f"{LAUNCHER} is started where MANYWORLDS_TEST_LONG is set (tests/run.sh --full)")
{"by_hand": by_hand, "open_mpi": open_mpi, "mpich": mpich, "slurm": slurm, "torchrun": torchrun}[LAUNCHER]()
claim_nothing_is_left()
sys.exit(bool(failures))
