"""The same work as a user of torchrun writes it: DistributedDataParallel and a loop.

torchrun --nproc-per-node=2 by_hand.py EPOCHS        prints the seconds of the median epoch after the first
"""

import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

SAMPLES, BATCH = 30720, 1024

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
chance = torch.Generator().manual_seed(1)
images = torch.randn(SAMPLES, 784, generator=chance)
labels = torch.randint(10, (SAMPLES,), generator=chance)
net = nn.Sequential(
    nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
model = DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
share = BATCH // size
seconds = []
for _ in range(int(sys.argv[1])):
    began = time.perf_counter()
    order = torch.randperm(SAMPLES, generator=chance)
    for low in range(0, SAMPLES, BATCH):
        mine = order[low + rank * share : low + (rank + 1) * share]
        optimizer.zero_grad()
        cross_entropy(model(images[mine]), labels[mine]).backward()
        optimizer.step()
    seconds.append(time.perf_counter() - began)
if rank == 0:
    print("epoch_s", statistics.median(seconds[1:]))
dist.destroy_process_group()
