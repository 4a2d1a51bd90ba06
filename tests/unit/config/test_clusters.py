"""Where profiles are looked for, which of them is meant, and what a person sees of them."""

import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rampup.cli.run import allocation
from rampup.config import clusters as load
from rampup.config.resolve import Request, resolve
from rampup.core.spec import Cluster
from rampup.errors import Refused

SLURM = 'scheduler = "slurm"\nlauncher = "srun"\n'


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The folders of a site, a user and a project, in a world of their own; we are below the
    project's top."""
    found = {
        "site": tmp_path / "etc",
        "user": tmp_path / "config" / "rampup" / "clusters",
        "project": tmp_path / "project" / ".rampup" / "clusters",
        "below": tmp_path / "project" / "src" / "deep",
    }
    for folder in (*found.values(), tmp_path / "project" / ".git"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(load, "SITE_WIDE", found["site"])
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(found["below"])
    return found


def write(folder: Path, name: str, text: str = "") -> Path:
    file = folder / f"{name}.toml"
    file.write_text(SLURM + text)
    return file


def test_the_more_special_folder_wins(places: dict[str, Path]) -> None:
    for where in ("site", "user", "project"):
        file = write(places[where], "archer2", f'about = "{where}"\n')
        assert load.load("archer2").about == where
        assert load.find("archer2").origin("about") == str(file)
        assert load.find("archer2").origin("partition") == "default"
    assert load.find("local").origin("about") == "local.toml"


def test_a_profile_and_a_run_with_a_key_of_before_are_read(places: dict[str, Path]) -> None:
    file = write(places["user"], "older", '[env]\nA = "1"\n')
    found = load.find("older")
    assert found.cluster.variables == {"A": "1"} and found.origin("variables") == str(file)
    kept = {"name": "site", "scheduler": "slurm", "launcher": "srun", "env": {"A": "2"}}
    assert load.of_run("site", kept, is_obeyed=True).variables == {"A": "2"}


def test_settings_tell_the_file(places: dict[str, Path]) -> None:
    file = write(places["project"], "ours", 'partition = "big"\n')
    spec = resolve(
        Request(command=("true",), on="ours", settings=("cluster.qos=high",)), Path.cwd()
    )
    assert spec.origins["cluster.partition"] == str(file)
    assert (spec.origins["cluster.qos"], spec.origins["cluster.account"]) == (
        "command line",
        "default",
    )


def test_a_project_ends_at_its_top(
    places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(places["project"], "ours")
    assert "ours" in load.names()
    (places["below"] / ".git").mkdir()  # another working tree inside
    assert "ours" not in load.names()
    alone = tmp_path / "alone" / "sub"
    alone.mkdir(parents=True)
    write_in = tmp_path / "alone" / load.IN_A_PROJECT
    write_in.mkdir(parents=True)
    write(write_in, "theirs")
    monkeypatch.chdir(alone)
    assert "theirs" not in load.names(), "without git only the directory itself"
    monkeypatch.chdir(alone.parent)
    assert "theirs" in load.names()


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("partion = 1", "unknown key 'partion'", "did you mean partition"),
        ('name = "x"', "unknown key 'name'", "also close: home"),
        ("nodes = [", "", ""),
        ("requeue = 3", "Expected `bool`, got `int`", "rampup cluster show"),
        ('needs = ["acount"]', "needs = 'acount'", "did you mean account"),
        ("srun = [1]", "Expected `str`, got `int`", "rampup cluster show"),
    ],
)
def test_a_wrong_profile_names_the_file(
    places: dict[str, Path], text: str, message: str, hint: str
) -> None:
    file = write(places["user"], "mine", text)
    with pytest.raises(Refused) as refused:
        load.load("mine")
    assert message in refused.value.message and str(file) in refused.value.message
    assert hint in refused.value.hint


def test_a_list_from_the_command_line_holds_words(places: dict[str, Path]) -> None:
    with pytest.raises(Refused, match="Expected `str`, got `int`"):
        resolve(Request(command=("true",), on="slurm", settings=("cluster.srun=[1]",)), Path.cwd())


# auto ---------------------------------------------------------------------------------------------


def called(monkeypatch: pytest.MonkeyPatch, host: str, full: str = "") -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    monkeypatch.setattr(socket, "getfqdn", lambda: full or host)


