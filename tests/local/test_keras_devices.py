"""What the keras engine computes with: threads by the CPUs of the task, oneDNN, the GPUs that
`--devices` leaves."""

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest
from conftest import Cli

pytestmark = pytest.mark.skipif(
    find_spec("tf_keras") is None, reason="it needs pip install 'rampup[keras]'"
)

TELLS = """
import json
import os

import numpy as np
import tensorflow as tf
from tensorflow import keras

VARIABLES = ("OMP_NUM_THREADS", "TF_ENABLE_ONEDNN_OPTS", "CUDA_VISIBLE_DEVICES")


def build_model():
    threads = tf.config.threading
    told = {name: os.environ.get(name) for name in VARIABLES}
    told["intra"] = threads.get_intra_op_parallelism_threads()
    told["inter"] = threads.get_inter_op_parallelism_threads()
    print("told", json.dumps(told))
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    return model


def load_data():
    x = np.ones((20, 4), "float32")
    return (x, x.sum(axis=1)), (x, x.sum(axis=1))
"""
RUN = ("run", "tells:build_model", "data=tells:load_data", "epochs=1")
GPUS = """
import json

from rampup.engines.keras import setup as keras_setup
from rampup.runtime.context import RankContext

tf = keras_setup.tf
told = {"visible": [], "grows": []}
count = 4


def physical(kind=None):
    # A stand-in: there is no GPU here.
    return [tf.config.PhysicalDevice(f"/physical_device:{kind}:{index}", kind) for index in range(count)]


def devices(local_rank, local_world_size):
    told["visible"].clear()
    told["grows"].clear()
    context = RankContext(local_rank=local_rank, local_world_size=local_world_size)
    return [keras_setup._devices(context, count, 1), *(list(names) for names in told.values())]


tf.config.list_physical_devices = physical
tf.config.set_visible_devices = lambda found, kind: told["visible"].extend(device.name[-5:] for device in found)
tf.config.experimental.set_memory_growth = lambda device, grows: told["grows"].append([device.name[-5:], grows])
found = [devices(0, 1), devices(1, 2)]
count = 2
found.append(devices(3, 4))
count = 1
print(json.dumps([*found, devices(1, 2)]))
"""


def told(cli: Cli, *words: str, **env: str) -> dict[str, Any]:
    cli.script(TELLS, "tells.py")
    said = cli(*RUN, *words, **env).stdout
    line = next(line for line in said.splitlines() if line.startswith("told "))
    found: dict[str, Any] = json.loads(line.removeprefix("told "))
    return found


def test_threads_follow_the_cpus_of_the_task_and_onednn_is_on(cli: Cli) -> None:
    found = told(cli, "--cpus-per-task", "1")
    assert (found["intra"], found["inter"], found["OMP_NUM_THREADS"]) == (1, 1, "1")
    assert found["TF_ENABLE_ONEDNN_OPTS"] == "1"


def test_threads_devices_and_onednn_as_they_are_asked_for(cli: Cli) -> None:
    words = ("intra_threads=3", "inter_threads=4", "--devices", "", "--cpus-per-task", "1")
    found = told(cli, *words, TF_ENABLE_ONEDNN_OPTS="0")
    assert (found["intra"], found["inter"], found["TF_ENABLE_ONEDNN_OPTS"]) == (3, 4, "0")
    assert found["CUDA_VISIBLE_DEVICES"] == "", "none of them"


def test_tensorflow_may_choose_the_threads(cli: Cli) -> None:
    found = told(cli, "intra_threads=0", "inter_threads=0", "--cpus-per-task", "1")
    assert (found["intra"], found["inter"]) == (0, 0)


def test_the_summary_says_which_threads_were_used(cli: Cli) -> None:
    told(cli, "inter_threads=3", "--cpus-per-task", "1", TF_ENABLE_ONEDNN_OPTS="0")
    shown = cli("show").stdout
    assert "threads: intra_threads=1 inter_threads=3 OMP_NUM_THREADS=1" in shown
    assert "TF_ENABLE_ONEDNN_OPTS=0" in shown


