"""What a run can ask for. Each resource is declared here, once.

The field of `Resources` says its type, its default and its help; `Asked` says how it is written on
the command line and for sbatch. config/setting_tables.py makes the settings of [resources] from it,
cli/run.py the options and their groups in --help, schedulers/slurm the directives of the job script,
runs/resume.py what another cluster does not get, tools/reference.py the page of the reference.
"""

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from rampup.core.declared import Setting, SettingType
from rampup.core.units import TIME_FORMS

SIZE, CLUSTER, ENVIRONMENT = "Resources", "Cluster", "Environment"
"""Groups of options in --help."""


class Asked(NamedTuple):
    """How a resource is described, and how it is written on the command line."""

    help: str
    """A phrase: the settings show it as it is, --help as a sentence."""
    metavar: str = ""
    """What stands for the value in --help; empty: there is no such option, unless the value is yes
    or no."""
    group: str = SIZE
    slurm: tuple[str, ...] = ()
    """What sbatch calls an option that means the same here."""
    low: float | None = None
    """The smallest value that makes sense, inclusive."""
    directive: str = ""
    """The option of sbatch that gets the value as it is; empty where it is computed, or none."""
    of_site: bool = False
    """Whether the value means nothing on another cluster."""


class Resources(Struct, frozen=True, kw_only=True):
    """What a run asks for. The names are Slurm's own."""

    nodes: Annotated[int, Asked("number of nodes", "N", slurm=("-N",))] = 1
    tasks_per_node: Annotated[
        int,
        Asked(
            "ranks per node (default: 1; torch and Lightning: one per GPU)",
            "T",
            slurm=("--ntasks-per-node",),
        ),
    ] = 1
    gpus_per_node: Annotated[int, Asked("GPUs per node", "G", low=0)] = 0
    cpus_per_task: Annotated[
        int | None,
        Asked("CPUs per rank (default: a fair share; 1 on a cluster)", "C", slurm=("-c",), low=1),
    ] = None
    mem: Annotated[str | None, Asked("memory per node, e.g. 16G", "M", directive="mem")] = None
    time: Annotated[str | None, Asked(f"time limit: {TIME_FORMS}", "T", slurm=("-t",))] = None
    devices: Annotated[
        list[int] | None,
        Asked(
            "which GPUs to use, by index; an empty list hides them all", "0,1", group=ENVIRONMENT
        ),
    ] = None
    partition: Annotated[
        str | None,
        Asked("Slurm partition", "P", CLUSTER, ("-p",), directive="partition", of_site=True),
    ] = None
    account: Annotated[
        str | None,
        Asked("Slurm account", "A", CLUSTER, ("-A",), directive="account", of_site=True),
    ] = None
    qos: Annotated[
        str | None,
        Asked("Slurm quality of service", "Q", CLUSTER, ("-q",), directive="qos", of_site=True),
    ] = None
    reservation: Annotated[
        str | None,
        Asked("Slurm reservation", "R", CLUSTER, directive="reservation", of_site=True),
    ] = None
    constraint: Annotated[
        str | None,
        Asked(
            "features that the nodes must have",
            "F",
            CLUSTER,
            ("-C",),
            directive="constraint",
            of_site=True,
        ),
    ] = None
    exclude: Annotated[
        str | None,
        Asked("nodes to avoid", "NODES", CLUSTER, ("-x",), directive="exclude", of_site=True),
    ] = None
    mail: Annotated[
        str | None,
        Asked(
            "e-mail address for Slurm's begin/end messages",
            "ADDRESS",
            CLUSTER,
            directive="mail-user",
        ),
    ] = None
    env: Annotated[
        str,
        Asked(
            "environment of the program: a venv's path, conda:NAME, container:IMAGE, none; "
            "by default what the site's profile says",
            "ENV",
            ENVIRONMENT,
        ),
    ] = ""
    software: Annotated[
        str,
        Asked(
            "named module set from the site's profile, or none; by default what the profile says",
            "NAME",
            ENVIRONMENT,
            of_site=True,
        ),
    ] = ""
    lead_s: Annotated[
        int,
        Asked("seconds before the time limit to save and stop; at most a quarter of it", low=1),
    ] = 180
    requeues: Annotated[
        int,
        Asked(
            "how many times to restart after a time limit; preemptions and lost nodes do not count",
            low=0,
        ),
    ] = 50
    independent: Annotated[
        bool,
        Asked("the ranks work alone on purpose: do not warn that they never talked to each other"),
    ] = False
    slurm: Annotated[list[str], Asked("further sbatch options, each KEY=VALUE", of_site=True)] = []

    @property
    def world_size(self) -> int:
        return self.nodes * self.tasks_per_node


def describe_settings(record: type[Struct]) -> dict[str, Setting]:
    """Return the settings that the fields of a record declare, in their order."""
    found: dict[str, Setting] = {}
    for name, kind, asked, default in list_declared(record):
        optional = get_origin(kind) in (types.UnionType, Union)
        plain = (
            next(part for part in get_args(kind) if part is not type(None)) if optional else kind
        )
        choices = get_args(plain) if get_origin(plain) is Literal else ()
        found[name] = Setting(
            _name_type(str if choices else plain),
            default,
            asked.help,
            choices=choices,
            low=asked.low,
            optional=optional,
        )
    return found


def list_declared(record: type[Struct]) -> Iterator[tuple[str, Any, Asked, Any]]:
    """Yield the name, the type, the description and the default of each field that has one."""
    for field in fields(record):
        annotation = record.__annotations__.get(field.name)
        if get_origin(annotation) is not Annotated:
            continue
        kind, asked = get_args(annotation)
        default = field.default if field.default is not NODEFAULT else field.default_factory()
        yield field.name, kind, asked, default


def list_asked(record: type[Struct] = Resources) -> dict[str, Asked]:
    """Return how each resource is described, by its name."""
    return {name: asked for name, _, asked, _ in list_declared(record)}


def list_directives(record: type[Struct] = Resources) -> dict[str, str]:
    """Return the resources that sbatch gets as they are, each with its option of sbatch."""
    asked = list_asked(record)
    return {name: asked[name].directive for name in asked if asked[name].directive}


def _name_type(kind: Any) -> SettingType:
    if get_origin(kind) is list:
        return "list"
    names: dict[Any, SettingType] = {int: "int", str: "str", float: "float", bool: "bool"}
    return names[kind]
