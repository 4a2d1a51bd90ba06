"""Signals at random moments of the verbs that start, stop and clean runs, on a real Slurm whose
programs are slow, die or lie.

In each round a verb gets SIGKILL, SIGINT, SIGTERM or SIGHUP; in every other one a rival does
something with the same run at the same time. Then Slurm is sound again, and this must hold: every
job in the queue is recorded in one run, no run and no point of a study has two jobs, the newest
checkpoint is there, the same verb works or is refused for a true reason, and nobody has seen a
traceback. tests/slurm/test_fuzz.py plays a few rounds, `make drill` many.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct, field

import rampup
from rampup.errors import RampupError
from rampup.rundir import checkpoints
from rampup.rundir.files import RunDir
from rampup.rundir.find import is_run_name

PACKAGE = Path(rampup.__file__).parent
PROGRAMS = Path(__file__).parents[1] / "tests" / "slurm" / "programs"
ODD_FLOCK = Path(__file__).with_name("odd_flock.py")
PREFIX = "fuzz"
"""The names of all runs and studies of the rounds begin with it: a sandbox may have other jobs."""
AT_ONCE = 4
TRAINED, STUDIES = 3, 2
SLOW_S = 1.5
END_WITHIN_S = 90.0
QUICK, QUICK_S, LONG_S = ("clean", "cancel", "fetch"), 0.25, 0.9
"""Verbs that have little to do, and about how long these and the others take."""
SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
VERBS = {"run": 3, "resume": 5, "sweep": 5, "clean": 2, "cancel": 3, "fetch": 2}
"""How often each comes in 20 rounds."""
FLOCKS = ("works", "fails", "succeeds")
ODD_ANSWERS = (
    "slow before",
    "slow after",
    "dies",
    "fails",
    "says nothing",
    "says half",
    "says more",
)
ODD = {
    "sbatch": (
        "slow before",
        "slow after",
        "dies before",
        "dies",
        "says nothing",
        "says more",
        "says it in words",
        "fails afterwards",
        "refuses",
    ),
    "squeue": ODD_ANSWERS,
    "sacct": ODD_ANSWERS,
}
KINDS = ("unknown jobs", "started twice", "checkpoints lost", "locks left", "tracebacks")
ENDED = ("failed", "cancelled", "timeout")
LOOP = """
import sys, rampup

run = rampup.init()
for step in range(1, 5):
    run.log(step=step, loss=1.0)
    run.save({"step": step}, step)
