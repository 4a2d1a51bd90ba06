"""Layers, origins, and refusals that name the nearest key."""

from pathlib import Path

import pytest

from rampup.config.resolve import Request, clean_name, resolve
from rampup.errors import Refused, UsageError


def spec(tmp_path: Path, *settings: str, **request: object):
    return resolve(Request(settings=settings, **{"target": "mnist", **request}), tmp_path)


def test_later_layers_win_and_origins_are_kept(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(
        'recipe = "mnist"\n[train]\nlr = 0.5\nepochs = 7\n[resources]\ntasks_per_node = 3\n'
    )
    made = spec(tmp_path, "lr=3e-4", target="my.toml", options={"nodes": "1"})
    assert (made.train["lr"], made.origins["train.lr"]) == (3e-4, "command line")
    assert (made.train["epochs"], made.origins["train.epochs"]) == (7, "my.toml")
    assert made.origins["train.batch_size"] == "recipe.toml"
    assert made.origins["train.clip"] == "default"
    assert (made.resources.tasks_per_node, made.origins["resources.nodes"]) == (3, "--nodes")
    assert made.origins["cluster.max_nodes"] == "local.toml"


def test_dotted_keys_reach_any_table(tmp_path: Path) -> None:
    made = spec(
        tmp_path, "resources.tasks_per_node=2", "cluster.max_tasks_per_node=5", "train.epochs=1"
    )
    assert (
        made.resources.tasks_per_node,
        made.cluster.max_tasks_per_node,
        made.train["epochs"],
    ) == (2, 5, 1)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("lrr=1", "did you mean lr"),
        ("lr=fast", "a number"),
        ("epochs=1.5", "a whole number"),
        ("epochs=true", "a whole number"),
        ("lr=nan", "a number"),
        ("compile=perhaps", "true or false"),
        ("device=gpu", "cuda"),
        ("resources.nodez=2", "did you mean nodes"),
        ("resource.nodes=2", "did you mean resources"),
        ("epochs=0", "at least"),
    ],
)
def test_wrong_settings_are_refused_with_a_hint(tmp_path: Path, setting: str, words: str) -> None:
    with pytest.raises(Refused) as refused:
        spec(tmp_path, setting)
    assert words in refused.value.hint
    assert (
        setting.partition("=")[0].rpartition(".")[2] in refused.value.message
        or "table" in refused.value.message
    )


def test_checkpoints_have_a_table_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(
        'recipe = "mnist"\n[checkpoint]\nevery = "1epoch"\nkeep = 5\n'
    )
    made = spec(tmp_path, "checkpoint.every=15min", target="my.toml")
    assert made.checkpoint == {"every": "15min", "keep": 5}
    assert (made.origins["checkpoint.every"], made.origins["checkpoint.keep"]) == (
        "command line",
        "my.toml",
    )
    assert spec(tmp_path).checkpoint == {"every": "auto", "keep": 2}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("checkpoint.every=often", "100steps"),
        ("checkpoint.every=15", "15min"),
        ("checkpoint.keep=1", "at least 2"),
        ("checkpoint.evry=1epoch", "did you mean every"),
        ("checkpoint=false", "checkpoint.every="),
    ],
)
def test_wrong_settings_of_checkpoints(tmp_path: Path, setting: str, words: str) -> None:
    with pytest.raises(Refused) as refused:
        spec(tmp_path, setting)
    assert words in refused.value.hint and "checkpoint" in refused.value.message


def test_a_loop_of_ones_own_says_itself_when_to_save(tmp_path: Path) -> None:
    for request in ({"target": "polyfit"}, {"target": None, "command": ("true",)}):
        assert spec(tmp_path, "checkpoint.keep=3", **request).checkpoint["keep"] == 3
        with pytest.raises(Refused, match="decides when to save"):
            spec(tmp_path, "checkpoint.every=1epoch", **request)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('recipe = "mnist"\ncommand = ["a"]', "either"),
        ("", "either"),
        ('recipe = "mnist"\nepochs = 3', "unknown key 'epochs'"),
        ('recipe = "mnist"\ntrain = 3', "must be a table"),
        ('recipe = "mnist"\n[train]\nlr = "x"', "train.lr"),
        ("recipe = mnist", "not valid TOML"),
        ('command = "python train.py"', "list of strings"),
        ("recipe = 3", "must be a string"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "my.toml").write_text(text)
    with pytest.raises(Refused) as refused:
        spec(tmp_path, target="my.toml")
    assert words in refused.value.message


