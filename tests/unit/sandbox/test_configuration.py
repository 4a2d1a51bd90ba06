"""What the sandbox writes and whom it would kill, without starting a Slurm."""

import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from rampup.errors import Refused
from rampup.sandbox import configuration, layout, leftovers, machine
from rampup.sandbox.layout import Layout, Options
from rampup.sandbox.machine import Machine

HERE = Machine(user="ada", host="laptop", memory_mb=16_000, ports=(30_001, 30_002, 30_003, 30_004))
THERE = Layout("box", Path("/s/box"), Path("/tmp/rampup-x"), Path("/c/box.toml"))
TWO = Options(nodes=2, gpus_per_node=3)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def settings(text: str) -> dict[str, str]:
    """The single settings of a slurm.conf; nodes and partitions are lines of their own."""
    lines = [
        line
        for line in text.splitlines()
        if "=" in line and not line.startswith(("#", "NodeName", "Partition"))
    ]
    return dict(line.split("=", 1) for line in lines)


def partitions(text: str) -> dict[str, dict[str, str]]:
    lines = [line for line in text.splitlines() if line.startswith("PartitionName=")]
    tables = [dict(word.split("=", 1) for word in line.split()) for line in lines]
    return {table["PartitionName"]: table for table in tables}


# the texts ----------------------------------------------------------------------------------------


def test_nothing_of_the_machine_is_used() -> None:
    text = configuration.render_slurm_conf(THERE, TWO, HERE) + configuration.render_slurmdbd_conf(
        THERE, HERE
    )
    text += configuration.render_mariadb_conf(THERE, HERE)
    lines = [
        line.replace("=", " ").replace(",", " ")
        for line in text.splitlines()
        if not line.startswith("#")
    ]
    paths = [word for line in lines for word in line.split()]
    outside = [
        path
        for path in paths
        if path.startswith("/") and not path.startswith(("/s/box/", "/tmp/rampup-x/"))
    ]
    assert outside == ["/bin/true"]
    assert "skip-networking" in text and "tmpdir=/s/box/" in text


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1"])
def test_daemons_listen_on_the_address_of_the_hosts_name(address: str) -> None:
    """Slurm has no other way to say that it should not listen everywhere."""
    here = replace(HERE, own_address=address)
    found = settings(configuration.render_slurm_conf(THERE, TWO, here))
    assert found["CommunicationParameters"] == "NoCtldInAddrAny,NoInAddrAny"
    assert found["SlurmctldHost"] == f"laptop({address})"
    assert f"NodeAddr={address} " in configuration.render_slurm_conf(THERE, TWO, here)
    accounting = settings(configuration.render_slurmdbd_conf(THERE, here))
    assert accounting["CommunicationParameters"] == "NoInAddrAny"
    assert accounting["DbdAddr"] == found["AccountingStorageHost"] == address


