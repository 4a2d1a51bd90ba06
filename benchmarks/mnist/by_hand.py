"""MNIST as a careful user writes it by hand: the same tensors in memory, the same fused optimizer,
a plain loop.

python by_hand.py EPOCHS        prints the seconds of the median epoch after the first
"""

import statistics
import sys
import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from rampup.recipe import Settings
from rampup.recipes.mnist.train import Mnist

data, _ = Mnist(Settings({})).data()
images, labels = data.tensors
model = nn.Sequential(
    nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10)
)
optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
seconds = []
for _ in range(int(sys.argv[1])):
    began = time.perf_counter()
    order = torch.randperm(len(images))
    for low in range(0, len(images), 100):
        chosen = order[low : low + 100]
        optimizer.zero_grad()
        cross_entropy(model(images[chosen]), labels[chosen]).backward()
        optimizer.step()
    seconds.append(time.perf_counter() - began)
print("epoch_s", statistics.median(seconds[1:]))
