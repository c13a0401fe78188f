#!/usr/bin/env python3
"""mwrun on a terminal: Ctrl-C, Ctrl-Z and `fg`, a job in the background, a window that is closed (L69).

usage: terminal_test.py MWRUN

The shell is bash, on a terminal of this test's own.
"""
import fcntl
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time

from jobs import CLEAN, agent_of, claim, is_gone, stat_of, until
from watched_program import PROGRAM, claim_nothing_is_left, failures

CTRL_C, CTRL_Z = b"\x03", b"\x1a"
# What is typed is seen, too: what is looked for is written in another way.
PROMPT = "prompt> "


class Terminal:
    """A terminal with a program that has it as its controlling one."""

    def __init__(self, *words):
        self.master, slave = os.openpty()
        self.seen = b""
        self.is_closed = False
        self.process = subprocess.Popen(
            words, env={**CLEAN, "PS1": PROMPT, "TERM": "dumb", "HISTFILE": "", "P": PROGRAM}, stdin=slave, stdout=slave,
            stderr=slave, start_new_session=True, preexec_fn=self.take)
        os.close(slave)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    @staticmethod
    def take():
        # It is ignored where this test runs under nohup.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def read(self):
        try:
            while not self.is_closed:
                if select.select([self.master], [], [], 0.1)[0]:
                    self.seen += os.read(self.master, 4096)
        except OSError:
            pass  # no process has the other end
        os.close(self.master)

    def press(self, keys):
        os.write(self.master, keys)

    def type(self, line):
        self.press(line.encode() + b"\n")

    def text(self):
        return self.seen.decode(errors="replace")

    def shows(self, pattern, limit=20):
        return until(lambda: re.search(pattern, self.text(), re.S), limit)

    def hang_up(self):
        """As a closed window: the kernel tells the session."""
        self.is_closed = True
        self.reader.join(20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.hang_up()


def shell():
    terminal = Terminal("bash", "--norc", "--noprofile", "--noediting", "-i")
    terminal.shows(re.escape(PROMPT))
    return terminal


def job_of(shell_pid):
    """The guard: a child of the shell that executes mwrun."""
    def found():
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if int(stat_of(pid)[1]) == shell_pid and os.readlink(f"/proc/{pid}/exe") == PROGRAM:
                    return int(pid)
            except OSError:
                pass  # ended meanwhile
        return None
    until(found)
    return found()


# It counts in a file while it runs.
COUNTS = ("trap 'echo got INT; sleep 1; echo over INT; exit 0' INT; trap 'sleep 1; echo over > $F.hup; exit 0' HUP; "
          "trap '' TERM; echo worker''-up; while :; do echo x >> $F; sleep 0.05; done")


def lines_of(path):
    try:
        with open(path, encoding="ascii") as file:
            return file.read().count("\n")
    except FileNotFoundError:
        return 0


def grows(path):
    before = lines_of(path)
    return until(lambda: lines_of(path) > before + 3, 10)


def starts(terminal, folder, options="", script=COUNTS, behind=""):
    with open(f"{folder}/script", "w", encoding="ascii") as file:
        file.write(script)
    terminal.type(f"export F={folder}/count; $P {options} --no-python sh {folder}/script {behind}")
    claim("a job runs on a terminal", terminal.shows("worker-up"), terminal.text())
    guard = job_of(terminal.process.pid)
    return guard, agent_of(guard)


def standard_input():
    with tempfile.TemporaryDirectory() as folder, shell() as terminal:
        starts(terminal, folder, script="echo worker''-up; cat; echo it''-has-read; readlink /proc/$$/fd/0; sleep 1")
        claim("L31 a worker reads nothing of the terminal", terminal.shows("it-has-read\r*\n/dev/null"), terminal.text())


def ctrl_c():
    with tempfile.TemporaryDirectory() as folder, shell() as terminal:
        _, agent = starts(terminal, folder, "--shutdown-timeout=50")
        terminal.press(CTRL_C)
        claim("L31, L69 Ctrl-C is one order, and workers have their grace", terminal.shows("over INT"), terminal.text())
        terminal.type("echo co''de=$?")
        claim("L69 the job has ended when the shell goes on", terminal.shows("code=1") and is_gone(agent), terminal.text())
        claim("L69 it is said once", terminal.text().count("SIGINT: the workers are told to end") == 1 and
              "again" not in terminal.text() and terminal.text().count("got INT") == 1, terminal.text())
    with tempfile.TemporaryDirectory() as folder, shell() as terminal:
        _, agent = starts(terminal, folder, "--shutdown-timeout=1000",
                          "trap '' INT TERM; echo worker''-up; while :; do sleep 0.05; done")
        terminal.press(CTRL_C)
        terminal.shows("SIGINT: the workers are told to end")
        time.sleep(0.3)
        claim("a worker may have other work to do first", not is_gone(agent))
        terminal.press(CTRL_C)
        claim("L69 a second one kills at once", terminal.shows("SIGINT again: the workers are killed") and
              until(lambda: is_gone(agent)), terminal.text())
        terminal.type("echo co''de=$?")
        claim("L69 and the shell goes on", terminal.shows("code=1"), terminal.text())


def ctrl_z():
    with tempfile.TemporaryDirectory() as folder, shell() as terminal:
        guard, agent = starts(terminal, folder)
        terminal.press(CTRL_Z)
        claim("L69 Ctrl-Z gives the terminal back to the shell", terminal.shows(r"Stopped"), terminal.text())
        terminal.type("echo ba''ck")
        claim("L69 which takes commands", terminal.shows(r"\nback"), terminal.text())
        claim("L69 the guard is stopped, and the agent is not", stat_of(guard)[0] == "T" and stat_of(agent)[0] != "T")
        claim("L69 the workers go on", grows(f"{folder}/count"))
        terminal.type("fg")
        claim("L69 fg goes on with the guard", until(lambda: stat_of(guard)[0] != "T"), terminal.text())
        terminal.press(CTRL_C)
        claim("L69 and Ctrl-C reaches it again", terminal.shows("over INT") and until(lambda: is_gone(guard)),
              terminal.text())
    with tempfile.TemporaryDirectory() as folder, shell() as terminal:
        guard, agent = starts(terminal, folder, script="echo worker''-up; while ! [ -e $F.go ]; do sleep 0.05; done; exit 0")
        terminal.press(CTRL_Z)
        terminal.shows(r"Stopped")
        open(f"{folder}/count.go", "w", encoding="ascii").close()
        claim("L69 a job ends while its guard is stopped", until(lambda: is_gone(agent)))
        terminal.type("fg; echo co''de=$?")
        claim("L69 and fg tells how", terminal.shows("code=0"), terminal.text())
    with tempfile.TemporaryDirectory() as folder, shell() as terminal:
        guard, agent = starts(terminal, folder)
        terminal.press(CTRL_Z)
        terminal.shows(r"Stopped")
        terminal.type("kill -INT %1; bg")
        claim("L69 a signal to a stopped job counts when it goes on", terminal.shows("over INT") and
              until(lambda: is_gone(agent)), terminal.text())


def background():
    """Where `stty tostop` stops what writes in the background."""
    with tempfile.TemporaryDirectory() as folder, shell() as terminal:
        terminal.type("stty tostop")
        guard, agent = starts(terminal, folder, "--nproc-per-node=2 --tee=3", behind="&")
        terminal.type("echo fore''ground")
        claim("L69 a job in the background runs", terminal.shows(r"\nforeground") and grows(f"{folder}/count") and
              stat_of(guard)[0] != "T", terminal.text())
        claim("L69 agent and workers write, also with tostop", terminal.shows(r"mwrun: run ") and
              terminal.shows(r"\[default1\]:worker-up"), terminal.text())
        terminal.press(CTRL_C)
        time.sleep(0.5)
        claim("L69 Ctrl-C does not concern it", not is_gone(agent))
        os.kill(agent, signal.SIGKILL)
        claim("L69 the guard writes, too, and is not stopped by that", terminal.shows(r"the agent \(pid \d+\) was killed") and
              until(lambda: is_gone(guard)), terminal.text())


def closed():
    with tempfile.TemporaryDirectory() as folder, shell() as terminal:
        guard, agent = starts(terminal, folder, "--shutdown-timeout=50")
        terminal.hang_up()
        claim("L69 a closed window ends a job in order: workers have their grace",
              until(lambda: lines_of(f"{folder}/count.hup") == 1), lines_of(f"{folder}/count.hup"))
        claim("L69 and nothing is left", until(lambda: is_gone(agent) and is_gone(guard)))
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/script", "w", encoding="ascii") as file:
            file.write(COUNTS)
        CLEAN["F"] = f"{folder}/count"
        with Terminal(PROGRAM, "--shutdown-timeout=50", "--no-python", "sh", f"{folder}/script") as terminal:
            claim("a job runs on a terminal without a shell", terminal.shows("worker-up"), terminal.text())
            agent = agent_of(terminal.process.pid)
            terminal.hang_up()
            claim("L69 so does one without a shell, as under ssh -t",
                  until(lambda: lines_of(f"{folder}/count.hup") == 1) and until(lambda: is_gone(agent)))
    with tempfile.TemporaryDirectory() as folder, shell() as terminal:
        with open(f"{folder}/script", "w", encoding="ascii") as file:
            file.write("while :; do echo x >> $F; sleep 0.05; done")
        terminal.type(f"export F={folder}/count; nohup $P --no-python sh {folder}/script > {folder}/said 2>&1")
        guard = job_of(terminal.process.pid)
        agent = agent_of(guard)
        grows(f"{folder}/count")
        terminal.hang_up()
        terminal.process.wait(20)
        claim("L69 under nohup it outlives its terminal", grows(f"{folder}/count") and not is_gone(guard))
        os.kill(guard, signal.SIGINT)
        claim("L69 and takes other orders", until(lambda: is_gone(guard) and is_gone(agent)))


if not shutil.which("bash"):
    print("skipped: bash is missing")
    sys.exit(77)
for part in (standard_input, ctrl_c, ctrl_z, background, closed):
    part()
claim_nothing_is_left()
sys.exit(bool(failures))
