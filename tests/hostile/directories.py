"""Hostile run directories: what somebody may put into a runs root that others read.

`make(root, number, outside)` builds one; its number says how, so that a failure can be built again.
Every directory begins as the sound record of a run and gets a few attacks: records of odd types,
links and FIFOs in the place of files and folders, huge sparse files, terminal commands in every
text, and names of processes, jobs and files that are not its own.
"""

import json
import os
import platform
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rampup.core import processes
from rampup.rundir.checkpoints import seal_manifest
from rampup.rundir.files import RunDir

T0 = 1_794_804_968.0
TERABYTE = 10**12
ESCAPES = (
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[H",
    "\x1b]52;c;cm0gLXJmIH4=\x07",
    "\x1b[31mred",
    "\x9b2J",
    "a\nnext: rm -r ~",
    "\u202etxt.exe",
    "\u2066hidden\u2069",
    "\r\x1b[Kcompleted",
    "\x00\x08\x7f",
    "\udcff\udc80",
    "=cmd|' /C calc'!A0",
    "<script>alert(1)</script>",
    "x" * 5000,
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**63,
    -1e308,
    1e999,
    float("nan"),
    "",
    [],
    {},
    [[]],
    {"": None},
    "../../../etc/passwd",
    "%n%s{0}{run_dir}",
    "9" * 4500,
    {"t": {"t": {"t": 1}}},
    *ESCAPES,
)
NESTED = b"[" * 100_000
BYTES = (
    b"",
    b"\0" * 100,
    NESTED,
    b'{"a":' * 5000,
    b"\xff\xfe{\0}\0",
    b"{" + b'"a":1,' * 9,
    b"1" * 5000,
)
Facts = dict[str, Any]
Attack = Callable[[random.Random, RunDir, Path], None]


def records_of(run: RunDir) -> dict[Path, list[Facts]]:
    """Return the records of a run that failed, by file; several in one file are its lines."""
    me = {"host": platform.node(), "boot": processes.boot_id()}
    process = {**me, "pid": os.getppid(), "pid_start": processes.start_ticks(os.getppid())}
    attempt = run.attempt(1)
    slurm = {"name": "mycluster", "scheduler": "slurm", "launcher": "srun"}
    config = {
        "kind": "engine",
        "recipe": "mnist",
        "engine": "torch",
        "train": {"lr": 0.1, "epochs": 4, "monitor": "val_loss"},
        "resources": {"nodes": 1, "tasks_per_node": 2, "mem": "1G"},
        "cluster": {**slurm, "slurm_conf": "/nowhere/slurm.conf"},
        "origins": {"train.lr": "command line"},
        "command": ["python", "train.py"],
        "argv": ["python", str(run.code / "train.py")],
        "cwd": "/",
    }
    facts = {
        **process,
        "scheduler": "local",
        "world_size": 2,
        "started": T0,
        "ended": T0 + 60,
        "outcome": "failed",
        "exit_code": 1,
        "failed_rank": 0,
        "cause": "rank 0: ValueError: no",
    }
    row = {"step": 5, "epoch": 1, "val_loss": 0.5, "samples_s": 100.0, "t": T0 + 5}
    events = [
        {"what": "start", "t": T0, "threads": 2},
        {"what": "end", "t": T0 + 60, "phases": {"wall": 60.0, "compute": 50.0}},
    ]
    error = {"type": "ValueError", "message": "no", "rank": 0, "t": T0 + 59, "traceback": "x"}
    return {
        run.run_file: [{"id": run.id, "name": "nice", "created": T0, "user": "eve", "host": "n1"}],
        run.config_file: [config],
        run.env_file: [{"python": "3.11", "packages": {"torch": "2"}, "variables": {"A": "b"}}],
        run.control_file: [{"t": T0, "what": "submitted", "scheduler": "local", **process}],
        attempt.facts_file: [facts],
        attempt.metrics_file: [row, {**row, "step": 10}],
        attempt.events_file: events,
        attempt.progress_file: [{"step": 5, "steps": 10, "t": T0}],
        attempt.evaluation_file: [
            {"step": 5, "classes": ["a", "b"], "confusion": [[1, 0], [0, 1]]}
        ],
        attempt.settings_file: [{"train": {"lr": 0.1}, "origins": {"lr": "x"}}],
        attempt.error_file(0): [error],
        attempt.system_file("n1"): [{"t": T0 + 1, "cpu_percent": 50.0, "cpu_s": 1.0}],
    }


def write_sound(run: RunDir) -> None:
    run.attempt(1).path.mkdir(parents=True)
    for path, rows in records_of(run).items():
        write(path, rows)
    run.attempt(1).rank_log(0).write_text("starting\nTraceback (most recent call last):\n  x\n")
    run.code.mkdir()
    for step in (5, 10):
        write_checkpoint(run, step, {"step": step, "attempt": 1, "t": T0, "files": {}, "meta": {}})


def write(path: Path, rows: list[Facts]) -> None:
    put(path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def put(path: Path, data: bytes) -> None:
    """Write a plain file; what an attack before has put there stays."""
    if os.path.lexists(path) and not is_plain(path):
        raise FileExistsError(path)
    path.write_bytes(data)


def is_plain(path: Path) -> bool:
    facts = os.lstat(path)
    return stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1


def write_checkpoint(run: RunDir, step: int, facts: Facts) -> None:
    folder = run.checkpoint(step)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_bytes(seal_manifest(facts))


# attacks ------------------------------------------------------------------------------------------


def change_a_value(chance: random.Random, run: RunDir, outside: Path) -> None:
    path, rows = chance.choice(list(records_of(run).items()))
    row = dict(rows[-1])
    for key in chance.sample(sorted(row), min(len(row), chance.randint(1, 4))):
        row[key] = chance.choice(VALUES)
    if chance.random() < 0.5:
        row[chance.choice(ESCAPES)] = 0.5
    write(path, [*rows[:-1], row])


def name_things_oddly(chance: random.Random, run: RunDir, outside: Path) -> None:
    """Put commands to a terminal into every text of every record."""
    for path, rows in records_of(run).items():
        told = [{key: _spoil(chance, value) for key, value in row.items()} for row in rows]
        write(path, told)
    metrics = {f"val_{text}": 0.5 for text in ESCAPES}
    write(run.attempt(1).metrics_file, [{"step": 1, "t": T0, **metrics}])


def _spoil(chance: random.Random, value: Any) -> Any:
    if isinstance(value, str):
        return f"{value}{chance.choice(ESCAPES)}" if chance.random() < 0.4 else value
    if isinstance(value, dict):
        return {f"{key}": _spoil(chance, each) for key, each in value.items()}
    return value


def tear(chance: random.Random, run: RunDir, outside: Path) -> None:
    path = chance.choice(list(records_of(run)))
    data = path.read_bytes()[:5000] if is_plain(path) else b""
    put(path, chance.choice([data[: len(data) // 2], *BYTES]))


def link_a_file(chance: random.Random, run: RunDir, outside: Path) -> None:
    """Each of them is written by some verb, or read whole by another."""
    logs = [run.attempt(1).rank_log(0), run.attempt(1).job_log, run.slurm_log("7")]
    mine = [run.report_file, run.mlperf_file, run.lock_file, run.attempt(1).stop_file, *logs]
    path = chance.choice([*records_of(run), *mine])
    path.unlink(missing_ok=True)
    target = chance.choice([outside / "thesis.tex", outside / "missing", Path("/dev/zero")])
    path.symlink_to(target)


def link_by_another_name(chance: random.Random, run: RunDir, outside: Path) -> None:
    path = chance.choice([run.control_file, run.report_file, run.lock_file])
    path.unlink(missing_ok=True)
    os.link(outside / "thesis.tex", path)


def link_a_folder(chance: random.Random, run: RunDir, outside: Path) -> None:
    names = ("attempts", "attempts/1", "checkpoints", "checkpoints/step-10", "submissions", "tb")
    path = run.path / chance.choice(names)
    if path.exists():
        path.rename(run.path / "aside")
    path.symlink_to(outside / "folder")


def put_a_pipe(chance: random.Random, run: RunDir, outside: Path) -> None:
    logs = [run.attempt(1).rank_log(0), run.slurm_log("7"), run.lock_file, run.report_file]
    path = chance.choice([*records_of(run), *logs, run.checkpoint(10) / "manifest.json"])
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def grow(chance: random.Random, run: RunDir, outside: Path) -> None:
    path = chance.choice([*records_of(run), run.attempt(1).rank_log(0), run.slurm_log("7")])
    if not os.path.lexists(path) or is_plain(path):
        with open(path, "ab") as file:
            file.truncate(TERABYTE)


def shout(chance: random.Random, run: RunDir, outside: Path) -> None:
    """Put what a launcher and a program may print into the logs."""
    lines = [
        "srun: error: n1: tasks 0-9999999999: Killed",
        "srun: error: n1: tasks -,5--9: Exited with exit code " + "9" * 5000,
        "ModuleNotFoundError: No module named '**/**/x'",
        "FileNotFoundError: [Errno 2] No such file or directory: '/../..'",
        'Traceback (most recent call last):\n  File "a", line ' + "9" * 5000 + "\nValueError: x",
        "process rank 99999999999 with PID 1 on node x exited on signal 999",
        *ESCAPES,
    ]
    chance.shuffle(lines)
    text = "\n".join(lines).encode("utf-8", "surrogatepass")
    put(run.attempt(1).rank_log(0), text)
    put(run.attempt(1).job_log, text)
    error = run.attempt(1).error_file(0)
    if chance.random() < 0.5 and not error.is_symlink():
        error.unlink(missing_ok=True)


def name_a_job(chance: random.Random, run: RunDir, outside: Path) -> None:
    job = chance.choice(["77", "--user=root", "7_7", "1\0", "../x", "9" * 5000, "$(id)"])
    cluster = chance.choice(["mycluster", "local", "../..", "slurm", ""])
    name = chance.choice(["nice-abc", "", "a,b", "*", f"nice-{run.id}"])
    row = {"t": T0, "what": "submitted", "scheduler": "slurm", "cluster": cluster, "job": job}
    write(run.control_file, [{**row, "job_name": name}])
    ended = chance.choice(["stopped", "timeout", "failed", "again"])
    facts = {"job": job, "started": T0 + 1, "outcome": ended, "world_size": 1}
    write(run.attempt(1).facts_file, [facts])


def name_a_process(chance: random.Random, run: RunDir, outside: Path) -> None:
    """Say that a living process of the reader has the run."""
    (facts,) = records_of(run)[run.attempt(1).facts_file]
    for key in ("outcome", "ended", "exit_code", "cause"):
        facts.pop(key)
    write(run.attempt(1).facts_file, [facts])


def seal_oddly(chance: random.Random, run: RunDir, outside: Path) -> None:
    """Seal a manifest anew after its values were changed: a sum is not a signature."""
    facts: Facts = {"step": 10, "attempt": 1, "t": T0, "files": {}, "meta": {}}
    for key in chance.sample(sorted(facts), 2):
        facts[key] = chance.choice([*VALUES[:20], {"../../x": {"size": 1, "sha256": "x"}}])
    if facts["step"] != facts["step"] or isinstance(facts["step"], float):
        facts["step"] = 10
    unsealed = json.dumps(facts, indent=1).encode()
    put(
        run.checkpoint(10) / "manifest.json",
        unsealed if chance.random() < 0.2 else seal_manifest(facts),
    )


ATTACKS: tuple[Attack, ...] = (
    change_a_value,
    name_things_oddly,
    tear,
    link_a_file,
    link_by_another_name,
    link_a_folder,
    put_a_pipe,
    grow,
    shout,
    name_a_job,
    name_a_process,
    seal_oddly,
)


def make(root: Path, number: int, outside: Path) -> RunDir:
    """Build a hostile run directory. The first ones have one attack each, the others several."""
    chance = random.Random(number)
    run = RunDir(root / f"20261117-{number % 10**6:06d}-nice-a{number:05d}")
    run.path.mkdir(parents=True)
    write_sound(run)
    first = ATTACKS[number % len(ATTACKS)]
    more = [] if number < len(ATTACKS) else chance.sample(ATTACKS, chance.randint(0, 3))
    # behind a link the others would attack what is outside
    for attack in sorted((first, *more), key=lambda attack: attack is link_a_folder):
        try:
            attack(chance, run, outside)
        except OSError:  # the one before has left nothing to attack
            continue
    return run
