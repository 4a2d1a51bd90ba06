"""A LightningModule by its import path: what is wrong with it or its settings is said before
anything starts.

Nothing here imports lightning: the control side reads the source.
"""

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from rampup.config.resolve import Request, resolve
from rampup.config.targets import signatures
from rampup.core.engines import lightning as lightning_info
from rampup.core.spec import RunSpec
from rampup.diagnose.preflight import preflight
from rampup.errors import RampupError, Refused
from rampup.runs.plan import make_plan

MODULE = """
    from typing import Literal, Optional, Union

    import lightning.pytorch as pl
    from .base import Base

    class Model(pl.LightningModule):
        def __init__(self, hidden: int, lr: float = 1e-3, act: Literal["relu", "gelu"] = "relu", bias: bool = True,
                     sizes: list[int] = [8, 8], drop: Optional[float] = None, part: "int | float" = 1, loss=None,
                     optimizer: type = dict, max_epochs: int = 7, name="a", *, amount=3) -> None:
            super().__init__()

        def validation_step(self, batch, batch_idx):
            pass

        def train_dataloader(self):
            return load_dataset("x")

    class Child(Base):
        pass

    class Wide(Base):
        def __init__(self, width: int = 3, **kwargs):
            super().__init__(**kwargs)

    class NoModule:
        pass
"""
BASE = """
    from lightning.pytorch import LightningModule

    class Base(LightningModule):
        def __init__(self, depth: int = 2):
            super().__init__()

        def train_dataloader(self):
            return []
"""
DATA = """
    import lightning.pytorch as pl
    from os import path

    class Data(pl.LightningDataModule):
        def __init__(self, batch_size: int = 32, lr: float = 0.5):
            super().__init__()

        def setup(self, stage):
            self.train = fetch("x", download=True)

    class Careful(pl.LightningDataModule):
        def prepare_data(self):
            fetch("x", download=True)

    class Hidden(Data):
        def prepare_data(self):
            pass

    class Client(pl.LightningDataModule):
        def setup(self, stage):
            self.text = requests.get("x").text
            self.found = self.cache.get("x")

    def load():
        pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    package = tmp_path / "pkg"
    package.mkdir()
    for name, text in (
        ("__init__", "from .model import Model"),
        ("model", MODULE),
        ("base", BASE),
        ("data", DATA),
    ):
        (package / f"{name}.py").write_text(textwrap.dedent(text))
    return tmp_path


def spec_of(project: Path, target: str, *settings: str) -> RunSpec:
    return resolve(Request(target=target, settings=settings), project)


def refused(project: Path, target: str, *settings: str) -> str:
    with pytest.raises(Refused) as caught:
        spec_of(project, target, *settings)
    return f"{caught.value.message}; {caught.value.hint}"


def test_arguments_become_settings_with_their_types(project: Path) -> None:
    spec = spec_of(
        project,
        "pkg.model:Model",
        "hidden=16",
        "lr=1",
        "sizes=1,2",
        "drop=0.5",
        "loss=mse",
        "part=0.5",
    )
    assert spec.train["hidden"] == 16
    assert spec.train["lr"] == 1.0 and isinstance(spec.train["lr"], float)
    assert (spec.train["sizes"], spec.train["drop"], spec.train["loss"]) == ([1, 2], 0.5, "mse")
    assert (spec.train["part"], spec.train["amount"], spec.train["name"]) == (0.5, 3, "a")
    assert spec.train["max_epochs"] == 7, (
        "one name, one value: the default of the module is the Trainer's too"
    )
    assert spec.recipe and (spec.recipe.engine, spec.recipe.folder) == ("lightning", str(project))
    assert spec.name == "Model"


def test_a_default_that_the_engine_can_not_take_stays_the_classs_own(project: Path) -> None:
    text = 'def __init__(self, strategy: str = "greedy", precision: int = 32, device: str = "cuda", seed: int = -1):'
    (project / "odd.py").write_text(
        f"import lightning.pytorch as pl\n\nclass Odd(pl.LightningModule):\n    {text}\n        super().__init__()\n"
        "    def train_dataloader(self): ...\n"
    )
    train = spec_of(project, "odd:Odd").train
    assert (train["strategy"], train["precision"], train["device"], train["seed"]) == (
        "auto",
        "32-true",
        "auto",
        1,
    )


def test_devices_are_ranks(project: Path) -> None:
    words = ("hidden=1", "devices=2")
    assert spec_of(project, "pkg.model:Model", *words).resources.tasks_per_node == 2
    assert spec_of(project, "pkg.model:Model", "hidden=1").resources.tasks_per_node == 1
    same = Request(
        target="pkg.model:Model",
        settings=words,
        options={"tasks_per_node": "2", "gpus_per_node": "4"},
    )
    assert resolve(same, project).resources.tasks_per_node == 2
    assert (
        resolve(
            Request(target="pkg.model:Model", settings=words, dev=True), project
        ).resources.tasks_per_node
        == 1
    )
    other = Request(target="pkg.model:Model", settings=words, options={"tasks_per_node": "3"})
    with pytest.raises(
        Refused, match=r"devices=2 \(command line\) and tasks_per_node=3 \(--tasks-per-node\)"
    ):
        resolve(other, project)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("hiden=3", "did you mean hidden?"),
        ("hidden=many", "takes a whole number"),
        ("act=tanh", "allowed: relu, gelu"),
        ("bias=maybe", "true or false"),
        ("devices=auto", "takes a whole number"),
        ("trainer.devices=2", "write devices="),
        ("num_workers=many", "num_workers=auto"),
        ("num_workers=-1", "num_workers=auto"),
        ("classes=1", "classes=10"),
        ("classes=cat,cat", "classes=cat,dog"),
        ("trainer.num_nodes=2", "--nodes"),
        ("trainer.logger=false", "metrics.jsonl"),
        ("trainer.precision=16", "write precision="),
        ("precision=fp17", "allowed: fp32, fp16, bf16, 32-true"),
        ("strategy=fsdp", "allowed: auto, ddp, ddp_find_unused"),
        ("fast_dev_run=maybe", "fast_dev_run=true, or a whole number"),
        ("trainer.detect_anomli=true", "did you mean detect_anomaly?"),
        ("data=pkg.model:NoModul", "did you mean NoModule?"),
        ("data=pkg.model:Child", "not a LightningDataModule"),
        ("data=pkg", "pkg.mod:Class"),
        ("data=pkg.data:load", "is a function, not a LightningDataModule"),
        ("limit_train_batches=0", "trains nothing"),
        ("epochs=3", "write max_epochs=3"),
    ],
)
def test_a_wrong_setting_is_refused_with_the_nearest(
    project: Path, setting: str, words: str
) -> None:
    assert words in refused(project, "pkg.model:Model", "hidden=1", setting)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("pkg.model:Modle", "did you mean Model?"),
        ("pkg.modle:Model", "did you mean pkg.model?"),
        ("pkg.data:Data", "rampup run MODULE data=pkg.data:Data"),
        ("pkg.model:", "write pkg.mod:Class"),
        ("pkg model:$(x)", "write pkg.mod:Class"),
        ("pkg.model:Model", "needs hidden"),
    ],
)
def test_a_wrong_class_is_refused(project: Path, target: str, words: str) -> None:
    assert words in refused(project, target)


def test_a_file_that_is_no_python_is_told_with_its_line(project: Path) -> None:
    (project / "pkg" / "model.py").write_text("class Model:\n    def (")
    assert "line 2" in refused(project, "pkg.model:Model")


def test_classes_are_followed_through_imports_and_bases(project: Path) -> None:
    assert spec_of(project, "pkg:Model", "hidden=1").train["hidden"] == 1
    assert spec_of(project, "pkg.model:Child", "depth=4").train["depth"] == 4
    wide = spec_of(project, "pkg.model:Wide", "depth=4", "width=5", "unheard=[1]")
    assert (wide.train["depth"], wide.train["unheard"]) == (4, [1]), (
        "**kwargs takes what nobody knows"
    )


def test_arguments_of_your_own_stay_yours(project: Path) -> None:
    """`classes` and `num_workers` are settings of the engine, unless a class has such an
    argument."""
    spec = spec_of(project, "pkg.model:Model", "hidden=1", "classes=cat,dog", "num_workers=auto")
    assert (spec.train["classes"], spec.train["num_workers"]) == ("cat,dog", "auto")
    assert spec_of(project, "pkg.model:Model", "hidden=1").train["num_workers"] == "own"
    own = "import lightning.pytorch as pl\n\nclass Own(pl.LightningDataModule):\n    "
    own += "def __init__(self, num_workers: int = 2, classes: int = 10): super().__init__()\n"
    (project / "pkg" / "own.py").write_text(own)
    words = ("pkg.model:Model", "hidden=1", "data=pkg.own:Own")
    assert spec_of(project, *words).train["num_workers"] == 2
    assert spec_of(project, *words, "classes=1").train["classes"] == 1
    assert "takes a whole number" in refused(project, *words, "num_workers=auto")


def test_data_and_module_share_a_name(project: Path) -> None:
    spec = spec_of(project, "pkg.model:Model", "hidden=1", "data=pkg.data:Data", "batch_size=4")
    assert spec.train["batch_size"] == 4


def test_trainer_settings_are_those_of_the_installed_lightning(project: Path) -> None:
    spec = spec_of(
        project,
        "pkg.model:Model",
        "hidden=1",
        "trainer.detect_anomaly=true",
        "trainer.val_check_interval=0.5",
    )
    assert spec.train["trainer.detect_anomaly"] is True
    assert spec.train["trainer.val_check_interval"] == 0.5
    (project / "rampup.toml").write_text(
        'recipe = "pkg.model:Model"\n[train]\nhidden = 3\n[trainer]\nmin_epochs = 2\n[checkpoint]\nevery = "1epoch"\n'
    )
    by_file = resolve(Request(target="rampup.toml"), project)
    assert (by_file.train["trainer.min_epochs"], by_file.train["hidden"]) == (2, 3)


def notes(project: Path, target: str, *settings: str) -> list[str]:
    recipe = spec_of(project, target, *settings).recipe
    assert recipe
    return [cause for cause, _ in recipe.notes]


def test_a_download_on_every_rank_is_a_note(project: Path) -> None:
    own, doubtful = notes(project, "pkg.model:Model", "hidden=1", "data=pkg.data:Data")
    assert "Data.setup() seems to download" in doubtful
    assert "Model.train_dataloader() seems to download" in own
    assert notes(project, "pkg.model:Model", "hidden=1", "data=pkg.data:Careful") == [own]
    for name, line in (("Hidden", "line 10"), ("Client", "line 22")):
        _, doubtful = notes(project, "pkg.model:Model", "hidden=1", f"data=pkg.data:{name}")
        assert f"{name}.setup() seems to download ({line} of data.py)" in doubtful


def test_a_module_without_validation_is_a_note(project: Path) -> None:
    """Also where its base comes from another file; not where the source does not tell."""
    assert [cause.partition(":")[0] for cause in notes(project, "pkg.model:Child")] == [
        "Child has no validation_step"
    ]
    more = "\nclass Sure(Child):\n    validation_step = print\n\nclass Odd(Base, unheard.Mixin):\n    pass\n"
    (project / "pkg" / "model.py").write_text(textwrap.dedent(MODULE) + more)
    assert notes(project, "pkg.model:Sure") == notes(project, "pkg.model:Odd") == []
    told = [
        finding.cause
        for finding in preflight(
            make_plan(spec_of(project, "pkg.model:Child"), project / "runs" / "run")
        ).notes
    ]
    assert any("Child has no validation_step" in cause for cause in told)


def test_a_module_without_loaders_needs_data(project: Path) -> None:
    """Known before anything is submitted; not where loaders may be assigned to it."""
    bare = "import lightning.pytorch as pl\n\nclass Bare(pl.LightningModule):\n    pass\n"
    (project / "bare.py").write_text(bare)
    told = refused(project, "bare:Bare")
    assert "Bare needs data (the LightningDataModule" in told and "add data=" in told
    spec_of(project, "bare:Bare", "data=pkg.data:Careful")
    (project / "bare.py").write_text(f"{bare}\nBare.train_dataloader = print\n")
    spec_of(project, "bare:Bare")


def test_what_it_imports_must_be_there(project: Path) -> None:
    (project / "pkg" / "base.py").write_text(
        textwrap.dedent(BASE) + "\nimport torchvision_is_absent.models\n"
    )
    source = signatures.locate("pkg.model", (project,))
    assert source and "torchvision_is_absent" in signatures.needed_packages(source)
    assert "pkg" not in signatures.needed_packages(source)


@pytest.mark.parametrize("version", ["2.6.2", "2.6.3", "2.5.0"])
def test_a_malicious_or_old_lightning_is_refused(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(lightning_info, "find_version", lambda name: version)
    with pytest.raises(RampupError, match=version):
        lightning_info.check_installed(may_be_absent=True)


def test_a_lightning_that_is_absent_is_told_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lightning_info, "find_version", lambda name: None)
    lightning_info.check_installed(may_be_absent=True)
    with pytest.raises(RampupError) as caught:
        lightning_info.check_installed()
    assert "rampup[lightning]" in caught.value.hint


def test_the_command_line_refuses_before_anything_is_written(cli: Any, project: Path) -> None:
    cli.cwd = project
    (project / "pkg" / "data.py").write_text(
        textwrap.dedent(DATA) + "\nimport torchvision_is_absent\n"
    )
    said = cli("run", "pkg.model:Model", "hidden=1", "data=pkg.data:Data", check=3).stderr
    assert "needs torchvision_is_absent, which is not installed" in said
    assert not cli.runs.exists()
    rows = cli.json("run", "pkg.model:Model", "hidden=1", "name='; $(touch x)\n", "--dry-run")[
        "settings"
    ]
    assert {
        "key": "train.name",
        "value": "'; $(touch x)\n",
        "origin": "command line",
    } in json.loads(json.dumps(rows))


def test_one_batch_of_everything_shrinks_any_command_line(cli: Any) -> None:
    found = cli.json("run", "digits", "--on", "nowhere", "--nodes", "8", "--dev", "--dry-run")[
        "settings"
    ]
    changed = {row["key"]: row["value"] for row in found if row["origin"] == "--dev"}
    assert (
        changed["train.max_steps"]
        == changed["train.eval_batches"]
        == changed["resources.nodes"]
        == 1
    )
    assert changed["checkpoint.every"] == "never"
    assert "a custom loop has none" in cli("run", "--dev", "--", "true", check=3).stderr
