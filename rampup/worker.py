"""The job side of an engine recipe: `python -m rampup.worker RUN_DIR`, started by rank.py once for
every rank.

Reads the run directory, builds the job, imports the recipe, hands both to the engine, and records
how it ended. A failure leaves error-<rank>.json, one line and a hint or a traceback in the rank's
log, and an exit code.
"""

import atexit
import importlib
import os
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import msgspec

from rampup.core.engines.lightning_version import check_installed
from rampup.core.settings import Settings
from rampup.errors import RampupError, Superseded, nearest
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record
from rampup.runtime import failure
from rampup.runtime.context import RankContext, read_context
from rampup.runtime.job import Job, TrainingResult, open_job


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m rampup.worker RUN_DIR", file=sys.stderr)
        return 2
    run, context = RunDir(Path(arguments[0]).absolute()), read_context()
    try:
        work(run, context)
    except Superseded as error:  # what this attempt leaves no longer matters
        print(error.message, file=sys.stderr, flush=True)
        return 1
    except Exception as error:
        return failure.report_failure(error, run.attempt(context.attempt), context.rank)
    return 0


def work(run: RunDir, context: RankContext) -> None:
    """One rank's whole life. What was measured is on the disk afterwards, however it ends."""
    config, job = open_job(run, context)
    try:
        engine = _engine(_engine_name(config, job.settings))
        _record_end(job, engine.train(job, load_task(config, job.settings)))
    finally:
        job.close()


def load_task(config: Record, settings: Settings) -> Any:
    """What `entry` names: `train:Mnist` in the recipe's own package or folder, or a user's
    LightningModule."""
    if config["engine"] == "lightning":
        from rampup.engines.lightning.target import Target

        return Target(config, settings)
    module_name, _, name = config["entry"].partition(":")
    module = _import_recipe(config, module_name)
    if not hasattr(module, name):
        known = [each for each, value in vars(module).items() if isinstance(value, type)]
        raise RampupError(
            f"recipe {config['recipe']}: {module_name}.py has no {name!r}", nearest(name, known)
        )
    found = getattr(module, name)
    if not isinstance(found, type):
        from rampup.engines.keras.target import Target as Functions

        return Functions(found, config, settings)
    return found(settings)


def _import_recipe(config: Record, module_name: str) -> ModuleType:
    if config.get("builtin"):
        return importlib.import_module(f"rampup.recipes.{config['recipe']}.{module_name}")
    sys.path.insert(0, config["folder"])
    return importlib.import_module(module_name)


def _engine_name(config: Record, settings: Settings) -> str:
    """Recipes of the torch engine have a choice; a class of the user's own may have an argument of
    that name."""
    name: str = config["engine"]
    return settings.get("engine", name) if name == "torch" else name


def _engine(name: str) -> ModuleType:
    if name == "lightning":
        check_installed()  # before anything of it is imported
    return importlib.import_module(f"rampup.engines.{name}.engine")


def _record_end(job: Job, outcome: TrainingResult) -> None:
    job.metrics.flush()
    phases = job.phases.summary()
    job.events.write(
        "stopped" if outcome.stopped else "end",
        step=outcome.step,
        metrics=job.metrics.last,
        best=msgspec.to_builtins(outcome.best),
        phases=phases,
        checkpoint=outcome.checkpoint,
        checkpoints=job.saving.cost.summarize(phases["wall"]),
    )


def leave(code: int) -> NoReturn:
    """End without unloading torch, which takes a second and frees nothing that the end of a process
    does not."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
