"""Programs whose ranks meet, each in its own way: `python meet.py KIND SECONDS`. Afterwards every
rank computes alone for some seconds of CPU."""

import json
import os
import sys
import time
from pathlib import Path

RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def burn(cpu_s: float) -> None:
    end = time.process_time() + cpu_s
    while time.process_time() < end:
        sum(range(10_000))


def ddp() -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    model(torch.ones(8, 4)).sum().backward()
    dist.destroy_process_group()


def fabric() -> None:
    from lightning.fabric import Fabric

    per_node = int(os.environ["LOCAL_WORLD_SIZE"])
    nodes = SIZE // per_node
    joined = Fabric(accelerator="cpu", devices=per_node, num_nodes=nodes, strategy="ddp")
    joined.launch()
    joined.barrier()


def tensor_parallel() -> None:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (SIZE,))
    model = parallelize_module(torch.nn.Linear(4, 4), mesh, ColwiseParallel())
    model(torch.ones(2, 4))


def accelerate() -> None:
    from accelerate import Accelerator

    Accelerator(cpu=True).wait_for_everyone()


def tensorflow() -> None:
    import tensorflow as tf

    assert len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]) == SIZE
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        tf.Variable(1.0)


def horovod() -> None:
    import horovod.tensorflow as hvd

    hvd.init()
    assert hvd.size() == SIZE


def mpi() -> None:
    from mpi4py import MPI

    assert MPI.COMM_WORLD.allreduce(1) == SIZE


def mpi_memory() -> None:
    """Ranks of one node that share memory, and send nothing."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    window = MPI.Win.Allocate_shared(8 if world.rank == 0 else 0, 1, comm=world)
    buffer, _ = window.Shared_query(0)
    if world.rank == 0:
        buffer[:1] = b"x"


def own_port() -> None:
    """A connection of the program's own, which lasts."""
    import socket

    place = Path("port")
    if RANK == 0:
        server = socket.create_server(("127.0.0.1", 0))
        place.with_suffix(".new").write_text(str(server.getsockname()[1]))
        place.with_suffix(".new").rename(place)
        kept.append(server.accept())
    else:
        while not place.exists():
            time.sleep(0.05)
        kept.append(socket.create_connection(("127.0.0.1", int(place.read_text()))))


def files() -> None:
    """Ranks that tell each other everything through files."""
    Path(f"sum-{RANK}").write_text(str(RANK))
    while len(list(Path().glob("sum-*"))) < SIZE:
        time.sleep(0.05)


def late() -> None:
    """Three seconds of work come first, as three minutes do elsewhere."""
    burn(3)
    gloo()


def prepares() -> None:
    """Rank 0 has data to prepare; the others wait for it."""
    if RANK == 0:
        burn(3)
    gloo()


def gloo() -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.barrier()
    dist.destroy_process_group()


def one() -> None:
    assert SIZE == 1


kept: list[object] = []
globals()[sys.argv[1]]()
burn(float(sys.argv[2]))
print("met", flush=True)
