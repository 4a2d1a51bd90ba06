"""What the real programs of Slurm printed, and who stands in for them: for the tests of the checks
before a run."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rampup.config.clusters import load
from rampup.core.finding import Finding
from rampup.core.spec import Resources, RunSpec
from rampup.diagnose.preflight import preflight
from rampup.errors import Refused, SchedulerError
from rampup.runs.plan import make_plan
from rampup.schedulers.slurm import check as slurm
from rampup.schedulers.slurm import site as slurm_site

# Slurm 22.05.8, `scontrol --all --oneliner show partition`; the second is as sites have it
PARTITIONS = """\
PartitionName=normal AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=1-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=node[1-4] PriorityJobFactor=10 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode=REQUEUE State=UP TotalCPUs=32 TotalNodes=4 SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=32,mem=24100M,node=4,billing=32,gres/gpu=16
PartitionName=debug AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=20 Hidden=NO MaxNodes=2 MaxTime=00:30:00 MinNodes=2 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=node[1-4] PriorityJobFactor=100 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode=CANCEL State=UP TotalCPUs=32 TotalNodes=4 SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED
PartitionName=long AllowGroups=ALL Default=NO GraceTime=0 MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 Nodes=(null) PreemptMode=OFF State=UP TotalCPUs=0 TotalNodes=40
"""  # noqa: E501
# `sinfo --all --exact --noheader -o '%R|%D|%c|%m|%G|%T'`
NODES = """\
normal|4|8|6025|gpu:pretend:4|idle
debug|4|8|6025|gpu:pretend:4|mixed
long|30|64|256000|(null)|idle
long|8|128|512000|gpu:a100:4(S:0-1),nvme:1|allocated
long|2|128|512000|gpu:a100:4(S:0-1),nvme:1|down*
"""
SETTINGS = """\
Configuration data as of 2026-11-16T05:39:14
AuthInfo                = socket=/run/munge,cred_expire=10
JobRequeue              = 1
KillWait                = 5 sec
PreemptMode             = REQUEUE
PreemptType             = preempt/partition_prio
SlurmctldParameters     = (null)
SLURM_VERSION           = 22.05.8

Slurmctld(primary) at vm is UP
"""
ASSOCIATIONS = "rampup||normal,high\nroot||normal\n"

CLUSTER = replace(load("slurm"), name="site", shared=["/"], account="rampup", partition="normal")
SPEC = RunSpec(
    name="x",
    kind="command",
    recipe=None,
    command=("true",),
    train={},
    resources=Resources(),
    cluster=CLUSTER,
    origins={},
    config_file=None,
    cwd="/",
)


def answer(code: int = 0, out: str = "", err: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], code, out, err)


class Site:
    """Stands in for Slurm's programs: prints what they printed."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.answers = {
            "scontrol ping": answer(out="Slurmctld(primary) at vm is UP\n"),
            "scontrol --all": answer(out=PARTITIONS),
            "scontrol show": answer(out=SETTINGS),
            "sinfo --all": answer(out=NODES),
            "sacctmgr -nP": answer(out=ASSOCIATIONS),
            "sbatch --test-only": answer(
                err="sbatch: Job 3 to start at 2026-11-16T05:26:07 using 2 processors on nodes node1\n"
            ),
        }

    def call(
        self, cluster: Any, argv: list[str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        self.calls.append(argv[0])
        if argv[0] == "sbatch":
            self.script = Path(argv[-1]).read_text()
        return self.answers[" ".join(argv[:2])]

    def refuses(self, words: str, code: int = 1) -> None:
        self.answers["sbatch --test-only"] = answer(code, err=words)


def standing_in(monkeypatch: pytest.MonkeyPatch) -> Site:
    """For the programs of Slurm, wherever they are called."""
    made = Site()
    monkeypatch.setattr(slurm_site, "call", made.call)
    monkeypatch.setattr(slurm, "call", made.call)
    for name in ("SLURM_JOB_ID", "SLURM_CONF"):
        monkeypatch.delenv(name, raising=False)
    return made


def asking(**resources: Any) -> RunSpec:
    return replace(SPEC, resources=Resources(**resources))


def check(spec: RunSpec, root: Path) -> list[Finding]:
    """The notes of preflight, for a run that would live in `root`."""
    return list(preflight(make_plan(spec, root / "20260102-030405-x-abc234")).notes)


def refusal(tmp_path: Path, spec: RunSpec) -> Refused:
    with pytest.raises(Refused) as caught:
        check(spec, tmp_path)
    assert caught.value.hint
    return caught.value


def refused_by_slurm(tmp_path: Path, spec: RunSpec = SPEC) -> SchedulerError:
    with pytest.raises(SchedulerError) as caught:
        check(spec, tmp_path)
    return caught.value
