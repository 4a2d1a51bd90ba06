"""The checks of a request for Slurm, on what the real commands print: each rule refuses its case, and only that."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rampup.clusters.load import load
from rampup.data import fetch
from rampup.diagnose import shared_storage, slurm, slurm_limits, slurm_site, slurm_survey, storage
from rampup.diagnose.catalogue import Finding, doctor, preflight
from rampup.diagnose.slurm_site import Associations, Nodes, Partition
from rampup.errors import Refused, SchedulerError
from rampup.schedulers import slurm_units
from rampup.spec import RecipeInfo, Resources, RunSpec

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

    def call(self, cluster: Any, argv: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        self.calls.append(argv[0])
        if argv[0] == "sbatch":
            self.script = Path(argv[-1]).read_text()
        return self.answers[" ".join(argv[:2])]

    def refuses(self, words: str, code: int = 1) -> None:
        self.answers["sbatch --test-only"] = answer(code, err=words)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site()
    monkeypatch.setattr(slurm_site, "call", made.call)
    monkeypatch.setattr(slurm, "call", made.call)
    for name in ("SLURM_JOB_ID", "SLURM_CONF"):
        monkeypatch.delenv(name, raising=False)
    return made


def asking(**resources: Any) -> RunSpec:
    return replace(SPEC, resources=Resources(**resources))


def refusal(tmp_path: Path, spec: RunSpec) -> Refused:
    with pytest.raises(Refused) as caught:
        preflight(spec, tmp_path)
    assert caught.value.hint
    return caught.value


def refused_by_slurm(tmp_path: Path, spec: RunSpec = SPEC) -> SchedulerError:
    with pytest.raises(SchedulerError) as caught:
        preflight(spec, tmp_path)
    return caught.value


# reading ----------------------------------------------------------------------------------------------------------


def test_partitions_are_read() -> None:
    found = slurm_site.read_partitions(PARTITIONS)
    assert found["normal"] == Partition("normal", "UP", True, 4, 0, None, 86_400, 0, "REQUEUE")
    assert found["debug"] == Partition("debug", "UP", False, 4, 2, 2, 1800, 20, "CANCEL")
    assert found["long"] == Partition("long", "UP", False, 40, 0, None, None, 0, "OFF")
    assert slurm_site.read_partitions("No partitions in the system\n") == {}


def test_nodes_are_read() -> None:
    found = slurm_site.read_nodes(NODES)
    assert found[0] == Nodes("normal", 4, 8, 6025, {"pretend": 4}, "idle")
    assert [one.gpus for one in found[2:4]] == [{}, {"a100": 4}]
    assert [one.in_service for one in found] == [True, True, True, True, False]
    states = ("draining", "drained*", "maint", "idle*", "allocated+", "mixed-", "idle~", "powering_up", "reserved")
    served = [Nodes("p", 1, 1, 1, {}, state).in_service for state in states]
    assert served == [False, False, False, False, True, True, True, True, True]


@pytest.mark.parametrize(("gres", "gpus"), [
    ("(null)", {}),
    ("gpu", {"": 1}),
    ("gpu:4", {"": 4}),
    ("gpu:a100:4(S:0-1)", {"a100": 4}),
    ("gpu:a100:2(S:0,1),gpu:v100:1,craynetwork:4", {"a100": 2, "v100": 1}),
    ("gpu:a100_3g.20gb:2", {"a100_3g.20gb": 2}),
    ("nvme:1T", {}),
])  # fmt: skip
def test_generic_resources_are_read(gres: str, gpus: dict[str, int]) -> None:
    assert slurm_site.read_gpus(gres) == gpus


def test_settings_and_associations_are_read() -> None:
    found = slurm_site.read_settings(SETTINGS)
    assert (found["JobRequeue"], found["AuthInfo"]) == ("1", "socket=/run/munge,cred_expire=10")
    assert slurm_site.read_associations(ASSOCIATIONS) == Associations({"rampup", "root"}, {"normal", "high"})
    assert slurm_site.read_associations("") == Associations(set(), set())


@pytest.mark.parametrize(("text", "megabytes"), [
    ("391376K", 391376 / 1024), ("1506M", 1506), ("1.50G", 1536), ("2T", 2 * 1024**2), ("4000", 4000), ("16GB", 16384),
    ("", None), ("?", None), ("0", 0), ("G", None),
])  # fmt: skip
def test_memory_is_read(text: str, megabytes: float | None) -> None:
    assert slurm_units.memory_mb(text) == megabytes


@pytest.mark.parametrize(("text", "seconds"), [
    ("01:26.920", 86.92), ("00:02:53", 173), ("1-02:03:04", 93_784), ("30:00", 1800), ("1-00:00:00", 86_400),
    ("UNLIMITED", None), ("Partition_Limit", None), ("", None), ("infinite", None),
])  # fmt: skip
def test_times_are_read(text: str, seconds: float | None) -> None:
    assert slurm_units.seconds(text) == seconds


# what a run asks for ------------------------------------------------------------------------------------------------


def test_what_fits_passes_with_few_calls(site: Site, tmp_path: Path) -> None:
    fitting = asking(nodes=4, tasks_per_node=4, cpus_per_task=2, gpus_per_node=4, mem="6000M", time="1-00:00:00")
    assert preflight(fitting, tmp_path) == []
    assert sorted(site.calls) == ["sbatch", "scontrol", "scontrol", "sinfo"]
    assert "#SBATCH --nodes=4\n" in site.script and f"--output={tmp_path}/" in site.script
    assert (
        preflight(asking(nodes=8, tasks_per_node=4, gpus_per_node=4, partition="long", time="90-0:0:0"), tmp_path) == []
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("resources", "message", "hint"), [
    ({"partition": "normla"}, "there is no partition 'normla'", "did you mean normal?"),
    ({"partition": "normal,nope"}, "there is no partition 'nope'", "known: debug, long, normal"),
    ({"time": "2-0:0:0"}, "2-00:00:00, partition normal grants at most 1-00:00:00", "or --partition long"),
    ({"nodes": 5}, "nodes is 5, partition normal has 4", "--nodes 4"),
    ({"partition": "debug", "nodes": 3}, "nodes is 3, partition debug grants at most 2", "--nodes 2"),
    ({"partition": "debug", "nodes": 1}, "nodes is 1, partition debug is for jobs of 2 or more", "--nodes 2"),
    ({"tasks_per_node": 3, "cpus_per_task": 3}, "tasks_per_node 3 x cpus_per_task 3 is 9", "--cpus-per-task 2"),
    ({"tasks_per_node": 9}, "tasks_per_node 9 x cpus_per_task 1 is 9", "--tasks-per-node 8"),
    ({"gpus_per_node": 5}, "a node of partition normal has at most 4 GPUs", "--gpus-per-node 4"),
    ({"gpus_per_node": 8, "partition": "long"}, "a node of partition long has at most 4 GPUs", "--gpus-per-node 4"),
    ({"mem": "7G"}, "mem is 7G, a node of partition normal has 6025 MB", "--mem 6025M"),
    ({"partition": "long", "nodes": 11, "gpus_per_node": 4}, "and 10 nodes of partition long have", "--nodes 10"),
    ({"partition": "long", "nodes": 11, "mem": "300G"}, "have 1 CPUs, 300G of memory", "--nodes 10"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(
    site: Site, tmp_path: Path, resources: dict[str, Any], message: str, hint: str
) -> None:
    error = refusal(tmp_path, asking(**resources))
    assert message in error.message and hint in error.hint
    assert error.exit_code == 3


def test_one_of_several_partitions_is_enough(site: Site, tmp_path: Path) -> None:
    assert preflight(asking(partition="debug,long", time="2-0:0:0", nodes=20, tasks_per_node=64), tmp_path) == []
    assert "at most 1-00:00:00" in refusal(tmp_path, asking(partition="debug,normal", time="2-0:0:0")).message


def test_a_qos_or_a_reservation_may_lift_the_limits(site: Site, tmp_path: Path) -> None:
    for special in ({"qos": "high"}, {"reservation": "course"}):
        (note,) = preflight(asking(time="2-0:0:0", **special), tmp_path)
        assert (note.id, note.level) == ("time", "note")


def test_the_default_partition_counts_when_none_is_named(site: Site, tmp_path: Path) -> None:
    nameless = replace(asking(time="2-0:0:0"), cluster=replace(CLUSTER, partition=None))
    assert "partition normal grants" in refusal(tmp_path, nameless).message
    site.answers["scontrol --all"] = answer(out=PARTITIONS.replace("Default=YES", "Default=NO"))
    assert refusal(tmp_path, nameless).hint == "--partition, one of: normal, debug, long"


@pytest.mark.parametrize(("state", "level"), [("DOWN", "note"), ("DRAIN", "problem"), ("INACTIVE", "problem")])
def test_partitions_that_are_not_up(state: str, level: str) -> None:
    known = {"a": Partition("a", state, nodes=1), "b": Partition("b", nodes=1)}
    (found,) = slurm_limits.existing({"partition": "a"}, known)
    assert found.level == level and found.remedy == "--partition, one of: b"
    assert list(slurm_limits.existing({"partition": "b"}, known)) == []


def test_gpu_types(site: Site, tmp_path: Path) -> None:
    wanting = replace(asking(gpus_per_node=4, tasks_per_node=4), cluster=replace(CLUSTER, gpu_type="a10"))
    error = refusal(tmp_path, wanting)
    assert "no node has GPUs of type 'a10'" in error.message and "did you mean a100?" in error.hint
    elsewhere = refusal(tmp_path, replace(wanting, cluster=replace(CLUSTER, gpu_type="a100")))
    assert "has no GPUs of type a100" in elsewhere.message and "--partition long" in elsewhere.hint
    assert preflight(replace(wanting, cluster=replace(CLUSTER, gpu_type="pretend")), tmp_path) == []


def test_sites_that_hide_nodes_or_partitions_are_left_to_sbatch(site: Site, tmp_path: Path) -> None:
    site.answers["sinfo --all"] = answer()
    assert preflight(asking(cpus_per_task=900, gpus_per_node=1), tmp_path) == []
    site.answers["scontrol --all"] = answer(out="No partitions in the system\n")
    assert preflight(asking(nodes=900, partition="hidden"), tmp_path) == []


@pytest.mark.parametrize(("kind", "ranks", "gpus", "level"), [
    ("command", 1, 4, "note"),
    ("command", 4, 2, "note"),
    ("script", 4, 2, "note"),
    ("engine", 1, 2, "note"),
    ("engine", 4, 2, "problem"),
    ("engine", 2, 2, None),
    ("engine", 4, 0, None),
])  # fmt: skip
def test_ranks_and_gpus(kind: Any, ranks: int, gpus: int, level: str | None) -> None:
    found = list(slurm.ranks_and_gpus(replace(asking(tasks_per_node=ranks, gpus_per_node=gpus), kind=kind)))
    assert [finding.level for finding in found] == ([level] if level else [])
    assert all(finding.remedy == f"--tasks-per-node {gpus}" for finding in found)


# Slurm itself ---------------------------------------------------------------------------------------------------------


def test_a_slurm_that_does_not_answer(site: Site, tmp_path: Path) -> None:
    stars = "*****************************************"
    down = f"Slurmctld(primary) at vm is DOWN\n{stars}\n** RESTORE SLURMCTLD DAEMON TO SERVICE **\n{stars}\n"
    site.answers["scontrol ping"] = answer(1, down)
    error = refused_by_slurm(tmp_path)
    assert error.exit_code == 4
    assert error.message == "the Slurm of cluster site does not answer: Slurmctld(primary) at vm is DOWN"
    assert site.calls == ["scontrol"]
    site.answers["scontrol ping"] = answer(0, "Slurmctld(primary) at a is DOWN\nSlurmctld(backup) at b is UP\n")
    assert preflight(SPEC, tmp_path) == []


@pytest.mark.parametrize(("said", "message", "hint"), [
    ("allocation failure: Invalid feature specification\n", "Invalid feature specification", "doctor --on site"),
    (
        "sbatch: error: Please give --account\nallocation failure: Unspecified error\n",
        "Please give --account; Unspecified error",
        "doctor --on site",
    ),
    (
        "sbatch: unrecognized option '--nonsense=foo'\nTry \"sbatch --help\" for more information\n",
        "unrecognized option '--nonsense=foo'",
        "doctor --on site",
    ),
    ("sbatch: error: Invalid generic resource (gres) specification\n", "(gres) specification", "gpu_directive=gres"),
    ("allocation failure: Requested node configuration is not available\n", "node configuration", "doctor"),
])  # fmt: skip
def test_what_slurm_refuses(site: Site, tmp_path: Path, said: str, message: str, hint: str) -> None:
    site.refuses(said)
    error = refused_by_slurm(tmp_path)
    assert error.message.startswith("Slurm would refuse the job: ") and message in error.message
    assert hint in error.hint


def test_nodes_out_of_service_make_a_job_wait(site: Site, tmp_path: Path) -> None:
    site.refuses("allocation failure: Requested node configuration is not available\n")
    site.answers["sinfo --all"] = answer(out=NODES.replace("pretend:4|idle", "pretend:4|drained"))
    (note,) = preflight(SPEC, tmp_path)
    assert note.id == "sbatch" and "4 of the nodes are out of service" in note.cause
    site.refuses("allocation failure: Requested partition configuration not available now\n")
    assert [one.id for one in preflight(SPEC, tmp_path)] == ["sbatch"]


def test_accounts_and_qos_are_explained(site: Site, tmp_path: Path) -> None:
    site.refuses("allocation failure: Invalid account or account/partition combination specified\n")
    error = refusal(tmp_path, asking(account="rampop"))
    assert error.message == "account 'rampop' is not one of yours on cluster site"
    assert error.hint == "did you mean rampup? known: rampup, root"
    nameless = replace(SPEC, cluster=replace(CLUSTER, account=None))
    assert refusal(tmp_path, nameless).hint == "--account, one of: rampup, root"
    assert "Invalid account" in refused_by_slurm(tmp_path, asking(account="root")).message, "known, yet refused"
    site.refuses("allocation failure: Invalid qos specification\n")
    assert refusal(tmp_path, asking(qos="hihg")).hint == "did you mean high? known: high, normal"
    site.answers["sacctmgr -nP"] = answer(1, err="You are not running a supported accounting_storage plugin\n")
    assert "Invalid qos" in refused_by_slurm(tmp_path, asking(qos="hihg")).message


def test_accounting_is_asked_only_when_slurm_complains(site: Site, tmp_path: Path) -> None:
    assert preflight(asking(account="anything"), tmp_path) == []
    assert "sacctmgr" not in site.calls


def test_inside_an_allocation_nobody_is_asked(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    (note,) = preflight(asking(nodes=2, partition="nope", time="90-0:0:0"), tmp_path)
    assert note.cause == "--partition, --time: without effect inside the allocation 7"
    assert refusal(tmp_path, asking(nodes=3)).message == "nodes is 3, the allocation 7 has 2"
    private = replace(SPEC, cluster=replace(CLUSTER, shared=["/usr"]))
    assert "runs-shared" in {note.id for note in preflight(private, tmp_path)}
    assert site.calls == []


# places ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A world of mounts below tmp_path."""
    (tmp_path / "mounts").write_text(
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
        "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n"
        f"28 27 0:25 / {tmp_path}/home rw shared:2 - nfs4 server:/home rw\n"
        f"29 28 0:26 / {tmp_path}/home/scratch\\040disk rw - tmpfs none rw\n"
        f"30 27 0:27 / {tmp_path}/work rw - xfs /dev/sdb rw\n"
        f"31 27 0:28 / {tmp_path}/work rw - lustre mds@tcp:/work rw\n"
        f"32 27 0:29 / {tmp_path}/fuse rw - fuse.glusterfs gl rw\n"
        f"33 27 0:30 / {tmp_path}/layer rw - fuse.fuse-overlayfs none rw\n"
    )
    monkeypatch.setattr(storage, "MOUNTS", tmp_path / "mounts")
    return tmp_path


