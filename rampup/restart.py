"""From a run directory back to a run that goes: `rampup resume`. The run keeps its id, its code and its checkpoints,
and gets a new attempt, with other resources or on another cluster if asked.

It is refused while the run goes on or is queued: a run is never started twice.
"""

import contextlib
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from rampup import __version__, processes, rank, records, snapshot
from rampup.clusters.load import load as load_cluster
from rampup.config import RESOURCES, Table
from rampup.diagnose.catalogue import preflight
from rampup.errors import Refused
from rampup.plan import job_config, job_script, program_of
from rampup.recipes.load import load as load_recipe
from rampup.recipes.load import read as read_recipe
from rampup.rundir import RunDir
from rampup.schedulers import slurm
from rampup.spec import Cluster, RecipeInfo, Resources, RunSpec
from rampup.states import state_of
from rampup.submit import code_record, script_of

OF_A_SITE = ("partition", "account", "qos", "reservation", "constraint", "exclude", "slurm")
"""Resources that mean nothing on another cluster."""


def spec_again(run: RunDir, on: str | None, options: dict[str, str], slurm: tuple[str, ...]) -> RunSpec:
    """What the run was, with what the user asks for today."""
    config = run.config
    if not config:
        raise Refused(f"run {run.id} can't be resumed: it has no readable config.json", "start a new run")
    cluster = load_cluster(on) if on else msgspec.convert(config["cluster"], Cluster)
    resources = Table("resources", RESOURCES)
    kept = {key: value for key, value in config["resources"].items() if key in RESOURCES}
    if cluster.name != config["cluster"]["name"]:
        kept = {key: value for key, value in kept.items() if key not in OF_A_SITE}
    resources.values.update(kept)
    for key, text in options.items():
        resources.put_text(key, text, f"resume --{key.replace('_', '-')}")
    if slurm:
        resources.put("slurm", [*(resources.values["slurm"] or ()), *slurm], "resume --slurm")  # type: ignore[misc]
    asked = {key: origin for key, origin in resources.origins.items() if origin.startswith("resume")}
    return RunSpec(
        name=config["name"],
        kind=config["kind"],
        recipe=recipe_of(run),
        command=tuple(config["command"]),
        train=config["train"],
        checkpoint=config.get("checkpoint", {}),
        resources=msgspec.convert(resources.values, Resources),
        cluster=cluster,
        origins={**config["origins"], **asked},
        config_file=None,
        cwd=config["cwd"],
        timeouts_before=sum(attempt.again() in ("timeout", "asked") for attempt in run.attempts()),
    )


def recipe_of(run: RunDir) -> RecipeInfo | None:
    config = run.config
    if not config.get("recipe"):
        return None
    return load_recipe(config["recipe"], Path()) if config.get("builtin") else read_recipe(Path(config["folder"]))


def prepare(run: RunDir, spec: RunSpec, current_code: bool, tell: Callable[[str], None]) -> None:
    """Write what the next attempt is to do. Nothing is lost if it fails: what was tried before stays."""
    for note in preflight(spec, run.path.parent):
        tell(f"note: {note.cause}; try: {note.remedy}")
    config = run.config
    argv, builtin = tuple(config["argv"]), bool(config.get("builtin"))
    if builtin and run.run.get("rampup") != __version__:
        tell(f"note: it began with rampup {run.run.get('rampup')}, and goes on with {__version__}")
    if current_code and not builtin:
        spec, argv = take_code_again(run, spec)
    elif spec.kind == "engine":
        argv = program_of(spec, run.path)
    records.write_json(run.config_file, {**job_config(spec, argv, builtin), "source": config.get("source")})
    shutil.copyfile(rank.__file__, run.rank_program)
    if spec.cluster.scheduler == "slurm":
        records.write_text(run.job_script, job_script(spec, run.path))
    before, now = config["resources"], msgspec.to_builtins(spec.resources)
    changed = {key: value for key, value in now.items() if before.get(key) != value}
    if spec.cluster.name != config["cluster"]["name"]:
        changed["cluster"] = spec.cluster.name
    run.record("resumed", code="current" if current_code else "submitted", changed=changed)


