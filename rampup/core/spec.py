"""The records that travel between the parts: what to run, where, with which settings. Frozen, no
I/O.

Written by config/resolve.py, read by runs/plan.py, the schedulers and the launchers. The job side
sees the same facts as plain values in config.json.
"""

from typing import Any, Literal

from msgspec import Struct

Value = None | bool | int | float | str | list["Value"]
"""What a setting may hold: what TOML can say, and None for `not set`."""

SettingType = Literal["int", "float", "number", "str", "bool", "list", "any"]
"""`number`: whole or not, as it is typed. `any`: what it looks like, for arguments that do not say
their type."""


class Setting(Struct, frozen=True):
    """One key of `[train]`: its type, default and the line of help that `recipe show` prints."""

    type: SettingType
    default: Value
    help: str = ""
    choices: tuple[str, ...] = ()
    low: float | None = None
    """The smallest value that makes sense, inclusive."""
    optional: bool = False
    """May be `none`."""
    origin: str = "default"
    """Who set the default: the engine, or a recipe.toml."""


class Every(Struct, frozen=True):
    """How often checkpoints are written. `auto` chooses by what they cost."""

    unit: Literal["auto", "never", "steps", "epochs", "seconds"]
    number: int = 0


class Resources(Struct, frozen=True, kw_only=True):
    """What a run asks for. The names are Slurm's own."""

    nodes: int = 1
    tasks_per_node: int = 1
    gpus_per_node: int = 0
    cpus_per_task: int | None = None
    mem: str | None = None
    time: str | None = None
    devices: list[int] | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    mail: str | None = None
    env: str = ""
    """What the program runs in: the path of a venv, conda:NAME, container:IMAGE, none; empty: as
    the site says."""
    software: str = ""
    """Which of the site's lists of modules to load, or none; empty: as the site says."""
    lead_s: int = 180
    """How long before the time limit the ranks save and stop; at most a quarter of the limit."""
    requeues: int = 50
    """How often a run is started again after a time limit. Preemptions and lost nodes do not
    count."""
    slurm: list[str] = []
    """Further sbatch options, each KEY=VALUE."""

    @property
    def world_size(self) -> int:
        return self.nodes * self.tasks_per_node


class Cluster(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A site: one TOML file. `local` is one of them."""

    name: str
    about: str = ""
    scheduler: str = "local"
    launcher: str = "spawn"
    max_nodes: int | None = None
    max_tasks_per_node: int | None = None
    hostnames: list[str] = []
    """Patterns for the names of its nodes: `--on auto` finds the site by them."""
    runs_root: str | None = None
    """Where runs live, when RAMPUP_RUNS is not set; default ./runs."""
    slurm_conf: str | None = None
    """Which Slurm, where it is not the machine's own."""
    slurm_cluster: str | None = None
    """Which of several clusters that one Slurm serves (sbatch --clusters)."""
    local_disk: str | None = None
    """The nodes' own disk, for stage=node; variables of the job, such as $USER, may be in it."""
    shared: list[str] = []
    """Directories that every node sees, where the file system's type does not tell."""
    partition: str | None = None
    debug_partition: str | None = None
    account: str | None = None
    qos: str | None = None
    gpu_directive: Literal["gpus-per-node", "gres", "gpus"] = "gpus-per-node"
    gpu_type: str | None = None
    needs: list[str] = []
    """What every run must say here, because only its user knows: account, time, ..."""
    requeue: bool = True
    """Whether the site lets a job be requeued."""
    cpu_bind: str | None = None
    hint: str | None = None
    """For srun on nodes with hyper-threads: `nomultithread`."""
    srun: list[str] = []
    """Further options of srun."""
    master_suffix: str = ""
    """Put behind the first node's name, where the fast network has names of its own."""
    module_init: str | None = None
    """The file that defines `module`, where a login shell does not."""
    module_use: list[str] = []
    """Further folders of modules."""
    module_purge: bool = True
    """Whether what the login shell loaded is unloaded first; where that breaks the machine's own,
    false."""
    modules: list[str] = []
    """Loaded for every run."""
    software: dict[str, list[str]] = {}
    """Named lists of modules with the site's own Pythons, for plain commands."""
    default_software: str | None = None
    """Which of them a plain command gets."""
    environment: str | None = None
    """The default of --env for engines, which need rampup in it."""
    container_options: list[str] = []
    """Further options of `apptainer exec`, e.g. --rocm, --bind=/scratch."""
    home: list[str] = []
    """Two paths: when $HOME of a job begins with the first, that becomes the second; for nodes that
    do not see it."""
    env: dict[str, str] = {}
    """Variables for the job."""
    spark_master: str | None = None
    """Where a Spark session of our own is made, when the caller has none: spark://HOST:7077, yarn,
    local-cluster[2,1,1024]."""
    spark: dict[str, str] = {}
    """Settings for that session."""
    sbatch: dict[str, str] = {}
    """Further directives that the site wants."""


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
    as_at_home: bool = False
    """A command that nobody asked to be a rank: it gets none of the variables of torchrun."""

    @property
    def needs_rampup(self) -> bool:
        """Whether rampup must be importable where the ranks run."""
        return self.kind in ("engine", "function")