@pytest.mark.parametrize(("place", "shared"), [
    ("home/me/runs", True),
    ("home", True),
    ("home/scratch disk/runs", False),
    ("homework", False),
    ("work/runs", True),
    ("fuse/runs", True),
    ("layer/runs", False),
    ("", False),
])  # fmt: skip
def test_shared_storage_is_known_by_its_type(mounted: Path, place: str, shared: bool) -> None:
    assert storage.is_shared(mounted / place, []) is shared
    assert storage.is_shared(mounted / place, [str(mounted)]) is True, "the profile knows better"


def test_links_lead_to_where_the_files_are(mounted: Path) -> None:
    (mounted / "home").mkdir()
    (mounted / "link").symlink_to(mounted / "home")
    assert storage.is_shared(mounted / "link" / "runs", []) and not storage.is_shared(mounted / "else" / "runs", [])
    assert storage.is_shared(mounted / "home" / "runs", [str(mounted / "link")])


def test_runs_that_other_machines_can_not_see_are_refused(site: Site, mounted: Path) -> None:
    spec = replace(SPEC, cluster=replace(CLUSTER, shared=["/usr"]))
    error = refusal(mounted / "runs", spec)
    assert "on a file system of type ext4, which other machines do not see" in error.message
    assert "RAMPUP_RUNS" in error.hint and f'shared = ["{mounted}/runs"]' in error.hint
    assert site.calls == []
    notes = preflight(replace(spec, cwd=str(mounted)), mounted / "home" / "runs")
    assert "shared-working" in {note.id for note in notes}


