#!/usr/bin/env python3
"""S2: PyTorch's own clients of a TCPStore at our server, and our client at PyTorch's own servers.

usage: torch_test.py STORE_USER MWSTORE

It runs where MANYWORLDS_TEST_LONG is set, with each torch that it finds: that of /usr/bin/python3 (Debian:
python3-torch), and those of MANYWORLDS_TORCH_ROOT, which names changed roots (as made by debootstrap, with python3-torch
in it; needs root) and virtual environments (pip install torch), with ":" between them.
"""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../process"))
from watched_program import ARGUMENTS, PROGRAM, claim, claim_nothing_is_left, failures  # noqa: E402

LIMIT = 120
MWSTORE = ARGUMENTS[0]
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_peer.py")) as peer_file:
    PEER = peer_file.read()
OPERATIONS = re.findall(r"^    def (\w+)\(self, new\)", PEER, re.M)
running = []


def pythons():
    """Commands of a Python that may have torch."""
    yield "Debian's", ["/usr/bin/python3"]
    for root in filter(None, os.environ.get("MANYWORLDS_TORCH_ROOT", "").split(":")):
        own = os.path.join(root, "bin/python")
        is_virtual = os.path.exists(os.path.join(root, "pyvenv.cfg"))
        yield root, [own] if is_virtual else ["chroot", root, "python3"]


def finished(*command, env=None):
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
    return done.returncode, done.stdout, done.stderr


def start(*command, env=None):
    """Starts a server; returns what it prints first."""
    process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
    running.append(process)
    return process.stdout.readline().strip()


def end_all():
    for process in running:
        process.stdin.close()
        process.terminate()
    for process in running:
        process.wait(LIMIT)
    running.clear()


def serve(*options):
    """Returns the port of a store of ours."""
    return start(MWSTORE, "serve", "--listen", "127.0.0.1:0", *options).rpartition(":")[2]


def seen(what, expected):
    """The end of a claim: what was seen is shown if it is another thing."""
    return what == expected, "" if what == expected else repr(what)


def ends_of(text):
    """What is said of each operation: {name: how it ended}."""
    return {name: how + more for how, name, more in re.findall(r"^(ok|none|FAILED) (\w+)(.*)$", text, re.M)}


def their_clients(what, python, env):
    """Returns the operations that this version has."""
    ports = {name: serve() for name in OPERATIONS}
    code, out, err = finished(*python, "-c", PEER, "use", *(f"{n}={p}" for n, p in ports.items()), env=env)
    ends = ends_of(out)
    good = [name for name, end in ends.items() if end == "ok"]
    wrong = {name: end for name, end in ends.items() if end not in ("ok", "none")}
    claim(f"S2 {what}: its client has {len(good)} operations at our server, as at its own",
          code == 0 and not wrong and len(ends) == len(OPERATIONS) and len(good) > 8, wrong or err[-2000:] * (code != 0))
    url = f"tcp://127.0.0.1:{ports['set']}"
    found = finished(MWSTORE, "get", url, "schlüssel")[1] + finished(MWSTORE, "keys", url)[1]
    claim(f"S2 {what}: mwstore reads what it set", *seen(found, "größe\nbytes\nempty\nk\nschlüssel\n"))
    return good


def through_a_relay(what, python, env):
    with tempfile.TemporaryDirectory() as folder:
        secret = os.path.join(folder, "secret")
        finished(MWSTORE, "secret", secret)
        port = serve("--secret-file", secret)
        relay = start(MWSTORE, "relay", f"tcp://127.0.0.1:{port}", "--secret-file", secret).rpartition(":")[2]
        out = finished(*python, "-c", PEER, "use", f"wait_timeout={relay}", env=env)[1]
        claim(f"S22 {what}: its client is served through a relay by a store with a secret", *seen(out, "ok wait_timeout\n"))


def our_client(what, python, env, known):
    words = start(*python, "-c", PEER, "serve", env=env).split()
    ports = dict(word.split("=") for word in words if "=" in word)
    version = re.match(r"(\d+)\.(\d+)", words[1])
    if (int(version[1]), int(version[2])) < (2, 2):
        out = finished(PROGRAM, f"num_keys={ports['num_keys']}")[1]
        claim(f"S2 {what}: its server, of the old dialect, is refused by name",
              *seen("a store of PyTorch before 2.2" in out or out, True))
        return
    out = finished(PROGRAM, *(f"{name}={ports[name]}" for name in known))[1]
    ends = ends_of(out)
    wrong = {name: end for name, end in ends.items() if end != "ok"}
    # Its count of its members is no operation of ours.
    claim(f"S2 {what}: our client has {len(ends)} operations at its server ({words[2]}), as at ours",
          not wrong and set(ends) == set(known) - {"connect"}, wrong or "")


if not os.environ.get("MANYWORLDS_TEST_LONG"):
    print("skipped: PyTorch is started where MANYWORLDS_TEST_LONG is set (tests/run.sh --full)")
    sys.exit(77)
tried = 0
for where, python in pythons():
    code, out, _ = finished(*python, "-c", "import torch, torch.distributed as d; print(torch.__version__, d.is_available(), "
                            "'use_libuv' in (d.TCPStore.__init__.__doc__ or ''))")
    if code != 0 or "True" not in out:
        print(f"skipped: {where} Python has no torch (Debian: python3-torch)")
        continue
    tried += 1
    version, _, knows_libuv = out.split()[-3:]
    for libuv in ("0", "1") if knows_libuv == "True" else ("0",):
        env = {**os.environ, "USE_LIBUV": libuv}
        if finished(*python, "-c", PEER, "use", f"num_keys={serve()}", env=env)[1] != "ok num_keys\n":
            print(f"skipped: torch {version} with USE_LIBUV={libuv} (Debian's builds have no libuv)")
            end_all()
            continue
        what = f"torch {version} with USE_LIBUV={libuv}"
        try:
            known = their_clients(what, python, env)
            our_client(what, python, env, known)
            through_a_relay(what, python, env)
        finally:
            end_all()
if not tried:
    print("skipped: no torch is here (Debian: python3-torch; MANYWORLDS_TORCH_ROOT)")
    sys.exit(77)
claim_nothing_is_left()
sys.exit(bool(failures))
