"""Lets a version of rampup make the run directories that later versions must read and continue.

It is run by hand, once for a version, with the command line of that version:

    python tests/compat/make_fixtures.py /path/to/.venv/bin/rampup tests/compat/runs-0.1.0.tar.gz

It takes about four minutes and needs the extra `torch`, and Slurm's packages for a sandbox. Every
run is a real one: it was started, and failed, was stopped or still went on when its directory was
copied. Only the half-made ones are copies from which files were taken away. Then everything that
belongs to this machine is replaced by a word between two @ (see tests/older_runs.py), the version
is asked what it says of each run, and all goes into one archive:

    contents.json   which run is what, command lines of living processes, and what the version said
    runs/           the run directories
    work/           what the user had, from where the runs were started
"""

import argparse
import contextlib
import gzip
import io
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from older_runs import CONTENTS, answers, is_text, true_here, unpack

USER_CODE = Path(__file__).parent / "user_code"
LOOP = ("--", "python", "loop/loop.py")
CLUSTER = "compatcluster"
FIRST_JOB = 710001
"""Job numbers that the Slurm of a test will not reach."""
USER, HOST, BOOT = "ada", "laptop", "00000000-0000-4000-8000-000000000000"
PLATFORM = "Linux-6.1.0-x86_64-with-glibc2.36"
SEALED = "checkpoints"
"""What has sha256 sums is kept to the byte, so nothing of this machine may be in there."""


class Version:
    """The command line that makes the runs, in a world that tells nothing of this machine."""

    def __init__(self, rampup: Path, root: Path) -> None:
        self.rampup, self.root = rampup, root
        self.work, self.runs = root / "work", root / "runs"
        self.work.mkdir(parents=True)
        (root / "home").mkdir()
        self.env = {
            "PATH": f"{rampup.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(root / "home"),
            "LANG": "C.UTF-8",
            "USER": USER,
            "LOGNAME": USER,
            "NO_COLOR": "1",
            "RAMPUP_RUNS": str(self.runs),
            "XDG_STATE_HOME": str(root / "state"),
            "XDG_CONFIG_HOME": str(root / "config"),
        }
        self.slurm_conf = root / "state" / "rampup" / "sandbox" / CLUSTER / "slurm.conf"

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [str(self.rampup), *words]
        return subprocess.run(argv, cwd=self.work, env=self.env, capture_output=True, text=True)

    def __call__(self, *words: str, code: int = 0) -> str:
        done = self.call(*words)
        if done.returncode != code:
            sys.exit(f"{words} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def run(self, *words: str, code: int = 0) -> Path:
        """Start a run; its directory."""
        told = self("run", "--json", *words, code=code).splitlines()[-1]
        return Path(json.loads(told)["dir"])

    def slurm(self, *argv: str) -> str:
        env = {**self.env, "SLURM_CONF": str(self.slurm_conf)}
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout


def wait_for(true: Callable[[], Any], what: str, seconds: float = 120, pause: float = 0.005) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := true()):
        if time.monotonic() > deadline:
            sys.exit(f"not within {seconds} s: {what}")
        time.sleep(pause)
    return found


def facts_of(run: Path, attempt: int) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((run / f"attempts/{attempt}/attempt.json").read_text())
    except (OSError, ValueError):
        return {}
    return found


def checkpoints_of(run: Path) -> list[Path]:
    return list(run.glob("checkpoints/step-*/manifest.json"))


def rows_of(run: Path) -> int:
    path = run / "attempts" / "1" / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


# processes ----------------------------------------------------------------------------------------


def words_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def rank_of(run: Path) -> int:
    """The process that trains: it is what the settings of the run say."""
    argv = json.loads((run / "config.json").read_text())["argv"]
    mark = f"RAMPUP_RUN_DIR={run}\0".encode()

    def found() -> int | None:
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if words_of(int(path.name)) == argv and mark in (path / "environ").read_bytes():
                    return int(path.name)
        return None

    return int(wait_for(found, "the rank"))


@contextlib.contextmanager
def held(run: Path, rows: int) -> Iterator[int]:
    """The rank stands still after so many rows of metrics, and nothing is half written."""
    rank = rank_of(run)
    while True:
        wait_for(lambda: checkpoints_of(run) and rows_of(run) >= rows, "metrics and a checkpoint")
        os.kill(rank, signal.SIGSTOP)
        time.sleep(0.05)
        if not list(run.glob("checkpoints/*.tmp-*")):
            break
        os.kill(rank, signal.SIGCONT)
        time.sleep(0.001)
    try:
        yield rank
    finally:
        os.kill(rank, signal.SIGCONT)


# the runs -----------------------------------------------------------------------------------------