def test_software_and_data_are_only_noted(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, known = replace(CLUSTER, shared=[]), replace(CLUSTER, shared=["/"])
    assert [one.level for one in shared_storage.software(private, package=True)] == ["note", "note"]
    assert [one.level for one in shared_storage.software(private, package=False)] == ["note"]
    assert [one.level for one in shared_storage.software(known, package=True)] == ["ok", "ok"]
    recipe = RecipeInfo(name="mnist", about="", folder="/", engine="torch", entry="train:Mnist", data=("mnist",))
    training = replace(SPEC, kind="engine", recipe=recipe, cluster=private)
    monkeypatch.setattr(fetch, "folder", lambda name: mounted / "cache")
    assert [one.id for one in shared_storage.needed(training)] == ["shared-python", "shared-rampup", "shared-data"]
    monkeypatch.setattr(fetch, "folder", lambda name: mounted / "home" / "cache")
    assert [one.level for one in shared_storage.needed(training)] == ["note", "note", "ok"]


# doctor ---------------------------------------------------------------------------------------------------------------


def test_doctor_tells_what_the_site_has(site: Site, tmp_path: Path) -> None:
    found = {finding.id: finding for finding in slurm_survey.survey(CLUSTER, tmp_path)}
    assert {one.level for one in found.values()} == {"ok"}
    assert found["slurm"].about == "Slurm 22.05.8 answers"
    assert found["nodes"].about == (
        "partition normal: 4 nodes, at most 1-00:00:00; 8 CPUs, 6 GB, 4 GPUs (pretend) each"
    )
    assert found["partitions"].about == "other partitions: debug, long"
    assert found["accounts"].about == "your accounts: rampup, root; QOS: high, normal"
    assert found["sbatch"].about.endswith("it would start at 2026-11-16T05:26:07")


def test_doctor_tells_what_is_wrong(site: Site, tmp_path: Path) -> None:
    wrong = replace(CLUSTER, account="nope", partition="long", shared=[])
    site.refuses("allocation failure: Invalid account or account/partition combination specified\n")
    found = {finding.id: finding for finding in slurm_survey.survey(wrong, tmp_path)}
    assert {one.id for one in found.values() if one.level == "problem"} >= {"accounts", "account", "runs-shared"}
    assert found["nodes"].level == "note" and "2 of its 40 nodes" in found["nodes"].cause
    assert all(one.level == "ok" or (one.cause and one.remedy) for one in found.values())
    site.answers["scontrol ping"] = answer(1, "Slurmctld(primary) at vm is DOWN\n")
    assert [one.id for one in slurm_survey.survey(CLUSTER, tmp_path) if one.level == "problem"] == ["slurm"]
    site.answers["scontrol ping"] = answer(0, "Slurmctld(primary) at vm is UP\n")
    site.refuses("allocation failure: Invalid feature specification\n")
    problems = [one for one in slurm_survey.survey(CLUSTER, tmp_path) if one.level == "problem"]
    assert [(one.id, "Invalid feature" in one.cause) for one in problems] == [("sbatch", True)]


def test_doctor_leaves_this_machine_alone_for_a_cluster(site: Site, tmp_path: Path) -> None:
    here = {"cpus", "memory", "shm", "gpus", "bf16"}
    assert not here & {finding.id for finding in doctor("slurm", tmp_path)}
    assert here <= {finding.id for finding in doctor("local", tmp_path)}


@pytest.mark.parametrize(("partition", "settings", "words"), [
    ("normal", {}, "SIGTERM to all, SIGKILL 5 s later; back in the queue for at least 10 s"),
    ("normal", {"AuthInfo": "(null)"}, "SIGTERM to all, SIGKILL 5 s later; back in the queue for at least 120 s"),
    ("normal", {"JobRequeue": "0"}, "default is not to requeue"),
    ("normal", {"SlurmctldParameters": "preempt_send_user_signal"}, "the signal that the job asked for, or SIGTERM"),
    ("normal", {"PreemptType": "preempt/none"}, "none"),
    ("long", {}, "none"),
    ("debug", {}, "SIGTERM to the ranks, SIGKILL 20 s later; the job is over"),
])  # fmt: skip
def test_preemption_in_words(partition: str, settings: dict[str, str], words: str) -> None:
    site = {**slurm_site.read_settings(SETTINGS), **settings}
    assert words in slurm_survey.preemption(site, slurm_site.read_partitions(PARTITIONS)[partition], CLUSTER)


def test_preemption_without_requeue_or_with_grace() -> None:
    settings, normal = slurm_site.read_settings(SETTINGS), Partition("p", preempt_mode="REQUEUE", grace_s=20)
    assert "20 s later; if it has not ended by then, back" in slurm_survey.preemption(settings, normal, CLUSTER)
    stubborn = replace(CLUSTER, requeue=False)
    assert slurm_survey.preemption(settings, normal, stubborn).endswith("the profile says requeue = false")
    suspended = Partition("p", preempt_mode="GANG,SUSPEND")
    assert "goes on when its nodes are free" in slurm_survey.preemption(settings, suspended, CLUSTER)


def test_findings_of_a_good_request_are_all_ok(site: Site, tmp_path: Path) -> None:
    found: list[Finding] = list(slurm.request(SPEC, tmp_path))
    assert found and {one.level for one in found} == {"ok"}
