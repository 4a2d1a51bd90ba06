"""From a RunSpec to a run that goes: preflight, the run directory, the snapshot of the user's code,
submission."""

import getpass
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rampup import __version__, rank
from rampup.config.clusters import of_run
from rampup.config.recipes import HERE as BUILTIN_RECIPES
from rampup.config.recipes import program_of as recipe_program
from rampup.config.targets.keras import is_own
from rampup.core import environment as software
from rampup.core import processes
from rampup.core.spec import RunSpec
from rampup.diagnose.preflight import preflight
from rampup.errors import Refused
from rampup.rundir import files as rundir
from rampup.rundir import find as runs
from rampup.rundir import records
from rampup.rundir.files import RunDir
from rampup.runs import code as snapshot
from rampup.runs import versions as environment
from rampup.runs.plan import job_config, job_script, plan, program_of
from rampup.runs.state import job_of, look
from rampup.schedulers import local
from rampup.schedulers.slurm import allocation
from rampup.schedulers.slurm import options as slurm_options
from rampup.schedulers.slurm import submit as slurm

Take = Callable[[Sequence[str], Path, Path], snapshot.Snapshot]
"""As snapshot.take: a command, where it runs, and where the copy of its code goes."""
NO_STUDY: Mapping[str, Any] = {"study": None}


def make_run(spec: RunSpec, tell: Callable[[str], None], root: Path | None = None) -> RunDir:
    """Refuse what can't work, tell what is only doubtful; then make the run directory, complete or
    not at all."""
    root = root or runs.default_root(spec.cluster)
    for note in preflight(spec, root):
        tell(f"note: {note.cause}; try: {note.remedy}")
    return create_run(spec, root, runs.new_run_id(), snapshot.take)


def create_run(
    spec: RunSpec, root: Path, run_id: str, take: Take, study: Mapping[str, Any] = NO_STUDY
) -> RunDir:
    """Make the directory of a run that has passed all checks; `take` copies the user's code into
    it."""
    created = time.time()
    final = rundir.run_directory(root, spec.name, run_id, created)
    identity = {
        "id": run_id,
        "name": spec.name,
        "created": created,
        "user": user(),
        "host": processes.host(),
        "rampup": __version__,
        **study,
    }
    return rundir.create_run(
        final, identity, lambda made: fill(made, spec, final, take), alone=study is NO_STUDY
    )


def fill(made: RunDir, spec: RunSpec, final: Path, take: Take) -> None:
    """Write what to do into a directory that will be `final`."""
    builtin = spec.recipe is not None and Path(spec.recipe.folder).parent in (
        BUILTIN_RECIPES,
        Path(),
    )
    code, source = None, spec.recipe.folder if spec.recipe else None
    if builtin:
        argv = program_of(spec, final)
    else:
        taken = take(script_of(spec), place_of(spec), made.code)
        # the copy is written where the run directory is made, and run from where it will be
        argv = with_this_python(
            tuple(word.replace(str(made.path), str(final), 1) for word in taken.argv), spec
        )
        code = code_record(taken)
        if spec.recipe is not None:
            spec = with_folder(spec, taken, RunDir(final).code)
            argv = program_of(spec, final)
    records.write_new(
        made.config_file, {**job_config(spec, final, argv, builtin), "source": source}
    )
    records.write_new(made.env_file, {**environment.describe(software.env_of(spec)), "code": code})
    shutil.copyfile(rank.__file__, made.rank_program)
    if spec.cluster.scheduler == "slurm":
        made.job_script.write_text(job_script(spec, final), encoding="utf-8")
    if spec.config_file is not None:
        shutil.copyfile(spec.config_file, made.user_file)


def with_this_python(argv: tuple[str, ...], spec: RunSpec) -> tuple[str, ...]:
    """`python` is the one that it is here and now: the login shell of a job may find another one
    first. Where modules or an environment bring one, it is theirs, and found in the job."""
    if not argv or not software.BARE_PYTHON.fullmatch(argv[0]) or software.brings_python(spec):
        return argv
    return (shutil.which(argv[0]) or argv[0], *argv[1:])


def code_record(taken: snapshot.Snapshot) -> dict[str, Any]:
    return {
        "commit": taken.commit,
        "dirty": taken.dirty,
        "files": taken.files,
        "skipped": taken.skipped,
    }


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container runs as a number that nobody knows
        return str(os.getuid())


def script_of(spec: RunSpec) -> tuple[str, ...]:
    """The command whose code is kept; for a recipe in a user's own folder, its program there."""
    if spec.recipe is None:
        return spec.command
    if is_own(spec.recipe.engine, spec.recipe.folder):
        return ("python", "-m", spec.recipe.entry.partition(":")[0])
    return ("python", str(Path(spec.recipe.folder) / recipe_program(spec.recipe.entry)))


def place_of(spec: RunSpec) -> Path:
    """From where that command is started: a class of the user's is imported from its project's
    folder."""
    of_class = spec.recipe is not None and is_own(spec.recipe.engine, spec.recipe.folder)
    return Path(spec.recipe.folder if spec.recipe and of_class else spec.cwd)


def with_folder(spec: RunSpec, taken: snapshot.Snapshot, code: Path) -> RunSpec:
    """The recipe's folder in the copy; where nothing was copied, it is used from where it is."""
    assert spec.recipe is not None
    if taken.root is None:
        return spec
    inside = Path(spec.recipe.folder).relative_to(taken.root)
    return replace(spec, recipe=replace(spec.recipe, folder=str(code / inside)))


def start(
    run: RunDir, spec: RunSpec, detach: bool, share: Mapping[str, str] = allocation.WHOLE
) -> subprocess.Popen[bytes] | None:
    """Hand the run to its scheduler. A local launcher is returned, for who wants to wait for it."""
    if spec.cluster.scheduler == "slurm" and allocation.is_here(spec.cluster):
        return allocation.start(run, spec.cluster, share)
    if spec.cluster.scheduler == "slurm":
        slurm.submit(run, spec.cluster, slurm_options.job_name(spec, run.id))
        return None
    return local.submit(run, plan(spec, run.path), detach)


def ask_to_stop(run: RunDir) -> None:
    """Let the run save after the step that it is at, and end. Only a loop that listens can do
    it."""
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
    submitted = run.recorded("submitted") or {}
    asked = job_of(run, look(run).facts, submitted)
    # who has it looks at this before and while it runs
    if submitted.get("packed") or submitted.get("waits"):
        run.record("cancelled", by="rampup cancel")
    elif asked is not None:
        slurm.cancel(
            of_run(asked[0], run.config.get("cluster", {})),
            f"{run.run['name']}-{run.id}",
            *asked[1:],
        )
        run.record("cancelled", by="rampup cancel")
    else:
        run.record("cancelled", by="rampup cancel")
        local.cancel(run)
