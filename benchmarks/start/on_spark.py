"""From a call to the first line of a function on two ranks, on a Spark session that exists already:
`rampup.launch` and TorchDistributor in turn.

`python on_spark.py REPEATS` prints a line with the seconds of each pair. One session has both.
"""

import sys
import time

import torch
from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession

import rampup


def first_line(numbers):
    return [time.time(), int(numbers.sum())]


def by_launch(numbers):
    return rampup.launch(first_line, numbers, np=2, on="spark")


def by_distributor(numbers):
    spread = TorchDistributor(num_processes=2, local_mode=False, use_gpu=False)
    return spread.run(first_line, numbers)


def spend(call):
    begun = time.time()
    line, _ = call(torch.ones(10))
    return line - begun


if __name__ == "__main__":
    session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    spend(by_launch), spend(by_distributor)  # the first task starts the Python workers
    for _ in range(int(sys.argv[1])):
        print(f"\npair {spend(by_launch):.3f} {spend(by_distributor):.3f}", flush=True)
    session.stop()