run.finish()
sys.exit(1)
"""
"""Four checkpoints, and a failure: it can be resumed."""


class Round(Struct):
    """One verb, what disturbs it, and what came of it."""

    number: int
    verb: str
    subject: str
    """The id of a run, the name of a study, or of a run that is to be made."""
    words: tuple[str, ...]
    random: random.Random
    signal: signal.Signals
    to_group: bool
    flock: str
    odd: dict[str, str]
    rival: tuple[str, ...]
    hit: bool = False
    """Whether the signal came while the verb was at work."""
    said: list[str] = field(default_factory=list)

    def describe(self) -> str:
        odd = ", ".join(f"{program} {how}" for program, how in self.odd.items()) or "a sound Slurm"
        rival = f", beside {' '.join(self.rival)}" if self.rival else ""
        whom = "group" if self.to_group else "process"
        return (
            f"round {self.number}: {' '.join(self.words)}{rival}; {self.signal.name} to the {whom}"
            f"{'' if self.hit else ', too late'}; flock {self.flock}; {odd}"
        )


class Job(Struct, frozen=True):
    """A job or a task of an array, as Slurm has it."""

    id: str
    name: str
    state: str

    @property
    def is_active(self) -> bool:
        return self.state in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED")


class Rounds:
    """Rounds with the runs of one folder, some of them at once, each with a run of its own."""

    def __init__(
        self,
        folder: Path,
        env: dict[str, str],
        cluster: str,
        data: Path,
        flocks: Sequence[str] = FLOCKS,
    ) -> None:
        """`env` says which Slurm and where the runs are; `data` is a whole copy of MNIST; `flocks`
        says what file locks may do."""
        self.folder, self.cluster, self.data, self.flocks = folder, cluster, data, flocks
        self.root = Path(env["RAMPUP_RUNS"])
        self.env = {**env, "XDG_CACHE_HOME": str(folder / "cache"), "NO_COLOR": "1"}
        self.seed = int(os.environ.get("RAMPUP_TEST_SEED", time.time_ns() % 1_000_000))
        self.random = random.Random(self.seed)
        self.deck = [verb for verb, times in VERBS.items() for _ in range(times)]
        self.random.shuffle(self.deck)
        self.bin = folder / "odd"
        self.bin.mkdir(parents=True)
        for program in ODD:
            shutil.copy(PROGRAMS / f"{program}.sh", self.bin / program)
            (self.bin / program).chmod(0o755)
        self.played: list[Round] = []
        self.violations: list[tuple[str, str]] = []
        self.trained = self._train()

    # subjects -------------------------------------------------------------------------------------

    def _train(self) -> dict[str, Path]:
        """Make runs that have checkpoints and have failed; return their ids and a copy of what they
        saved."""
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        (work / "loop.py").write_text(LOOP)
        words = ("run", "--json", "--name", f"{PREFIX}t", "--", sys.executable, "loop.py")
        made = [self._start(words, self.env) for _ in range(TRAINED)]
        found = {}
        for process in made:
            out, err = process.communicate(timeout=120)
            assert process.returncode == 100, err
            run = RunDir(msgspec.json.decode(out.splitlines()[-1])["dir"])
            found[run.id] = self.folder / f"saved-{run.id}"
            shutil.copytree(run.checkpoints, found[run.id])
            assert checkpoints.list_steps(run)[0] == 4
        return found

    def _refill(self, run: RunDir) -> None:
        """Put back the checkpoints that an earlier `clean` has removed."""
        for saved in self.trained[run.id].iterdir():
            if not (run.checkpoints / saved.name).exists():
                shutil.copytree(saved, run.checkpoints / saved.name)

    def find_runs(self) -> dict[str, RunDir]:
        names = os.listdir(self.root)
        found = [RunDir(self.root / name) for name in names if is_run_name(name)]
        return {run.id: run for run in found}

    def _choose(self, number: int, busy: set[str], runs: dict[str, RunDir]) -> Round:
        chance = random.Random(f"{self.seed}-{number}")
        verb = self.deck[number % len(self.deck)]
        if verb == "fetch" and "mnist" in busy:
            verb = "run"
        newest = sorted(run.path.name for run in runs.values() if not run.run.get("study"))[-8:]
        single = [run.id for run in runs.values() if run.path.name in newest]
        free = [each for each in [*self.trained, *single] if each not in busy]
        studies = [f"{PREFIX}s{it}" for it in range(STUDIES) if f"{PREFIX}s{it}" not in busy]
        if verb == "sweep" and studies:
            subject = chance.choice(studies)
        elif verb == "fetch":
            subject = "mnist"
        elif verb in ("run", "sweep") or not free:
            verb, subject = "run", f"{PREFIX}r{number}"
        else:
            has_saved = [each for each in free if each in self.trained]
            subject = chance.choice(has_saved if verb == "clean" and has_saved else free)
        words = self._word(verb, subject, runs, chance)
        rivals = {
            "resume": ("resume", "resume", "clean", "cancel"),
            "clean": ("resume", "resume", "clean"),
            "cancel": ("resume", "cancel"),
            "sweep": ("sweep", "sweep", "cancel"),
            "fetch": ("fetch",),
        }
        rival: tuple[str, ...] = ()
        if verb in rivals and chance.random() < 0.5:
            rival = self._word(chance.choice(rivals[verb]), subject, runs, chance)
        return Round(
            number,
            verb,
            subject,
            words,
            chance,
            chance.choice(SIGNALS),
            chance.random() < 0.5,
            chance.choice(self.flocks),
            choose_odd(chance),
            rival,
        )

    def _word(
        self, verb: str, subject: str, runs: dict[str, RunDir], chance: random.Random
    ) -> tuple[str, ...]:
        """Return the words of a verb. Jobs are held: what is in the queue stays there."""
        there = ("--on", self.cluster, "--slurm", "hold")
        if verb == "run":
            return ("run", *there, "--name", subject, "--", "true")
        if verb == "sweep":
            # one study as arrays, the other one as packs
            pack = ("--pack", "2") if subject.endswith("1") else ()
            return ("sweep", "x=1,2,3", *there, "--name", subject, *pack, "--", "true", "{x}")
        if verb == "fetch":
            return ("fetch", "mnist", "--from", str(self.data))
        if verb == "cancel" and subject not in runs:
            return ("cancel", "--study", subject)
        if verb == "resume":
            is_there = runs[subject].config.get("cluster", {}).get("name") == self.cluster
            return ("resume", subject, *(() if is_there else there))
        return (verb, subject)

    # one wave -------------------------------------------------------------------------------------

    def play(self, count: int, say: Callable[[str], None] = print) -> None:
        say(f"seed {self.seed}: RAMPUP_TEST_SEED={self.seed} repeats these rounds")
        while len(self.played) < count:
            self._play_wave(min(AT_ONCE, count - len(self.played)))
            say(f"{len(self.played)} rounds, {len(self.violations)} violations")
        self._check_all([], "afterwards")

    def _play_wave(self, size: int) -> None:
        runs, busy, wave = self.find_runs(), set[str](), []
        for number in range(len(self.played), len(self.played) + size):
            chosen = self._choose(number, busy, runs)
            busy.add(chosen.subject)
            wave.append(chosen)
            if chosen.subject in self.trained:
                self._refill(runs[chosen.subject])
        if any(each.verb == "fetch" for each in wave):
            shutil.rmtree(self.folder / "cache" / "rampup" / "data", ignore_errors=True)
        tag = f"{self.seed}-{len(self.played)}"
        with ThreadPoolExecutor(size) as pool:
            list(pool.map(lambda each: self._disturb(each, runs, tag), wave))
        self._wait_for_children(tag, wave)
        self.played += wave
        states = self._check_all(wave, "after the signals")
        with ThreadPoolExecutor(size) as pool:
            list(pool.map(lambda each: self._try_again(each, states), wave))
        self._check_all(wave, "after the next verb")
        self._empty_queue()

    def _disturb(self, it: Round, runs: dict[str, RunDir], tag: str) -> None:
        """Start the verb and its rival, and send the signal at a random moment."""
        seen = self.folder / f"seen-{it.number}"
        odd = {f"ODD_{program.upper()}": how for program, how in it.odd.items()}
        env = {
            **self.env,
            **odd,
            "PATH": f"{self.bin}:{self.env['PATH']}",
            "ODD_SEEN": str(seen),
            "ODD_SLOW_S": str(SLOW_S),
            "ODD_ROUND": tag,
        }
        watched = [seen, self.root, self.folder / "cache" / "rampup" / "data"]
        if it.subject in runs:
            watched += [runs[it.subject].path, runs[it.subject].control_file]
        victim = self._start(it.words, env, it.flock)
        rivals = []
        if it.rival:
            # two that do the same reach every line together
            time.sleep(it.random.choice((0.0, it.random.uniform(0, 0.3))))
            # a `cancel` waits for an answer that it can believe, and takes long
            sound = {} if it.rival[0] != "cancel" else {"ODD_SQUEUE": "", "ODD_SACCT": ""}
            rivals = [self._start(it.rival, {**env, **sound}, it.flock)]
        wait_for_moment(victim, watched, it.random, QUICK_S if it.verb in QUICK else LONG_S)
        it.hit = victim.poll() is None
        with suppress(ProcessLookupError):
            if it.hit and it.to_group:
                os.killpg(victim.pid, it.signal)
            elif it.hit:
                os.kill(victim.pid, it.signal)
        it.said += self._collect([victim, *rivals], it)
        seen.unlink(missing_ok=True)

    def _collect(self, processes: Iterable[subprocess.Popen[str]], it: Round) -> list[str]:
        said = []
        for process in processes:
            try:
                out, err = process.communicate(timeout=END_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                self._report("locks left", f"it did not end in {END_WITHIN_S:g} s", it)
            said.append(f"{process.returncode}: {out}{err}")
            if has_traceback(err):
                self._report("tracebacks", err, it)
        return said

    def _start(
        self, words: Sequence[str], env: dict[str, str], flock: str = "works"
    ) -> subprocess.Popen[str]:
        """Start rampup as a terminal does: in a process group of its own."""
        program = ["-m", "rampup"] if flock == "works" else [str(ODD_FLOCK), flock]
        return subprocess.Popen(
            [sys.executable, *program, *words],
            cwd=self.folder / "work",
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def _wait_for_children(self, tag: str, wave: Sequence[Round]) -> None:
        """An sbatch outlives its caller; what it does counts."""
        deadline = time.monotonic() + END_WITHIN_S
        while left := list(find_processes(f"ODD_ROUND={tag}")):
            if time.monotonic() > deadline:
                self._report("locks left", f"processes {left} did not end", *wave)
                return
            time.sleep(0.05)

    # what must hold -------------------------------------------------------------------------------

    def _check_all(self, wave: Sequence[Round], when: str) -> dict[str, str]:
        """Let rampup find what it has lost, and compare; return the states of the runs."""
        listed = self._start(("list", "--all", "--json"), self.env)
        out, err = listed.communicate(timeout=END_WITHIN_S)
        if listed.returncode or has_traceback(err):
            self._report("tracebacks", f"{when}, list: {listed.returncode}: {err}", *wave)
            return {}
        rows = msgspec.json.decode(out)
        states = {row["id"]: row["state"] for row in rows}
        runs, jobs = self.find_runs(), self._list_jobs()
        self._check_jobs(runs, jobs, states, wave, when)
        for run_id in self.trained:
            self._check_checkpoint(runs[run_id], wave, when)
        return states

    def _list_jobs(self) -> list[Job]:
        argv = ["squeue", "--me", "--array", "--noheader", "--states=all", "-o", "%i|%j|%T"]
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, check=True)
        jobs = [Job(*line.split("|")) for line in done.stdout.splitlines()]
        return [job for job in jobs if job.name.startswith(PREFIX)]

    def _check_jobs(
        self,
        runs: dict[str, RunDir],
        jobs: Sequence[Job],
        states: dict[str, str],
        wave: Sequence[Round],
        when: str,
    ) -> None:
        known = {run_id: set(run.jobs()) for run_id, run in runs.items()}
        active: dict[str, set[str]] = {}
        for job in jobs:
            owners = [run_id for run_id, its in known.items() if job.id in its]
            # rampup itself ends a job of which it has lost the answer, before it submits another
            if not owners and job.state != "CANCELLED":
                self._report("unknown jobs", f"{when}: {job}", *wave)
            owners += [run_id for run_id in runs if job.name.endswith(f"-{run_id}")]
            for run_id in set(owners) if job.is_active else ():
                active.setdefault(run_id, set()).add(job.id)
                if states.get(run_id) not in ("pending", "running"):
                    state = states.get(run_id)
                    self._report("unknown jobs", f"{when}: {run_id} is {state}, {job}", *wave)
        for run_id, mine in active.items():
            if len(mine) > 1:
                self._report("started twice", f"{when}: {run_id} has jobs {sorted(mine)}", *wave)
        points = Counter(
            (run.run["study"], run.run["point_id"])
            for run_id, run in runs.items()
            if run.run.get("study") and run_id in active
        )
        for point, times in points.items():
            if times > 1:
                self._report("started twice", f"{when}: {times} runs of point {point}", *wave)

    def _check_checkpoint(self, run: RunDir, wave: Sequence[Round], when: str) -> None:
        try:
            steps = checkpoints.list_steps(run)
            assert steps[:1] == [4], steps
            checkpoints.verify_checkpoint(run, 4)
        except (RampupError, AssertionError) as error:
            mine = [each for each in wave if each.subject == run.id]
            self._report("checkpoints lost", f"{when}: {run.id}: {error}", *mine or wave)

    def _try_again(self, it: Round, states: dict[str, str]) -> None:
        """Do it once more with a sound Slurm. It works, or it is refused for a true reason."""
        if it.verb in ("sweep", "fetch"):
            self._expect(it, it.words, 0, "")
            return
        runs = self.find_runs()
        subject = it.subject
        if it.verb == "run":
            made = [run.id for run in runs.values() if run.run.get("name") == it.subject]
            if not made:  # the signal came before there was anything
                return
            (subject,) = made
        verb = it.random.choice(("resume", "clean"))
        words, state = self._word(verb, subject, runs, it.random), states.get(subject)
        if state in ENDED:
            self._expect(it, words, 0, "")
        else:
            still = "still " if verb == "resume" else ""
            self._expect(it, words, 3, f"is {still}{state}")

    def _expect(self, it: Round, words: tuple[str, ...], code: int, reason: str) -> None:
        process = self._start(words, self.env)
        (said,) = self._collect([process], it)
        if process.returncode != code or reason not in said:
            what = f"afterwards {' '.join(words)} ended with {said.strip()}"
            self._report("locks left", f"{what}; expected {code} {reason}", it)

    def _report(self, kind: str, what: str, *those: Round) -> None:
        about = "\n  ".join(f"{it.describe()}\n    {it.said}" for it in those)
        self.violations.append((kind, f"{kind}: {what}\n  {about}"))

    def _empty_queue(self) -> None:
        """Cancel some jobs, as anybody may: so there are pending runs and ended ones. What was
        known of them is forgotten, so that the next look sees them as they are."""
        active = sorted({job.id for job in self._list_jobs() if job.is_active})
        some = [job for job in active if self.random.random() < 0.6]
        if some:
            subprocess.run(["scancel", *some], env=self.env, check=True, capture_output=True)
        shutil.rmtree(self.folder / "cache" / "rampup" / "slurm", ignore_errors=True)

    def end(self) -> None:
        """Cancel all jobs of the rounds."""
        if left := [job.id for job in self._list_jobs() if job.is_active]:
            subprocess.run(["scancel", *left], env=self.env, check=True, capture_output=True)

    # tables ---------------------------------------------------------------------------------------

    def rows_by_verb(self) -> list[tuple[str, ...]]:
        """Return for each verb its rounds, the signals that hit it, and those that came late."""
        rows = []
        for verb in VERBS:
            mine = [it for it in self.played if it.verb == verb]
            hits = Counter(it.signal for it in mine if it.hit)
            late = sum(not it.hit for it in mine)
            beside = sum(bool(it.rival) for it in mine)
            counts = (len(mine), *(hits[each] for each in SIGNALS), late, beside)
            rows.append((f"`{verb}`", *map(str, counts)))
        return rows

    def rows_by_flock(self) -> list[tuple[str, ...]]:
        counts = Counter(it.flock for it in self.played)
        return [(flock, str(counts[flock])) for flock in self.flocks]

    def count_violations(self) -> dict[str, int]:
        found = Counter(kind for kind, _ in self.violations)
        return {kind: found[kind] for kind in KINDS}


HEAD = ("verb", "rounds", *(each.name for each in SIGNALS), "too late", "beside a rival")


def has_traceback(err: str) -> bool:
    """Whether rampup has shown one. A signal may also hit Python before the first line of ours."""
    frames = re.findall(r'File "(.*)", line \d+, in (.*)', err)
    ours = [where for file, where in frames if Path(file).is_relative_to(PACKAGE)]
    started = any(where != "<module>" for where in ours)
    return started or "Exception ignored" in err or ("Traceback" in err and "Interrupt" not in err)


def choose_odd(chance: random.Random) -> dict[str, str]:
    """Choose what is wrong with Slurm: nothing, one program, or sbatch and one that is asked."""
    asked = chance.choice(("squeue", "sacct"))
    programs = chance.choice(((), ("sbatch",), ("sbatch",), (asked,), ("sbatch", asked)))
    return {program: chance.choice(ODD[program]) for program in programs}


def wait_for_moment(
    victim: subprocess.Popen[str], watched: Sequence[Path], chance: random.Random, within_s: float
) -> None:
    """Wait for any moment of the verb; in most rounds for one shortly after it has written
    something or has asked Slurm."""
    if chance.random() < 0.4:
        sleep_while_alive(victim, chance.uniform(0.0, within_s))
        return
    wanted, before = chance.randint(1, 2 if within_s == QUICK_S else 4), look_at(watched)
    deadline = time.monotonic() + 10
    while wanted and victim.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
        now = look_at(watched)
        wanted, before = wanted - (now != before), now
    sleep_while_alive(victim, chance.uniform(0, chance.choice((0.0, 0.05, within_s / 3))))


def sleep_while_alive(victim: subprocess.Popen[str], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while victim.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)


def look_at(paths: Sequence[Path]) -> tuple[tuple[int, int], ...]:
    found = []
    for path in paths:
        with suppress(OSError):
            seen = path.stat()
            found.append((seen.st_mtime_ns, seen.st_size))
    return tuple(found)


def find_processes(words: str) -> Iterator[int]:
    """Find the processes that have a variable in their environment."""
    wanted = words.encode()
    for entry in os.listdir("/proc"):
        with suppress(OSError):
            if entry.isdigit() and wanted in Path("/proc", entry, "environ").read_bytes().split(
                b"\0"
            ):
                yield int(entry)
