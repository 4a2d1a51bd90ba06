"""The checks before a submission that ask Slurm itself, look at storage, and what `doctor` says of
a site."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from rampup.core.finding import Finding
from rampup.core.spec import RecipeInfo
from rampup.datasets import sets
from rampup.diagnose.doctor import doctor
from rampup.schedulers.slurm import check as slurm
from rampup.schedulers.slurm import site as slurm_site
from rampup.schedulers.slurm import storage
from rampup.schedulers.slurm import storage as shared_storage
from rampup.schedulers.slurm import survey as slurm_survey
from rampup.schedulers.slurm.site import Partition
from unit.schedulers.slurm_sites import (
    CLUSTER,
    NODES,
    PARTITIONS,
    SETTINGS,
    SPEC,
    Site,
    answer,
    asking,
    check,
    refusal,
    refused_by_slurm,
    standing_in,
)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    return standing_in(monkeypatch)


# Slurm itself -------------------------------------------------------------------------------------


def test_a_slurm_that_does_not_answer(site: Site, tmp_path: Path) -> None:
    stars = "*****************************************"
    down = f"Slurmctld(primary) at vm is DOWN\n{stars}\n** RESTORE SLURMCTLD DAEMON TO SERVICE **\n{stars}\n"
    site.answers["scontrol ping"] = answer(1, down)
    error = refused_by_slurm(tmp_path)
    assert error.exit_code == 4
    assert (
        error.message
        == "Slurm (cluster site) is not reachable from this machine: Slurmctld(primary) at vm is DOWN"
    )
    assert site.calls == ["scontrol"]
    site.answers["scontrol ping"] = answer(
        0, "Slurmctld(primary) at a is DOWN\nSlurmctld(backup) at b is UP\n"
    )
    assert check(SPEC, tmp_path) == []


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
    (note,) = check(SPEC, tmp_path)
    assert note.id == "sbatch" and "4 of the nodes are out of service" in note.cause
    site.refuses("allocation failure: Requested partition configuration not available now\n")
    assert [one.id for one in check(SPEC, tmp_path)] == ["sbatch"]


def test_accounts_and_qos_are_explained(site: Site, tmp_path: Path) -> None:
    site.refuses("allocation failure: Invalid account or account/partition combination specified\n")
    error = refusal(tmp_path, asking(account="rampop"))
    assert error.message == "account 'rampop' is not one of yours on cluster site"
    assert error.hint == "did you mean rampup? known: rampup, root"
    nameless = replace(SPEC, cluster=replace(CLUSTER, account=None))
    assert refusal(tmp_path, nameless).hint == "--account, one of: rampup, root"
    assert "Invalid account" in refused_by_slurm(tmp_path, asking(account="root")).message, (
        "known, yet refused"
    )
    site.refuses("allocation failure: Invalid qos specification\n")
    assert refusal(tmp_path, asking(qos="hihg")).hint == "did you mean high? known: high, normal"
    site.answers["sacctmgr -nP"] = answer(
        1, err="You are not running a supported accounting_storage plugin\n"
    )
    assert "Invalid qos" in refused_by_slurm(tmp_path, asking(qos="hihg")).message


def test_accounting_is_asked_only_when_slurm_complains(site: Site, tmp_path: Path) -> None:
    assert check(asking(account="anything"), tmp_path) == []
    assert "sacctmgr" not in site.calls


def test_inside_an_allocation_nobody_is_asked(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    (note,) = check(asking(nodes=2, partition="nope", time="90-0:0:0"), tmp_path)
    assert note.cause == "--partition, --time: no effect inside the allocation 7"
    assert refusal(tmp_path, asking(nodes=3)).message == "nodes is 3, the allocation 7 has 2"
    private = replace(SPEC, cluster=replace(CLUSTER, shared=["/usr"]))
    assert "runs-shared" in {note.id for note in check(private, tmp_path)}
    assert site.calls == []


# places -------------------------------------------------------------------------------------------


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
    assert storage.is_shared(mounted / "link" / "runs", []) and not storage.is_shared(
        mounted / "else" / "runs", []
    )
    assert storage.is_shared(mounted / "home" / "runs", [str(mounted / "link")])


def test_runs_that_other_machines_can_not_see_are_refused(site: Site, mounted: Path) -> None:
    spec = replace(SPEC, cluster=replace(CLUSTER, shared=["/usr"]))
    error = refusal(mounted / "runs", spec)
    assert "on a file system of type ext4, which other machines do not see" in error.message
    assert "RAMPUP_RUNS" in error.hint and f'shared = ["{mounted}/runs"]' in error.hint
    assert site.calls == []
    notes = check(replace(spec, cwd=str(mounted)), mounted / "home" / "runs")
    assert "shared-working" in {note.id for note in notes}


def test_software_and_data_are_only_noted(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, known = replace(CLUSTER, shared=[]), replace(CLUSTER, shared=["/"])
    assert [one.level for one in shared_storage.software(private, package=True)] == ["note", "note"]
    assert [one.level for one in shared_storage.software(private, package=False)] == ["note"]
    assert [one.level for one in shared_storage.software(known, package=True)] == ["ok", "ok"]
    recipe = RecipeInfo(
        name="mnist", about="", folder="/", engine="torch", entry="train:Mnist", data=("mnist",)
    )
    training = replace(SPEC, kind="engine", recipe=recipe, cluster=private)
    monkeypatch.setattr(sets, "folder", lambda name: mounted / "cache")
    assert [one.id for one in shared_storage.needed(training)] == [
        "shared-python",
        "shared-rampup",
        "shared-data",
    ]
    monkeypatch.setattr(sets, "folder", lambda name: mounted / "home" / "cache")
    assert [one.level for one in shared_storage.needed(training)] == ["note", "note", "ok"]


# doctor -------------------------------------------------------------------------------------------


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
    assert {one.id for one in found.values() if one.level == "problem"} >= {
        "accounts",
        "account",
        "runs-shared",
    }
    assert found["nodes"].level == "note" and "2 of its 40 nodes" in found["nodes"].cause
    assert all(one.level == "ok" or (one.cause and one.remedy) for one in found.values())
    site.answers["scontrol ping"] = answer(1, "Slurmctld(primary) at vm is DOWN\n")
    assert [one.id for one in slurm_survey.survey(CLUSTER, tmp_path) if one.level == "problem"] == [
        "slurm"
    ]
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
    assert words in slurm_survey.preemption(
        site, slurm_site.read_partitions(PARTITIONS)[partition], CLUSTER
    )


def test_preemption_without_requeue_or_with_grace() -> None:
    settings, normal = (
        slurm_site.read_settings(SETTINGS),
        Partition("p", preempt_mode="REQUEUE", grace_s=20),
    )
    assert "20 s later; if it has not ended by then, back" in slurm_survey.preemption(
        settings, normal, CLUSTER
    )
    stubborn = replace(CLUSTER, requeue=False)
    assert slurm_survey.preemption(settings, normal, stubborn).endswith(
        "the profile says requeue = false"
    )
    suspended = Partition("p", preempt_mode="GANG,SUSPEND")
    assert "continues when its nodes are free" in slurm_survey.preemption(
        settings, suspended, CLUSTER
    )


def test_findings_of_a_good_request_are_all_ok(site: Site, tmp_path: Path) -> None:
    found: list[Finding] = list(slurm.check_request(SPEC, tmp_path / "run", "", inside=False))
    assert found and {one.level for one in found} == {"ok"}
