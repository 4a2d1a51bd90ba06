"""From a run directory back to a run that continues: `rampup resume`. The run keeps its id, its code
and its checkpoints, and gets a new attempt, with other resources or on another cluster if asked.

It is refused while the run is queued or running: a run is never started twice.
"""

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from rampup import __version__, contact, rank
from rampup.config.clusters import load as load_cluster
from rampup.config.clusters import of_run
from rampup.config.recipes import load as load_recipe
from rampup.config.recipes import read as read_recipe
from rampup.config.setting_tables import RESOURCES, Table
from rampup.config.targets import lightning as targets
from rampup.core import software
from rampup.core.engines import is_target
from rampup.core.resources import list_asked
from rampup.core.spec import (
    Cluster,
    FunctionInfo,
    Program,
    RecipeInfo,
    Resources,
    RunSpec,
    rename_old_keys,
)
from rampup.errors import Refused
from rampup.rundir import claims, locks, records, sharing
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record
from rampup.rundir.trust import is_obeyed, refuse_foreign
from rampup.runs.create import (
    Take,
    describe_code,
    find_own_script,
    find_start_folder,
    pin_python,
    use_copied_folder,
    use_copied_path,
)
from rampup.runs.plan import CheckedPlan, find_program, make_config
from rampup.runs.state import state_for_sure
from rampup.runs.stop import can_save
from rampup.schedulers import find_scheduler
from rampup.schedulers.base import JobRef

OF_A_SITE = {name for name, asked in list_asked().items() if asked.of_site}
"""Resources that mean nothing on another cluster."""
RANKS = {"nodes", "tasks_per_node"}
"""Options that ask for ranks."""


def rebuild_spec(
    run: RunDir, on: str | None, options: dict[str, str], slurm: tuple[str, ...]
) -> RunSpec:
    """What the run was, with what the user asks for today."""
    config = run.config
    if not config:
        raise Refused(
            f"run {run.id} can't be resumed: it has no readable config.json", "start a new run"
        )
    try:
        return build_spec(run, config, on, options, slurm)
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # edited, or damaged
        raise Refused(
            f"run {run.id} can't be resumed: {run.config_file} is not what rampup writes "
            f"({type(error).__name__}: {str(error)[:200]})",
            "start a new run",
        ) from None


def build_spec(
    run: RunDir, config: Record, on: str | None, options: dict[str, str], slurm: tuple[str, ...]
) -> RunSpec:
    kept_cluster = rename_old_keys(config["cluster"])
    cluster = load_cluster(on) if on else msgspec.convert(kept_cluster, Cluster)
    resources = Table("resources", RESOURCES)
    kept = {key: value for key, value in config["resources"].items() if key in RESOURCES}
    if cluster.name != config["cluster"]["name"]:
        kept = {key: value for key, value in kept.items() if key not in OF_A_SITE}
    resources.values.update(kept)
    for key, text in options.items():
        resources.put_text(key, text, f"resume --{key.replace('_', '-')}")
    resources.values["env"] = software.absolute(str(resources.values["env"]), Path.cwd())
    if slurm:
        resources.put("slurm", [*(resources.values["slurm"] or ()), *slurm], "resume --slurm")  # type: ignore[misc]
    asked = {
        key: origin for key, origin in resources.origins.items() if origin.startswith("resume")
    }
    return RunSpec(
        name=config["name"],
        kind=config["kind"],
        recipe=read_recipe_of(run),
        command=tuple(config["command"]),
        train=config["train"],
        checkpoint=config.get("checkpoint", {}),
        program=msgspec.convert(config.get("program", {}), Program),
        resources=msgspec.convert(resources.values, Resources),
        cluster=cluster,
        origins={**config["origins"], **asked},
        config_file=None,
        cwd=config["cwd"],
        function=msgspec.convert(config.get("function"), FunctionInfo | None),
        as_at_home=config.get("as_at_home") is True and not on and not RANKS & options.keys(),
        timeouts_before=sum(
            attempt.read_again() in ("timeout", "asked") for attempt in run.attempts()
        ),
    )


def read_recipe_of(run: RunDir) -> RecipeInfo | None:
    """The recipe of a run that exists: one of ours as it is today, any other as it was submitted."""
    config = run.config
    if not config.get("recipe"):
        return None
    if config.get("builtin"):
        return load_recipe(config["recipe"], Path())
    if is_target(config.get("engine"), config.get("folder")):
        return targets.again(config)
    return read_recipe(Path(config["folder"]))


