"""What driver.py needs of MultiWorld: one world, over gloo."""

import asyncio

# Its first import patches torch and ends the process: see install.sh.
from multiworld.manager import WorldManager
import torch

WORLD = "benchmark"


class Peer:
    def __init__(self, rank, members):
        self.rank, self.members = rank, members

    async def open(self, port):
        self.manager = WorldManager()
        self.communicator = self.manager.communicator
        await self.manager.initialize_world(WORLD, self.rank, self.members, backend="gloo",
                                            addr="127.0.0.1", port=port)

    async def send(self, tensor, to):
        await self.communicator.send(tensor, to, WORLD)

    async def receive(self, tensor, source):
        await self.communicator.recv(tensor, source, WORLD)

    def start_send(self, tensor, to):
        return asyncio.ensure_future(self.send(tensor, to))

    def start_receive(self, tensor, source):
        return asyncio.ensure_future(self.receive(tensor, source))

    async def finish(self, started):
        await started

    async def barrier(self):
        """It has none: a sum of one number waits for all members too."""
        await self.communicator.all_reduce(torch.zeros(1), world_name=WORLD)

    async def gather_numbers(self, mine):
        mine = torch.tensor(mine, dtype=torch.float64)
        of_all = [torch.empty_like(mine) for _ in range(self.members)]
        await self.communicator.all_gather(of_all, mine, world_name=WORLD)
        return [one.tolist() for one in of_all]

    def prepare(self, c):
        """A call that can be repeated. Sums are formed in place, as in torch."""
        is_root = self.rank == 0
        to = self.communicator
        own, outs = c.source[:c.part], list(c.target.split(c.part))
        if c.kind == "scatter":
            outs, own = c.target[:c.part], list(c.source.split(c.part))
        kinds = {
            "broadcast": lambda: to.broadcast(c.target, 0, world_name=WORLD),
            "reduce": lambda: to.reduce(c.target, 0, world_name=WORLD),
            "all_reduce": lambda: to.all_reduce(c.target, world_name=WORLD),
            "gather": lambda: to.gather(own, outs if is_root else None, 0, world_name=WORLD),
            "all_gather": lambda: to.all_gather(outs, own, world_name=WORLD),
            "scatter": lambda: to.scatter(outs, own if is_root else None, 0, world_name=WORLD),
        }
        if c.kind not in kinds:
            raise NotImplementedError(f"MultiWorld has no {c.kind}")
        return kinds[c.kind]
