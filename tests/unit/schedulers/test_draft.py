"""What `cluster probe` makes of sites that no sandbox can be. tests/slurm has a real one.

A stand-in takes the place of `sbatch --test-only`: it refuses what a test says.
"""

import socket
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rampup.core.spec import Cluster
from rampup.schedulers.slurm import check as slurm
from rampup.schedulers.slurm import draft as slurm_draft
from rampup.schedulers.slurm import site as slurm_site
from rampup.schedulers.slurm.draft import Site, draft, pattern_of
from rampup.schedulers.slurm.site import Associations, Host
from unit.schedulers.slurm_sites import ASSOCIATIONS, NODES, PARTITIONS, SETTINGS

THERE = [Host("10.0.0.1", 1), Host("10.0.0.2", 2)]
SITE = Site(
    slurm_site.read_partitions(PARTITIONS),
    slurm_site.read_nodes(NODES),
    THERE,
    slurm_site.read_settings(SETTINGS),
    slurm_site.read_associations(ASSOCIATIONS),
    ["pmi2", "pmix"],
)
Drafted = Callable[..., dict[str, Any]]


@pytest.fixture
def drafted(monkeypatch: pytest.MonkeyPatch) -> Drafted:
    """The draft for a site, of which sbatch refuses the scripts that have one of these words."""

    def make(site: Site = SITE, refuses: tuple[str, ...] = ()) -> dict[str, Any]:
        def trial(cluster: Cluster, script: str) -> subprocess.CompletedProcess[str]:
            found = [word for word in refuses if word in script]
            return subprocess.CompletedProcess(
                [], 1 if found else 0, "", f"sbatch: error: no {''.join(found)}\n"
            )

        monkeypatch.delenv("SLURM_CONF", raising=False)
        monkeypatch.setattr(socket, "gethostname", lambda: "login2.site.org")
        monkeypatch.setattr(slurm_site, "check_that_it_answers", lambda cluster: None)
        monkeypatch.setattr(slurm_draft, "look", lambda cluster: site)
        monkeypatch.setattr(slurm, "run_trial", trial)
        text = draft()
        table = tomllib.loads(text)
        msgspec.convert({"name": "x", **table}, Cluster)
        return {**table, "text": text}

    return make


def test_what_is_there_is_told(drafted: Drafted) -> None:
    found = drafted()
    assert (found["partition"], found["debug_partition"]) == ("normal", "debug")
    assert found["gpu_directive"] == "gpus-per-node"
    assert (found["hostnames"], found["hint"]) == (["login[0-9]*.site.org"], "nomultithread")
    for words in (
        "# another partition: long, 40 nodes, no time limit; 64 CPUs, 250 GB each; 128 CPUs, 500 GB, 4 GPUs (a100)",
        "srun --mpi=list: pmi2, pmix; for programs of MPI: --launcher pmix",
        "# account: one of rampup, root",
        "# qos: one of high, normal",
        "# preemption in normal: SIGTERM to all",
        '# shared = ["/scratch"]',
    ):
        assert words in found["text"]
    assert not {"account", "shared", "slurm_conf", "requeue", "gpu_type", "qos"} & found.keys()


def test_the_only_account_is_taken(drafted: Drafted) -> None:
    assert drafted(SITE._replace(known=Associations({"p1"}, set())))["account"] == "p1"


def test_a_site_that_refuses_requeueing(drafted: Drafted) -> None:
    found = drafted(refuses=("--requeue\n",))
    assert (
        found["requeue"] is False
        and "sbatch refuses --requeue: Slurm would refuse" in found["text"]
    )


def test_a_default_against_requeueing_is_no_refusal(drafted: Drafted) -> None:
    assert drafted(SITE._replace(settings={**SITE.settings, "JobRequeue": "0"}))["requeue"] is True


def test_the_directive_that_is_taken(drafted: Drafted) -> None:
    assert drafted(refuses=("--gpus-per-node", "--gpus="))["gpu_directive"] == "gres"
    found = drafted(refuses=("--gpus-per-node", "--gpus=", "--gres"))
    assert (
        found["gpu_directive"] == "gpus-per-node"
        and "none was taken: Slurm would refuse" in found["text"]
    )


def test_of_several_types_the_most_frequent(drafted: Drafted) -> None:
    nodes = slurm_site.read_nodes(
        "normal|2|8|6025|gpu:t4:2|idle\nnormal|3|8|6025|gpu:a100:4|idle\n"
    )
    found = drafted(SITE._replace(nodes=nodes))
    assert found["gpu_type"] == "a100" and "all types in normal: a100, t4" in found["text"]


def test_gpus_in_another_partition_are_named(drafted: Drafted) -> None:
    nodes = slurm_site.read_nodes("normal|2|8|6025|(null)|idle\nlong|3|8|6025|gpu:4|idle\n")
    found = drafted(SITE._replace(nodes=nodes))
    assert (
        "GPUs are in other partitions: --partition long" in found["text"]
        and found["partition"] == "normal"
    )
    assert "gpu_directive" not in drafted(SITE._replace(nodes=nodes[:1]))


def test_no_default_partition(drafted: Drafted) -> None:
    partitions = {name: one._replace(default=False) for name, one in SITE.partitions.items()}
    assert drafted(SITE._replace(partitions=partitions))["partition"] == "long", "the largest"
    assert (
        "# partition: Slurm shows none" in drafted(SITE._replace(partitions={}, nodes=[]))["text"]
    )


def test_a_queue_for_trials_must_take_our_jobs(drafted: Drafted) -> None:
    assert "debug_partition" not in drafted(refuses=("--partition=debug",))


def test_a_refusal_of_everything_is_told(drafted: Drafted) -> None:
    assert (
        "# sbatch --test-only refuses a job with one rank: Slurm would refuse"
        in drafted(refuses=("#!",))["text"]
    )


@pytest.mark.parametrize(
    ("host", "pattern"),
    [("login2", "login[0-9]*"), ("b-an01.site.org", "b-an[0-9]*.site.org"), ("vm", "vm")],
)
def test_login_nodes_are_several(host: str, pattern: str) -> None:
    assert pattern_of(host) == pattern


def test_types_of_mpi_wherever_srun_tells_them(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n"
    for out, err in ((said, ""), ("", f"srun: {said}")):
        done = subprocess.CompletedProcess([], 0, out, err)
        monkeypatch.setattr(slurm_site, "call", lambda cluster, argv, timeout_s, done=done: done)
        assert slurm_site.mpi_types(Cluster(name="x")) == ["pmix", "pmi2", "pmix_v4"]


def test_where_nodes_are() -> None:
    line = "NodeName=node1 Arch=x86_64 CoresPerSocket=8 Gres=(null) NodeAddr=127.0.0.1 ThreadsPerCore=2 Weight=1\n"
    assert slurm_site.read_hosts(line + "no node at all\n") == [Host("127.0.0.1", 2)]


def test_a_saved_draft_is_not_lost(cli: Any, tmp_path: Path) -> None:
    file = tmp_path / "config" / "rampup" / "clusters" / "mine.toml"
    file.parent.mkdir(parents=True)
    file.write_text("about = 'dear to me'\n")
    told = cli(
        "cluster", "probe", "--save", "mine", check=3, XDG_CONFIG_HOME=str(tmp_path / "config")
    ).stderr
    assert "profile mine exists already" in told and "--force" in told
    assert file.read_text() == "about = 'dear to me'\n"
