"""Settings: layers of TOML and key=value become one RunSpec, and every value remembers where it
came from.

Defaults < recipe.toml and the cluster's profile < the user's file < the command line. Strict: an
unknown key or a wrong type is refused here, before anything is written or started. Only `run` and
its relatives call this.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from rampup.config.clusters import Profile
from rampup.config.clusters import find as find_cluster
from rampup.config.foreign import apply_config
from rampup.config.program import fill_command, make_program
from rampup.config.recipes import TYPES, check_required, check_settings, flatten_trainer
from rampup.config.recipes import load as load_recipe
from rampup.config.setting_tables import CHECKPOINT, PROGRAM, RESOURCES, Table, read_toml
from rampup.config.synonyms import find_synonym
from rampup.core.engines import NO_ENGINE, find_engine
from rampup.core.engines.base import EngineInfo
from rampup.core.software import absolute
from rampup.core.spec import (
    Cluster,
    FunctionInfo,
    RecipeInfo,
    Resources,
    RunSpec,
    Setting,
    SettingType,
    Value,
)
from rampup.core.units import parse_interval, parse_time_limit_s
from rampup.errors import Refused, UsageError, nearest

FILE_KEYS = (
    "recipe",
    "command",
    "name",
    "on",
    "train",
    "checkpoint",
    "resources",
    "program",
    "cluster",
    "trainer",
)
FIELD_KINDS: dict[Any, tuple[SettingType, bool]] = {
    str: ("str", False),
    bool: ("bool", False),
    list[str]: ("list", False),
    str | None: ("str", True),
    int | None: ("int", True),
}
"""Type of a field of a profile: its kind of setting, and whether it may be none."""
SMOKE_TIME = "0:02:00"
SHELL = re.compile(r"(ba|da|k|z)?sh")
IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*")
STARTERS = ("torch.distributed.run", "torch.distributed.launch", "cProfile", "coverage", "pdb")
"""Modules that start a script, which has the better name."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a user typed after `rampup run`."""

    target: str | None = None
    command: tuple[str, ...] | None = None
    settings: tuple[str, ...] = ()
    """key=value, as typed."""
    options: dict[str, str] = {}
    """Options of the command line that are settings of [resources], as text."""
    program: dict[str, Value] = {}
    """Options of the command line that are settings of [program]."""
    slurm: tuple[str, ...] = ()
    """--slurm KEY=VALUE, as typed."""
    on: str | None = None
    name: str | None = None
    smoke: bool = False
    dev: bool = False
    """One batch of everything, on this machine."""
    function: FunctionInfo | None = None
    """Given to `rampup.launch` in place of a target or a command."""


def resolve(request: Request, cwd: Path, find: Callable[[str], Profile] = find_cluster) -> RunSpec:
    """`find` is for who resolves many requests, and need not read the profile for each."""
    file = find_file(request, cwd)
    table = flatten_trainer(read_file(file)) if file else {}
    base = file.parent if file else cwd
    command = tuple(request.command or table.get("command", ()))
    recipe = (
        None
        if command or request.function
        else load_recipe(recipe_name(request, table, file), base, given(request, table))
    )
    profile = find("local" if request.dev else request.on or table.get("on", "local"))
    cluster, tables = profile.cluster, make_tables(recipe, profile)
    if recipe is not None:
        for key, value in recipe.resources.items():
            tables["resources"].put(key, value, "recipe.toml")
    if command:
        declare(tables["train"], table.get("train", {}))
    for name, settings in tables.items():
        for key, value in section(table, name, file).items():
            settings.put(key, value, file.name if file else "")
    for key, text in request.options.items():
        tables["resources"].put_text(key, text, f"--{key.replace('_', '-')}")
    for key, given_value in request.program.items():
        tables["program"].put(key, given_value, f"--{key.replace('_', '-')}")
    if request.smoke:
        apply_smoke(tables, cluster, request.options)
    if request.slurm:
        tables["resources"].put(
            "slurm",
            [*section(table, "resources", file).get("slurm", []), *request.slurm],
            "--slurm",
        )
    for text in request.settings:
        put_setting(tables, text)
    command = fill_command(command, request.settings, table.get("train", {}))
    engine = find_engine(recipe.engine) if recipe is not None else None
    if engine is not None and engine.ranks_setting:
        apply_devices(tables["train"], tables["resources"], engine.ranks_setting)
    if recipe is not None and recipe.config:
        values = tables["resources"].values
        ranks = int(str(values["nodes"])) * int(str(values["tasks_per_node"]))
        recipe = apply_config(recipe, tables["train"], base if file else cwd, ranks)
    if request.dev:
        apply_dev(tables, engine)
    if engine is not None and engine.one_gpu_per_rank:
        give_each_gpu_a_rank(tables["resources"])
    make_absolute(tables, file, cwd)
    if recipe is not None and recipe.required:
        check_required(recipe, tables["train"].origins)
    if recipe is not None and recipe.check:
        recipe = check_settings(recipe, tables["train"].values)
    return make_spec(
        request, table, recipe, command, cluster, tables, file, base if command else cwd
    )