@pytest.mark.parametrize(
    ("host", "full", "cluster"),
    [
        ("b-an01", "b-an01.hpc2n.umu.se", "kebnekaise"),
        ("B-CN1234", "b-cn1234.hpc2n.umu.se", "kebnekaise"),
        ("rackham3", "", "snowy"),
        ("ln02", "", "archer2"),
        ("udc-ba36-36", "", "rivanna"),
    ],
)
def test_a_machine_is_known_by_its_name(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch, host: str, full: str, cluster: str
) -> None:
    called(monkeypatch, host, full)
    assert load.load("auto").name == cluster
    assert resolve(Request(command=("true",), on="auto"), Path.cwd()).cluster.name == cluster


def test_none_and_several_are_refused(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    called(monkeypatch, "laptop")
    with pytest.raises(Refused, match="no profile matches this machine: laptop") as refused:
        load.load("auto")
    assert "rampup cluster probe" in refused.value.hint
    write(places["user"], "one", 'hostnames = ["lap*"]\n')
    write(places["user"], "two", 'hostnames = ["desktop", "laptop"]\n')
    with pytest.raises(
        Refused, match="several profiles match this machine, laptop: one, two"
    ) as refused:
        load.load("auto")
    assert refused.value.hint == "--on one"


def test_a_profile_of_ones_own_comes_before_ours(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    called(monkeypatch, "b-an02")
    write(places["user"], "mine", 'hostnames = ["b-an*"]\n')
    assert load.load("auto").name == "mine"


def test_no_profile_is_called_auto(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    called(monkeypatch, "laptop")
    write(places["user"], "auto")
    assert "auto" not in load.names()
    with pytest.raises(Refused, match="no profile matches"):
        load.load("auto")


def test_the_full_name_is_asked_for_only_when_it_matters(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow() -> str:
        raise AssertionError("a name server was asked")

    monkeypatch.setattr(socket, "gethostname", lambda: "laptop")
    monkeypatch.setattr(socket, "getfqdn", slow)
    assert not load.fits(Cluster(name="x", hostnames=["login*", "b-an[0-9]"]))
    with pytest.raises(AssertionError):
        load.fits(Cluster(name="x", hostnames=["*.site.org"]))


def test_inside_an_allocation_the_fitting_profile_is_used(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    called(monkeypatch, "laptop")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert allocation() is None
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert allocation() == "slurm"
    write(places["user"], "one", 'hostnames = ["laptop"]\n')
    assert allocation() == "one"
    write(places["user"], "two", 'hostnames = ["laptop"]\n')
    assert allocation() == "slurm"


# the profile of a run -----------------------------------------------------------------------------


def test_a_run_keeps_what_its_profile_said(
    places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(places["project"], "ours", 'slurm_cluster = "b"\n')
    kept = msgspec.to_builtins(load.load("ours"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refused):
        load.load("ours")
    assert load.of_run("ours", kept, True).slurm_cluster == "b"
    write(places["user"], "ours", 'slurm_cluster = "c"\n')
    assert load.of_run("ours", kept, True).slurm_cluster == "b", (
        "another Slurm of that name knows nothing of the run"
    )
    write(places["user"], "ours", 'slurm_cluster = "b"\npartition = "new"\n')
    assert load.of_run("ours", kept, True).partition == "new", (
        "as it is today, where it is the same Slurm"
    )


@pytest.mark.parametrize(
    "kept",
    [
        {},
        {"name": "other"},
        {"name": "ours", "slurm_conf": "/gone/slurm.conf"},
        {"name": "ours", "new": 1},
    ],
)
def test_what_is_kept_of_something_else_does_not_help(
    places: dict[str, Path], kept: dict[str, Any]
) -> None:
    with pytest.raises(Refused, match="unknown cluster 'ours'"):
        load.of_run("ours", kept, True)


def test_what_somebody_elses_run_says_of_its_cluster_is_only_compared(
    places: dict[str, Path], tmp_path: Path
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("PluginDir=/evil\n")
    kept = {"name": "ours", "scheduler": "slurm", "launcher": "srun", "slurm_conf": str(conf)}
    with pytest.raises(load.NotKnownHere, match="cluster ours is not known here"):
        load.of_run("ours", kept, False)
    write(places["user"], "ours", 'slurm_cluster = "b"\n')
    with pytest.raises(load.NotKnownHere):
        load.of_run("ours", kept, False)
    write(places["user"], "ours", f'slurm_conf = "{conf}"\n')
    assert load.of_run("ours", kept, False).slurm_conf == str(conf), "the reader's own profile"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("given", ["slurm.conf", "."])
def test_ones_own_run_is_obeyed_where_nobody_else_can_write_its_slurm_conf(
    places: dict[str, Path], tmp_path: Path, given: str
) -> None:
    folder = tmp_path / "sandbox"
    folder.mkdir()
    (folder / "slurm.conf").write_text("")
    conf = str(folder / "slurm.conf")
    kept = {"name": "ours", "scheduler": "slurm", "launcher": "srun", "slurm_conf": conf}
    assert load.of_run("ours", kept, True).slurm_conf == conf
    os.chown(folder / given, 65534, 65534)
    with pytest.raises(load.NotKnownHere):
        load.of_run("ours", kept, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_profile_in_somebody_elses_project_does_not_count_for_readers(
    places: dict[str, Path],
) -> None:
    write(places["project"], "ours", 'slurm_cluster = "b"\n')
    kept = msgspec.to_builtins(load.load("ours"))
    assert load.of_run("ours", kept, False).slurm_cluster == "b"
    os.chown(places["project"], 65534, 65534)
    with pytest.raises(load.NotKnownHere):
        load.of_run("ours", kept, False)
    assert load.load("ours").slurm_cluster == "b", "who names it means it"


def test_a_damaged_profile_stops_only_who_asks_for_it(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(places["user"], "broken", "about = \n")
    write(places["user"], "newer", "key_of_tomorrow = 1\n")
    write(places["user"], "mine", f'hostnames = ["{socket.gethostname()}"]\n')
    assert load.load("auto").name == "mine"
    with pytest.raises(Refused, match="broken"):
        load.load("broken")


# what a person sees -------------------------------------------------------------------------------


@pytest.fixture
def mine(cli: Any, tmp_path: Path) -> Path:
    folder = tmp_path / "config" / "rampup" / "clusters"
    folder.mkdir(parents=True)
    cli.env["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    text = f'hostnames = ["{socket.gethostname()}"]\nabout = "mine"\n[variables]\nA = "1"\n[sbatch]\nexclusive = ""\n'
    return write(folder, "mine", text)


def test_list(cli: Any, mine: Path) -> None:
    write(mine.parent, "broken", "partion = 1\n")
    found = {row["name"]: row for row in cli.json("cluster", "list")}
    assert {"local", "slurm", "archer2"} <= found.keys()
    assert found["mine"] == {
        "name": "mine",
        "from": str(mine),
        "here": True,
        "scheduler": "slurm",
        "launcher": "srun",
        "about": "mine",
        "problem": None,
    }
    assert (found["local"]["from"], found["local"]["here"]) == ("rampup", False)
    assert "partion" in found["broken"]["problem"]
    text = cli("cluster", "list").stdout
    assert "can't be read: unknown key 'partion'" in text and " * " in text


def test_show(cli: Any, mine: Path) -> None:
    found = cli.json("cluster", "show", "mine")
    rows = {row["key"]: row for row in found["keys"]}
    assert (found["name"], found["file"]) == ("mine", str(mine))
    assert rows["launcher"] == {"key": "launcher", "value": "srun", "origin": str(mine)}
    assert rows["requeue"] == {"key": "requeue", "value": True, "origin": "default"}
    lines = [line.split() for line in cli("cluster", "show", "mine").stdout.splitlines()]
    assert ["variables.A", "1", str(mine)] in lines and [
        "sbatch.exclusive",
        '""',
        str(mine),
    ] in lines
    assert ["requeue", "true", "default"] in lines
    assert cli.json("cluster", "show", "auto")["name"] == "mine"
    assert "did you mean archer2" in cli("cluster", "show", "archer", check=3).stderr


def test_probe_without_slurm(cli: Any, mine: Path) -> None:
    told = cli("cluster", "probe", "--save", "x", check=4, PATH="/nowhere").stderr
    assert "there is no Slurm here" in told and "hint:" in told
    assert [file.name for file in mine.parent.iterdir()] == ["mine.toml"]


@pytest.mark.parametrize(
    "name", ["auto", "local", "../x", "a b", "", "$(id)", "x\ny", ".x", "x" * 80]
)
def test_names_that_no_profile_can_have(cli: Any, name: str) -> None:
    assert (
        "can't be the name of a profile" in cli("cluster", "probe", "--save", name, check=3).stderr
    )


def test_a_site_that_wants_an_account_says_so_before_slurm_is_asked(cli: Any) -> None:
    words = ("run", 'cluster.shared=["/"]', "--on", "kebnekaise")
    told = cli(*words, "--", "true", check=3, PATH="/usr/bin:/bin").stderr
    assert "kebnekaise requires --account" in told and "--account" in told
    told = cli(*words, "--account", "p1", "--", "true", check=3, PATH="/usr/bin:/bin").stderr
    assert "requires --time" in told