def test_gpus_that_are_chosen_and_not_there_are_no_silent_cpu(cli: Cli) -> None:
    cli.script(TELLS, "tells.py")
    done = cli(*RUN, "--devices", "0,1", check=100)
    assert "CUDA_VISIBLE_DEVICES=0,1 reserves a GPU, and TensorFlow sees none here" in done.stderr
    assert "or take no GPU: --devices ''" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_gets_the_gpus_that_are_chosen(cli: Cli) -> None:
    shown = ("--", "sh", "-c", 'echo "GPUs:$CUDA_VISIBLE_DEVICES."')
    assert "GPUs:2,0." in cli("run", "--devices", "2,0", *shown).stdout
    assert "GPUs:." in cli("run", "--devices", "", *shown, CUDA_VISIBLE_DEVICES="1").stdout
    assert "GPUs:1." in cli("run", *shown, CUDA_VISIBLE_DEVICES="1").stdout
    refused = cli("run", "--devices", "0,one", *shown, check=3)
    assert "devices" in refused.stderr and "hint:" in refused.stderr


def test_a_rank_takes_its_share_of_the_gpus_and_their_memory_grows() -> None:
    done = subprocess.run([sys.executable, "-c", GPUS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    all_four, second_half, too_few, only_one = json.loads(done.stdout)
    assert all_four[0] == ["GPU:0", "GPU:1", "GPU:2", "GPU:3"]
    assert second_half[:2] == [["GPU:0", "GPU:1"], ["GPU:2", "GPU:3"]], (
        "its own names, and which they are"
    )
    assert second_half[2] == [["GPU:2", True], ["GPU:3", True]]
    assert too_few[:2] == [["GPU:0"], ["GPU:1"]], "each is shared by as many ranks"
    assert only_one[:2] == [["GPU:0"], ["GPU:0"]], "where Slurm has bound one to each task"


def test_doctor_lists_the_devices(cli: Cli) -> None:
    tool = cli.cwd / "nvidia-smi"  # a stand-in: there is no GPU here
    tool.write_text(
        "#!/bin/sh\necho 'GPU 0: Big One (UUID: GPU-1)'\necho 'GPU 1: Small One (UUID: GPU-2)'\n"
    )
    tool.chmod(0o755)
    found = cli("doctor", check=None, PATH=f"{cli.cwd}:{cli.env['PATH']}").stdout
    assert "GPUs: GPU 0: Big One, GPU 1: Small One" in found
    assert "CPUs: " in found


WORLDS = """
from rampup.engines.keras import setup as keras_setup
from rampup.engines.keras.world import build_world
from rampup.errors import RampupError
from rampup.runtime.context import RankContext

context = RankContext()
devices = keras_setup.prepare(context, 0, None, None, cpu_devices=2)
print(build_world("multiworker", context, devices).replicas)
try:
    build_world("horovod", context, devices)
except RampupError as error:
    print(error.message)
"""


def test_one_rank_alone_leaves_no_device_idle() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORLDS], capture_output=True, text=True, timeout=120
    )
    replicas, refused = done.stdout.splitlines()
    assert replicas == "2"
    assert refused == "strategy=horovod trains on one device per rank, and rank 0 has 2"


SUMS = """
import numpy as np
from rampup.engines.keras import setup as keras_setup, world as keras_world
from rampup.engines.keras.world import Distributed, World
from rampup.runtime.context import RankContext

tf = keras_setup.tf
devices = keras_setup.prepare(RankContext(), 0, None, None, cpu_devices=6)
world = Distributed(RankContext(), tf.distribute.MirroredStrategy(devices))
world.size = 2  # a stand-in for one rank with six GPUs beside another
print([world.sum(np.array([number, 7.0])).tolist() == [number, 7.0] for number in (1.0, 1 / 3, 12345678901.0)])
print([world.agree(number) for number in (1, -1, 7, 1000001)])
errors = tf.errors
kinds = (errors.UnavailableError, errors.ResourceExhaustedError, errors.InvalidArgumentError, errors.NotFoundError)
print([world.is_lost_peer(kind(None, None, "in CollectiveReduceV2: peer")) for kind in kinds])
print([world.is_lost_peer(kind(None, None, "Collective ops is aborted by: no such label")) for kind in kinds])


class Gone:  # the first rank heard the last word and ended before it had answered
    def get_config_key_value(self, key):
        pass

    def set_config_key_value(self, key, value):
        if key == "rampup/left/1":
            raise errors.UnavailableError(None, None, "Socket closed")


world.rank, keras_world.coordination_service = 1, Gone
print(world.final_barrier())
"""


def test_many_devices_of_one_rank_add_up_to_one_and_own_faults_are_no_lost_peer() -> None:
    done = subprocess.run([sys.executable, "-c", SUMS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    sums, agreed, lost, told, left = done.stdout.splitlines()
    assert (sums, agreed) == ("[True, True, True]", "[1, -1, 7, 1000001]")
    assert (lost, told) == ("[True, False, False, False]", "[True, True, True, True]")
    assert left == "None"