@contextlib.contextmanager
def undone_unless_started(run: RunDir) -> Iterator[None]:
    """A start that fails leaves the run as it was: its settings, its script, and its code as submitted."""
    files = [run.config_file, run.job_script, run.env_file]
    before = {path: path.read_text(encoding="utf-8") for path in files if path.exists()}
    others = set(run.path.glob("code-before-*"))
    try:
        yield
    except BaseException:
        for path, text in before.items():
            records.write_text(path, text)
        for old in set(run.path.glob("code-before-*")) - others:
            shutil.rmtree(run.code, ignore_errors=True)
            old.rename(run.code)
        raise


def end_leftovers(run: RunDir) -> None:
    """Slurm may requeue a job that it calls failed, a moment later (a lost node): then two jobs would have the run."""
    submitted = run.recorded("submitted") or {}
    if submitted.get("scheduler") != "slurm":
        return
    try:
        cluster = load_cluster(submitted["cluster"])
    except Refused:  # a sandbox that was taken down, and its jobs with it
        return
    slurm.cancel(cluster, f"{run.run['name']}-{run.id}")


def take_code_again(run: RunDir, spec: RunSpec) -> tuple[RunSpec, tuple[str, ...]]:
    """Today's code in place of the code as submitted, which is kept beside it."""
    source = run.config.get("source")
    if spec.recipe is not None and source:
        spec = replace(spec, recipe=replace(spec.recipe, folder=source))
    numbers = (f"code-before-{number}" for number in itertools.count(len(run.attempt_numbers()) + 1))
    old = next(path for path in map(run.code.with_name, numbers) if not path.exists())
    fresh = run.code.with_name("code.new")
    shutil.rmtree(fresh, ignore_errors=True)
    taken = snapshot.take(script_of(spec), Path(spec.cwd), fresh)
    argv = tuple(word.replace(str(fresh), str(run.code), 1) for word in taken.argv)
    if run.code.exists():
        run.code.rename(old)
    fresh.rename(run.code)
    if spec.recipe is not None:
        spec = replace(spec, recipe=replace(spec.recipe, folder=str(Path(argv[-1]).parent)))
        argv = program_of(spec, run.path)
    records.write_json(run.env_file, {**records.read_json(run.env_file), "code": code_record(taken)})
    return spec, argv


def refuse_unless_ended(run: RunDir) -> None:
    state = state_of(run, fresh_s=0.0)
    if not state.ended:
        raise Refused(
            f"run {run.id} is {state.name}: it is not started twice", f"rampup cancel --save {run.id}, then resume"
        )
    if state.name == "completed":
        raise Refused(f"run {run.id} has completed: there is nothing left to do", f"rampup show {run.id}")


@contextlib.contextmanager
def alone(run: RunDir) -> Iterator[None]:
    """Two people who resume one run at the same moment: the second is refused."""
    mark = run.path / ".resuming"
    while True:
        try:
            descriptor = os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            break
        except FileExistsError:
            other = records.read_json(mark)
            if other.get("host") != processes.host() or processes.lives(other):
                raise Refused(f"run {run.id} is being resumed already", f"if that is not so: rm {mark}") from None
            with contextlib.suppress(FileNotFoundError):  # who made it died; only one of us can take it away
                mark.rename(stale := mark.with_name(f".resuming-{os.getpid()}"))
                stale.unlink()
        except OSError as error:
            raise Refused(
                f"can't write {run.path}: {error.strerror}", "only the owner of a run can resume it"
            ) from None
    try:
        os.write(descriptor, msgspec.json.encode(processes.name_of(os.getpid())))
        os.close(descriptor)
        yield
    finally:
        mark.unlink(missing_ok=True)
