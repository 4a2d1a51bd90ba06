"""`make drill`: 200 kills on this machine, every fault on sandboxes, and 300 rounds with signals to
the command line; exits with 1 when a run was lost, doubled or not equal.

python -m benchmarks.drill                       all, in about an hour
python -m benchmarks.drill --docs                and keep the tables in docs/reliability.md
python -m benchmarks.drill kills here slurm      these parts alone; or: control
python -m benchmarks.drill kills --kills=20      with another number of kills
python -m benchmarks.drill control --docs        the rounds alone; of the page they change their table
python -m benchmarks.drill control --flock=fails  rounds in which every file lock does so: works,
                                                 fails or succeeds; they have a table of their own
python -m benchmarks.drill control --rounds=20   with another number of rounds
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import control_rounds
from benchmarks.control_rounds import FLOCKS, Rounds
from benchmarks.run import machine, markdown
from rampup.cli.drill import HEAD, rows_of
from rampup.config.resolve import Request, resolve
from rampup.datasets.fetch import fetch
from rampup.drill.drill import Drill, choose_faults
from rampup.drill.verdict import Result
from rampup.sandbox import sandbox
from rampup.sandbox.layout import Options, find_layout

HEAVY = str(Path(__file__).parent / "heavy")
DOCS = Path("docs/reliability.md")
KILLS, ROUNDS = 200, 300
WORLDS = (1, 2, 3)
KILL_FAULTS = ("rank-killed", "ranks-killed", "launcher-killed")
SAVING_AT_LEAST = 0.2
"""The share of the time in which a checkpoint is being written."""
NODE_TIMEOUT_S = 10
SLOW = ("width=64", "steps=240", "pause_s=0.25", "checkpoint.every=4steps")
"""A run of a minute: Slurm's shortest time limit."""
Part = tuple[Result, str]
"""What came of a drill, and its part of the page."""
MEASURED, CONTROL = "measured", "control"
"""The marks around the two parts of the page that are generated."""


def run_drill(
    title: str, request: Request, faults: tuple[str, ...], kills: int | None = None
) -> Part:
    say(f"\n{title}")
    spec, root = resolve(request, Path.cwd()), Path(tempfile.mkdtemp(prefix="rampup-drill-"))
    wanted, impossible = choose_faults(spec, faults)
    found = Drill(spec, root, 1, False, say).run(wanted, impossible, kills)
    if found.ok:
        shutil.rmtree(root)
    else:
        say(f"the runs that were lost are in {root}")
    return found, "\n\n".join((f"**{title}.** {facts_of(found)}", markdown(HEAD, rows_of(found))))


def facts_of(found: Result) -> str:
    inside = sum(trial.in_save for trial in found.trials)
    words = f"Undisturbed it takes {found.wall_s:.1f} s and {found.steps} steps, with a checkpoint every {found.every}."
    if inside:
        words += f" A checkpoint was being written {found.in_save:.0%} of the time, and when {inside} of the kills came."
    return words


def kills(count: int) -> Iterator[Part]:
    for world in WORLDS:
        share = count // len(WORLDS) + (world <= count % len(WORLDS))
        settings = (f"steps={10 + 3 * world}", "checkpoint.every=1steps")
        request = Request(target=HEAVY, settings=settings, options={"tasks_per_node": str(world)})
        ranks = "1 rank" if world == 1 else f"{world} ranks"
        found = run_drill(f"{share} kills, {ranks}, this machine", request, KILL_FAULTS, share)
        if found[0].in_save < SAVING_AT_LEAST:
            raise SystemExit(
                f"a checkpoint was being written only {found[0].in_save:.0%} of the time"
            )
        yield found


def here() -> Iterator[Part]:
    names = ("stop-and-resume", "cancel-and-resume", "time-limit", "torn-checkpoint", "full-disk")
    settings = ("width=64", "steps=40", "pause_s=0.1", "checkpoint.every=4steps")
    request = Request(target=HEAVY, settings=settings, options={"tasks_per_node": "2"})
    yield run_drill("The other faults, 2 ranks, this machine", request, names)


