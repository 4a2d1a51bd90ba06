"""The part of the catalogue that looks at what a run asks for: data, size, launcher, device,
precision, program.

Only `preflight` reads it. On a cluster with a queue the job runs on another machine, so what this
one has (GPUs, CPU type) decides on `local` alone.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

from rampup.config.targets.downloads import find_download_in
from rampup.core.finding import Finding, Level
from rampup.diagnose.checks import machine
from rampup.diagnose.checks.storage import data_set
from rampup.errors import nearest
from rampup.launchers import find_launcher
from rampup.runs.code import script_index
from rampup.runs.plan import Plan


def check(plan: Plan) -> Iterator[Finding]:
    """All findings about a request, the cheapest first."""
    yield from data(plan)
    yield from program(plan)
    yield from check_itself(plan)


def check_itself(plan: Plan) -> Iterator[Finding]:
    """The findings about what was asked for, whatever this machine has."""
    for one in (trial, *ABOUT_A_COMMAND, size, launcher, device, ranks_and_gpus, precision, script):
        yield from one(plan)


def check_settings(plan: Plan) -> Iterator[Finding]:
    """The findings about what settings can spoil, for a run like one that has passed."""
    for one in (data, size, launcher, device, precision, program, script):
        yield from one(plan)


def data(plan: Plan) -> Iterator[Finding]:
    spec = plan.spec
    for name in spec.recipe.data if spec.recipe else ():
        yield from data_set(name, absent="problem")


def trial(plan: Plan) -> Iterator[Finding]:
    """--smoke tries a job script, so there must be one."""
    spec = plan.spec
    if spec.smoke and plan.scheduler.is_here:
        cause = f"--smoke tests a job script, but cluster {spec.cluster.name} has none"
        yield _problem("smoke", cause, "add --on CLUSTER, or try max_steps=1")


def command_on_trial(plan: Plan) -> Iterator[Finding]:
    """--smoke can't shorten a program that it knows nothing of."""
    if plan.spec.smoke and plan.engine is None:
        cause = f"--smoke runs the whole command, for {plan.spec.resources.time} at most"
        remedy = (
            "give it few steps with an option of its own; only a recipe takes one step and resumes"
        )
        yield Finding("smoke", "note", "smoke", cause, remedy)


def second_life(plan: Plan) -> Iterator[Finding]:
    """Where nobody signals a program, or starts it again, options that ask for it are mistakes."""
    program = plan.spec.program
    if program.stop_signal and not plan.scheduler.signals_programs:
        yield _problem(
            "stop signal",
            f"--stop-signal: {plan.scheduler.title} signals no program",
            "leave it out; rampup.init() and run.should_stop work there",
        )
    if program.again and not plan.scheduler.restarts_at_limit:
        cause = f"--again has no effect on {plan.scheduler.title}: no time limit starts a run again"
        yield Finding(
            "again", "note", "again", cause, "rampup resume continues a run that timed out"
        )


def downloads(plan: Plan) -> Iterator[Finding]:
    """A script that downloads on nodes without a network, or on several ranks at once."""
    index = script_index(plan.command) if plan.command else None
    if index is None or (plan.scheduler.is_here and plan.ranks == 1):
        return
    line = find_download_in(Path(plan.spec.cwd) / plan.command[index])
    if line is not None:
        where = f"line {line} of {Path(plan.command[index]).name}"
        why = "every rank does so" if plan.ranks > 1 else "the nodes may have no network"
        cause = f"the command seems to download ({where}), and {why}"
        remedy = "download before the run, where there is a network, to a place that all nodes see"
        yield Finding("downloads", "note", "downloads", cause, remedy)