def rewrite(run: RunDir, checked: CheckedPlan, take: Take | None) -> str:
    """Write what the next attempt is to do; with `take` it runs today's code. What was tried before
    stays. Returns a note for people, or nothing."""
    config, spec = run.config, checked.spec
    builtin = bool(config.get("builtin"))
    if take is not None and not builtin:
        spec, argv = replace_code(run, spec, take)
    else:
        argv = rebuild_argv(run, spec)
    records.write_json(
        run.config_file,
        {**make_config(spec, run.path, argv, builtin), "source": config.get("source")},
    )
    shutil.copyfile(rank.__file__, run.rank_program)
    shutil.copyfile(contact.__file__, run.contact_program)
    if not run.key_file.exists():  # of a version whose ranks knew no key
        sharing.write_key(run.key_file)
    if checked.plan.script is not None:
        records.write_text(run.job_script, checked.plan.script)
    before, now = config["resources"], msgspec.to_builtins(spec.resources)
    changed = {key: value for key, value in now.items() if before.get(key) != value}
    if spec.cluster.name != config["cluster"]["name"]:
        changed["cluster"] = spec.cluster.name
    run.record("resumed", code="current" if take is not None else "submitted", changed=changed)
    if take is not None and spec.function is not None and spec.function.by == "value":
        return "the function stays as it was launched; only modules that it imports are today's"
    version = run.run.get("rampup")
    if not builtin or version == __version__:
        return ""
    return f"it began with rampup {version} and continues with {__version__}"


def rebuild_argv(run: RunDir, spec: RunSpec) -> tuple[str, ...]:
    """A command stays what it was; but with another environment its `python` is another one too."""
    if spec.recipe is not None or spec.function is not None:
        return find_program(spec, run.path)
    config = run.config
    argv, typed, now = tuple(config["argv"]), config["command"][0], software.of(spec, run.path)
    before = config.get("environment") or {}
    same = all(before.get(key) == getattr(now, key) for key in ("modules", "env")) or not before
    return (
        argv
        if same or not software.BARE_PYTHON.fullmatch(typed)
        else pin_python((typed, *argv[1:]), spec)
    )


def find_command(run: RunDir, spec: RunSpec, code: str) -> tuple[str, ...]:
    """The user's own command as the next attempt starts it: with `code` submitted its script is the
    copy, which does not need the one in the user's folder any more."""
    if spec.recipe is not None or code != "submitted":
        return spec.command
    return rebuild_argv(run, spec)


@contextlib.contextmanager
def start_again(run: RunDir, fresh_s: float = 0.0) -> Iterator[None]:
    """Hold the right to start a run that has ended, once. A start that fails leaves the run as it
    was."""
    with resume_alone(run):
        claim_next(run, fresh_s)
        with rollback_on_error(run):
            yield


def claim_next(run: RunDir, fresh_s: float = 0.0) -> None:
    """Claim the next start of a run that has ended. Of two processes that see the same end, one gets
    the number, whatever became of their locks."""
    number, _ = claims.newest_claim(run)
    if claims.is_being_started(run):
        raise claims.refuse_second(run)
    refuse_unless_ended(run, fresh_s)
    claims.claim(run, number + 1)


@contextlib.contextmanager
def rollback_on_error(run: RunDir) -> Iterator[None]:
    """Put back the settings of a run, its script and its code as submitted if it was not started.
    Where a job may exist they stay: it is going to read them."""
    files = [run.config_file, run.job_script, run.env_file]
    number, _ = claims.newest_claim(run)
    before = {path: path.read_text(encoding="utf-8") for path in files if path.exists()}
    others = set(run.path.glob("code-before-*"))
    try:
        yield
    except BaseException as error:
        if not may_be_submitted(run, number):
            for path, text in before.items():
                records.write_text(path, text)
            for old in set(run.path.glob("code-before-*")) - others:
                shutil.rmtree(run.code, ignore_errors=True)
                old.rename(run.code)
            if (run.recorded("not submitted") or {}).get("number") != number:
                with contextlib.suppress(OSError):  # the first error is the one to report
                    run.record("not submitted", number=number, why=str(error))
        raise


