"""What a run asks of Slurm, checked against what the site says of itself: each rule refuses its
case, and only that."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rampup.core import units as slurm_units
from rampup.schedulers.slurm import check as slurm
from rampup.schedulers.slurm import site as slurm_site
from rampup.schedulers.slurm.site import Associations, Nodes, Partition
from unit.schedulers.slurm_sites import (
    ASSOCIATIONS,
    CLUSTER,
    NODES,
    PARTITIONS,
    SETTINGS,
    Site,
    answer,
    asking,
    check,
    refusal,
    standing_in,
)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    return standing_in(monkeypatch)


# reading ------------------------------------------------------------------------------------------


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
    states = (
        "draining",
        "drained*",
        "maint",
        "idle*",
        "allocated+",
        "mixed-",
        "idle~",
        "powering_up",
        "reserved",
    )
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
    assert slurm_site.read_associations(ASSOCIATIONS) == Associations(
        {"rampup", "root"}, {"normal", "high"}
    )
    assert slurm_site.read_associations("") == Associations(set(), set())


@pytest.mark.parametrize(("text", "megabytes"), [
    ("391376K", 391376 / 1024), ("1506M", 1506), ("1.50G", 1536), ("2T", 2 * 1024**2), ("4000", 4000), ("16GB", 16384),
    ("", None), ("?", None), ("0", 0), ("G", None),
])  # fmt: skip
def test_memory_is_read(text: str, megabytes: float | None) -> None:
    assert slurm_units.parse_memory_mb(text) == megabytes


@pytest.mark.parametrize(("text", "seconds"), [
    ("01:26.920", 86.92), ("00:02:53", 173), ("1-02:03:04", 93_784), ("30:00", 1800), ("1-00:00:00", 86_400),
    ("UNLIMITED", None), ("Partition_Limit", None), ("", None), ("infinite", None),
])  # fmt: skip
def test_times_are_read(text: str, seconds: float | None) -> None:
    assert slurm_units.parse_clock_s(text) == seconds


# what a run asks for ------------------------------------------------------------------------------


def test_what_fits_passes_with_few_calls(site: Site, tmp_path: Path) -> None:
    fitting = asking(
        nodes=4, tasks_per_node=4, cpus_per_task=2, gpus_per_node=4, mem="6000M", time="1-00:00:00"
    )
    assert check(fitting, tmp_path) == []
    assert sorted(site.calls) == ["sbatch", "scontrol", "scontrol", "sinfo"]
    assert "#SBATCH --nodes=4\n" in site.script and f"--output={tmp_path}/" in site.script
    assert (
        check(
            asking(nodes=8, tasks_per_node=4, gpus_per_node=4, partition="long", time="90-0:0:0"),
            tmp_path,
        )
        == []
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
    assert (
        check(asking(partition="debug,long", time="2-0:0:0", nodes=20, tasks_per_node=64), tmp_path)
        == []
    )
    assert (
        "at most 1-00:00:00"
        in refusal(tmp_path, asking(partition="debug,normal", time="2-0:0:0")).message
    )


def test_a_qos_or_a_reservation_may_lift_the_limits(site: Site, tmp_path: Path) -> None:
    for special in ({"qos": "high"}, {"reservation": "course"}):
        (note,) = check(asking(time="2-0:0:0", **special), tmp_path)
        assert (note.id, note.level) == ("time", "note")


def test_the_default_partition_counts_when_none_is_named(site: Site, tmp_path: Path) -> None:
    nameless = replace(asking(time="2-0:0:0"), cluster=replace(CLUSTER, partition=None))
    assert "partition normal grants" in refusal(tmp_path, nameless).message
    site.answers["scontrol --all"] = answer(out=PARTITIONS.replace("Default=YES", "Default=NO"))
    assert refusal(tmp_path, nameless).hint == "--partition, one of: normal, debug, long"


@pytest.mark.parametrize(
    ("state", "level"), [("DOWN", "note"), ("DRAIN", "problem"), ("INACTIVE", "problem")]
)
def test_partitions_that_are_not_up(state: str, level: str) -> None:
    known = {"a": Partition("a", state, nodes=1), "b": Partition("b", nodes=1)}
    (found,) = slurm.judge_partitions({"partition": "a"}, known)
    assert found.level == level and found.remedy == "--partition, one of: b"
    assert list(slurm.judge_partitions({"partition": "b"}, known)) == []


def test_gpu_types(site: Site, tmp_path: Path) -> None:
    wanting = replace(
        asking(gpus_per_node=4, tasks_per_node=4), cluster=replace(CLUSTER, gpu_type="a10")
    )
    error = refusal(tmp_path, wanting)
    assert "no node has GPUs of type 'a10'" in error.message and "did you mean a100?" in error.hint
    elsewhere = refusal(tmp_path, replace(wanting, cluster=replace(CLUSTER, gpu_type="a100")))
    assert "has no GPUs of type a100" in elsewhere.message and "--partition long" in elsewhere.hint
    assert check(replace(wanting, cluster=replace(CLUSTER, gpu_type="pretend")), tmp_path) == []


def test_sites_that_hide_nodes_or_partitions_are_left_to_sbatch(site: Site, tmp_path: Path) -> None:
    site.answers["sinfo --all"] = answer()
    assert check(asking(cpus_per_task=900, gpus_per_node=1), tmp_path) == []
    site.answers["scontrol --all"] = answer(out="No partitions in the system\n")
    assert check(asking(nodes=900, partition="hidden"), tmp_path) == []
