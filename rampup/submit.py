"""From a RunSpec to a run that goes: preflight, the run directory, the snapshot of the user's code, submission."""

import getpass
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rampup import __version__, environment, processes, rank, records, rundir, runs, snapshot
from rampup.clusters.load import load as load_cluster
from rampup.diagnose.catalogue import preflight
from rampup.errors import Refused
from rampup.plan import job_config, job_script, plan, program_of
from rampup.recipes.load import HERE as BUILTIN_RECIPES
from rampup.recipes.load import program_of as recipe_program
from rampup.rundir import RunDir
from rampup.schedulers import allocation, local, slurm, slurm_options
from rampup.spec import RunSpec
from rampup.states import job_of, look


def make_run(spec: RunSpec, tell: Callable[[str], None], root: Path | None = None) -> RunDir:
    """Refuse what can't work, tell what is only doubtful; then make the run directory, complete or not at all."""
    root = root or runs.default_root(spec.cluster)
    for note in preflight(spec, root):
        tell(f"note: {note.cause}; try: {note.remedy}")
    run_id, created = runs.new_id(), time.time()
    final = rundir.directory_of(root, spec.name, run_id, created)
    identity = {
        "id": run_id,
        "name": spec.name,
        "created": created,
        "user": user(),
        "host": processes.host(),
        "rampup": __version__,
        "study": None,
    }
    return rundir.create(final, identity, lambda made: fill(made, spec, final))


def fill(made: RunDir, spec: RunSpec, final: Path) -> None:
    """Write what to do into a directory that will be `final`."""
    builtin = spec.recipe is not None and Path(spec.recipe.folder).parent == BUILTIN_RECIPES
    code, source = None, spec.recipe.folder if spec.recipe else None
    if builtin:
        argv = program_of(spec, final)
    else:
        taken = snapshot.take(script_of(spec), Path(spec.cwd), made.code)
        # the copy is written where the run directory is made, and run from where it will be
        argv = with_this_python(tuple(word.replace(str(made.path), str(final), 1) for word in taken.argv))
        code = code_record(taken)
        if spec.recipe is not None:
            spec = replace(spec, recipe=replace(spec.recipe, folder=str(Path(argv[-1]).parent)))
            argv = program_of(spec, final)
    records.write_json(made.config_file, {**job_config(spec, argv, builtin), "source": source})
    records.write_json(made.env_file, {**environment.describe(), "code": code})
    shutil.copyfile(rank.__file__, made.rank_program)
    if spec.cluster.scheduler == "slurm":
        made.job_script.write_text(job_script(spec, final), encoding="utf-8")
    if spec.config_file is not None:
        shutil.copyfile(spec.config_file, made.user_file)


def with_this_python(argv: tuple[str, ...]) -> tuple[str, ...]:
    """`python` is the one that it is here and now: the login shell of a job may find another one first."""
    is_bare = re.fullmatch(r"python[\d.]*", argv[0]) if argv else None
    return (shutil.which(argv[0]) or argv[0], *argv[1:]) if is_bare else argv


def code_record(taken: snapshot.Snapshot) -> dict[str, Any]:
    return {"commit": taken.commit, "dirty": taken.dirty, "files": taken.files, "skipped": taken.skipped}


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container runs as a number that nobody knows
        return str(os.getuid())


def script_of(spec: RunSpec) -> tuple[str, ...]:
    """The command whose code is kept; for a recipe in a user's own folder, its program there."""
    if spec.recipe is None:
        return spec.command
    return ("python", str(Path(spec.recipe.folder) / recipe_program(spec.recipe.entry)))


def start(run: RunDir, spec: RunSpec, detach: bool) -> subprocess.Popen[bytes] | None:
    """Hand the run to its scheduler. A local launcher is returned, for who wants to wait for it."""
    if spec.cluster.scheduler == "slurm" and allocation.is_here(spec.cluster):
        return allocation.start(run, spec.cluster)
    if spec.cluster.scheduler == "slurm":
        slurm.submit(run, spec.cluster, slurm_options.job_name(spec, run.id))
        return None
    return local.submit(run, plan(spec, run.path), detach)


def ask_to_stop(run: RunDir) -> None:
    """Let the run save after the step that it is at, and end. Only a loop that listens can do it."""
    attempt = run.last_attempt()
    if attempt is None or not attempt.listens_file.exists():
        raise Refused(
            f"nothing in run {run.id} listens: a loop looks at run.should_stop, a recipe from its first step on",
            f"rampup cancel {run.id}, without --save",
        )
    run.record("stop asked", by="rampup cancel --save", attempt=attempt.number)
    attempt.stop_file.touch()


def cancel(run: RunDir) -> None:
    """Stop a run through its scheduler."""
    asked = job_of(run, look(run).facts, run.recorded("submitted") or {})
    if asked is not None:
        slurm.cancel(load_cluster(asked[0]), f"{run.run['name']}-{run.id}")
        run.record("cancelled", by="rampup cancel")
    else:
        run.record("cancelled", by="rampup cancel")
        local.cancel(run)
