"""The same work as a user of torchrun writes it: DistributedDataParallel and a loop. Prints samples per second."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

SAMPLES, BATCH, EPOCHS = 30720, 1024, 4

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
chance = torch.Generator().manual_seed(1)
images = torch.randn(SAMPLES, 784, generator=chance)
labels = torch.randint(10, (SAMPLES,), generator=chance)
net = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
model = DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
share = BATCH // size
rates = []
for _ in range(EPOCHS):
    order = torch.randperm(SAMPLES, generator=chance)
    began = time.perf_counter()
    for low in range(0, SAMPLES, BATCH):
        mine = order[low + rank * share : low + (rank + 1) * share]
        optimizer.zero_grad(set_to_none=True)
        cross_entropy(model(images[mine]), labels[mine]).backward()
        optimizer.step()
    rates.append(SAMPLES / (time.perf_counter() - began))
if rank == 0:
    print(f"samples_s {sorted(rates)[len(rates) // 2]}")
dist.destroy_process_group()
