"""The records that travel between the parts: what to run, where, with which settings. Frozen, no
I/O.

Written by config/resolve.py, read by runs/plan.py, the schedulers and the launchers. The job side
sees the same facts as plain values in config.json.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from rampup.core.declared import Every, Setting, SettingType, Value
from rampup.core.program import Program, parse_lead_s
from rampup.core.resources import Resources

__all__ = [
    "Before",
    "Cluster",
    "Every",
    "FunctionInfo",
    "Needs",
    "Program",
    "RecipeInfo",
    "Resources",
    "RunSpec",
    "Setting",
    "SettingType",
    "Translation",
    "Value",
]


Share = Literal["none", "results", "group", "all"]
"""Who else may read a run: nobody; the group its results; the group all of it; everybody all of it."""


class Cluster(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A site: one TOML file. `local` is one of them.

    The text below each key is its help: tools/reference.py makes the page of the profile keys from
    it.
    """

    name: str
    """the name of the profile: that of its file"""
    about: str = ""
    """a description of one line"""
    scheduler: str = "local"
    """`slurm`, `spark` or `local`"""
    launcher: str = "spawn"
    """how ranks are started: `srun`, `torchrun`, `mpirun`, `pmix`; on local `spawn`, `mpirun`; on spark `barrier`"""
    max_nodes: int | None = None
    """the most nodes that a run may ask for; larger requests are refused"""
    max_tasks_per_node: int | None = None
    """the most ranks per node; larger requests are refused"""
    hostnames: list[str] = []
    """names of the cluster's machines, for `--on auto`, with `*` and `[0-9]`"""
    runs_root: str | None = None
    """where runs live when RAMPUP_RUNS is not set; without it `./runs`"""
    share: Share = "results"
    """who else may read runs made here: `none`, `results` (the group, but no settings, commands and
    variables), `group`, `all`; see [security](../security.md#share-your-runs)"""
    slurm_conf: str | None = None
    """SLURM_CONF, for a Slurm other than the machine's own"""
    slurm_cluster: str | None = None
    """which of several clusters of one Slurm (`sbatch --clusters`)"""
    local_disk: str | None = None
    """the nodes' own disk, for [stage=node](../data-larger-than-memory.md#on-the-nodes-own-disk); may hold
    variables: `/local/$USER`; without it `$SLURM_TMPDIR`, then `$TMPDIR`"""
    shared: list[str] = []
    """directories that every node sees, where the type of the file system does not show it"""
    partition: str | None = None
    """the partition, unless the command line says otherwise"""
    debug_partition: str | None = None
    """where `--smoke` goes; without it the partition"""
    account: str | None = None
    """the account, unless the command line says otherwise"""
    qos: str | None = None
    """the quality of service, unless the command line says otherwise"""
    gpu_directive: Literal["gpus-per-node", "gres", "gpus"] = "gpus-per-node"
    """how GPUs are requested: `gpus-per-node`, `gres`, or `gpus` (for the whole job)"""
    gpu_type: str | None = None
    """the type in that directive, e.g. `a100`"""
    needs: list[str] = []
    """options that every run must give, because only you know them: `["account", "time"]`; checked
    before Slurm refuses the job"""
    requeue: bool = True
    """whether jobs may be requeued after a time limit, a preemption or a lost node"""
    cpu_bind: str | None = None
    """`srun --cpu-bind`: which CPUs each rank uses; not with torchrun, whose agent has all CPUs of a node"""
    hint: str | None = None
    """for nodes with hyper-threading: `nomultithread`"""
    srun: list[str] = []
    """extra options for srun: `["--distribution=block:block"]`; not those that a launcher sets itself"""
    master_suffix: str = ""
    """appended to the first node's name, where the fast network has its own host names"""
    module_init: str | None = None
    """the file that defines `module`, where a login shell does not"""
    module_use: list[str] = []
    """further folders of modules"""
    module_purge: bool = True
    """whether what the login shell loaded is unloaded first"""
    modules: list[str] = []
    """modules that are loaded for every run"""
    software: dict[str, list[str]] = {}
    """named lists of modules with the site's own Pythons, for `--software NAME`"""
    default_software: str | None = None
    """which of these lists a plain command gets"""
    environment: str | None = None
    """the environment of recipes, unless `--env` says otherwise"""
    container_options: list[str] = []
    """extra options for `apptainer exec`: `["--rocm"]`"""
    home: list[str] = []
    """two paths, for nodes that do not see the usual home: if `$HOME` begins with the first path, the job
    gets the second in its place"""
    variables: dict[str, str] = {}
    """a table of variables for the job"""
    spark_master: str | None = None
    """the master on which rampup creates its own Spark session, when the caller has none:
    `spark://HOST:7077`, `yarn`, `local-cluster[2,1,1024]`; see [Spark](../spark.md)"""
    spark: dict[str, str] = {}
    """a table of settings for that session"""
    sbatch: dict[str, str] = {}
    """a table of further directives that the site requires; a flag has the value `""`"""