def size(plan: Plan) -> Iterator[Finding]:
    """How many machines and ranks."""
    spec = plan.spec
    asked, cluster = spec.resources, spec.cluster
    if plan.scheduler.is_here and asked.nodes > 1:
        yield _problem(
            "size",
            f"--nodes {asked.nodes}: this machine is one node",
            f"--tasks-per-node {asked.nodes * asked.tasks_per_node}, or --on CLUSTER; "
            "`rampup sandbox up` makes a cluster here",
        )
    for key, value, most in (
        ("nodes", asked.nodes, cluster.max_nodes),
        ("tasks_per_node", asked.tasks_per_node, cluster.max_tasks_per_node),
    ):
        if value < 1 or (most is not None and value > most):
            allowed = f"1 to {most}" if most is not None else "1 or more"
            option = key.replace("_", "-")
            yield _problem(
                "size",
                f"{key} is {value}, cluster {cluster.name} allows {allowed}",
                f"--{option} {most or 1}",
            )
    if plan.scheduler.is_here and (asked.cpus_per_task or 0) > (cpus := machine.cpus().allowed):
        yield _problem(
            "size",
            f"cpus_per_task is {asked.cpus_per_task}, this machine has {cpus}",
            f"--cpus-per-task {cpus}",
        )
    if plan.needs.fewer_ranks:  # a rank says the same, after hours in a queue
        yield _problem("size", *plan.needs.fewer_ranks)


def launcher(plan: Plan) -> Iterator[Finding]:
    """The program that starts the ranks is there, and starts ranks of MPI where the run needs
    them."""
    spec = plan.spec
    chosen, setting = plan.launcher, plan.needs.mpi
    if setting and not chosen.knows_mpi(spec):
        cause = f"{setting} needs ranks that MPI starts, and the launcher {chosen.name} does not use MPI"
        able = [
            f"--launcher {name}"
            for name in plan.scheduler.launchers
            if find_launcher(name).starts_mpi
        ]
        yield _problem("launcher", cause, ", or ".join(sorted(able)))
    program = chosen.program_here
    is_missing = program and plan.scheduler.is_here and shutil.which(program) is None
    if is_missing and not _may_come_in_the_job(plan):
        cause = f"--launcher {chosen.name}: {program} was not found on this machine"
        yield _problem(
            "launcher", cause, "install Open MPI, as openmpi-bin on Debian, or load its module"
        )


def device(plan: Plan) -> Iterator[Finding]:
    spec = plan.spec
    asked = spec.resources.gpus_per_node
    if asked < 0:
        yield _problem("gpus", f"gpus_per_node is {asked}", "--gpus-per-node 0")
    if spec.kind == "engine" and spec.train.get("device") == "cpu" and asked > 0:
        cause = f"gpus_per_node={asked} reserves a GPU, but device=cpu does not use it"
        yield _problem(
            "idle-gpu", cause, "ask for no GPU with --gpus-per-node 0, or set device=auto"
        )
    if (
        spec.kind == "engine"
        and spec.train.get("device") == "cuda"
        and plan.scheduler.is_here
        and not machine.gpus()
    ):
        yield _problem("gpus", "device=cuda, but this machine has no GPU", "device=auto")
    if asked > 0 and plan.scheduler.is_here and asked > (seen := len(machine.gpus())):
        yield _problem(
            "gpus", f"gpus_per_node is {asked}, this machine has {seen}", f"--gpus-per-node {seen}"
        )


def ranks_and_gpus(plan: Plan) -> Iterator[Finding]:
    """One rank drives one GPU. A command of the user's own may do it in another way, and Keras does
    (mirrored)."""
    spec = plan.spec
    ranks, gpus = spec.resources.tasks_per_node, spec.resources.gpus_per_node
    engine = plan.engine
    takes_several = engine is not None and not engine.one_gpu_per_rank
    if gpus <= 0 or ranks == gpus or (ranks < gpus and takes_several):
        return
    about = f"tasks_per_node is {ranks}, gpus_per_node is {gpus}"
    is_ours = spec.kind == "engine"
    level: Level = "problem" if is_ours and ranks > gpus else "note"
    idle = f"GPUs stay idle{'' if is_ours else ' unless a rank uses several'}"
    yield Finding(
        "ranks-gpus",
        level,
        about,
        f"{about}: {'ranks share a GPU' if ranks > gpus else idle}",
        f"--tasks-per-node {gpus}",
    )


