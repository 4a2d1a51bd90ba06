"""CIFAR-10 as the recipe serves it: whole batches, cut, augmented and normalised at once, in one
thread.

python whole_batches.py EPOCHS        prints the seconds of the quickest epoch after the first
"""

import sys
import time

import torch

from rampup.recipe import Settings
from rampup.recipes.cifar10.train import Cifar10
from rampup.torch import permutation

chosen = {"samples": 50_000, "validation": 1, "crop": 4, "flip": True, "cutout": 8, "seed": 1}
task = Cifar10(
    Settings({**chosen, "channels_last": False, "arch": "mlp", "width": 1, "label_smoothing": 0.0})
)
data, _ = task.data()
seconds = []
for epoch in range(1, 1 + int(sys.argv[1])):
    began = time.perf_counter()
    order = torch.from_numpy(permutation(1, epoch, len(data)))
    for low in range(0, len(data), 256):
        task.augment(data.batch(order[low : low + 256]), epoch)
    seconds.append(time.perf_counter() - began)
print("epoch_s", min(seconds[1:]))
