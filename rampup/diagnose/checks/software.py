"""The part of the catalogue that looks at what a run is to run in: modules, its environment, what a
recipe imports.

Only `preflight` reads it. What modules bring, and what is inside a conda environment or a
container, is seen in the job alone: that is a note here, or no finding at all.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rampup.config.recipes import HERE as BUILTIN
from rampup.core import software
from rampup.core.engines.base import EngineInfo
from rampup.core.finding import Finding
from rampup.core.spec import FunctionInfo, RecipeInfo, RunSpec
from rampup.errors import RampupError
from rampup.runs.plan import Plan

ABSENT = (
    "import sys, importlib.util as i; print(*[m for m in sys.argv[1:] if i.find_spec(m) is None])"
)
"""Which of some modules a Python does not have, without importing them."""
VERSIONS = """
import sys
from rampup.core.engines import ENGINES
from rampup.errors import RampupError
try:
    ENGINES[sys.argv[1]].check_installed()
except RampupError as error:
    print(error.message, error.hint, sep="\\n")
"""
"""What every rank will say of the packages of its engine in that Python."""
CALLABLE_BY = """
import sys
from importlib import metadata
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"
print("%d.%d" % sys.version_info[:2], version("cloudpickle"), version("rampup"))
"""
"""What decides whether a Python can call a function that another one has sent."""
ASK_WITHIN_S = 60.0
OTHERS = "--env is the path of a venv, conda:NAME, container:IMAGE.sif, or none"


def check(plan: Plan) -> Iterator[Finding]:
    """All findings about software, the cheapest first."""
    yield from environment(plan)
    yield from imports(plan)


def environment(plan: Plan) -> Iterator[Finding]:
    """The environment is there."""
    spec, chosen = plan.spec, plan.software
    kind, rest = software.kind_of(chosen.env)
    if kind == "venv":
        yield from _venv(Path(rest))
    elif kind == "conda":
        yield from _conda(rest, bool(chosen.modules))
    elif kind == "container":
        yield from _container(plan, rest, bool(chosen.modules))
    elif (
        spec.command
        and software.BARE_PYTHON.fullmatch(spec.command[0])
        and not spec.resources.software
        and software.list_modules(spec)
    ):
        yield from _active_but_unused()
    elif not kind and plan.scheduler.is_here:
        yield from _another_python(spec)


def imports(plan: Plan) -> Iterator[Finding]:
    """A recipe's modules, and rampup itself, in the Python that will run it."""
    spec, recipe, engine = plan.spec, plan.spec.recipe, plan.engine
    if spec.function is not None:
        yield from _function(plan, spec.function)
    if recipe is None:
        return
    for cause, remedy in recipe.notes:
        yield Finding("class", "note", recipe.name, cause, remedy)
    kind, path = software.kind_of(plan.software.env)
    if kind in ("conda", "container"):
        yield Finding(
            "software",
            "ok",
            f"imports of {recipe.name}: checked only in the job, inside {kind}:{path}",
        )
        return
    needed = [*recipe.requires, *_by_settings(plan)]
    if kind == "venv":
        modules = ["rampup", *needed] if _needs_rampup(spec) else needed
        yield from _in_venv(plan, recipe, path, modules)
        return
    for module in needed:
        if find_spec(module.partition(".")[0]) is None:
            cause = f"{_who_needs(plan, recipe, module)} needs {module}, which is not installed"
            yield _problem("software", cause, _how_to_get(plan, recipe, "pip", module))
    if engine is not None and engine.checks_versions:
        yield from _installed(engine)


def _function(plan: Plan, info: FunctionInfo) -> Iterator[Finding]:
    """The ranks have the Python and the cloudpickle that wrote the call."""
    kind, path = software.kind_of(plan.software.env)
    if kind != "venv":  # our own Python, or one that is seen in the job alone: the ranks compare
        return
    python = f"{path}/bin/python"
    told, failure = _answer(python, CALLABLE_BY)
    theirs, _, rest = told.strip().partition(" ")
    pickler, _, ours = rest.partition(" ")
    pip = f"{shlex.quote(python)} -m pip install"
    if failure:
        yield _problem("software", f"{python} can't be started here: {failure}", "env=PATH")
    elif theirs != info.python:
        yield _problem(
            "software",
            f"{python} is Python {theirs}, but {info.name} is sent from Python {info.python}",
            f"create it again with Python {info.python}, or launch with Python {theirs}",
        )
    elif info.cloudpickle and pickler != info.cloudpickle:
        yield _problem(
            "software",
            f"{python} has cloudpickle {pickler}, but {info.name} is sent with {info.cloudpickle}",
            f"{pip} cloudpickle=={info.cloudpickle}",
        )
    elif ours == "none":
        yield _problem(
            "software", f"{python} has no rampup, which starts the function", f"{pip} rampup"
        )


