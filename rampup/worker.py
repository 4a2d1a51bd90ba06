"""The job side of an engine's run: `python -m rampup.worker RUN_DIR`.

rank.py starts it once for every rank. It reads the run directory, builds the job, lets the engine
load the user's code and train, and records how the training ended. Every engine has the same door,
rampup/engines/<name>/engine.py with `load_target` and `train`; no engine's name is known in here. A
failure leaves error-<rank>.json, one line and a hint or a traceback in the rank's log, and an exit
code.
"""

import importlib
import sys
from pathlib import Path

import msgspec

from rampup.core import moved
from rampup.errors import LostPeer, Superseded
from rampup.rundir.files import RunDir
from rampup.runtime import failure
from rampup.runtime.context import RankContext, read_context
from rampup.runtime.job import Job, TrainingResult, open_job
from rampup.runtime.quick_exit import exit_now


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m rampup.worker RUN_DIR", file=sys.stderr)
        return 2
    run, context = RunDir(Path(arguments[0]).absolute()), read_context()
    try:
        work(run, context)
    except Superseded as error:  # the results of this attempt no longer matter
        print(error.message, file=sys.stderr, flush=True)
        return 1
    except Exception as error:
        return failure.report_failure(error, run.attempt(context.attempt), context.rank)
    return 0


def work(run: RunDir, context: RankContext) -> None:
    """Train as one rank. However it ends, what was measured is on the disk afterwards."""
    config, job = open_job(run, context)
    is_over = False
    """Whether the run has come to its end, or failed: a lost rank may come back."""
    try:
        job.progress.stage(f"importing {config['engine']}")
        engine = importlib.import_module(f"rampup.engines.{config['engine']}.engine")
        if not config.get("builtin"):
            moved.install()
        target = engine.load_target(config, job.settings)
        job.progress.stage("reading data")
        outcome = engine.train(job, target)
        _record_end(job, outcome)
        is_over = not outcome.stopped
    except Exception as error:
        is_over = not isinstance(error, Superseded | LostPeer)
        raise
    finally:
        for leave in job.leaving:
            leave(is_over)
        job.close()


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


if __name__ == "__main__":
    exit_now(main(sys.argv[1:]))
