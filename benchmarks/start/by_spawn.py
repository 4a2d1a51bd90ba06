"""The same by torch.multiprocessing."""

import sys
import time

import torch
import torch.multiprocessing


def first_line(rank, numbers, found):
    found.put((rank, time.time(), int(numbers.sum())))


if __name__ == "__main__":
    begun = float(sys.argv[1])
    found = torch.multiprocessing.get_context("spawn").SimpleQueue()
    torch.multiprocessing.spawn(first_line, (torch.ones(10), found), nprocs=2)
    lines = {rank: line for rank, line, _ in (found.get(), found.get())}
    print(f"\nbegan {lines[0] - begun:.3f}")
