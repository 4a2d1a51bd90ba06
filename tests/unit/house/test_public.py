"""The public face of the package: which names it exports, that recipes and docs need no others, and
that it costs nothing to import."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rampup

PACKAGE = Path(rampup.__file__).parent
TOP = PACKAGE.parent
EXPORTED = {
    "rampup": ["Job", "Run", "RunFailed", "__version__", "attach", "init", "launch"],
    "rampup.keras": [
        "ArrayData",
        "BatchNormalization",
        "Clustering",
        "Column",
        "Data",
        "Field",
        "HDF5Files",
        "HDF5Rows",
        "NpyFiles",
        "NpyRows",
        "ParquetRows",
        "Ranks",
        "SampleReader",
        "TFRecords",
        "Task",
        "permutation",
        "shard",
    ],
    "rampup.recipe": [
        "Benchmark",
        "Needs",
        "RampupError",
        "Refused",
        "Settings",
        "Translation",
        "check_cosmoflow",
        "check_deepcam",
        "check_jets",
        "dataset_folder",
        "fixed_mass_bins",
        "known_weights",
        "list_jet_files",
        "mass_bin_edges",
        "nearest",
        "read_cosmoflow",
        "read_cosmoflow_sample",
        "read_deepcam",
        "read_digits",
        "read_idx",
        "read_jets",
        "weights_file",
        "weights_name",
    ],
    "rampup.torch": [
        "Augment",
        "Classifier",
        "Column",
        "Data",
        "Field",
        "HDF5Files",
        "HDF5Rows",
        "NpyFiles",
        "NpyRows",
        "ParquetRows",
        "SampleReader",
        "Segmenter",
        "TFRecords",
        "Task",
        "TensorData",
        "draws",
        "permutation",
        "shard",
    ],
}
"""Users depend on these names: take none away."""
HEAVY = ("torch", "tensorflow", "tf_keras", "lightning", "numpy", "sklearn")
FOR_CONTRIBUTORS = ("add-a-launcher.md", "add-a-scheduler.md")
"""Pages about code that becomes a part of the package."""

IMPORT = re.compile(r"^\s*(?:from\s+(rampup[\w.]*)\s+import\s+(.+)|import\s+(rampup[\w.]*))", re.M)
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


LIST = """
import importlib, json, sys
module = importlib.import_module(sys.argv[1])
found = {}
for name in module.__all__:
    exported = getattr(module, name)
    own = vars(exported) if isinstance(exported, type) else {"__doc__": exported.__doc__}
    found[name] = own.get("__doc__")
print(json.dumps([module.__doc__, found]))
"""
"""In a process of its own, because two frameworks in one process disturb each other."""


@pytest.mark.parametrize("name", EXPORTED)
def test_the_exported_names_and_that_each_has_a_docstring(name: str) -> None:
    about, found = json.loads(_run(LIST, name))
    assert sorted(found) == EXPORTED[name]
    assert about and [each for each, text in found.items() if not text] == []


def test_the_docs_list_the_exported_names() -> None:
    page = (TOP / "docs" / "add-a-recipe.md").read_text()
    for name, exported in EXPORTED.items():
        (row,) = re.findall(rf"^\| `{re.escape(name)}` \| (.*) \|$", page, re.M)
        documented = re.findall(r"`(\w+)`", row)
        assert sorted(documented) == [each for each in exported if each != "__version__"]


@pytest.mark.parametrize("name", ["rampup", "rampup.recipe"])
def test_importing_it_loads_no_framework(name: str) -> None:
    code = f"import sys, {name}; print([each for each in {HEAVY} if each in sys.modules])"
    assert _run(code) == "[]"


def test_the_public_modules_are_attributes_of_the_package() -> None:
    names = "Job Run RunFailed __version__ attach init keras launch recipe torch"
    assert _run("import rampup; print(*dir(rampup))") == names
    assert _run("import rampup; print(rampup.recipe.Needs())") == "Needs(modules={}, data=())"
    assert _run("import rampup; print(rampup.torch.Task.__name__)") == "Task"
    with pytest.raises(AttributeError, match="module 'rampup' has no attribute 'spec'"):
        _ = rampup.spec  # type: ignore[attr-defined]


def test_type_checkers_see_the_public_names() -> None:
    """They are loaded at their first use, so what editors know is imported for them alone."""
    tree = ast.parse((TOP / "rampup" / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    assert isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname or alias.name for node in imports for alias in node.names}
    assert seen == set(dir(rampup)) - {"__version__"}


def _run(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=TOP, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def test_recipes_and_docs_import_public_names_only() -> None:
    texts = dict(_texts())
    assert len(texts) > 30 and any("from rampup.torch import" in text for text in texts.values())
    wrong = []
    for place, text in texts.items():
        wrong += [(place, name) for name in _not_public(text, place)]
    assert wrong == []


def _texts() -> Iterator[tuple[str, str]]:
    """What users read or copy: programs, and the Python blocks of pages."""
    folders = (PACKAGE / "recipes", PACKAGE / "templates", TOP / "examples")
    for folder in folders:
        for path in folder.rglob("*.py"):
            yield str(path.relative_to(TOP)), path.read_text()
    for page in (TOP / "README.md", *(TOP / "docs").rglob("*.md"), *folders[2].rglob("*.md")):
        if page.name not in FOR_CONTRIBUTORS:
            yield str(page.relative_to(TOP)), "\n".join(PYTHON_BLOCK.findall(page.read_text()))


def _not_public(text: str, place: str) -> Iterator[str]:
    for origin, names, module in IMPORT.findall(text):
        if _is_own_folder(origin, place):
            continue
        if (origin or module) not in EXPORTED:
            yield origin or module
        elif origin:
            known = [*EXPORTED[origin], *(each.rpartition(".")[2] for each in EXPORTED)]
            imported = [each.partition(" as ")[0].strip(" ()") for each in names.split(",")]
            yield from (f"{origin}.{each}" for each in imported if each and each not in known)


def _is_own_folder(origin: str, place: str) -> bool:
    """A recipe of the package may import the other files of its folder."""
    package, _, recipe = origin.partition("rampup.recipes.")
    own = recipe.partition(".")[0]
    return not package and bool(own) and place.startswith(f"rampup/recipes/{own}/")


def test_the_check_of_imports_finds_what_is_not_public() -> None:
    text = """
import rampup
import rampup.errors
from rampup import init, spec
from rampup.torch import Task, World
from rampup.recipes.mnist.train import Mnist
    from rampup.engines.torch.task import Task
"""
    found = list(_not_public(text, "rampup/recipes/mnist/other.py"))
    wanted = ["rampup.errors", "rampup.spec", "rampup.torch.World", "rampup.engines.torch.task"]
    assert found == wanted
    assert "rampup.recipes.mnist.train" in list(_not_public(text, "rampup/recipes/digits/train.py"))


SHIPPED = """
import sys, tomllib
from setuptools import Distribution, find_packages
with open("pyproject.toml", "rb") as file:
    ours = tomllib.load(file)["tool"]["setuptools"]
packages = find_packages(**ours["packages"]["find"])
made = Distribution({"packages": packages, "package_data": ours["package-data"]})
command = made.get_command_obj("build_py")
command.ensure_finalized()
for _, folder, _, names in command.data_files:
    print(*(f"{folder}/{name}" for name in names), sep="\\n")
"""


def test_a_wheel_has_the_marker_that_the_package_is_typed() -> None:
    """As setuptools lists the files: building a wheel would take much longer."""
    shipped = _run(SHIPPED).splitlines()
    assert "rampup/py.typed" in shipped
    assert "rampup/recipes/mnist/recipe.toml" in shipped
