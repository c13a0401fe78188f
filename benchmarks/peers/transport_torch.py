"""What driver.py needs of torch.distributed with gloo."""

import datetime

import torch
import torch.distributed as dist


class Peer:
    def __init__(self, rank, members):
        self.rank, self.members = rank, members

    async def open(self, port):
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=self.rank,
                                world_size=self.members, timeout=datetime.timedelta(seconds=240))

    async def send(self, tensor, to):
        dist.send(tensor, to)

    async def receive(self, tensor, source):
        dist.recv(tensor, source)

    def start_send(self, tensor, to):
        return dist.isend(tensor, to)

    def start_receive(self, tensor, source):
        return dist.irecv(tensor, source)

    async def finish(self, started):
        started.wait()

    async def barrier(self):
        dist.barrier()

    async def gather_numbers(self, mine):
        mine = torch.tensor(mine, dtype=torch.float64)
        of_all = [torch.empty_like(mine) for _ in range(self.members)]
        dist.all_gather(of_all, mine)
        return [one.tolist() for one in of_all]

    def prepare(self, c):
        """A call that can be repeated. Sums are formed in place: torch has no other form."""
        is_root = self.rank == 0
        own, outs = c.source[:c.part], list(c.target.split(c.part))
        if c.kind in ("scatter", "reduce_scatter"):
            outs, own = c.target[:c.part], list(c.source.split(c.part))
        run = {
            "broadcast": lambda: dist.broadcast(c.target, 0),
            "reduce": lambda: dist.reduce(c.target, 0),
            "all_reduce": lambda: dist.all_reduce(c.target),
            "gather": lambda: dist.gather(own, outs if is_root else None, 0),
            "all_gather": lambda: dist.all_gather(outs, own),
            "scatter": lambda: dist.scatter(outs, own if is_root else None, 0),
            "reduce_scatter": lambda: dist.reduce_scatter(outs, own),
            "all_to_all": lambda: dist.all_to_all_single(c.target, c.source),
            "barrier": dist.barrier,
        }[c.kind]

        async def once():
            run()

        return once