def _installed(engine: EngineInfo) -> Iterator[Finding]:
    try:
        engine.check_installed()
    except RampupError as error:
        yield _problem("software", error.message, error.hint)


def _by_settings(plan: Plan) -> dict[str, str]:
    """The modules that a setting needs, with that setting."""
    recipe = plan.spec.recipe
    return {**plan.needs.modules, **(recipe.also if recipe else {})}


def _who_needs(plan: Plan, recipe: RecipeInfo, *modules: str) -> str:
    settings = [setting for module, setting in _by_settings(plan).items() if module in modules]
    return " with ".join([f"recipe {recipe.name}", *settings])


def _how_to_get(plan: Plan, recipe: RecipeInfo, pip: str, *modules: str) -> str:
    """By an extra of rampup's, where it brings a module in a version that works, or by the module's
    own name."""
    engine = plan.engine
    if engine is not None and len(modules) == 1 and modules[0] in engine.builds:
        return engine.builds[modules[0]]
    extras = {module: recipe.extra for module in ("rampup", *recipe.requires) if recipe.extra}
    extras.setdefault("lightning", "lightning")
    names = [f"rampup[{extras[module]}]" if module in extras else module for module in modules]
    return f"{pip} install {shlex.join(dict.fromkeys(names))}"


def _needs_rampup(spec: RunSpec) -> bool:
    """An engine and a function do, and so do our own scripts."""
    ours = spec.recipe is not None and Path(spec.recipe.folder).parent == BUILTIN
    return spec.needs_rampup or ours


def _in_venv(plan: Plan, recipe: RecipeInfo, path: str, needed: list[str]) -> Iterator[Finding]:
    spec, engine = plan.spec, plan.engine
    python = f"{path}/bin/python"
    told, failure = _answer(python, ABSENT, *(module.partition(".")[0] for module in needed))
    absent = told.split()
    if failure:
        cause = f"{python} can't be started here: {failure}"
        if spec.cluster.modules or software.list_modules(spec):  # it may need them
            yield Finding(
                "software",
                "note",
                "software",
                cause,
                "load the modules of the job, then try it again here",
            )
        else:
            yield _problem(
                "software", cause, f"create it again: python -m venv --clear {shlex.quote(path)}"
            )
    elif absent:
        who = _who_needs(plan, recipe, *absent)
        cause = f"{who} needs {' and '.join(absent)}, which the environment {path} does not have"
        yield _problem(
            "software", cause, _how_to_get(plan, recipe, f"{shlex.quote(python)} -m pip", *absent)
        )
    elif engine is not None and engine.checks_versions:
        yield from _installed_in(python, engine.name)


def _installed_in(python: str, engine: str) -> Iterator[Finding]:
    told, failure = _answer(python, VERSIONS, engine)
    message, _, hint = told.strip().partition("\n")
    if failure:
        yield Finding(
            "software", "note", "software", f"{python} does not report its versions: {failure}", ""
        )
    elif message:
        by_pip = hint.startswith("pip ")
        yield _problem(
            "software",
            f"{python}: {message}",
            f"{shlex.quote(python)} -m {hint}" if by_pip else hint,
        )


