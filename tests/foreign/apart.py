"""Programs that do the same work on every rank, and never meet: `python apart.py KIND SECONDS`."""

import sys
import time


def mnist() -> None:
    """A training that knows nothing of ranks."""
    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.ones(8, 4)).sum().backward()
        optimizer.step()


def loader() -> None:
    """Its processes talk, but only to each other."""
    import torch

    data = torch.utils.data.TensorDataset(torch.ones(8, 4))
    for _ in torch.utils.data.DataLoader(data, batch_size=2, num_workers=2):
        time.sleep(0.05)


def imagenet() -> None:
    """Distributed only where an address is given."""
    import torch.distributed as dist

    if "--dist-url" in sys.argv:
        dist.init_process_group("gloo")


def fabric() -> None:
    from lightning.fabric import Fabric

    Fabric(accelerator="cpu", devices=1).launch()


def mpi() -> None:
    from mpi4py import MPI

    assert MPI.COMM_WORLD.size == 1


def agent() -> None:
    """For torchrun in the command: its own ranks meet, those of another torchrun do not."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    assert dist.get_world_size() == 2
    dist.barrier()
    dist.destroy_process_group()


def server() -> None:
    """Every rank talks, through a socket, to itself."""
    import socket

    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0],
    ):
        time.sleep(1.5)


globals()[sys.argv[1]]()
end = time.process_time() + float(sys.argv[2])
while time.process_time() < end:
    sum(range(10_000))
print("done", flush=True)
