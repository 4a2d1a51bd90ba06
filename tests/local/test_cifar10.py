"""The cifar10 recipe on the real images: every network, the same images on any number of ranks,
clear refusals."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rampup.core.settings import Settings
from rampup.datasets import fetch, sets
from rampup.datasets.sets import WEIGHTS, DataFile
from rampup.errors import RampupError
from rampup.recipes.cifar10 import model
from rampup.recipes.cifar10.settings import OWN
from rampup.recipes.cifar10.train import Cifar10

QUICK = ("validation=64", "checkpoint.every=never", "--cpus-per-task", "1")
DEFAULTS = {
    "arch": "small",
    "width": 8,
    "pretrained": False,
    "samples": 50,
    "validation": 50,
    "crop": 4,
    "flip": True,
}
DEFAULTS |= {
    "cutout": 8,
    "tta": True,
    "label_smoothing": 0.1,
    "channels_last": True,
    "seed": 1,
    "optimizer": "sgd",
}
DEFAULTS |= {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3}


def settings(**changes: Any) -> Settings:
    return Settings({**DEFAULTS, **changes})


def test_two_ranks_train_as_one_does(cli: Any, cifar10: Path) -> None:
    """Each image is augmented the same on any rank; without batch normalisation the losses are
    equal."""
    words = (
        "cifar10",
        "arch=mlp",
        "samples=300",
        "batch_size=50",
        "epochs=2",
        "lr=0.05",
        "log_every=1",
        *QUICK,
    )
    rows = []
    for ranks in ("1", "2"):
        run = cli.json("run", *words, "--tasks-per-node", ranks)
        history = cli.json("show", run["id"], "--history")
        rows.append([row["train_loss"] for row in history if "samples_s" not in row])
    assert len(rows[0]) == 12
    assert rows[0] == pytest.approx(rows[1], abs=1e-5)


def test_resnet18_on_two_ranks_learns(cli: Any, cifar10: Path) -> None:
    """A small version of what the README of the recipe tells of 5,000 images."""
    words = (
        "cifar10",
        "arch=resnet18",
        "samples=96",
        "batch_size=16",
        "epochs=5",
        "lr=0.02",
        "crop=0",
        "cutout=0",
    )
    run = cli.json("run", *words, "tta=false", "flip=false", "--tasks-per-node", "2", *QUICK)
    losses = [
        row["train_loss"] for row in cli.json("show", run["id"], "--history") if "samples_s" in row
    ]
    assert len(losses) == 5 and losses[-1] < 0.8 * losses[0], losses
    kept = json.loads((Path(run["dir"]) / "attempts/1/evaluation.json").read_text())
    assert kept["classes"][3] == "cat" and sum(map(sum, kept["confusion"])) == 64


def test_one_batch_of_everything_is_not_a_batch_and_all_of_the_validation(
    cli: Any, cifar10: Path
) -> None:
    run = cli.json(
        "run",
        "cifar10",
        "arch=mlp",
        "batch_size=16",
        "eval_batch_size=20",
        "--dev",
        "--cpus-per-task",
        "1",
    )
    kept = json.loads((Path(run["dir"]) / "attempts/1/evaluation.json").read_text())
    assert sum(map(sum, kept["confusion"])) == 20
    assert run["metrics"]["step"] == 1 and 0 <= run["metrics"]["val_accuracy"] <= 1


def test_the_networks() -> None:
    x = torch.zeros(2, 3, 32, 32)
    counts = {}
    for arch in OWN:
        built = model.build(settings(arch=arch, width=16))
        assert built(x).shape == (2, 10)
        counts[arch] = sum(parameter.numel() for parameter in built.parameters())
    assert counts == {"small": 412_954, "resnet18": 11_173_962, "mlp": 428_938}


def test_only_matrices_are_decayed() -> None:
    task = Cifar10(settings())
    built = task.model()
    decayed, others = task.optimizer(built).param_groups
    assert {parameter.dim() for parameter in decayed["params"]} == {2, 4} and decayed[
        "weight_decay"
    ] == 1e-3
    assert {parameter.dim() for parameter in others["params"]} == {1} and others[
        "weight_decay"
    ] == 0
    assert len(decayed["params"]) + len(others["params"]) == len(list(built.parameters()))
    assert isinstance(Cifar10(settings(optimizer="adam")).optimizer(built), torch.optim.Adam)


def test_batches_pictures_and_mirror_images(cifar10: Path) -> None:
    task = Cifar10(settings())
    train, validation = task.data()
    batch = train.batch(torch.arange(10, 20))
    images, labels = task.augment(batch, 1)
    assert images.shape == (10, 3, 32, 32) and images.is_contiguous(
        memory_format=torch.channels_last
    )
    assert torch.equal(labels, batch[2]) and not torch.equal(images, task.augment(batch, 2)[0])
    assert labels.tolist() == [4, 7, 7, 2, 9, 9, 9, 3, 2, 6]
    assert task.pictures(batch)[0, 0, 0].tolist() == batch[1][0, :, 0].tolist()
    seen: list[torch.Tensor] = []
    built = task.model().eval()
    built.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    task.scores(built, validation.batch(torch.arange(4)))
    assert len(seen) == 2 and torch.equal(seen[0].flip(3), seen[1])


REFUSED = {
    "samples=50001": ("samples=50001: there are 50000 images", "samples=50000"),
    "validation=0": ("validation=0: there are 10000 images", "validation=10000"),
    "crop=32": ("crop=32 cutout=8: an image has 32 x 32 pixels", "crop=4 cutout=8"),
    "width=0": ("a width is 1 or more, a smoothing from 0 to 1", "width=24"),
    "label_smoothing=1.5": ("a width is 1 or more, a smoothing from 0 to 1", "label_smoothing=0.1"),
    "arch=resnett18": (
        "arch=resnett18: there is no network of that name",
        "did you mean resnet18? also close: res",
    ),
    "arch=$(touch x)": (
        "arch=$(touch x): there is no network of that name",
        "small, squeezenet1_0",
    ),
    "arch=resnet50": (
        "cifar10 with arch=resnet50 needs torchvision, which is not",
        "pip install torchvision",
    ),
    "pretrained=true": (
        "pretrained=true: no weights of arch=small are known",
        "arch=resnet18 or arch=resnet50",
    ),
    "arch=resnet18 pretrained=true": (
        "weights:resnet18 is not on this machine",
        "rampup fetch weights:resnet18",
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_can_not_be_is_refused_before_anything_is_submitted(
    cli: Any, cifar10: Path, tmp_path: Path, words: str
) -> None:
    """In a cache that has the images and no weights."""
    (tmp_path / "cache/rampup/data").mkdir(parents=True)
    (tmp_path / "cache/rampup/data/cifar10").symlink_to(cifar10)
    given = words.split(" ") if "$" not in words else [words]
    done = cli("run", "cifar10", *given, check=3, XDG_CACHE_HOME=str(tmp_path / "cache"))
    cause, hint = REFUSED[words]
    said, _, advice = done.stderr.partition("hint: ")
    assert cause in said and hint in advice
    assert not cli.runs.exists()


def test_a_sweep_looks_at_what_each_point_needs(cli: Any, cifar10: Path, tmp_path: Path) -> None:
    (tmp_path / "cache/rampup/data").mkdir(parents=True)
    (tmp_path / "cache/rampup/data/cifar10").symlink_to(cifar10)
    words = ("sweep", "cifar10", "arch=resnet18", "samples=10")
    done = cli(*words, "pretrained=false,true", check=3, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (
        "weights:resnet18 is not on this machine" in done.stderr
        and "in the point pretrained=True" in done.stderr
    )
    assert not cli.runs.exists()


def test_a_torchvision_that_can_not_be_imported_is_told_in_the_job() -> None:
    """Where it is installed and does not fit torch, only the import shows it. Here it is not there
    at all."""
    with pytest.raises(RampupError, match="arch=resnet50: torchvision can't be imported") as caught:
        model.build(settings(arch="resnet50"))
    assert caught.value.hint == "arch=small or arch=resnet18 or arch=mlp need none"


def test_trained_weights_are_fetched_and_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for torchvision's file, for it can't be had here: the same names, another stem and
    head."""
    import hashlib

    torch.manual_seed(1)
    trained = model.ResNet18().state_dict()
    trained["conv1.weight"], trained["fc.weight"] = torch.ones(64, 3, 7, 7), torch.ones(1000, 512)
    trained["fc.bias"] = torch.ones(1000)
    file = tmp_path / "resnet18-f37072fd.pth"
    torch.save(trained, file)
    known = WEIGHTS["weights:resnet18"]
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    files = (DataFile(file.name, file.stat().st_size, sha256=digest),)
    monkeypatch.setitem(
        WEIGHTS, known.name, known._replace(files=files, address="http://127.0.0.1:9/{file}")
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert fetch.fetch(known.name, file, print, lambda done, total: None).source == str(file)
    torch.manual_seed(2)
    built = model.build(settings(arch="resnet18", pretrained=True)).state_dict()
    assert torch.equal(built["layer3.1.conv2.weight"], trained["layer3.1.conv2.weight"])
    assert built["conv1.weight"].shape == (64, 3, 3, 3) and built["fc.bias"].shape == (10,)
    torch.save({"other": torch.ones(1)}, sets.folder(known.name) / file.name)
    with pytest.raises(
        RampupError, match="the weights of weights:resnet18 do not fit arch=resnet18"
    ):
        model.build(settings(arch="resnet18", pretrained=True))