OLD_KEYS = {"env": "variables"}
"""Keys of profiles by their names in rampup 0.1.0. A profile and a run that have them stay readable
for one release; `env` means an environment everywhere else."""


def rename_old_keys(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a profile with the keys that it has today. Where both are there, the new one counts."""
    kept = {key: value for key, value in table.items() if key not in OLD_KEYS}
    renamed = {OLD_KEYS[key]: value for key, value in table.items() if key in OLD_KEYS}
    return {**renamed, **kept}


class Needs(Struct, frozen=True, kw_only=True):
    """What a recipe needs because of its settings: its own check says so."""

    modules: dict[str, str] = {}
    """Modules that must be importable, each with the setting that needs it."""
    data: tuple[str, ...] = ()
    """Data sets that `rampup fetch` knows."""


class Translation(Struct, frozen=True):
    """What the configuration of another program means as settings of a recipe."""

    settings: dict[str, tuple[Any, str]]
    """Each with its value, and the name that it has in that program."""
    ignored: tuple[str, ...] = ()
    """Names that have no effect here."""


class RecipeInfo(Struct, frozen=True, kw_only=True):
    """A recipe's recipe.toml: what it is, what it needs, which settings it has."""

    name: str
    about: str
    folder: str
    engine: str
    """torch, or none for a script."""
    entry: str
    """For an engine `module:Class`, otherwise a script; both relative to the folder."""
    extra: str = ""
    """The pip extra that brings what it imports."""
    requires: tuple[str, ...] = ()
    """Modules that must be importable."""
    data: tuple[str, ...] = ()
    """Data sets that `rampup fetch` knows."""
    settings: dict[str, Setting] = {}
    resources: dict[str, Value] = {}
    required: tuple[str, ...] = ()
    """Settings that have no default: arguments of a user's own class."""
    free: bool = False
    """Whether it takes settings that nobody has declared (**kwargs)."""
    notes: tuple[tuple[str, str], ...] = ()
    """What is doubtful about it, each with a remedy."""
    check: str = ""
    """`module:function` of the folder, which looks at the settings before anything is submitted."""
    config: str = ""
    """`module:function` of the folder, which translates the configuration of another program."""
    aliases: dict[str, str] = {}
    """Names of settings in that program, each with ours."""
    also: dict[str, str] = {}
    """Modules that must be importable because of a setting, each with that setting."""


class FunctionInfo(Struct, frozen=True, kw_only=True):
    """A Python function that every rank calls: `rampup.launch`. The call itself, with its
    arguments, lies in the run directory."""

    name: str
    """As people write it: pkg.mod.train, or train of a script or a notebook."""
    by: Literal["path", "value"]
    """Whether the ranks import it from the copy of its module, or the file has its code."""
    code: list[str]
    """The command that stands for it when its code is copied."""
    folder: str
    """The folder where its modules are imported from."""
    path: list[str] = []
    """The user's own folders of modules, the first that counts first."""
    python: str = ""
    """The minor version of Python that wrote the call, as 3.11."""
    cloudpickle: str = ""
    """The version that wrote the call; empty where Python's own pickle did."""
    sha256: str = ""
    """Of the file that holds the call."""


class Before(Struct, frozen=True, kw_only=True):
    """A run that must have completed before another begins."""

    id: str
    dir: str
    job: str = ""
    """Its job when the other run was made; empty for a process of this machine."""


class RunSpec(Struct, frozen=True, kw_only=True):
    """Everything that config/resolve.py resolved, each value with its origin."""

    name: str
    kind: Literal["engine", "script", "command", "function"]
    recipe: RecipeInfo | None
    command: tuple[str, ...]
    """The user's own argv; empty for a recipe and for a function."""
    train: dict[str, Value]
    resources: Resources
    cluster: Cluster
    origins: dict[str, str]
    """`train.lr` -> `command line`."""
    config_file: str | None
    cwd: str
    checkpoint: dict[str, Value] = {}
    """The table [checkpoint]: how often to write one, how many to keep."""
    smoke: bool = False
    """A trial: one step, one checkpoint, one resume, in the debug queue."""
    timeouts_before: int = 0
    """How many attempts ended at a time limit before `rampup resume`: they no longer count."""
    function: FunctionInfo | None = None
    after: tuple[Before, ...] = ()
    """The runs that must have completed before this one begins."""
    program: Program = Program()
    """The table [program]: what a command is asked for that does not import rampup."""
    as_at_home: bool = False
    """A command that nobody asked to be a rank: it gets none of the variables of torchrun."""

    @property
    def lead_s(self) -> int:
        """How many seconds before the time limit the ranks are asked to stop."""
        stop_lead = self.program.stop_lead
        return parse_lead_s(stop_lead) if stop_lead else self.resources.lead_s

    @property
    def needs_rampup(self) -> bool:
        """Whether rampup must be importable where the ranks run."""
        return self.kind in ("engine", "function")