def may_be_submitted(run: RunDir, number: int) -> bool:
    """Whether a scheduler may have a job of this start, or somebody else has begun a later one."""
    if claims.newest_claim(run)[0] != number:
        return True
    rows = run.control()
    if claims.find_open(rows) is not None:
        return True
    mine = [row for row in rows if row.get("number") == number]
    return bool(mine) and mine[-1].get("what") == "submitted" and not mine[-1].get("waits")


def end_leftovers(run: RunDir, next_cluster: Cluster | None = None) -> None:
    """End all jobs of a run that is to be started again. A scheduler may requeue a job that it calls
    failed, a moment later (a lost node); an older rampup may have lost the answer of sbatch."""
    own: dict[str, JobRef | None] = {}
    for row in run.control():
        if row.get("what") in ("submitting", "submitted") and "allocation" not in row:
            name = row.get("cluster")
            # a pack is the job of other runs too
            is_own = "job" in row and not row.get("packed")
            if isinstance(name, str):
                job = JobRef(name, str(row["job"]), row.get("job_name", "")) if is_own else None
                own[name] = job or own.get(name)
    for name, job in own.items():
        try:
            cluster = of_run(name, run.config.get("cluster", {}), is_obeyed(run))
        except Refused:  # a sandbox that was taken down, and its jobs with it
            continue
        find_scheduler(cluster.scheduler).cancel(run, cluster, job)
    if next_cluster is not None and next_cluster.name not in own:
        scheduler = find_scheduler(next_cluster.scheduler)
        if not scheduler.is_inside(next_cluster):
            scheduler.cancel(run, next_cluster, None)


def replace_code(run: RunDir, spec: RunSpec, take: Take) -> tuple[RunSpec, tuple[str, ...]]:
    """Today's code in place of the code as submitted, which is kept beside it where it differs."""
    source = run.config.get("source")
    if spec.recipe is not None and source:
        spec = replace(spec, recipe=replace(spec.recipe, folder=source))
    numbers = (
        f"code-before-{number}" for number in itertools.count(len(run.attempt_numbers()) + 1)
    )
    old = next(path for path in map(run.code.with_name, numbers) if not path.exists())
    fresh = run.code.with_name("code.new")
    shutil.rmtree(fresh, ignore_errors=True)
    taken = take(find_own_script(spec), find_start_folder(spec), fresh)
    argv = pin_python(
        tuple(word.replace(str(fresh), str(run.code), 1) for word in taken.argv), spec
    )
    if fresh.exists() and is_contained(fresh, run.code):
        shutil.rmtree(fresh)
    elif fresh.exists():
        if run.code.exists():
            run.code.rename(old)
        fresh.rename(run.code)
    if spec.recipe is not None:
        spec = use_copied_folder(spec, taken, run.code)
        argv = find_program(spec, run.path)
    if spec.function is not None:
        spec = use_copied_path(spec, taken, run.code)
        argv = find_program(spec, run.path)
    records.write_json(
        run.env_file, {**records.read_json(run.env_file), "code": describe_code(taken)}
    )
    return spec, argv


def is_contained(fresh: Path, code: Path) -> bool:
    """Whether the code is there already, file by file; what a run has left beside it does not
    count."""

    def content(path: Path) -> bytes | str | None:
        if path.is_symlink():
            return os.readlink(path)
        return path.read_bytes() if path.is_file() else None

    mine = (
        Path(folder, name)
        for folder, folders, files in os.walk(fresh)
        for name in (*folders, *files)
    )
    return all(content(path) == content(code / path.relative_to(fresh)) for path in mine)


def refuse_unless_ended(run: RunDir, fresh_s: float = 0.0) -> None:
    state = state_for_sure(run, fresh_s)
    if not state.ended:
        cancel = "cancel --save" if can_save(run) else "cancel"
        raise Refused(
            f"run {run.id} is still {state.name}; it can be resumed after it ends",
            f"rampup {cancel} {run.id}, then resume",
        )
    if state.name == "completed":
        raise Refused(
            f"run {run.id} has completed: there is nothing left to do", f"rampup show {run.id}"
        )


@contextlib.contextmanager
def resume_alone(run: RunDir) -> Iterator[None]:
    """Two people who resume one run at the same moment: the second is refused."""
    refuse_foreign(run, "change it")
    with locks.hold(run.lock_file, f"run {run.id} is being resumed already"):
        yield