def slurm() -> Iterator[Part]:
    yield on_sandbox("Slurm, 2 nodes, no grace", Options(node_timeout_s=NODE_TIMEOUT_S), ())
    with_grace = Options(node_timeout_s=NODE_TIMEOUT_S, grace_time_s=10)
    yield on_sandbox("Slurm, 2 nodes, a grace of 10 s", with_grace, ("preempted-with-grace",))


def on_sandbox(title: str, options: Options, faults: tuple[str, ...]) -> Part:
    name = f"drill{os.getpid()}"
    try:
        sandbox.up(name, options, say)
        return run_drill(
            title, Request(target=HEAVY, settings=SLOW, options={"nodes": "2"}, on=name), faults
        )
    finally:
        sandbox.down(name)


def play_control_rounds(count: int, flocks: Sequence[str]) -> tuple[bool, str]:
    """Play the rounds with signals to the command line; return whether all held, and the page."""
    name, folder = f"control{os.getpid()}", Path(tempfile.mkdtemp(prefix="rampup-control-"))
    env = {**os.environ, "RAMPUP_RUNS": f"{folder}/runs", "XDG_STATE_HOME": f"{folder}/state"}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    mnist = fetch("mnist", None, say, lambda done, size: None).folder
    say(f"\n{count} rounds with signals to the command line")
    try:
        sandbox.up(name, Options(), say)
        env["SLURM_CONF"] = str(find_layout(name).slurm_conf)
        rounds = Rounds(folder / "rounds", env, name, mnist, flocks)
        rounds.play(count, say)
    finally:
        sandbox.down(name)
    for _, words in rounds.violations:
        say(words)
    if not rounds.violations:
        shutil.rmtree(folder)
    return not rounds.violations, describe_rounds(rounds)


def describe_rounds(rounds: Rounds) -> str:
    found = rounds.count_violations()
    flocks = ", ".join(f"{how} in {count}" for how, count in rounds.rows_by_flock())
    if len(rounds.flocks) == 1:
        flocks = f"{rounds.flocks[0]} in all"
    told = ", ".join(f"{count} {kind}" for kind, count in found.items())
    words = f"**{len(rounds.played)} rounds, Slurm, seed {rounds.seed}: {told}.**"
    held = "Held" if not rounds.violations else "Played"
    return "\n\n".join(
        (
            f"{held} on {machine()['date']}. {words} A file lock {flocks} of them.",
            markdown(control_rounds.HEAD, rounds.rows_by_verb()),
        )
    )


def keep_in_docs(mark: str, text: str) -> None:
    """Put a text between two marks of the page."""
    before, begin, rest = DOCS.read_text(encoding="utf-8").partition(f"<!-- {mark} -->\n")
    _, end, after = rest.partition(f"<!-- /{mark} -->")
    DOCS.write_text(f"{before}{begin}{text}\n{end}{after}", encoding="utf-8")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    count = find_number(arguments, "--kills", KILLS)
    parts = {"kills": lambda: kills(count), "here": here, "slurm": slurm}
    wanted = [name for name in arguments if name in (*parts, CONTROL)] or [*parts, CONTROL]
    found = [part for name in wanted if name in parts for part in parts[name]()]
    held, pages = all(result.ok for result, _ in found), {}
    if found:
        pages[MEASURED] = "\n\n".join((describe_machine(), *(page for _, page in found)))
    if CONTROL in wanted:
        one = [flock for flock in FLOCKS if f"--flock={flock}" in arguments]
        mark = f"{CONTROL}-{one[0]}" if one else CONTROL
        rounds = find_number(arguments, "--rounds", ROUNDS)
        all_held, pages[mark] = play_control_rounds(rounds, one or FLOCKS)
        held = held and all_held
    for mark, text in pages.items():
        print(text)
        if "--docs" in arguments:
            keep_in_docs(mark, text)
    return 0 if held else 1


def find_number(arguments: Sequence[str], option: str, otherwise: int) -> int:
    asked = [word.partition("=")[2] for word in arguments if word.startswith(f"{option}=")]
    return int(asked[-1]) if asked else otherwise


def describe_machine() -> str:
    about = machine()
    words = (
        f"{about['cores']} cores, {about['cpu']}, Python {about['python']}, torch {about['torch']}"
    )
    return f"Held on {about['date']}: {words}."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
