"""Making the directory of a run: complete, or not at all. The plan has been checked before; nothing
is checked or printed here, and nothing is started. `rampup run` and `sweep` call it."""

import getpass
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from rampup import __version__, after, contact, rank
from rampup.config.recipes import HERE as BUILTIN_RECIPES
from rampup.config.recipes import program_of as recipe_program
from rampup.core import processes, software
from rampup.core.engines import is_target
from rampup.core.spec import RunSpec
from rampup.rundir import claims, find
from rampup.rundir import files as rundir
from rampup.rundir.files import RunDir
from rampup.runs import versions
from rampup.runs.code import Snapshot, take
from rampup.runs.plan import CheckedPlan, Plan, find_program, make_config, make_plan

Take = Callable[[Sequence[str], Path, Path], Snapshot]
"""As `take` of runs/code.py: a command, where it runs, and where the copy of its code goes."""
NO_STUDY: Mapping[str, Any] = {"study": None}


def plan_new_run(spec: RunSpec, root: Path | None = None, run_id: str | None = None) -> Plan:
    """The plan of a run with an id of its own, in `root` or where the runs of its cluster live."""
    root = root or find.default_root(spec.cluster)
    return make_plan(
        spec, rundir.run_directory(root, spec.name, run_id or find.new_run_id(), time.time())
    )


class Making(NamedTuple):
    """A run whose directory is being made."""

    run: RunDir
    """Where it will be."""
    hidden: RunDir
    """Where its files are written, while nobody sees it yet."""


def create_run(
    checked: CheckedPlan, take_code: Take = take, study: Mapping[str, Any] = NO_STUDY
) -> RunDir:
    """Make the directory of a run; `take_code` copies the user's code into it."""
    with making_run(checked, take_code, study) as making:
        return making.run


@contextmanager
def making_run(
    checked: CheckedPlan, take_code: Take = take, study: Mapping[str, Any] = NO_STUDY
) -> Iterator[Making]:
    """Make the directory of a run, complete but hidden while the block runs: it may add files. An
    error in the block leaves nothing."""
    plan, run = checked.plan, RunDir(checked.plan.run_dir)
    identity = {
        "id": run.id,
        "name": plan.spec.name,
        "created": time.time(),
        "user": find_user(),
        "host": processes.host(),
        "rampup": __version__,
        **study,
    }
    share = checked.plan.spec.cluster.share
    with rundir.create_run(run.path, identity, study is NO_STUDY, share) as made:
        fill(made, plan, take_code)
        yield Making(run, made)


def fill(made: RunDir, plan: Plan, take_code: Take) -> None:
    """Write what to do into a hidden directory that will be `plan.run_dir`."""
    spec, final = plan.spec, plan.run_dir
    builtin = spec.recipe is not None and is_builtin(spec.recipe.folder)
    code, source = None, spec.recipe.folder if spec.recipe else None
    if builtin:
        argv = find_program(spec, final)
    else:
        taken = take_code(find_own_script(spec), find_start_folder(spec), made.code)
        # the copy is written where the run directory is made, and run from where it will be
        moved = tuple(word.replace(str(made.path), str(final), 1) for word in taken.argv)
        argv = pin_python(moved, spec)
        code = describe_code(taken)
        if spec.recipe is not None:
            spec = use_copied_folder(spec, taken, RunDir(final).code)
            argv = find_program(spec, final)
        if spec.function is not None:
            spec = use_copied_path(spec, taken, RunDir(final).code)
            argv = find_program(spec, final)
    config = make_config(spec, final, argv, builtin)
    rundir.fill_run(
        made,
        config={**config, "source": source},
        env={**versions.describe(plan.software.env), "code": code},
        rank_program=rank.__file__,
        contact_program=contact.__file__,
        script=plan.script,
        user_file=spec.config_file,
        share=spec.cluster.share,
    )
    if spec.after:
        shutil.copyfile(after.__file__, made.after_program)
    claims.claim_first(made)


def is_builtin(folder: str) -> bool:
    """Whether a recipe's folder is one of ours, or of an installed package: then no code is kept."""
    return Path(folder).parent in (BUILTIN_RECIPES, Path())


def pin_python(argv: tuple[str, ...], spec: RunSpec) -> tuple[str, ...]:
    """`python` is the one that it is here and now: the login shell of a job may find another one
    first. Where modules or an environment bring one, it is theirs, and found in the job."""
    if not argv or not software.BARE_PYTHON.fullmatch(argv[0]) or software.brings_python(spec):
        return argv
    return (shutil.which(argv[0]) or argv[0], *argv[1:])


def describe_code(taken: Snapshot) -> dict[str, Any]:
    return {
        "commit": taken.commit,
        "dirty": taken.dirty,
        "files": taken.files,
        "skipped": taken.skipped,
        "within": taken.within,
    }


def find_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container runs as a number that nobody knows
        return str(os.getuid())


def find_own_script(spec: RunSpec) -> tuple[str, ...]:
    """The command whose code is kept; for a recipe in a user's own folder, its program there."""
    if spec.function is not None:
        return tuple(spec.function.code)
    if spec.recipe is None:
        return spec.command
    if is_target(spec.recipe.engine, spec.recipe.folder):
        return ("python", "-m", spec.recipe.entry.partition(":")[0])
    return ("python", str(Path(spec.recipe.folder) / recipe_program(spec.recipe.entry)))


def find_start_folder(spec: RunSpec) -> Path:
    """The folder in which that command is started: a user's class or function is imported from its
    project's folder."""
    if spec.function is not None:
        return Path(spec.function.folder)
    of_class = spec.recipe is not None and is_target(spec.recipe.engine, spec.recipe.folder)
    return Path(spec.recipe.folder if spec.recipe and of_class else spec.cwd)


def use_copied_folder(spec: RunSpec, taken: Snapshot, code: Path) -> RunSpec:
    """The recipe's folder in the copy; where nothing was copied, it is used from where it is."""
    assert spec.recipe is not None
    if taken.root is None:
        return spec
    inside = Path(spec.recipe.folder).relative_to(taken.root)
    return replace(spec, recipe=replace(spec.recipe, folder=str(code / inside)))


def use_copied_path(spec: RunSpec, taken: Snapshot, code: Path) -> RunSpec:
    """The folders of a function's modules as they are in the copy; others stay where they are."""
    assert spec.function is not None
    if taken.root is None:
        return spec
    path = []
    for folder in map(Path, spec.function.path):
        is_copied = folder.is_relative_to(taken.root)
        path.append(str(code / folder.relative_to(taken.root)) if is_copied else str(folder))
    return replace(spec, function=replace(spec.function, path=path))
