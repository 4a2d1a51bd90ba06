"""The lightning engine against the stock Trainer: the time of a step, and what SIGKILL in the
middle of a save costs.

Both sides train the same module in this process, one after the other, with the same logging
interval; neither has a progress bar, and neither saves while it is timed. CPU time of all threads
is compared. For the kills a process does nothing but save, again and again, to the same file;
afterwards the file must load.
"""

import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import Line, not_slower

EPOCHS, KILLS = 3, 20
SHARED_MEMORY = Path("/dev/shm")
"""Another file system than that of the runs, as $TMPDIR is on most clusters."""


def epoch_s(train: Callable[[], object]) -> float:
    """The quickest epoch but the first."""
    from benchmarks.lightning_module import Timed

    Timed.seconds = []
    train()
    return min(Timed.seconds[1:])


def one_after_the_other(turn: int) -> tuple[float, float]:
    """Who goes first takes turns: a machine that gets quicker or slower is then on nobody's
    side."""
    if turn % 2:
        theirs = epoch_s(with_stock)
        return epoch_s(with_rampup), theirs
    return epoch_s(with_rampup), epoch_s(with_stock)


def with_stock() -> None:
    import lightning.pytorch as pl
    from lightning.pytorch.loggers import CSVLogger

    from benchmarks.lightning_module import Timed

    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False}
        logger = CSVLogger(folder)
        pl.Trainer(max_epochs=EPOCHS, logger=logger, enable_checkpointing=False, **options).fit(
            Timed()
        )


def with_rampup() -> None:
    from rampup import worker
    from rampup.config.resolve import Request, resolve
    from rampup.rundir.files import RunDir
    from rampup.runs.plan import make_config
    from rampup.runtime.context import RankContext

    words = (f"max_epochs={EPOCHS}", "checkpoint.every=never", "enable_model_summary=false")
    spec = resolve(Request(target="benchmarks.lightning_module:Timed", settings=words), Path.cwd())
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir(Path(folder))
        run.attempt(1).path.mkdir(parents=True)
        run.config_file.write_text(json.dumps(make_config(spec, run.path, (), False)))
        # as on one machine, where the launcher samples CPU and memory
        os.environ["RAMPUP_SUPERVISED"] = "1"
        worker.work(run, RankContext(run_dir=run.path, started=time.time(), threads=1))


def lost(plugins: Callable[[Path], list[Any]]) -> int:
    """How many of the kills left no checkpoint that loads."""
    import lightning.pytorch as pl
    import torch

    from benchmarks.lightning_module import Large

    found = 0
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        file = Path(folder) / "last.ckpt"
        options: dict[str, Any] = {
            "enable_progress_bar": False,
            "enable_checkpointing": False,
            "accelerator": "cpu",
        }
        trainer = pl.Trainer(logger=False, plugins=plugins(Path(folder)), **options)
        trainer.strategy.connect(Large())
        trainer.save_checkpoint(file)
        for number in range(KILLS):
            killed_while(
                lambda: trainer.save_checkpoint(file), random.Random(number).uniform(0.05, 0.5)
            )
            try:
                torch.load(file, weights_only=False)
            except Exception:  # whatever torch says of half a file
                found += 1
                trainer.save_checkpoint(file)
    return found


def killed_while(work: Callable[[], object], after_s: float) -> None:
    pid = os.fork()
    if pid == 0:
        while True:
            work()
    time.sleep(after_s)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def kills() -> Line:
    from rampup.engines.lightning.plugins import SafeCheckpointIO
    from rampup.rundir.files import RunDir
    from rampup.runtime.checkpoints.store import CheckpointStore

    before, tempfile.tempdir = tempfile.tempdir, str(SHARED_MEMORY)
    try:
        theirs = lost(lambda folder: [])
        ours = lost(lambda folder: [SafeCheckpointIO(CheckpointStore(RunDir(folder), 1))])
    finally:
        tempfile.tempdir = before
    return Line(
        f"{KILLS} kills in a save, checkpoints lost",
        ours,
        theirs,
        None,
        "",
        "0",
        ours == 0,
        unit="",
    )


# a difference of a few percent is seen in many short runs only
def lines(repeats: int = 15) -> Iterator[Line]:
    import logging

    import torch

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    epoch_s(with_rampup), epoch_s(with_stock)  # both have imported all they need
    pairs = [one_after_the_other(turn) for turn in range(repeats)]
    yield not_slower("Lightning engine / stock Trainer, time", pairs, 1.05)
    yield kills()