def test_a_host_with_an_address_in_a_network_is_reached_on_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Daemons that listened at that address alone could not be reached at 127.0.0.1."""
    monkeypatch.setattr("socket.gethostbyname", lambda name: "10.0.0.5")
    assert machine.find_own_address() is None
    found = settings(configuration.render_slurm_conf(THERE, TWO, HERE))
    assert "CommunicationParameters" not in found
    assert found["SlurmctldHost"] == "laptop(127.0.0.1)"


def test_sockets_and_spools_are_where_paths_are_short() -> None:
    found = settings(configuration.render_slurm_conf(THERE, TWO, HERE))
    assert found["AuthInfo"].startswith("socket=/tmp/rampup-x/run/munge,")
    assert found["AccountingStoragePass"] == "/tmp/rampup-x/run/munge"
    assert found["SlurmdSpoolDir"] == "/tmp/rampup-x/spool/%n"


def test_every_node_has_its_port_memory_and_gpus() -> None:
    text = configuration.render_slurm_conf(THERE, TWO, HERE)
    node = next(line for line in text.splitlines() if line.startswith("NodeName"))
    assert "NodeName=node[1-2] " in node and " Port=[30003,30004] " in node
    assert (
        " RealMemory=8000 " in node and " CPUs=8 " in node and node.endswith("Gres=gpu:pretend:3")
    )
    assert (
        settings(text)["SlurmctldPort"] == "30001"
        and settings(text)["AccountingStoragePort"] == "30002"
    )
    assert configuration.render_gres_conf(THERE, TWO).splitlines() == [
        "NodeName=node1 Name=gpu Type=pretend File=/s/box/gpu/gpu[0-2]",
        "NodeName=node2 Name=gpu Type=pretend File=/s/box/gpu/gpu[0-2]",
    ]


def test_further_lines_come_last() -> None:
    text = configuration.render_slurm_conf(
        THERE, Options(nodes=2, further="PartitionName=gpu Nodes=node1\n"), HERE
    )
    assert text.endswith("# from --slurm-conf\nPartitionName=gpu Nodes=node1\n")
    assert "--slurm-conf" not in configuration.render_slurm_conf(THERE, TWO, HERE)


def test_without_gpus_there_are_none() -> None:
    assert "Gres=" not in configuration.render_slurm_conf(THERE, Options(nodes=2), HERE)
    assert "NodeName" not in configuration.render_gres_conf(THERE, Options(nodes=2))


def test_only_urgent_preempts() -> None:
    found = partitions(
        configuration.render_slurm_conf(THERE, Options(nodes=2, grace_time_s=9), HERE)
    )
    assert {name: table["PriorityTier"] for name, table in found.items() if name != "DEFAULT"} == {
        "normal": "1",
        "debug": "1",
        "long": "1",
        "urgent": "100",
    }
    assert [name for name, table in found.items() if table.get("GraceTime") == "9"] == [
        "normal",
        "debug",
        "long",
    ]
    assert [name for name, table in found.items() if table.get("Default") == "YES"] == ["normal"]


def test_options_reach_slurm_conf() -> None:
    usual = settings(configuration.render_slurm_conf(THERE, Options(nodes=2), HERE))
    assert (usual["JobRequeue"], usual["MaxArraySize"], usual["SlurmdTimeout"]) == (
        "1",
        "1001",
        "30",
    )
    assert usual["AccountingStorageType"] == "accounting_storage/slurmdbd"
    other = Options(nodes=2, requeue=False, max_array_size=20, node_timeout_s=6, accounting=False)
    found = settings(configuration.render_slurm_conf(THERE, other, HERE))
    assert (found["JobRequeue"], found["MaxArraySize"], found["SlurmdTimeout"]) == ("0", "20", "6")
    assert (
        found["AccountingStorageType"] == "accounting_storage/none"
        and "AccountingStorageHost" not in found
    )


def test_the_profile_is_toml() -> None:
    found = tomllib.loads(configuration.render_profile(THERE, TWO))
    assert found.pop("variables")["OMPI_MCA_btl"] == "tcp,self"
    assert found == {
        "about": "a sandbox: a real Slurm of 2 nodes on this machine",
        "scheduler": "slurm",
        "launcher": "srun",
        "slurm_conf": "/s/box/slurm.conf",
        "shared": ["/"],
        "partition": "normal",
        "debug_partition": "debug",
        "account": "rampup",
        "gpu_directive": "gpus-per-node",
        "max_nodes": 2,
        "max_tasks_per_node": 8,
        "requeue": True,
    }
    without = tomllib.loads(
        configuration.render_profile(THERE, Options(nodes=2, accounting=False, requeue=False))
    )
    assert "account" not in without and without["requeue"] is False


# names and places ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "Box", "1box", "a b", "../up", "a/b", "x" * 32, "a.b", "-n"])
def test_bad_names_are_refused(home: Path, name: str) -> None:
    with pytest.raises(Refused, match="can't be the name"):
        layout.find_layout(name)


def test_a_path_that_slurm_conf_can_not_hold_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "my state"))
    with pytest.raises(Refused, match="my state"):
        layout.refuse_unusable(layout.find_layout("box"))


def test_a_name_of_ours_or_of_the_user_is_not_taken(home: Path) -> None:
    with pytest.raises(Refused, match="'local' already"):
        layout.refuse_unusable(layout.find_layout("local"))
    profile = home / "config" / "rampup" / "clusters" / "archer2.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text('scheduler = "slurm"\nslurm_conf = "/etc/slurm/slurm.conf"\n')
    with pytest.raises(Refused, match="'archer2' already"):
        layout.refuse_unusable(layout.find_layout("archer2"))
    mine = layout.find_layout("box")
    mine.profile.write_text(configuration.render_profile(mine, TWO))
    layout.refuse_unusable(mine)


@pytest.mark.parametrize(("limit", "elsewhere"), [(1000, False), (107, True)])
def test_a_long_path_keeps_its_sockets_elsewhere(
    home: Path, monkeypatch: pytest.MonkeyPatch, limit: int, elsewhere: bool
) -> None:
    monkeypatch.setattr(layout, "SOCKET_PATH_BYTES", limit)
    monkeypatch.setenv("XDG_STATE_HOME", str(home / ("x" * 40)))
    made = layout.make_folders(layout.find_layout("box"), TWO)
    try:
        assert layout.find_layout("box") == made, "the record tells where"
        assert made.munge_socket.parent.is_dir() and (made.spool / "node2").is_dir()
        assert (
            made.short.parent == Path("/tmp")
        ) is elsewhere and made.short.stat().st_mode & 0o077 == 0
    finally:
        shutil.rmtree(made.short)


# the machine --------------------------------------------------------------------------------------


def test_ports_are_held_until_the_daemons_have_them() -> None:
    with machine.reserve_ports(40) as mine, machine.reserve_ports(40) as others:
        assert len({*mine, *others}) == 80
        assert all(30_000 <= port < 32_768 for port in mine)
        with socket.socket() as daemon:
            daemon.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Slurm's do
            daemon.bind(("", mine[0]))
            daemon.listen()


def test_only_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "SYSTEM_PROGRAMS", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused) as nothing:
        machine.check_packages(Options())
    assert nothing.value.hint == "apt-get install slurm-wlm munge slurmdbd mariadb-server"
    for name in (
        "slurmctld",
        "slurmd",
        "slurmstepd",
        *machine.CLIENTS,
        "mariadbd",
        "mariadb-install-db",
    ):
        (tmp_path / name).touch(mode=0o755)
    with pytest.raises(Refused) as some:
        machine.check_packages(Options())
    assert (
        some.value.hint == "apt-get install munge slurmdbd"
        and "munged, slurmdbd" in some.value.message
    )
    (tmp_path / "munged").touch(mode=0o755)
    machine.check_packages(Options(accounting=False))


def test_the_environment_is_this_sandbox_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "SLURM_CONF",
        "SLURM_JOB_ID",
        "SBATCH_PARTITION",
        "SQUEUE_FORMAT",
        "SACCT_FORMAT",
        "MYSQL_HOST",
    ):
        monkeypatch.setenv(name, "elsewhere")
    found = machine.make_environment(THERE)
    assert "elsewhere" not in found.values()
    assert (
        found["SLURM_CONF"] == "/s/box/slurm.conf"
        and found["MYSQL_UNIX_PORT"] == "/tmp/rampup-x/run/mariadb"
    )
    assert "/usr/sbin" in found["PATH"].split(":")


# whose process is it ------------------------------------------------------------------------------


@pytest.fixture
def box(tmp_path: Path) -> Layout:
    return Layout("box", tmp_path / "box", tmp_path / "box", tmp_path / "box.toml")


def started(
    name: str, folder: Path, *arguments: str, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of that name that waits; /bin/sh by another name."""
    program = folder / name
    program.symlink_to("/bin/sh")
    words = [str(program), "-c", "echo; read line", name, *arguments]
    with subprocess.Popen(
        words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        # only now its words can be read in /proc
        assert process.stdout is not None and process.stdout.readline()
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("name", "argument", "environment", "belongs"),
    [
        ("slurmd", "{box}/slurm.conf", {}, True),
        ("slurmdbd", "", {"SLURM_CONF": "{box}/slurm.conf"}, True),
        ("slurmd", "{box}2/slurm.conf", {}, False),
        ("slurmctld", "/etc/slurm/slurm.conf", {}, False),
        ("train", "", {"SLURM_CONF": "{box}/slurm.conf", "SLURMD_NODENAME": "node1"}, True),
        ("train", "", {"SLURM_CONF": "/etc/slurm/slurm.conf", "SLURMD_NODENAME": "node1"}, False),
        ("srun", "", {"SLURM_CONF": "{box}/slurm.conf"}, True),
        ("srun", "", {}, False),
        ("vim", "{box}/slurm.conf", {"SLURM_CONF": "{box}/slurm.conf"}, False),
        ("tail", "{box}/log/slurmctld.log", {}, False),
    ],
)
def test_only_processes_of_the_sandbox_are_found(
    box: Layout,
    tmp_path: Path,
    name: str,
    argument: str,
    environment: dict[str, str],
    belongs: bool,
) -> None:
    filled = {key: value.format(box=box.directory) for key, value in environment.items()}
    for process in started(name, tmp_path, argument.format(box=box.directory), **filled):
        assert (process.pid in leftovers.find_processes(box)) is belongs


def test_children_belong_to_their_parents_and_nodes_are_told_apart(
    box: Layout, tmp_path: Path
) -> None:
    child = "import subprocess; subprocess.Popen(['sleep', '100'], env={}); input()"
    env = {"SLURM_CONF": str(box.slurm_conf), "SLURMD_NODENAME": "node2"}
    with subprocess.Popen([sys.executable, "-c", child], env=env, stdin=subprocess.PIPE) as task:
        while len(found := leftovers.find_processes(box, "node2")) < 2:
            assert task.poll() is None
        assert task.pid in found and leftovers.find_processes(box, "node1") == set()
        leftovers.end_all(box)
        assert leftovers.find_processes(box) == set()
