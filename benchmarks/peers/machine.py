"""What was measured on, and how much of it others used meanwhile."""

import os
import resource
import time

from programs import Failed, HERE, run


class Busy:
    """How much of the machine others used meanwhile: without it no figure here means much."""

    def __init__(self):
        self.begin = self.now()

    @staticmethod
    def now():
        with open("/proc/stat") as table:
            ticks = [int(t) for t in table.readline().split()[1:9]]
        tick = os.sysconf("SC_CLK_TCK")
        idle, stolen = (ticks[3] + ticks[4]) / tick, ticks[7] / tick
        own = sum(u.ru_utime + u.ru_stime for u in (resource.getrusage(resource.RUSAGE_SELF),
                                                    resource.getrusage(resource.RUSAGE_CHILDREN)))
        return sum(ticks) / tick, idle, stolen, own

    def fields(self):
        total, idle, stolen, own = (b - a for a, b in zip(self.begin, self.now()))
        others = max(0.0, total - idle - stolen - own)
        return {"others_percent": round(100 * others / total, 1),
                "stolen_percent": round(100 * stolen / total, 1)}


def commit():
    try:
        return run(["git", "-C", HERE, "describe", "--always", "--dirty"]).strip()
    except (Failed, FileNotFoundError):
        return "unknown"


def machine(contestants):
    """The machine, with the versions of those `contestants` that are here."""
    with open("/proc/cpuinfo") as table:
        names = [line.split(": ")[1].strip() for line in table if line.startswith("model name")]
    versions = {one.name: one.version() for one in contestants if not one.missing()}
    return {"bench": "machine", "commit": commit(), "versions": versions,
            "processor": names[0] if names else "unknown", "cpus": len(names),
            "kernel": os.uname().release, "load": os.getloadavg()[0],
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def text_of(about):
    """For people: a line on the machine, one on who was compared."""
    line = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in about.items()
                     if name not in ("bench", "versions"))
    return f"{line}\n\n" + "; ".join(f"{who} {version}" for who, version in
                                     about["versions"].items()) + "\n"
