"""From a script's start to the first line of a function on two ranks, by `rampup.launch`."""

import sys
import time

import torch

import rampup


def first_line(numbers):
    return [time.time(), int(numbers.sum())]


if __name__ == "__main__":
    begun = float(sys.argv[1])
    line, _ = rampup.launch(first_line, torch.ones(10), np=2)
    print(f"\nbegan {line - begun:.3f}")