def test_unknown_names_are_refused_with_the_nearest(tmp_path: Path) -> None:
    for request in ({"target": "mnits"}, {"on": "locale"}):
        with pytest.raises(Refused, match="unknown") as refused:
            spec(tmp_path, **request)
        assert "did you mean" in refused.value.hint
    with pytest.raises(Refused, match="no such file"):
        spec(tmp_path, target="absent.toml")
    with pytest.raises(UsageError):
        resolve(Request(), tmp_path)


def test_a_command_without_a_file_has_free_settings(tmp_path: Path) -> None:
    made = resolve(
        Request(command=("python", "x.py"), settings=("lr=0.1", "tag=a b", "n=3", "on=true")),
        tmp_path,
    )
    assert made.train == {"lr": 0.1, "tag": "a b", "n": 3, "on": True}
    assert (made.name, made.kind) == ("x", "command")


def test_lists_and_none(tmp_path: Path) -> None:
    made = spec(tmp_path, "hidden=64,32", "clip=1", "target=none")
    assert (made.train["hidden"], made.train["clip"], made.train["target"]) == ([64, 32], 1.0, None)


def test_names_are_safe_in_paths() -> None:
    assert clean_name("../a b/$(x)\n") == "a-b---x"
    assert clean_name("///") == "run"


def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.py").touch()
    (tmp_path / "mine" / "recipe.toml").write_text(
        'engine = "torch"\nentry = "train:Mine"\n[train]\nwidth = 8\nlr = 0.1\n'
    )
    made = spec(tmp_path, "width=16", target="./mine")
    assert (made.train["width"], made.train["lr"], made.name) == (16, 0.1, "mine")
    (tmp_path / "mine" / "recipe.toml").write_text('entri = "x"')
    with pytest.raises(Refused) as refused:
        spec(tmp_path, target="./mine")
    assert "did you mean entry" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("entry = 3", "entry"),
        ('about = "x"', "entry"),
        ('entry = "trian:X"', "no trian.py"),
        ('entry = "train:X"\nrequires = "torch"', "requires"),
        ('entry = "train:X"\nengine = 3', "engine"),
        ('entry = "train:X"\nengine = "tosch"', "unknown engine"),
        ('entry = "train:X"\ntrain = 3', "train"),
        ('entry = "train:X"\nengine = "torch"\n[train]\nepochs = "five"', "train.epochs"),
        ('entry = "train:X"\nengine = "torch"\n[train]\nschedule = "cosin"', "train.schedule"),
        ('entry = "train:X"\n[train]\nwhen = 2020-01-01', "train.when"),
    ],
)
def test_wrong_recipes_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.py").touch()
    (tmp_path / "mine" / "recipe.toml").write_text(text)
    with pytest.raises(Refused) as refused:
        spec(tmp_path, target="./mine")
    assert words in refused.value.message


def test_a_recipe_beside_is_told_from_one_of_ours(tmp_path: Path) -> None:
    (tmp_path / "moons").mkdir()
    (tmp_path / "moons" / "recipe.toml").write_text('entry = "train.py"')
    with pytest.raises(Refused) as refused:
        spec(tmp_path, target="moons")
    assert "./moons" in refused.value.hint


def test_whole_numbers_of_a_users_file_may_become_others(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('command = ["true"]\n[train]\nlr = 1\nsteps = 5\n')
    assert spec(tmp_path, "lr=0.05", target="my.toml").train == {"lr": 0.05, "steps": 5}


@pytest.mark.parametrize(("target", "ranks"), [("digits", 4), ("ionosphere", 1), ("polyfit", 1)])
def test_each_gpu_has_a_rank_unless_somebody_says_otherwise(
    tmp_path: Path, target: str, ranks: int
) -> None:
    """Keras drives several GPUs with one rank; a script of its own decides itself."""
    spec = resolve(Request(target=target, options={"gpus_per_node": "4"}), tmp_path)
    assert spec.resources.tasks_per_node == ranks
    assert spec.origins["resources.tasks_per_node"] == (
        "one for each GPU" if ranks > 1 else "default"
    )
    said = resolve(
        Request(target=target, options={"gpus_per_node": "4", "tasks_per_node": "2"}), tmp_path
    )
    assert said.resources.tasks_per_node == 2


def test_a_trial_of_one_batch_is_marked_dev(tmp_path: Path) -> None:
    assert resolve(Request(target="digits", dev=True), tmp_path).name == "digits-dev"
    assert resolve(Request(target="digits"), tmp_path).name == "digits"
