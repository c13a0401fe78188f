"""What a folder of reproduce.sh says to each budget that this library has set itself.

Of several sizes, rounds or kinds the worst counts, named in brackets. "A by B" is A divided by B. Nothing here
fails: a machine that others use misses budgets too.
"""

from tables import OURS, human, number, rows_in

MPIS = ("Open MPI", "MPICH")
KIB, MIB = 1 << 10, 1 << 20


def by_size(rows, what):
    """Who to figures, of each size and kind of collective."""
    found = {}
    for row in rows:
        if row.get(what) is not None and "who" in row:
            found.setdefault((row["size"], row.get("kind", "")), {})[row["who"]] = row[what]
    return found


def place(size, kind):
    return f"{kind} {human(size)}".strip() if size else kind


def worst(found, largest=True):
    """The worst of pairs of a figure and where it was."""
    found = list(found)
    return (max if largest else min)(found, default=None)


def middle(found):
    """Returns the median of pairs of a figure and where it was, of an even number the larger one."""
    found = sorted(found)
    return found[len(found) // 2:][:1]


def at_most(limit, found, unit=""):
    return f"at most {limit:g}{unit}", worst(found), unit, lambda value: value <= limit


def at_least(limit, found, unit=""):
    return f"at least {limit:g}{unit}", worst(found, False), unit, lambda value: value >= limit


def against(figures, others, sizes, better=min):
    """Ours by the better of the others."""
    for (size, kind), of in figures.items():
        theirs = [of[who] for who in others if who in of]
        if OURS in of and theirs and sizes[0] <= size <= sizes[1]:
            yield of[OURS] / better(theirs), place(size, kind)


def against_raw(rows, what, raw, sizes):
    for row in rows:
        if row.get("who") == OURS and row.get(raw) and sizes[0] <= row["size"] <= sizes[1]:
            yield row[what] / row[raw], human(row["size"])


def above_raw(rows, what, raw, size):
    for row in rows:
        if row.get("who") == OURS and row.get(raw) and row["size"] == size:
            yield row[what] - row[raw], human(row["size"])


def by_members(rows, what):
    """Who to figures, of each number of members."""
    found = {}
    for row in rows:
        if row.get(what) is not None and "who" in row:
            found.setdefault((0, f"{row['members']} members"), {})[row["who"]] = row[what]
    return found


def ours_among(figures, where):
    for (size, kind), of in figures.items():
        if OURS in of and place(size, kind) == where:
            yield of[OURS], ""


def figures_of(rows, bench, what, where=lambda row: "", /, **wanted):
    for row in rows:
        if row["bench"] == bench and all(row[name] == value for name, value in wanted.items()):
            yield row[what], where(row)


def of_small_messages(rows, where):
    latency, bandwidth = by_size(rows, "p50_us"), by_size(rows, "gb_s")
    everyone = {row["who"] for row in rows if row.get("compared")} - {OURS}
    small = (0, 8)
    yield f"8 B one way{where}, above a raw cache line", at_most(0.06, above_raw(rows, "p50_us", "raw_us", 8), " us")
    yield "the same, by the best peer", at_most(0.85, against(latency, everyone, small))
    yield f"1 KiB and 8 KiB one way{where}, by the best peer", at_most(
        0.95, against(latency, everyone, (KIB, 8 * KIB)))
    yield f"8 B, four under way{where}", at_least(0.16, ours_among(bandwidth, "8 B"), " GB/s")
    yield "the same, by the best peer", at_least(1, against(bandwidth, everyone, small, max))
    yield f"1 KiB to 64 KiB, four under way{where}, by the best peer", at_least(
        1, against(bandwidth, everyone, (KIB, 64 * KIB), max))


def of_messages(folder):
    p2p, apart = rows_in(folder, "p2p"), rows_in(folder, "distances")
    distances = dict.fromkeys(row["distance"] for row in apart if "distance" in row)
    for distance in distances:
        yield from of_small_messages([row for row in apart if row.get("distance") == distance], f", CPUs {distance}")
    if not distances:
        yield from of_small_messages(p2p, "")
    latency, bandwidth = by_size(p2p, "p50_us"), by_size(p2p, "gb_s")
    everyone = {row["who"] for row in p2p if row.get("compared")} - {OURS}
    large = (64 * KIB, 64 * MIB)
    yield "64 KiB and 1 MiB one way, by the best peer", at_most(1, against(latency, everyone, (64 * KIB, MIB)))
    yield "the same, by raw process_vm_readv", at_most(1, against_raw(p2p, "p50_us", "raw_us", (64 * KIB, MIB)))
    yield "16 MiB and more one way, by the best peer", at_most(
        0.59, against(latency, everyone, (16 * MIB, 64 * MIB)))
    yield "64 KiB to 64 MiB one way: raw process_vm_readv by ours", at_least(
        0.9, ((1 / ratio, size) for ratio, size in against_raw(p2p, "p50_us", "raw_us", large)))
    yield "the same, four under way: ours by raw", at_least(0.9, against_raw(p2p, "gb_s", "raw_gb_s", large))
    yield "64 KiB to 64 MiB one way, by the better MPI", at_most(1, against(latency, MPIS, large))
    yield "the same, four under way, by the better MPI", at_least(1, against(bandwidth, MPIS, large, max))


def of_tcp(folder):
    rows = [row for row in rows_in(folder, "tcp") if row.get("network") == "loopback"]
    others = {row["who"] for row in rows if row["compared"]} - {OURS}
    large = (64 * MIB, 64 * MIB)
    yield "tcp: 8 B one way, by raw sockets", at_most(1.15, against_raw(rows, "p50_us", "raw_us", (8, 8)))
    yield "tcp: 8 B one way, by the best peer", at_most(1, against(by_size(rows, "p50_us"), others, (8, 8)))
    yield "tcp: 64 MiB one way, by the best peer", at_most(1, against(by_size(rows, "p50_us"), others, large))
    yield "the same, four under way", at_least(1, against(by_size(rows, "gb_s"), others, large, max))


def of_memory(folder):
    rows = rows_in(folder, "memory-kinds")
    plain = {row["views"]: row["gb_s"] for row in rows
             if row["bench"] == "p2p" and row["memory"] == "plain" and row["size"] == 256 * MIB}
    lists = [(gb_s / plain[1], f"{views} pieces") for views, gb_s in plain.items() if views > 1 and 1 in plain]
    yield "256 MiB in pieces of 16 KiB, by contiguous", at_least(0.9, lists)
    shared = figures_of(rows, "p2p", "gb_s_ratio", lambda row: human(row["size"]), memory="shared")
    yield "out of a shared pool, by memcpy", at_least(0.9, shared)
    refused = figures_of(rows_in(folder, "refused"), "p2p", "gb_s_ratio", lambda row: human(row["size"]))
    yield "where reading is refused, by a raw ring of two copies", at_least(0.9, refused)


def of_collectives(folder):
    for members in (2, 4):
        rows = rows_in(folder, f"collectives-{members}")
        # As in compare.py: of more members than CPUs the median says who was lucky.
        cpus = next((row["cpus"] for row in rows if row["bench"] == "machine"), 0)
        times = by_size(rows, "p50_us" if members <= cpus else "time_us")
        gloo = ((1 / ratio, what) for ratio, what in against(times, ["Gloo"], (0, 64 * KIB - 1)))
        yield f"{members} members, below 64 KiB: Gloo by ours", at_least(10, gloo)
        yield f"{members} members, up to 1 MiB, by the better MPI", at_most(1, against(times, MPIS, (0, MIB)))
        if members == 4:
            yield "the same, the middle row", at_most(1, middle(against(times, MPIS, (0, MIB))))
        yield f"{members} members, above, by the better MPI", at_most(1.25, against(times, MPIS, (MIB + 1, 1 << 40)))
        limit = {2: 0.25, 4: 2.5}[members]
        yield f"{members} members, a barrier", at_most(limit, ours_among(times, "barrier"), " us")
    many = by_members(rows_in(folder, "barriers"), "time_us")
    yield "32 members, a barrier", at_most(1000, ours_among(many, "32 members"), " us")
    yield "two pairs at once, 8 B one way", at_most(
        0.95, ours_among(by_size(rows_in(folder, "pairs"), "mean_us"), "8 B"), " us")


def of_worlds(folder):
    large = [row for row in rows_in(folder, "worlds") if row["bench"] == "worlds" and row["size"] >= 64 * KIB]
    found = figures_of(large, "worlds", "ratio", lambda row: f"{row['worlds']} worlds, {human(row['size'])}")
    yield "throughput of many worlds by one, from 64 KiB on", at_least(0.99, found)
    life = rows_in(folder, "life")
    yield "forming a world", at_most(5, figures_of(life, "form", "form_ms", store="tcp", worlds=1), " ms")
    yield "forming 64 at once", at_most(100, figures_of(life, "form", "form_ms", store="tcp", worlds=64), " ms")
    for what, limit in (("8 B sent and received", 200), ("8 B sent to 8 members", 1000)):
        yield f"{what}, CPU", at_most(limit, figures_of(life, "await", "ns", what=what), " ns")
    yield "1,000 receives parked in 64 worlds, of a core", at_most(
        1, [*figures_of(life, "idle", "cpu_percent"), *figures_of(life, "idle", "peer_cpu_percent")], " %")
    memory = ((row["used_own_kib"] + row["used_shared_kib"], f"{row['transport']}, {row['worlds']} worlds")
              for row in life if row["bench"] == "memory" and row["what"] == "each more")
    yield "memory of a world after traffic", at_most(128, memory, " KiB")


def of_faults(folder):
    rows = rows_in(folder, "recovery")

    def faults(fault, what, among=rows):
        return figures_of(among, "fail", what, lambda row: f"{row['members']} members", fault=fault)

    # Beside a stream the waiter competes for CPUs that a small machine does not have.
    beside = {"": [row for row in rows if "healthy_gap_us" not in row],
              ", while another world streams": [row for row in rows if "healthy_gap_us" in row]}
    for where, among in beside.items():
        yield "kill to error, median" + where, at_most(1, faults("kill", "detect_ms", among), " ms")
        yield "kill to error, p99" + where, at_most(10, faults("kill", "detect_p99_ms", among), " ms")
    yield "stop to suspect", at_most(1100, faults("stop", "suspect_ms"), " ms")
    yield "stop to broken", at_most(5500, faults("stop", "broken_ms"), " ms")
    begun = [row for row in rows_in(folder, "life") if row.get("cancelled")]
    yield "giving up a begun 64 MiB, p99", at_most(
        2, figures_of(begun, "cancel", "cancel_p99_ms", lambda row: row["side"]), " ms")


def of_stores(folder):
    rows = [row for row in rows_in(folder, "store") if row["bench"] == "store"]
    time = {(row["who"], row["operation"]): row["p50_us"] for row in rows if "p50_us" in row}
    for operation in ("get", "set", "add"):
        found = ((time["PyTorch", operation] / time[who, what], "")
                 for who, what in time if (who, what) == (OURS, operation) and ("PyTorch", operation) in time)
        acknowledged = ", acknowledged" if operation == "set" else ""
        yield f"a store's {operation}{acknowledged}: PyTorch's by ours", at_least(2, found)
    met = {"operation": "connect and barrier", "clients": 1000, "who": OURS}
    crowds = [row for row in rows if met.items() <= row.items()]
    yield "1,000 clients to their barrier", at_most(300, figures_of(crowds, "store", "took_ms"), " ms")
    yield "memory of the store by them", at_most(64, figures_of(crowds, "store", "server_mib"), " MiB")


def of_launching(folder):
    rows = rows_in(folder, "launch")

    def of(question):
        return [row for row in rows if row.get("what") == question]

    def starts(question):
        return figures_of(of(question), "process", "us", lambda row: f"{row['touched_mib']} MiB touched")

    def rounds(backend, question):
        return figures_of(of(question), "rendezvous", "p50_ms", backend=backend, nodes=3)

    yield "a program's start to its first instruction", at_most(1500, starts("start to first instruction"), " us")
    yield "its end to the waiter", at_most(1000, starts("end to waiter"), " us")
    at_once, killed = "nodes at once, to their round", "coordinator killed, to the next round"
    yield "3 nodes to a round, tcp", at_most(50, rounds("tcp", at_once), " ms")
    yield "3 nodes to a round, etcd", at_most(150, rounds("etcd", at_once), " ms")
    yield "coordinator killed to the next round, etcd", at_most(500, rounds("etcd", killed), " ms")


def of_launchers(folder):
    rows = [row for row in rows_in(folder, "launchers") if row.get("who") == OURS]

    def of(begin, field):
        return ((row[field], "") for row in rows if row["what"].startswith(begin) and field in row)

    yield "2 x /bin/true under mwrun", at_most(60, of("2 x /bin/true", "p50_ms"), " ms")
    yield "the same, p99", at_most(100, of("2 x /bin/true", "p99_ms"), " ms")
    peer = "a worker killed, to SIGTERM at its local"
    yield "a worker's end to SIGTERM at its local peer", at_most(2, of(peer, "p50_ms"), " ms")
    yield "the same, p99", at_most(20, of(peer, "p99_ms"), " ms")
    far = "a worker killed, to SIGTERM at another"
    yield "a worker's end to SIGTERM at another node's", at_most(30, of(far, "p50_ms"), " ms")
    yield "2 to 3 nodes, all running", at_most(500, of("a third node", "p50_ms"), " ms")
    yield "agent killed to the new round's workers", at_most(500, of("an agent killed", "p50_ms"), " ms")
    yield "kill to the replacement's first instruction", at_most(20, of("a worker killed, to its repl", "p50_ms"), " ms")
    yield "kill to its worlds up again", at_most(150, of("a worker killed, to its three", "p50_ms"), " ms")
    yield "agent killed to its workers gone", at_most(1000, of("the agent killed", "p99_ms"), " ms")
    yield "grace of 3 s, a worker ignores SIGTERM", at_most(3500, of("a worker killed, to the end", "p99_ms"), " ms")
    yield "an idle agent's CPU, 8 workers", at_most(0.2, of("idle", "cpu_percent"), " %")
    yield "its memory", at_most(20, of("idle", "pss_mib"), " MiB")
    yield "100 restarts", at_most(10000, of("100 restarts", "took_ms"), " ms")
    grown = ("grown_files", "grown_threads")
    yield "descriptors and threads more after them", at_most(0, (pair for field in grown for pair in of("100 r", field)))


def tell(folder):
    print("| what | budget | measured | |\n|---|---|---|---|")
    for group in (of_messages, of_tcp, of_memory, of_collectives, of_worlds, of_faults, of_stores, of_launching,
                  of_launchers):
        answers = list(group(folder))
        # As of a run of `reproduce.sh --only`.
        if all(found is None for _, (_, found, _, _) in answers):
            continue
        for what, (limit, found, unit, is_met) in answers:
            if found is None:
                print(f"| {what} | {limit} | not measured | |")
                continue
            value, where = found
            said = f"{number(value)}{unit}" + (f" ({where})" if where else "")
            print(f"| {what} | {limit} | {said} | {'met' if is_met(value) else '**missed**'} |")
    print("| operations on a GPU | | not asked here: `mwdevice` | |")