def precision(plan: Plan) -> Iterator[Finding]:
    spec = plan.spec
    wanted = str(spec.train.get("precision")) if spec.kind == "engine" else ""
    if not wanted.startswith(("fp16", "16-", "bf16")) or not _computes_on_cpu(plan):
        return
    if not wanted.startswith("bf16"):
        yield _problem("fp16", f"precision={wanted} does not train on a CPU", "precision=fp32")
    elif plan.scheduler.is_here and not _bf16_is_fast():
        slow = "this CPU has neither AVX512-BF16 nor AMX and would be about 10 times slower than with fp32"
        yield _problem("bf16", f"precision={wanted}: {slow}", "precision=fp32")


def script(plan: Plan) -> Iterator[Finding]:
    """The user's own files in a command: they are there, and can be started."""
    if not plan.command:
        return
    cwd, first = Path(plan.spec.cwd), plan.command[0]
    if _find_program(plan) is None and (cwd / first).is_file():
        yield _problem("program", f"{first} is not executable", _how_to_start(first))
    index = script_index(plan.command)
    if index is not None and not (cwd / plan.command[index]).exists():
        yield _problem(
            "script",
            f"script {plan.command[index]!r} does not exist in {cwd}",
            _similar(cwd, plan.command[index]),
        )


def program(plan: Plan) -> Iterator[Finding]:
    """The program that a command starts is on this machine. Another one may have it."""
    if not plan.command or _find_program(plan) or _may_come_in_the_job(plan):
        return
    cwd, first = Path(plan.spec.cwd), plan.command[0]
    if (cwd / first).is_file():  # what `script` says
        return
    is_as_typed = plan.command == plan.spec.command
    again = f"rampup resume {plan.run_dir.name.rpartition('-')[2]} --code current"
    yield _problem(
        "program",
        f"no program {first!r}: neither on PATH nor in {cwd}",
        "check the name after --" if is_as_typed else f"{again} uses the current one",
    )


def _find_program(plan: Plan) -> str | None:
    first = plan.command[0]
    return shutil.which(str(Path(plan.spec.cwd) / first) if "/" in first else first)


ABOUT_A_COMMAND = (command_on_trial, second_life, downloads)


def _may_come_in_the_job(plan: Plan) -> bool:
    return bool(plan.software.modules or plan.software.env)


def _how_to_start(first: str) -> str:
    if first.endswith(".py"):
        return f"python {first}"
    return (
        f"bash {first}"
        if first.endswith(".sh")
        else f"./{first.removeprefix('./')}, after chmod +x {first}"
    )


def _similar(cwd: Path, script: str) -> str:
    """The scripts that are where it was looked for."""
    place = (cwd / script).parent
    if not place.is_dir():
        return f"there is no directory {place}"
    there = [path.name for path in place.iterdir() if path.suffix in (".py", ".sh")]
    return nearest(Path(script).name, there[:20]) if there else f"there is no script in {place}"


def _computes_on_cpu(plan: Plan) -> bool:
    spec = plan.spec
    wish = spec.train.get("device")
    if wish != "auto":
        return wish == "cpu"
    if not plan.scheduler.is_here:
        return spec.resources.gpus_per_node == 0
    hidden = spec.resources.devices == []
    return hidden or not (machine.gpus() or machine.has_apple_gpu())


def _bf16_is_fast() -> bool:
    from rampup.core.hardware import bf16_is_fast

    return bf16_is_fast()


def _problem(topic: str, cause: str, remedy: str) -> Finding:
    return Finding(topic, "problem", topic, cause, remedy)
