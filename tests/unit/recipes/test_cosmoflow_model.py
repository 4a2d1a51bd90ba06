"""CosmoFlow's network, its augmentation and its samples: sizes, refusals, and numbers as promised."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rampup.config.recipes import load
from rampup.core.settings import Settings
from rampup.datasets.cosmoflow.files import read_sample
from rampup.datasets.cosmoflow.generate import make_set
from rampup.errors import RampupError, Refused
from rampup.recipes.cosmoflow.settings import check

if find_spec("tf_keras") is None:
    pytest.skip("it needs pip install 'rampup[keras]'", allow_module_level=True)

from rampup.keras import Task, TFRecords
from rampup.recipes.cosmoflow import train
from rampup.recipes.cosmoflow.model import Symmetries, build_network

SIZE, TRAIN, VALIDATION = 8, 6, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("set")
    make_set(found, TRAIN, VALIDATION, SIZE, SIZE, 64.0, processes=1)
    return found


def settings(**given: Any) -> Settings:
    defaults = {name: it.default for name, it in load("cosmoflow", Path()).settings.items()}
    return Settings(defaults | given)


def task(folder: Path, **given: Any) -> train.CosmoFlow:
    return train.CosmoFlow(settings(data=str(folder), n_conv_layers=2, **given))


# the network --------------------------------------------------------------------------------------


def test_the_network_has_the_published_number_of_parameters() -> None:
    assert build_network(128, 4, 4, settings()).count_params() == 8_907_556


@pytest.mark.parametrize("size", [32, 33, 48])
def test_cubes_of_any_size_fit(size: int) -> None:
    network = build_network(size, 4, 4, settings(conv_size=2))
    predicted = network(np.full((2, size, size, size, 4), 50, np.float32)).numpy()
    assert predicted.shape == (2, 4)
    assert np.abs(predicted).max() <= 1.2


def test_a_cube_that_is_halved_too_often_is_refused() -> None:
    with pytest.raises(RampupError, match="halves a cube of 16 voxels to nothing") as raised:
        build_network(16, 4, 4, settings())
    assert raised.value.hint == "n_conv_layers=4"
    build_network(16, 4, 4, settings(n_conv_layers=4, conv_size=1))


def test_layers_sizes_and_penalties_are_settings() -> None:
    given = settings(conv_size=3, n_conv_layers=2, fc1_size=5, fc2_size=6, l2=0.1, dropout=0.25)
    network = build_network(8, 4, 4, given)
    assert [each.shape[-1] for each in network.trainable_variables] == [
        3,
        3,
        6,
        6,
        5,
        5,
        6,
        6,
        4,
        4,
    ]
    assert len(network.losses) == 2, "the two hidden dense layers, and nothing else"
    hidden = [each for each in network.layers if type(each).__name__ == "Dense"][:2]
    wanted = 0.1 * sum(float(np.square(each.kernel).sum()) for each in hidden)
    assert float(sum(network.losses)) == pytest.approx(wanted, rel=1e-5)
    assert [it.rate for it in network.layers if type(it).__name__ == "Dropout"] == [0.25, 0.25]


# augmentation -------------------------------------------------------------------------------------


def test_symmetries_turn_mirror_and_shift_and_change_nothing_else() -> None:
    layer = Symmetries()
    cubes = np.random.default_rng(1).normal(size=(3, 6, 6, 6, 4)).astype(np.float32)
    assert (layer(cubes, training=False).numpy() == cubes).all()
    seen = set()
    for _ in range(20):
        moved = layer(cubes, training=True).numpy()
        seen.add(moved.tobytes())
        for before, after in zip(cubes, moved, strict=True):
            for channel in range(4):
                one, other = before[..., channel], after[..., channel]
                assert (np.sort(one.reshape(-1)) == np.sort(other.reshape(-1))).all()
                # what is along one axis stays along one axis
                sums = [sorted(np.round(one.sum((a, b)), 3)) for a, b in ((0, 1), (0, 2), (1, 2))]
                turned = [
                    sorted(np.round(other.sum((a, b)), 3)) for a, b in ((0, 1), (0, 2), (1, 2))
                ]
                for ours in turned:
                    assert any(np.allclose(ours, theirs, atol=2e-3) for theirs in sums)
    assert len(seen) > 15


# the samples --------------------------------------------------------------------------------------


def read_all(cubes: TFRecords) -> tuple[np.ndarray, np.ndarray]:
    out = tuple(np.empty((len(cubes), *field.shape), np.float32) for field in cubes.fields)
    cubes.read(np.arange(len(cubes)), out)
    return out[0], out[1]


def test_counts_become_logarithms_or_are_divided_by_their_mean(folder: Path) -> None:
    counts, targets = read_sample(sorted((folder / "train").iterdir())[2])
    logs, found = read_all(task(folder, standardize=False).data()[0])
    np.testing.assert_allclose(logs[2], np.log1p(counts.astype(np.float32)), rtol=1e-6)
    assert (found[2] == targets).all()
    divided, _ = read_all(task(folder, standardize=False, apply_log=False).data()[0])
    np.testing.assert_allclose(divided[2], counts / counts.mean(), rtol=1e-6)


def test_standardized_training_cubes_have_mean_0_and_deviation_1(folder: Path) -> None:
    data, validation = task(folder).data()
    cubes, _ = read_all(data)
    flat = cubes.reshape(-1, 4)
    np.testing.assert_allclose(flat.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(flat.std(0), 1, atol=1e-3)
    # validation cubes are scaled by what the training cubes are like, not by themselves
    assert np.abs(read_all(validation)[0].reshape(-1, 4).mean(0)).max() > 1e-4


def test_the_first_files_are_used(folder: Path) -> None:
    data, validation = task(folder, n_train=2, n_valid=1).data()
    assert [path.name for path in data.files()] == [
        "universe_000000_000.tfrecord",
        "universe_000001_000.tfrecord",
    ]
    assert len(validation) == 1
    with pytest.raises(RampupError, match="n_train=7, and there are 6 files"):
        task(folder, n_train=7).data()


def test_a_cube_of_another_size_is_named(folder: Path, tmp_path: Path) -> None:
    make_set(tmp_path / "set", 2, 1, SIZE, SIZE, 64.0, processes=1)
    make_set(tmp_path / "large", 1, 1, 2 * SIZE, SIZE, 64.0, processes=1)
    (tmp_path / "large/train/universe_000000_000.tfrecord").rename(
        tmp_path / "set/train/universe_000001_000.tfrecord"
    )
    with pytest.raises(RampupError, match=r"universe_000001_000.tfrecord.* has 16384 numbers"):
        read_all(task(tmp_path / "set", standardize=False).data()[0])


def test_the_task_is_a_task(folder: Path) -> None:
    assert issubclass(train.CosmoFlow, Task)
    made = task(folder).compile_settings()
    assert [each if isinstance(each, str) else each.__name__ for each in made["metrics"]] == [
        *("mae", "mae_omega_m", "mae_sigma_8", "mae_n_s", "mae_h_0"),
    ]


def test_no_tracker_is_imported() -> None:
    """The reference imports wandb wherever it runs."""
    code = (
        "import sys, rampup.recipes.cosmoflow.train;"
        "assert not {'wandb', 'horovod', 'mpi4py'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


# refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"loss": "rmse"}, "loss=rmse"),
        ({"hidden_activation": "softplux"}, "hidden_activation=softplux"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"l2": -1.0}, "l2=-1.0"),
        ({"n_train": -1}, "n_train=-1"),
        ({"conv_size": 0}, "conv_size=0"),
        ({"division": "half"}, "division=half"),
        ({"status": "gone"}, "status=gone"),
        ({"organisation": ""}, "organisation="),
        ({"data": "/nowhere"}, "no folder /nowhere"),
    ],
)
def test_settings_that_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused, match=message):
        check(settings(**given))


def test_the_demo_is_needed_where_it_is_named() -> None:
    assert check(settings()).data == ("cosmoflow-demo",)
