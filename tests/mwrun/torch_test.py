#!/usr/bin/env python3
"""PyTorch's own jobs under mwrun, of Debian's torch or of MANYWORLDS_TORCH_PYTHON (such as `chroot /srv/trixie python3`).

usage: torch_test.py MWRUN LAUNCHED

The numbers are those of the acceptance cases P.
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../process"))
from jobs import CLEAN, claim, run  # noqa: E402
from watched_program import ARGUMENTS, claim_nothing_is_left, failures  # noqa: E402

LAUNCHED = os.path.abspath(ARGUMENTS[0])
PYTHON = shlex.split(os.environ.get("MANYWORLDS_TORCH_PYTHON", "/usr/bin/python3"))
CHOSEN = {**CLEAN, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}

GLOO = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(4) * (dist.get_rank() + 1)
dist.all_reduce(x)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ.get("DIES") == os.environ["RANK"]:
    os._exit(9)
all_of_them = [None] * dist.get_world_size()
dist.all_gather_object(all_of_them, {"rank": dist.get_rank()})
dist.new_group([0, 1])
dist.monitored_barrier()
os.write(1, f"rank {dist.get_rank()} sum {int(x[0])} {len(all_of_them)}\\n".encode())
dist.destroy_process_group()
"""

NCCL = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
x = torch.ones(4, device="cuda") * (dist.get_rank() + 1)
dist.all_reduce(x)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} sum {int(x[0])}", flush=True)
dist.destroy_process_group()
"""

CHILDREN = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.tensor(i)

def square(i, into):
    into[i] = into[i] ** 2

def main():
    dist.init_process_group("gloo")
    total = sum(int(batch.sum()) for batch in DataLoader(Numbers(), batch_size=2, num_workers=2))
    shared = torch.arange(3).share_memory_()
    mp.spawn(square, args=(shared,), nprocs=3)
    everything = torch.tensor([total + int(shared.sum())])
    dist.all_reduce(everything)
    os.write(1, f"rank {dist.get_rank()} has {int(everything)}\\n".encode())
    os.write(2, f"rank {dist.get_rank()} says so {sys.argv[1:]}\\n".encode())
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""

SHARES = """
import os, datetime, torch.distributed as dist
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 2, False,
                      timeout=datetime.timedelta(seconds=20))
store.set("from_python", "a")
store.wait(["from_cpp"])
store.add("count", 2)
while store.add("count", 0) < 5:
    pass
os.write(1, f"Python has {store.get('from_cpp').decode()} {store.add('count', 0)}\\n".encode())
store.set("python_is_done", "")
"""


def job_of(*words, environment=None):
    return run(*words, environment={**CHOSEN, **(environment or {})}, limit=120)


def groups(script):
    for size in (2, 4):
        code, out, err = job_of(f"--nproc-per-node={size}", "--no-python", *PYTHON, script)
        found = re.findall(r"rank (\d) sum (\d+) \d", out)
        claim(f"P5 a gloo job of PyTorch with {size} ranks", code == 0 and len(found) == size, (code, out, err))
    code, out, err = job_of("--nproc-per-node=2", "--max-restarts=1", "--no-python", *PYTHON, script,
                            environment={"DIES": "1"})
    claim("P6 and one of which a rank dies once", code == 0 and len(re.findall("sum 3", out)) == 2, (code, out, err))


def devices(script):
    counted = subprocess.run([*PYTHON, "-c", "import torch; print(torch.cuda.device_count())"], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True, check=False).stdout.strip()
    if counted in ("", "0"):
        print("skipped: P9 NCCL of PyTorch under mwrun (no GPU that torch can use)")
        return
    code, out, err = job_of("--nproc-per-node=gpu", "--no-python", *PYTHON, script)
    claim("P9 an NCCL job of PyTorch with a rank for each GPU", code == 0 and
          len(re.findall(rf"rank \d+ of {counted} sum", out)) == int(counted), (code, out, err))


def children(folder):
    """Processes of workers' own; the module is found where the job was started, and its output goes to files."""
    for name, words in (("a script", ["children.py"]), ("a module", ["-m", "children"])):
        logs = f"{folder}/logs-{name[2:]}"
        code, out, err = job_of("--nproc-per-node=2", "-r", "2", "-t", "1", f"--log-dir={logs}", *words, "-r", "own",
                                environment={"PYTHON_EXEC": PYTHON[-1], "PYTHONPATH": folder})
        claim(f"P7 {name} with processes of multiprocessing and of a DataLoader", code == 0 and
              sorted(re.findall(r"rank (\d) has 66", out)) == ["0", "1"], (code, out, err))
        said = ""
        for at, _, names in os.walk(logs):
            for each in names:
                if each == "stderr.log":
                    with open(os.path.join(at, each), encoding="utf-8", errors="replace") as file:
                        said += file.read()
        claim("P7 its streams go where -r and -t say, and its own options are its own", "says so" not in err and
              len(re.findall(r"rank \d says so \['-r', 'own'\]", said)) == 2, (err, said))


def shared_store(script):
    code, out, err = job_of("--nproc-per-node=2", "--no-python", "sh", "-c",
                            f"[ $RANK = 1 ] && exec {shlex.join(PYTHON)} {script}; exec {LAUNCHED} shares-store")
    claim("P8 a rank in C++ and one in Python share the store", code == 0 and "Python has b 5" in out and
          "C++ has a 5" in out, (code, out, err))


def main():
    if subprocess.run([*PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode:
        print("skipped: P5 to P9, PyTorch under mwrun (Debian: apt-get install python3-torch)")
        return
    with tempfile.TemporaryDirectory() as folder:
        scripts = {"gloo": GLOO, "nccl": NCCL, "children": CHILDREN, "shares": SHARES}
        for name, text in scripts.items():
            with open(f"{folder}/{name}.py", "w", encoding="ascii") as file:
                file.write(text)
        groups(f"{folder}/gloo.py")
        devices(f"{folder}/nccl.py")
        before = os.getcwd()
        os.chdir(folder)
        children(folder)
        os.chdir(before)
        shared_store(f"{folder}/shares.py")


main()
claim_nothing_is_left()
sys.exit(bool(failures))