class Collection:
    """The copies, each as it was at its moment."""

    def __init__(self, version: Version, folder: Path) -> None:
        self.version, self.runs = version, folder / "runs"
        self.names: dict[str, str] = {}
        self.commands: dict[str, list[str]] = {}

    def keep(self, kind: str, run: Path, name: str = "") -> Path:
        self.names[kind] = name or run.name
        print(f"{kind}: {self.names[kind]}", flush=True)
        compiled = shutil.ignore_patterns("__pycache__")
        return Path(shutil.copytree(run, self.runs / self.names[kind], True, compiled))

    def copy(self, kind: str, of: str, new: str, name: str = "{}") -> Path:
        """One more, with an id of its own wherever the id stands."""
        begin, _, old = self.names[of].rpartition("-")
        made = self.keep(kind, self.runs / self.names[of], name.format(f"{begin}-{new}"))
        for path in made.rglob("*"):
            if path.is_file() and is_text(path.name) and old in (text := path.read_text()):
                path.write_text(text.replace(old, new))
        return made


def make_here(made: Collection) -> None:
    """On this machine: completed, failed, running, stopped, and one that asks for more."""
    version = made.version
    small = ("hidden=4", "log_every=20")
    made.keep("completed", version.run("digits", "epochs=1", *small))
    made.keep("failed", version.run("mood=fails", "--tasks-per-node", "2", *LOOP, code=100))
    running = version.run("--detach", "digits", "epochs=12", "checkpoint.every=20steps", *small)
    with held(running, rows=5):
        made.keep("running", running)
    version("cancel", str(running))
    own = version.run("--detach", "./waves", "pause_s=0.05")
    wait_for(lambda: rows_of(own) > 1, "two epochs")
    version("cancel", "--save", str(own))
    made.keep("own-recipe", own)
    version("sweep", "--name", "older", "polyfit", "steps=500,1000")
    for number, run in enumerate(sorted(version.runs.glob("*-older-*"), key=rows_of)):
        made.keep(f"study-{number}", run)
    make_again_here(made)


def make_again_here(made: Collection) -> None:
    """As it lies there before the second attempt begins, with the processes that begin it."""
    version = made.version
    hold = version.root / "hold"
    hold.touch()
    again = version.run("--detach", "mood=asks", "hold=../hold", *LOOP)
    wait_for(lambda: (again / "attempts/2/rank-0.log").exists(), "the second attempt")
    launcher = int(facts_of(again, 2)["pid"])
    made.commands["launcher"] = words_of(launcher)
    made.commands["guardian"] = words_of(child_of(launcher))
    shutil.rmtree(made.keep("again-here", again) / "attempts" / "2")
    hold.unlink()
    version("wait", str(again))


def make_half_made(made: Collection) -> None:
    """What a crash, a full disk or a careless hand leaves."""
    making = made.copy("making", "completed", "hmake2", name=".{}.making")
    for name in ("attempts", "checkpoints", "tb"):
        shutil.rmtree(making / name)
    for name in ("config.json", "env.json", "rank.py", "control.jsonl"):
        (making / name).unlink()
    bare = made.copy("without-config", "failed", "hconf3")
    (bare / "config.json").unlink()
    (bare / "control.jsonl").unlink()
    bare = made.copy("without-run", "failed", "hrunj4")
    (bare / "run.json").unlink()
    (bare / "env.json").unlink()
    torn = made.copy("torn", "failed", "htorn5")
    for name in ("attempt.json", "metrics.jsonl"):
        path = torn / "attempts" / "1" / name
        path.write_bytes(path.read_bytes()[:-40].rstrip()[:-20])


def make_on_slurm(made: Collection) -> None:
    """On a cluster: at its time limit, put back into the queue, and pending."""
    version = made.version
    further = version.root / "further.conf"
    further.write_text(f"FirstJobId={FIRST_JOB}\n")
    version(
        *("sandbox", "up", "--name", CLUSTER, "--nodes", "1", "--no-accounting"),
        *("--slurm-conf", str(further)),
    )
    try:
        on = ("--on", CLUSTER)
        limited = version.run(*on, "--time", "2", "./waves", "pause_s=1.2")
        made.keep("pending", version.run(*on, "--slurm", "hold", *LOOP))
        requeued = version.run(*on, "polyfit", "steps=20000")
        with held(requeued, rows=5):
            version.slurm("scontrol", "requeue", facts_of(requeued, 1)["job"])
        for kind, run in (("again-polyfit", requeued), ("again-slurm", limited)):
            while facts_of(run, 1).get("outcome") != "again":
                time.sleep(0.1)
            copy = made.keep(kind, run)
            version.slurm("scancel", facts_of(run, 1)["job"])
            if (copy / "attempts" / "2").exists() or not rows_of(copy):
                sys.exit(f"{run} is not in the middle: is the machine too busy?")
    finally:
        version("sandbox", "down", "--name", CLUSTER)


