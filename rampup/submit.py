"""From a RunSpec to a run that goes: preflight, the run directory, the snapshot of the user's code, submission."""

import getpass
import shutil
import subprocess
import time
from pathlib import Path

from msgspec.structs import replace

from rampup import __version__, environment, processes, rank, rundir, runs, snapshot
from rampup.diagnose.catalogue import preflight
from rampup.plan import job_config, plan, program_of
from rampup.recipes.load import HERE as BUILTIN_RECIPES
from rampup.rundir import RunDir
from rampup.schedulers import local
from rampup.spec import RunSpec


def make_run(spec: RunSpec) -> RunDir:
    """Refuse what can't work; then make the run directory, complete or not at all."""
    root = runs.default_root(spec.cluster)
    preflight(spec, root)
    run_id, created = runs.new_id(), time.time()
    final = rundir.directory_of(root, spec.name, run_id, created)
    identity = {
        "id": run_id,
        "name": spec.name,
        "created": created,
        "user": getpass.getuser(),
        "host": processes.host(),
        "rampup": __version__,
        "study": None,
    }
    return rundir.create(final, identity, lambda made: fill(made, spec, final))


def fill(made: RunDir, spec: RunSpec, final: Path) -> None:
    """Write what to do into a directory that will be `final`."""
    builtin = spec.recipe is not None and Path(spec.recipe.folder).parent == BUILTIN_RECIPES
    code = None
    if builtin:
        argv = program_of(spec, final)
    else:
        taken = snapshot.take(script_of(spec), Path(spec.cwd), made.code)
        # the copy is written where the run directory is made, and run from where it will be
        argv = tuple(word.replace(str(made.path), str(final), 1) for word in taken.argv)
        code = {"commit": taken.commit, "dirty": taken.dirty, "files": taken.files, "skipped": taken.skipped}
        if spec.recipe is not None:
            spec = replace(spec, recipe=replace(spec.recipe, folder=str(Path(argv[-1]).parent)))
            argv = program_of(spec, final)
    rundir.write_json(made.config_file, job_config(spec, argv, builtin))
    rundir.write_json(made.env_file, {**environment.describe(), "code": code})
    shutil.copyfile(rank.__file__, made.rank_program)
    if spec.config_file is not None:
        shutil.copyfile(spec.config_file, made.user_file)


def script_of(spec: RunSpec) -> tuple[str, ...]:
    """The command whose code is kept; for a recipe in a user's own folder, its program there."""
    if spec.recipe is None:
        return spec.command
    program = spec.recipe.entry.partition(":")[0].removesuffix(".py") + ".py"
    return ("python", str(Path(spec.recipe.folder) / program))


def start(run: RunDir, spec: RunSpec, detach: bool) -> subprocess.Popen[bytes]:
    return local.submit(run, plan(spec, run.path), detach)