def given(request: Request, table: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting that the user has named, with its value or its text."""
    words = [text.partition("=") for text in request.settings]
    return {
        **section(table, "train", None),
        **{key.removeprefix("train."): text for key, _, text in words},
    }


def find_file(request: Request, cwd: Path) -> Path | None:
    """The user's own TOML: named as the target, or ./rampup.toml when there is no target at all."""
    if request.target is not None and request.target.endswith(".toml"):
        return (cwd / request.target).absolute()
    if request.target or request.command or request.function:
        return None
    if (cwd / "rampup.toml").is_file():
        return (cwd / "rampup.toml").absolute()
    return None


def read_file(file: Path) -> dict[str, Any]:
    table = read_toml(file)
    for key in table:
        if key not in FILE_KEYS:
            raise Refused(f"unknown key {key!r} in {file}", nearest(key, FILE_KEYS))
    words = table.get("command")
    if words is not None and (
        not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words)
    ):
        raise Refused(
            f"`command` in {file} must be a list of strings", 'command = ["python", "train.py"]'
        )
    for key in ("recipe", "name", "on"):
        if not isinstance(table.get(key, ""), str):
            raise Refused(
                f"`{key}` in {file} must be a string, not {table[key]!r}", f'{key} = "..."'
            )
    if ("recipe" in table) == ("command" in table):
        raise Refused(f"{file} needs either `recipe` or `command`", 'recipe = "mnist"')
    return table


def section(table: Mapping[str, Any], name: str, file: Path | None) -> dict[str, Any]:
    found = table.get(name, {})
    if not isinstance(found, dict):
        raise Refused(
            f"`{name}` in {file} must be a table, not {found!r}",
            f"write [{name}] and its keys below",
        )
    return found


def recipe_name(request: Request, table: Mapping[str, Any], file: Path | None) -> str:
    name = table.get("recipe") if file else request.target
    if name is None:
        raise UsageError(
            "nothing to run: give a recipe, a TOML file, or a command after --",
            "rampup recipe list",
        )
    return str(name)


def make_tables(recipe: RecipeInfo | None, profile: Profile) -> dict[str, Table]:
    train = Table("train", recipe.settings if recipe else {}, free=bool(recipe and recipe.free))
    train.aliases = recipe.aliases if recipe else {}
    site = Table("cluster", cluster_schema(profile))
    return {
        "train": train,
        "checkpoint": Table("checkpoint", CHECKPOINT),
        "resources": Table("resources", RESOURCES),
        "program": Table("program", PROGRAM),
        "cluster": site,
    }


def cluster_schema(profile: Profile) -> dict[str, Setting]:
    """What a user may override of a site's profile: every field that is one value or a list of
    words."""
    schema: dict[str, Setting] = {}
    for field in msgspec.structs.fields(profile.cluster):
        choices = get_args(field.type) if get_origin(field.type) is Literal else ()
        kind = FIELD_KINDS[str] if choices else FIELD_KINDS.get(field.type)
        if kind is not None and field.name != "name":
            value, origin = getattr(profile.cluster, field.name), profile.origin(field.name)
            schema[field.name] = Setting(
                kind[0], value, choices=choices, optional=kind[1], origin=origin
            )
    return schema