# nothing of this machine --------------------------------------------------------------------------


def words_for(version: Version, made: Collection) -> dict[str, str]:
    """What is replaced by what, the longest paths first."""
    config = json.loads((made.runs / made.names["completed"] / "config.json").read_text())
    python, package = config["argv"][0], Path(config["folder"]).parents[1]
    return {
        str(version.slurm_conf): "@SLURM_CONF@",
        CLUSTER: "@CLUSTER@",
        str(version.root): "@ROOT@",
        str(package): "@PACKAGE@",
        python: "@PYTHON@",
        str(Path(python).parent): "@BIN@",
    }


def scrubbed(text: str, words: dict[str, str]) -> str:
    for found, word in words.items():
        text = text.replace(found, word)
    text = re.sub(rf'("host": ?){json.dumps(platform.node())}', rf'\1"{HOST}"', text)
    text = text.replace(f"--node={platform.node()}", f"--node={HOST}")
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return text.replace(boot, BOOT).replace(platform.platform(), PLATFORM)


def scrub(folder: Path, words: dict[str, str]) -> None:
    for path in [path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()]:
        if path.is_symlink():
            sys.exit(f"{path} is a link: what it points to is not of this archive")
        written = path.stat().st_mtime
        text = path.read_text() if is_text(path.name) else ""
        if scrubbed(text, words) != text:
            if SEALED in path.parts:
                sys.exit(f"{path} has something of this machine, and a sum")
            path.write_text(scrubbed(text, words))
            os.utime(path, (written, written))
        path.rename(path.with_name(path.name.replace(f"-{platform.node()}.", f"-{HOST}.")))
    tell_leftovers(folder, words)


def tell_leftovers(folder: Path, words: dict[str, str]) -> None:
    """Stop where a path or a name of this machine is still there."""
    paths = [*words, str(Path.home()), os.getcwd()]
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        names = [platform.node()] if is_text(path.name) else []  # bytes may look like a name
        pattern = "|".join(rf"(?<![\w.]){re.escape(word)}(?!\w)" for word in (*paths, *names))
        if found := re.search(pattern.encode(), path.read_bytes()):
            sys.exit(f"{path} has {found[0]!r}")


# the archive --------------------------------------------------------------------------------------


def write(archive: Path, folder: Path, contents: dict[str, Any]) -> None:
    with gzip.open(archive, "wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
        data = (json.dumps(contents, indent=1) + "\n").encode()
        about = tarfile.TarInfo(CONTENTS)
        about.size = len(data)
        tar.addfile(about, io.BytesIO(data))
        for path in sorted(folder.rglob("*"), key=lambda path: (path.name, path)):
            # files of one name side by side: gzip sees that they are alike
            member = tar.gettarinfo(path, str(path.relative_to(folder)))
            member.uid = member.gid = 0
            member.uname = member.gname = USER
            with path.open("rb") if path.is_file() else contextlib.nullcontext() as content:
                tar.addfile(member, content)


def what_it_says(version: Version, archive: Path, words: dict[str, str]) -> dict[str, Any]:
    """Of each run, when it lies where it would be after an update."""
    there = Version(version.rampup, version.root / "there")
    known = {word: found for found, word in words.items()}
    python, package = known["@PYTHON@"], Path(known["@PACKAGE@"])
    values = true_here(there.root, python, package)
    older = unpack(values, archive=archive)
    said = {kind: answers(there.call, run) for kind, run in older.runs.items()}
    back = {value: word for word, value in values.items()}
    found: dict[str, Any] = json.loads(scrubbed(json.dumps(said), back))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rampup", type=Path, help="the command line of the version")
    parser.add_argument("archive", type=Path, help="the file to write: runs-VERSION.tar.gz")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rampup-compat-") as root:
        make(options.rampup.absolute(), Path(root), options.archive)
    print(f"{options.archive}: {options.archive.stat().st_size / 1000:.0f} kB")


def make(rampup: Path, root: Path, archive: Path) -> None:
    folder = root / "kept"
    folder.mkdir()
    version = Version(rampup, root / "made")
    for place in (version.work, folder / "work"):
        shutil.copytree(USER_CODE, place, dirs_exist_ok=True)
    made = Collection(version, folder)
    make_here(made)
    make_half_made(made)
    begun = time.time()
    make_on_slurm(made)
    time.sleep(max(0.0, begun + 130 - time.time()))  # younger ones may still be on their way
    words = words_for(version, made)
    scrub(folder, words)
    commands = json.loads(scrubbed(json.dumps(made.commands), words))
    contents = {
        "rampup": version("--version").split()[-1],
        "runs": made.names,
        "commands": commands,
    }
    write(archive, folder, {**contents, "said": {}})
    said = what_it_says(version, archive, words)
    write(archive, folder, {**contents, "said": said})


if __name__ == "__main__":
    main()
