"""A recipe's own check of its settings: called on the control side, before anything is written."""

from pathlib import Path

import pytest

from rampup.config.resolve import Request, resolve
from rampup.core.spec import RunSpec
from rampup.diagnose.preflight import preflight
from rampup.errors import Refused
from rampup.runs.plan import make_plan

RECIPE = """
engine = "none"
entry = "train.py"
extra = "torch"
data = ["mnist"]
check = "settings:check"

[train]
size = 4
kind = "plain"
"""
CHECK = """
from rampup.recipe import Needs, Refused

def check(settings):
    if settings.size > 8:
        raise Refused(f"size={settings.size} is too large", "size=8")
    if settings.kind == "plain":
        return Needs()
    return Needs(modules={"nosuchmodule": "kind=odd"}, data=("weights:resnet18",))
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.py").touch()
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "settings.py").write_text(CHECK)
    return folder


def spec_of(recipe: Path, *settings: str) -> RunSpec:
    return resolve(Request(target="./mine", settings=settings), recipe.parent)


def test_it_refuses_what_the_recipe_does_not_take(recipe: Path) -> None:
    assert spec_of(recipe, "size=8").train["size"] == 8
    with pytest.raises(Refused, match="size=9 is too large") as caught:
        spec_of(recipe, "size=9")
    assert caught.value.hint == "size=8"


def test_one_that_only_refuses_need_not_return_anything(recipe: Path) -> None:
    (recipe / "settings.py").write_text("def check(settings):\n    assert settings.size == 4\n")
    plain = spec_of(recipe).recipe
    assert plain and (plain.data, plain.also) == (("mnist",), {})


def test_it_names_what_a_setting_needs(recipe: Path) -> None:
    plain, odd = spec_of(recipe).recipe, spec_of(recipe, "kind=odd").recipe
    assert plain and (plain.data, plain.also) == (("mnist",), {})
    assert odd and (odd.data, odd.also) == (
        ("mnist", "weights:resnet18"),
        {"nosuchmodule": "kind=odd"},
    )


def test_a_module_that_a_setting_needs_is_no_matter_of_the_extra(
    recipe: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        Refused, match="recipe mine with kind=odd needs nosuchmodule, which is not"
    ) as caught:
        preflight(make_plan(spec_of(recipe, "kind=odd"), tmp_path / "run"))
    assert caught.value.hint == "pip install nosuchmodule"
    (recipe / "recipe.toml").write_text(
        RECIPE.replace("extra", 'requires = ["nosuchmodule"]\nextra')
    )
    with pytest.raises(Refused, match="recipe mine needs nosuchmodule, which is not") as caught:
        preflight(make_plan(spec_of(recipe), tmp_path / "run"))
    assert caught.value.hint == "pip install 'rampup[torch]'"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [("settigns:check", "there is no "), ("settings:chekc", "has no 'chekc'"), ("settings", "''")],
)
def test_a_check_that_is_not_there_is_told(recipe: Path, wrong: str, words: str) -> None:
    (recipe / "recipe.toml").write_text(RECIPE.replace("settings:check", wrong))
    with pytest.raises(Refused) as caught:
        spec_of(recipe)
    assert (
        words in caught.value.message
        and f"check = {wrong!r} in recipe.toml" in caught.value.message
    )
    if "chekc" in wrong:
        assert "did you mean check?" in caught.value.hint


@pytest.mark.parametrize(
    ("target", "setting"),
    [
        ("digits", "hidden=0"),
        ("mnist", "hidden=0"),
        ("mnist", "hidden=[128,-1]"),
        ("ionosphere", "hidden=0"),
        ("ionosphere", "test_size=1"),
        ("questions", "dimensions=0"),
        ("questions", "words=0"),
        ("cifar10", "width=0"),
        ("cifar10", "samples=0"),
        ("polyfit", "steps=0"),
        ("deepcam", "width=0"),
        ("deepcam", "output_stride=4"),
        ("deepcam", "channels=[]"),
        ("deepcam", "channels=[0,0]"),
        ("deepcam", "channels=[16]"),
        ("deepcam", "samples=-1"),
        ("deepcam", "division=half"),
        ("deepcam", "status=fine"),
        ("deepcam", "organisation="),
        ("polyfit", "points=1"),
    ],
)
def test_every_recipe_of_ours_checks_its_settings(
    tmp_path: Path, target: str, setting: str
) -> None:
    assert resolve(Request(target=target), tmp_path).recipe
    with pytest.raises(Refused, match=setting.partition("=")[0]) as refused:
        resolve(Request(target=target, settings=(setting,)), tmp_path)
    assert refused.value.hint