@cache
def _answer(python: str, *program: str) -> tuple[str, str]:
    """What a program prints in that Python, or why it prints nothing; asked once for all points of
    a sweep."""
    try:
        asked = subprocess.run(
            [python, "-c", *program], capture_output=True, text=True, timeout=ASK_WITHIN_S, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    if asked.returncode:
        words = asked.stderr.strip().splitlines()
        return "", words[-1] if words else "it gives no reason"
    return asked.stdout, ""


def _venv(place: Path) -> Iterator[Finding]:
    quoted = shlex.quote(str(place))
    if place.is_file():
        image = shlex.quote(f"container:{place}")
        yield _problem(
            "environment",
            f"--env {place} is a file, not a folder",
            f"if it is an image: --env {image}",
        )
    elif not place.is_dir():
        yield _problem(
            "environment", f"there is no environment {place}", f"python -m venv {quoted}; {OTHERS}"
        )
    elif (place / "conda-meta").is_dir():
        yield _problem(
            "environment",
            f"{place} is a conda environment, not a venv",
            f"--env {shlex.quote(f'conda:{place}')}",
        )
    elif ":" in str(place):
        yield _problem(
            "environment",
            f"the path {place} has a colon, which PATH can't hold",
            "create it elsewhere",
        )
    for name in ("bin/activate", "bin/python"):
        if not (place / name).exists():
            yield _problem(
                "environment",
                f"{place} is not an environment: it has no {name}",
                f"python -m venv {quoted}",
            )


def _conda(name: str, by_modules: bool) -> Iterator[Finding]:
    if not name:
        yield _problem(
            "environment", "--env conda: needs the name of an environment", "conda env list"
        )
    elif "/" in name and not (Path(name) / "conda-meta").is_dir():
        yield _problem(
            "environment",
            f"{name} is not a conda environment: it has no conda-meta",
            "conda env list",
        )
    elif not os.environ.get("CONDA_EXE") and shutil.which("conda") is None:
        cause = f"--env conda:{name}, and there is no conda here: neither on PATH nor in CONDA_EXE"
        if by_modules:
            yield Finding(
                "environment",
                "note",
                "conda",
                f"{cause}; the job's modules must provide it",
                "module avail conda",
            )
        else:
            yield _problem(
                "environment",
                cause,
                "load its module first, or name a module set that has it: --software NAME",
            )


def _container(plan: Plan, image: str, by_modules: bool) -> Iterator[Finding]:
    spec = plan.spec
    if not image:
        yield _problem(
            "environment", "--env container: needs an image", "--env container:IMAGE.sif"
        )
    elif "://" in image:
        pull = f"apptainer pull image.sif {shlex.quote(image)}"
        yield _problem(
            "environment", f"{image} is not a file: images are run, not built", f"{pull}, once"
        )
    elif not Path(image).exists():
        yield _problem(
            "environment",
            f"there is no image {image}",
            f"ls {shlex.quote(str(Path(image).parent))}",
        )
    if set(":,") & set(spec.cwd):
        yield _problem(
            "environment",
            f"{spec.cwd}: a container can't be given a path with : or ,",
            "start elsewhere",
        )
    if shutil.which("apptainer") or shutil.which("singularity"):
        return
    cause = "there is neither apptainer nor singularity on this machine"
    if plan.scheduler.is_here and not by_modules:
        yield _problem("environment", cause, "install apptainer, or --on CLUSTER")
    cause += "; the nodes must have it, or the job's modules must provide it"
    yield Finding("environment", "note", "apptainer", cause, "module avail apptainer")


def _active_but_unused() -> Iterator[Finding]:
    """Who has activated an environment may mean its python, not that of a list which nobody asked
    for."""
    conda = os.environ.get("CONDA_DEFAULT_ENV", "base")
    active = os.environ.get("VIRTUAL_ENV") or (f"conda:{conda}" if conda != "base" else "")
    if active:
        cause = f"python will come from the site's modules, not from {active}, which is active here"
        yield Finding(
            "environment",
            "note",
            "python",
            cause,
            f"--env {shlex.quote(active)}, or --software none",
        )


def _another_python(spec: RunSpec) -> Iterator[Finding]:
    """Who has activated an environment may mean its python. A recipe and a class run with rampup's
    own, and `python` is the first one on PATH."""
    active = os.environ.get("VIRTUAL_ENV")
    if not active or not Path(active, "bin", "python").exists():
        return
    python = sys.executable
    if spec.command:
        if not software.BARE_PYTHON.fullmatch(spec.command[0]):
            return
        python = shutil.which(spec.command[0]) or ""
    if python and Path(os.path.abspath(python)).parent != Path(os.path.abspath(active), "bin"):
        cause = f"the ranks run {python}, not the Python of {active}, which is active here"
        yield Finding("environment", "note", "python", cause, f"--env {shlex.quote(active)}")


def _problem(topic: str, cause: str, remedy: str) -> Finding:
    return Finding(topic, "problem", topic, cause, remedy)
