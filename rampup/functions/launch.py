"""`rampup.launch` and `rampup.attach`: a Python function as a run with many ranks.

The options of `rampup run` are keyword arguments here; everything else belongs to the function. The
run is planned, checked, created and started as one of the command line is, and has the same
directory.
"""

import inspect
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rampup.cli import output
from rampup.cli.run import RESOURCE_OPTIONS, allocation, remember
from rampup.config.resolve import Request, resolve
from rampup.diagnose.preflight import preflight
from rampup.errors import Refused, UsageError, nearest
from rampup.functions.call import PackedCall, describe, find_inner, pack
from rampup.functions.job import Job, explained
from rampup.rundir import find, private
from rampup.rundir.files import RunDir
from rampup.runs import resume
from rampup.runs.create import making_run, plan_new_run
from rampup.runs.plan import make_plan

OWN_OPTIONS = ("np", "on", "wait", "name", "launcher", "slurm")
OPTIONS = (*OWN_OPTIONS, *RESOURCE_OPTIONS)


def launch(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function on many ranks, here or on a cluster, and return what rank 0 returned.

    `np` is the number of ranks; without it there is one, or one for each GPU of `gpus_per_node`.
    `on` names a cluster. `wait=False` returns a job at once: `job.result()` waits. `name`,
    `launcher`, `slurm` and the resources (`nodes`, `gpus_per_node`, `time`, `partition`, ...) are
    the options of `rampup run`. Every other argument is passed on to the function.
    """
    with explained():
        refuse_inside_a_rank()
        options = {key: kwargs[key] for key in OPTIONS if kwargs.get(key) is not None}
        rest = {key: value for key, value in kwargs.items() if key not in OPTIONS}
        check_arguments(function, args, rest, options)
        packed = pack(function, args, rest)
        waits = bool(options.get("wait", True))
        job = submit(make_request(packed, options), packed, waits)
        return job.result() if waits else job


def attach(run: str) -> Job:
    """Return the job of a run that `rampup.launch` has started, by its id or its path."""
    with explained():
        found = find.find(run)
        owner = found.path.stat().st_uid
        if owner != os.geteuid():
            raise Refused(
                f"run {found.id} belongs to user {owner}, not to you",
                f"to read it without its result: rampup show {found.path}",
            )
        if not isinstance(found.config.get("function"), dict):
            raise Refused(
                f"run {found.id} has no result: it was not started by rampup.launch",
                f"rampup show {found.id}",
            )
        return Job(found)


def submit(request: Request, packed: PackedCall, waits: bool) -> Job:
    """Check the run, create it, and hand it to its scheduler."""
    spec = resolve(request, Path.cwd())
    checked = preflight(plan_new_run(spec))
    output.say_notes(checked.notes)
    private.make_key()
    with making_run(checked) as making:
        private.write(making.hidden.call_file, lambda file: file.write(packed.content))
    run = making.run
    remember(run.path.parent)
    output.say_path(f"run {run.id}: {output.count(checked.plan.ranks, 'rank')}, in ", run.path)
    is_foreground = waits and checked.plan.scheduler.driven_here
    return Job(run, checked.plan.scheduler.submit(run, spec, detach=not is_foreground))


def resume_run(run: RunDir) -> subprocess.Popen[bytes] | None:
    """Start one more attempt, as `rampup resume` does, in this process where its scheduler is."""
    resume.refuse_unless_ended(run)
    spec = resume.rebuild_spec(run, None, {}, ())
    command = resume.find_command(run, spec, "submitted")
    with resume.start_again(run):
        resume.end_leftovers(run, spec.cluster)
        checked = preflight(make_plan(spec, run.path, command))
        output.say_notes(checked.notes)
        resume.rewrite(run, checked, None)
        number = len(run.attempt_numbers()) + 1
        output.say_path(f"run {run.id}: attempt {number}, in ", run.path)
        return checked.plan.scheduler.submit(run, spec, detach=True)


def make_request(packed: PackedCall, options: Mapping[str, Any]) -> Request:
    """Return what the same options would mean after `rampup run`."""
    launcher = options.get("launcher")
    resources = {key: text_of(options[key]) for key in RESOURCE_OPTIONS if key in options}
    return Request(
        function=packed.info,
        options={**resources, "tasks_per_node": str(count_tasks_per_node(options))},
        settings=(f"cluster.launcher={launcher}",) if launcher else (),
        slurm=list_slurm(options.get("slurm", ())),
        on=options.get("on") or os.environ.get("RAMPUP_CLUSTER") or allocation(),
        name=options.get("name"),
    )


# arguments ----------------------------------------------------------------------------------------


def refuse_inside_a_rank() -> None:
    run = os.environ.get("RAMPUP_RUN_DIR")
    if run:
        raise Refused(
            f"rampup.launch was called by a rank of run {RunDir(run).id}",
            "call it from a script or a notebook that rampup has not started",
        )


def check_arguments(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> None:
    """Refuse what the function can't be called with, and a name that both could mean."""
    if not callable(function):
        raise UsageError(
            f"rampup.launch needs a function, not {function!r:.60}", "rampup.launch(train, np=2)"
        )
    refuse_unfinished(function)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function written in C
        return
    name = describe(find_inner(function))
    for key, value in options.items():
        if key in signature.parameters:
            raise UsageError(
                f"{key}={value!r} is an option of rampup.launch and a parameter of {name}",
                f"for the function: rampup.launch(functools.partial({name}, {key}={value!r}), ...)",
            )
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        known = [key for key in kwargs if key not in signature.parameters]
        hint = nearest(known[0], [*OPTIONS, *signature.parameters]) if known else ""
        raise UsageError(f"{name}{signature} can't be called so: {error}", hint) from None


def refuse_unfinished(function: Callable[..., Any]) -> None:
    """Refuse a function whose call runs none of its lines."""
    inner = find_inner(function)
    if inspect.iscoroutinefunction(inner):
        raise UsageError(
            f"{describe(inner)} is an async function: a call of it only makes a coroutine",
            "launch a function that calls asyncio.run() on it",
        )
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise UsageError(
            f"{describe(inner)} is a generator function: a call of it runs none of its lines",
            "launch a function that collects what it yields, and returns a list",
        )


def count_tasks_per_node(options: Mapping[str, Any]) -> int:
    """Return how many ranks each node gets."""
    for key in ("np", "nodes", "tasks_per_node"):
        value = options.get(key, 1)
        if type(value) is not int or value < 1:
            raise UsageError(f"{key}={value!r} must be a whole number above 0", f"{key}=2")
    np, nodes, tasks = options.get("np"), options.get("nodes", 1), options.get("tasks_per_node")
    if np is None:
        return tasks or options.get("gpus_per_node") or 1
    if np % nodes:
        few, many = np // nodes * nodes, (np // nodes + 1) * nodes
        hint = f"np={many}" if few == 0 else f"np={few}, or np={many}"
        raise UsageError(f"np={np} ranks can't be shared evenly by nodes={nodes}", hint)
    if tasks is not None and tasks * nodes != np:
        raise UsageError(
            f"np={np} is not nodes={nodes} times tasks_per_node={tasks}",
            "leave out np, or tasks_per_node",
        )
    return int(np // nodes)


def text_of(value: Any) -> str:
    """Return an option as it would be typed."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)


def list_slurm(slurm: Sequence[str] | Mapping[str, str]) -> tuple[str, ...]:
    """Return further options of sbatch, each KEY=VALUE."""
    if isinstance(slurm, Mapping):
        return tuple(f"{key}={value}" for key, value in slurm.items())
    return tuple(slurm)
