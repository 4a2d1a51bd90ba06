"""Advice for the next time: notes about a run that has ended, each with the setting to change.

Each rule is a small pure function that takes the facts of one run and yields findings. The report
calls `advise`, and `rampup why` uses one of the rules. Nothing is measured or changed here. A rule
yields a finding only where the advice is worth more than the time to read it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from rampup.core.finding import Finding, Level

SHORT_S = 30.0
"""A shorter run mostly starts up, so its phases say little."""
HEAVY = 0.3
WAITING = 0.1
"""Part of the time that is worth a change where samples are read while the steps compute."""
NO_WAITING = 0.05
"""Below this, staging would gain next to nothing."""
MOST_READERS = 16
SAVING_HEAVY, START_HEAVY, OTHER_HEAVY = 0.15, 0.4, 0.2
BUSY_PERCENT = 50.0
MEMORY_CLOSE = 0.9
VALIDATION_ROSE = 1.1
EPOCHS_TO_JUDGE = 3
STILL_FALLING = 0.98
FREQUENT_ROWS = 10


class Undefined(NamedTuple):
    """The steps where a metric was not a finite number."""

    first: int
    """The first such step."""
    since: int | None = None
    """The step from which on it was never finite again; None if it was finite at the end."""
    rows: int = 1
    """In how many rows of metrics it was not finite."""
    of: int = 1
    """How many rows there are."""


class Facts(NamedTuple):
    """One run as the rules see it. A value that was not measured is None or empty, and then the
    rule yields nothing."""

    wall_s: float = 0.0
    phases: Mapping[str, float] = {}
    """Seconds in each phase, as rank 0 measured them."""
    train: Mapping[str, Any] = {}
    resources: Mapping[str, Any] = {}
    ranks: int = 1
    nodes: int = 1
    threads: int | None = None
    """Threads of each rank."""
    device: str = "cpu"
    onednn: str = ""
    """TF_ENABLE_ONEDNN_OPTS, as an engine with TensorFlow found it."""
    loader: Mapping[str, Any] = {}
    """How an engine with data loaders reads them, and the `remedy` when that is too slow."""
    reading: Mapping[str, float] = {}
    """What rank 0 has read sample by sample; empty for data in memory."""
    cpus: int | None = None
    """CPUs of one node."""
    cpu_percent: float | None = None
    """How busy the CPUs of a node were, on average."""
    mem_used_mb: float | None = None
    """The highest value of any node."""
    mem_limit_mb: float | None = None
    undefined: Mapping[str, Undefined] = {}
    """Metrics that were not finite at some step."""
    train_losses: tuple[float, ...] = ()
    """The losses at the ends of the epochs."""
    val_losses: tuple[float, ...] = ()
    apart: tuple[str, str] | None = None
    """That the ranks never talked to each other, in words and with the remedy."""

    def share(self, phase: str) -> float:
        """Return the part of the time that a phase took; 0 for a run that is too short to judge."""
        seconds = self.phases.get(phase)
        return seconds / self.wall_s if seconds and self.wall_s >= SHORT_S else 0.0


Rule = Callable[[Facts], Iterator[Finding]]


def advise(facts: Facts) -> list[Finding]:
    """Return the findings of all rules, the most serious first."""
    return [finding for rule in RULES for finding in rule(facts)]


def ranks_apart(facts: Facts) -> Iterator[Finding]:
    """Yield a problem if every rank worked for itself: the same work was done several times."""
    if facts.apart is not None:
        words, remedy = facts.apart
        about, _, cause = words.partition(": ")
        yield Finding("ranks-apart", "problem", about, cause, remedy)


# problems of the training -------------------------------------------------------------------------


def loss_not_finite(facts: Facts) -> Iterator[Finding]:
    losses = [(name, where) for name, where in facts.undefined.items() if "loss" in name]
    lasting = [(name, where) for name, where in losses if where.since is not None]
    for name, where in (lasting or losses)[:1]:
        about = f"{name} {_describe_steps(where)}"
        if lasting:
            level: Level = "problem"
            cause, rate = "the training diverged", _lower_rate(facts)
            remedy = rate.strip() or "lower the learning rate"
        else:
            level, rate = "note", ""
            cause = "single values overflowed, and training continued"
            remedy = "look at the data of that step"
        if facts.train.get("precision") == "fp16":
            cause, remedy = f"{cause}; fp16 overflows early", "precision=fp32"
        elif "clip" in facts.train and facts.train["clip"] is None:
            remedy = f"{rate}clip=1.0"
        yield Finding("loss-not-finite", level, about, cause, remedy)


def _describe_steps(where: Undefined) -> str:
    if where.since is not None:
        return f"became NaN or infinite at step {where.since}"
    count = f"{where.rows} of {where.of} rows"
    if where.rows == 1:
        return f"was NaN or infinite at step {where.first} ({count})"
    return f"was NaN or infinite in {count}, the first at step {where.first}"


def _lower_rate(facts: Facts) -> str:
    rate = facts.train.get("lr")
    return f"lr={rate / 10:g} " if isinstance(rate, int | float) and rate > 0 else ""


def memory_close(facts: Facts) -> Iterator[Finding]:
    used, limit = facts.mem_used_mb, facts.mem_limit_mb
    if not used or not limit or used < MEMORY_CLOSE * limit:
        return
    about = f"{used / 1024:.1f} of {limit / 1024:.1f} GB of memory were used on one node"
    cause = "with a little more, the run would be killed"
    if facts.resources.get("mem"):
        remedy = f"--mem {round(used * 1.5 / 1024) + 1}G"
    elif "accumulate" in facts.train:
        remedy = f"accumulate={2 * int(facts.train['accumulate'] or 1)}"
    else:
        remedy = "make the batch smaller"
    yield Finding("memory-close", "note", about, cause, remedy)


# learning -----------------------------------------------------------------------------------------


def validation_rises(facts: Facts) -> Iterator[Finding]:
    train, val = facts.train_losses, facts.val_losses
    if len(val) <= EPOCHS_TO_JUDGE or len(train) != len(val):
        return
    best = min(range(len(val)), key=val.__getitem__)
    long_ago = len(val) - 1 - best >= EPOCHS_TO_JUDGE
    rose = val[-1] >= VALIDATION_ROSE * val[best]
    if not long_ago or not rose or train[-1] >= train[best]:
        return
    rise = f"val_loss rose from {val[best]:.4g} at epoch {best + 1} to {val[-1]:.4g}"
    about = f"{rise} while train_loss fell"
    decay = " or weight_decay=0.01" if facts.train.get("weight_decay") == 0.0 else ""
    shorter = f"epochs={best + 1}" if "epochs" in facts.train else "stop earlier"
    cause = "the model overfits the training data"
    yield Finding("validation-rises", "note", about, cause, f"{shorter}{decay}")


def still_improving(facts: Facts) -> Iterator[Finding]:
    val, epochs = facts.val_losses, facts.train.get("epochs")
    if len(val) <= EPOCHS_TO_JUDGE or epochs != len(val):
        return
    falls = val[-1] < STILL_FALLING * val[-2] and val[-2] < STILL_FALLING * val[-3]
    if falls and val[-1] == min(val):
        last = f"{val[-3]:.4g}, {val[-2]:.4g}, {val[-1]:.4g}"
        about = f"val_loss was still falling at the end: {last}"
        cause = "training stopped while validation loss was still improving"
        yield Finding("still-improving", "note", about, cause, f"epochs={2 * epochs}")


# time ---------------------------------------------------------------------------------------------


def reading_heavy(facts: Facts) -> Iterator[Finding]:
    """Yield a note if the steps wait for samples that are read while they compute."""
    share, found = facts.share("data"), facts.reading
    if not found or share < WAITING:
        return
    about = f"{share:.0%} of the time went into waiting for data"
    cause, remedy = _faster_reading(facts)
    yield Finding("reading-heavy", "note", about, cause, remedy)


def _faster_reading(facts: Facts) -> tuple[str, str]:
    found, train = facts.reading, facts.train
    memory = int(train.get("read_ahead") or 0) * 1_000_000
    readers, threads = int(found.get("readers", 1)), facts.threads or 1
    if memory and 2 * found.get("batch_bytes", 0) > memory:
        wanted = -(-4 * int(found["batch_bytes"]) // 1_000_000)
        return "there is no room to read two batches ahead", f"read_ahead={wanted}"
    if "readers" in train and readers < min(threads, MOST_READERS):
        twice = min(2 * readers, threads, MOST_READERS)
        return f"{_count(readers, 'thread')} can't read as fast as the model trains", (
            f"readers={twice}"
        )
    if train.get("stage") == "none" and (train.get("epochs") or 1) > 1:
        cause = "the file system is slower than the model, and every epoch reads all of it again"
        return cause, "stage=node"
    if train.get("stage") == "node" and not train.get("decode"):
        return "decoding takes longer than the model", "decode=true, or more --cpus-per-task"
    return "reading takes longer than the model", f"--cpus-per-task {2 * threads}"


def staging_unneeded(facts: Facts) -> Iterator[Finding]:
    """Yield a note if the files themselves were read fast enough, so that staging gains nothing."""
    share, found = facts.phases.get("data", 0.0) / max(facts.wall_s, 1e-9), facts.reading
    reads = found.get("reads", 0.0)
    if facts.train.get("stage") != "node" or not reads or facts.wall_s < SHORT_S:
        return
    if share < NO_WAITING and found.get("hits", 0.0) < reads / 2:
        about = f"{share:.0%} of the time went into waiting for data, most of it not staged yet"
        cause = "the files themselves are read fast enough"
        yield Finding("staging-unneeded", "note", about, cause, "stage=none")


def data_heavy(facts: Facts) -> Iterator[Finding]:
    share = facts.share("data")
    if share < HEAVY or facts.reading:
        return
    about = f"{share:.0%} of the time went into data loading"
    cause = "training waits for its batches"
    if facts.loader.get("remedy"):
        remedy = str(facts.loader["remedy"])
    elif isinstance(facts.train.get("num_workers"), int):
        workers = max(1, (facts.cpus or 4) // max(1, _ranks_per_node(facts)) - 1)
        remedy = f"num_workers={max(workers, 2 * facts.train['num_workers'])}"
    else:
        cause = "cutting a batch costs the same for a small one and a large one"
        remedy = _larger("batch_size", facts, 2) or "load the data once, before the loop"
    yield Finding("data-heavy", "note", about, cause, remedy)


def communication_heavy(facts: Facts) -> Iterator[Finding]:
    share, here = facts.share("communication"), _ranks_per_node(facts)
    if share < HEAVY or facts.ranks < 2:
        return
    about = f"{share:.0%} of the time went into communication between {facts.ranks} ranks"
    threads = facts.threads or 1
    if facts.cpus and facts.device == "cpu" and here * threads > facts.cpus:
        crowd = f"{here} ranks of {threads} threads share {facts.cpus} CPUs"
        cause = f"{crowd} and wait for each other"
        remedy = f"--tasks-per-node {max(1, facts.cpus // threads)}"
    else:
        cause = "gradients are added up once per step; fewer, larger steps do it less often"
        remedy = _larger("batch_size", facts, 4) or f"--tasks-per-node {max(1, here // 2)}"
    yield Finding("communication-heavy", "note", about, cause, remedy)


def saving_heavy(facts: Facts) -> Iterator[Finding]:
    share = facts.share("saving")
    if share < SAVING_HEAVY:
        return
    about = f"{share:.0%} of the time went into saving checkpoints"
    cause = "the file system of the runs is slow"
    # the user's own loop decides itself when to save
    rarer = "checkpoint.every=30min, or " if "log_every" in facts.train else ""
    remedy = f"{rarer}RAMPUP_RUNS on a faster file system"
    yield Finding("saving-heavy", "note", about, cause, remedy)


def start_heavy(facts: Facts) -> Iterator[Finding]:
    share = facts.share("start")
    if share < START_HEAVY:
        return
    about = f"{share:.0%} of the time went into starting up"
    if _ranks_per_node(facts) > 1:
        cause = f"{facts.ranks} ranks import their libraries at the same time"
        remedy = f"--tasks-per-node {max(1, _ranks_per_node(facts) // 2)}"
    else:
        cause = "importing the libraries took longer than the work"
        remedy = _larger("epochs", facts, 2) or "put the venv on a local disk"
    yield Finding("start-heavy", "note", about, cause, remedy)


def evaluation_heavy(facts: Facts) -> Iterator[Finding]:
    share, remedy = facts.share("evaluation"), _larger("eval_batch_size", facts, 4)
    if share >= HEAVY and remedy:
        about = f"{share:.0%} of the time went into validation"
        cause = "its batches are small for this model"
        yield Finding("evaluation-heavy", "note", about, cause, remedy)


def other_heavy(facts: Facts) -> Iterator[Finding]:
    share, every = facts.share("other"), facts.train.get("log_every")
    if share < OTHER_HEAVY:
        return
    about = f"{share:.0%} of the time was not measured in any phase"
    if isinstance(every, int) and every < FREQUENT_ROWS:
        cause = f"a row of metrics every {every} steps costs time"
        remedy = "log_every=50"
    else:
        outside = "the recipe does work outside its steps"
        cause = f"{outside}, or the machine was busy with something else"
        remedy = "take work out of the loop, run nothing else on the node"
    yield Finding("other-heavy", "note", about, cause, remedy)


def onednn_off(facts: Facts) -> Iterator[Finding]:
    """Yield a note if TensorFlow computed on CPUs without the library that is made for them."""
    if facts.onednn.lower() not in ("0", "false") or not facts.device.lower().startswith("cpu"):
        return
    about = "TF_ENABLE_ONEDNN_OPTS=0 switched oneDNN off"
    cause = "on CPUs, convolutions take several times as long without it"
    yield Finding("onednn-off", "note", about, cause, "unset TF_ENABLE_ONEDNN_OPTS")


# idle CPUs ----------------------------------------------------------------------------------------


def cpus_unused(facts: Facts) -> Iterator[Finding]:
    """Yield a note if a single rank was not allowed to use most of the machine."""
    if not _is_idle(facts) or facts.ranks != facts.nodes or not facts.threads or not facts.cpus:
        return
    if facts.threads <= facts.cpus // 2:
        about = f"one rank with {_count(facts.threads, 'thread')} on {facts.cpus} CPUs"
        cause = f"the CPUs were {facts.cpu_percent:.0f} % busy"
        remedy = f"--tasks-per-node {facts.cpus // facts.threads}, or --cpus-per-task {facts.cpus}"
        yield Finding("cpus-unused", "note", about, cause, remedy)


def cpus_wait(facts: Facts) -> Iterator[Finding]:
    """Yield a note if the ranks had the CPUs and did not keep them busy."""
    if not _is_idle(facts) or not facts.cpus:
        return
    if _ranks_per_node(facts) * (facts.threads or 0) <= facts.cpus // 2:
        return
    about = f"the CPUs were {facts.cpu_percent:.0f} % busy"
    cause = "steps are too small to keep all threads at work, or they wait for data"
    remedy = _larger("batch_size", facts, 2) or "--cpus-per-task 1"
    yield Finding("cpus-wait", "note", about, cause, remedy)


def _is_idle(facts: Facts) -> bool:
    known = facts.cpu_percent is not None and facts.cpu_percent < BUSY_PERCENT
    return known and facts.device == "cpu" and facts.wall_s >= SHORT_S


def _ranks_per_node(facts: Facts) -> int:
    return -(-facts.ranks // max(1, facts.nodes))


def _larger(name: str, facts: Facts, factor: int) -> str:
    """Return the setting, multiplied; empty for a run that has no such setting."""
    value = facts.train.get(name)
    return f"{name}={value * factor}" if isinstance(value, int) and value > 0 else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


RULES: tuple[Rule, ...] = (
    ranks_apart,
    loss_not_finite,
    memory_close,
    validation_rises,
    still_improving,
    data_heavy,
    reading_heavy,
    staging_unneeded,
    communication_heavy,
    saving_heavy,
    start_heavy,
    evaluation_heavy,
    other_heavy,
    onednn_off,
    cpus_unused,
    cpus_wait,
)