def declare(train: Table, own: Mapping[str, Any]) -> None:
    """A command has no recipe to say which settings exist: its file does; without one every key is
    the user's own."""
    if not own:
        train.free = True
    for key, value in own.items():
        if type(value) not in TYPES:
            raise Refused(
                f"train.{key} has a value of an unsupported type",
                "use a string, number, true/false or list",
            )
        kind = TYPES[type(value)]
        train.schema[key] = Setting("number" if kind == "int" else kind, value)


def put_setting(tables: Mapping[str, Table], text: str) -> None:
    """`lr=0.1` reaches [train]; a dotted key reaches any table."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(
            f"{text!r} is not a setting", "a setting is KEY=VALUE; a command goes after --"
        )
    name, dot, inner = key.partition(".")
    if dot and key in tables["train"].schema:  # trainer.NAME, of a LightningModule
        name, dot = "train", ""
    if dot and name not in tables:
        meant = find_synonym(inner, tables["train"].schema)  # trainer.max_epochs, optimizer.lr
        hint = f"write {meant}={value}" if meant else nearest(name, tables)
        raise Refused(f"unknown table {name!r} in {text!r}", hint)
    if key in tables and key not in tables["train"].schema and not tables["train"].free:
        raise Refused(
            f"{key} is a table of settings, not one of them: {text!r}",
            f"{key}.{next(iter(tables[key].schema))}=...",
        )
    table, key = (tables[name], inner) if dot else (tables["train"], key)
    table.put_text(key, value, "command line")


# presets: what --smoke, --dev, GPUs and a module's `devices` change -------------------------------


def apply_smoke(tables: Mapping[str, Table], cluster: Cluster, options: Mapping[str, str]) -> None:
    """--smoke: the same run, in the debug queue, with two minutes; an engine takes one step in each
    attempt."""
    if cluster.debug_partition and "partition" not in options:
        tables["resources"].put("partition", cluster.debug_partition, "--smoke")
    if "time" not in options:
        tables["resources"].put("time", SMOKE_TIME, "--smoke")


def apply_dev(tables: Mapping[str, Table], engine: EngineInfo | None) -> None:
    """--dev: one rank of this machine takes one step and validates, and keeps no checkpoint."""
    if engine is None:
        raise Refused(
            "--dev needs a recipe with an engine; a custom loop has none",
            "shorten the loop with a setting, e.g. steps=1",
        )
    for key in ("nodes", "tasks_per_node"):
        tables["resources"].put(key, 1, "--dev")
    tables["resources"].put("gpus_per_node", 0, "--dev")
    tables["checkpoint"].put("every", "never", "--dev")
    known = tables["train"].schema
    for key in ("fast_dev_run",) if "fast_dev_run" in known else ("max_steps", "eval_batches"):
        if key in known:
            tables["train"].put(key, 1, "--dev")


def apply_devices(train: Table, resources: Table, key: str) -> None:
    """`devices=2`, as Lightning's users write it. The default of an argument of a class's own asks
    for nothing."""
    devices, origin = train.values[key], train.origins[f"train.{key}"]
    if devices is None or origin == "default":
        return
    ranks, by = resources.values["tasks_per_node"], resources.origins["resources.tasks_per_node"]
    if by != "default" and ranks != devices:
        raise Refused(
            f"{key}={devices} ({origin}) and tasks_per_node={ranks} ({by})",
            "leave one of them out",
        )
    resources.put("tasks_per_node", devices, f"{key}, {origin}")


def give_each_gpu_a_rank(resources: Table) -> None:
    gpus = resources.values["gpus_per_node"]
    if (
        isinstance(gpus, int)
        and gpus > 1
        and resources.origins["resources.tasks_per_node"] == "default"
    ):
        resources.put("tasks_per_node", gpus, "one for each GPU")


# the result ---------------------------------------------------------------------------------------


def make_absolute(tables: Mapping[str, Table], file: Path | None, cwd: Path) -> None:
    """An environment is meant as seen from the file that names it, or from where the user types."""
    for name, key in (("resources", "env"), ("cluster", "environment")):
        table, by_file = (
            tables[name],
            file is not None and tables[name].origins[f"{name}.{key}"] == file.name,
        )
        if table.values[key]:
            table.values[key] = absolute(
                str(table.values[key]), file.parent if file and by_file else cwd
            )


def make_spec(
    request: Request,
    table: Mapping[str, Any],
    recipe: RecipeInfo | None,
    command: tuple[str, ...],
    cluster: Cluster,
    tables: Mapping[str, Table],
    file: Path | None,
    cwd: Path,
) -> RunSpec:
    cluster = overridden(cluster, tables["cluster"].values)
    kind: Literal["engine", "script", "command", "function"] = "command"
    if request.function is not None:
        kind = "function"
    if recipe is not None:
        kind = "script" if recipe.engine == NO_ENGINE else "engine"
    resources = msgspec.convert(tables["resources"].values, Resources)
    if resources.time is not None:
        parse_time_limit_s(resources.time)  # refuse now what the launcher could not read
    check_every(kind, tables["checkpoint"])
    program = make_program(kind, tables["program"], request.settings, table)
    name = clean_name(request.name or table.get("name") or default_name(request, recipe, command))
    return RunSpec(
        name=f"{name}-dev" if request.dev else name,
        kind=kind,
        recipe=recipe,
        command=command,
        train=tables["train"].values,
        checkpoint=tables["checkpoint"].values,
        program=program,
        resources=resources,
        cluster=cluster,
        origins={
            key: origin for settings in tables.values() for key, origin in settings.origins.items()
        },
        config_file=str(file) if file else None,
        cwd=str(cwd.absolute()),
        smoke=request.smoke,
        function=request.function,
        as_at_home=kind == "command" and not asks_for_ranks(request, table, tables),
    )


def asks_for_ranks(request: Request, table: Mapping[str, Any], tables: Mapping[str, Table]) -> bool:
    """Whether the user has named a number of ranks or nodes, a launcher or a cluster. Programs take
    RANK in their environment for a sign that torchrun started them."""
    origins = tables["resources"].origins
    sized = any(origins[f"resources.{key}"] != "default" for key in ("nodes", "tasks_per_node"))
    launcher = tables["cluster"].schema["launcher"]
    by_launcher = tables["cluster"].origins["cluster.launcher"] != launcher.origin
    return sized or by_launcher or bool(request.on or table.get("on"))


def overridden(cluster: Cluster, values: Mapping[str, Value]) -> Cluster:
    """The site with what the user says of it today."""
    try:
        made = msgspec.convert({**msgspec.to_builtins(cluster), **values}, Cluster)
    except msgspec.ValidationError as error:  # a list of something else than words
        raise Refused(
            f"[cluster]: {error}", "`rampup cluster show slurm` lists the keys of a profile"
        ) from None
    return made


def check_every(kind: str, table: Table) -> None:
    parse_interval(str(table.values["every"]))  # refuse now what the engine could not read
    origin = table.origins["checkpoint.every"]
    if kind != "engine" and origin != "default":
        raise Refused(
            f"checkpoint.every ({origin}) needs a recipe with an engine; a custom loop decides when to save",
            "call run.save(state, step) where you want it; docs/your-own-loop.md shows it",
        )


def default_name(request: Request, recipe: RecipeInfo | None, command: Sequence[str]) -> str:
    """The name of a run that its user has not named."""
    if request.function is not None:
        return request.function.name.rpartition(".")[2]
    return recipe.name if recipe else command_name(command)


def command_name(command: Sequence[str]) -> str:
    """The name of the script or of the module says more than the interpreter's."""
    program = Path(command[0]).name
    if SHELL.fullmatch(program) and "-c" in command[:-1]:
        inner = command[command.index("-c") + 1].replace(";", " ").split()
        return command_name(inner) if find_script(inner) else program
    return find_script(command) or Path(command[0]).stem


def find_script(command: Sequence[str]) -> str:
    """Return the stem of the script, or the module after -m, whichever comes first; empty where
    there is none."""
    for before, word in zip(("", *command), command, strict=False):
        if word.endswith((".py", ".sh")):
            return Path(word).stem
        if before == "-m" and word not in STARTERS and IMPORT_PATH.fullmatch(word):
            return word
    return ""


def clean_name(name: str) -> str:
    """Safe as part of a directory and of a job's name."""
    kept = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "_.") else "-"
        for letter in name
    )
    return kept.strip("-.")[:40] or "run"
