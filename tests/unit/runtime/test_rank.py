"""rank.py as a program: who is missing or odd is named within seconds, and nobody waits for
ever."""

import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rampup import rank
from rampup.rundir import files as rundir
from rampup.rundir.files import RunDir
from rampup.rundir.records import write_json


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / "20260101-000000-test-aaaaaa")
    argv = [
        sys.executable,
        "-c",
        "import os; print(os.environ['RANK'], os.environ['MASTER_ADDR'], os.getcwd())",
    ]
    config = {"argv": argv, "cwd": str(tmp_path), "resources": {"nodes": 1, "tasks_per_node": 3}}
    with rundir.create_run(made.path, {"id": made.id}) as hidden:
        write_json(hidden.config_file, config)
    made.claim_attempt()
    return made


def start(run: RunDir, number: int, *options: str, **env: str) -> subprocess.Popen[str]:
    words = [
        f"--rank={number}",
        f"--local-rank={number}",
        "--world-size=3",
        "--local-world-size=3",
        f"--node=node{number}",
    ]
    argv = [
        sys.executable,
        rank.__file__,
        str(run.path),
        "--attempt=1",
        "--meet-within=20",
        *words,
        *options,
    ]
    return subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=env or None)


def end(ranks: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    said = [process.communicate(timeout=45)[1] for process in ranks]
    return [(process.returncode, words) for process, words in zip(ranks, said, strict=True)]


def test_all_meet_and_become_the_program(run: RunDir, tmp_path: Path) -> None:
    assert [code for code, _ in end([start(run, number) for number in (2, 1, 0)])] == [0, 0, 0]
    for number in range(3):
        assert run.attempt(1).rank_log(number).read_text() == f"{number} 127.0.0.1 {tmp_path}\n"


def test_a_missing_rank_is_named_on_every_other(run: RunDir) -> None:
    begun = time.monotonic()
    ended = end([start(run, number, "--meet-within=4") for number in (0, 2)])
    assert time.monotonic() - begun < 30
    for code, words in ended:
        assert code == rank.NOT_READY
        assert "rank 1 never connected" in words and "2 on node2" in words
    assert "rank 1 never connected" in run.attempt(1).errors()[0]["message"]


def test_a_rank_without_rank_0_gives_up(run: RunDir) -> None:
    ((code, words),) = end([start(run, 1, "--meet-within=1.5")])
    assert code == rank.NOT_READY
    assert (
        "can't reach rank 0 at 127.0.0.1" in words and "node1" in words and "ports 12000" in words
    )


def test_a_rank_with_other_settings_is_named(run: RunDir, tmp_path: Path) -> None:
    other = RunDir(tmp_path / "elsewhere" / run.path.name)
    other.path.mkdir(parents=True)
    write_json(other.config_file, {**run.config, "train": {"lr": 2}})
    other.key_file.write_bytes(run.key_file.read_bytes())
    other.claim_attempt()
    port = rank.first_port(f"{run.path}/1", 0)
    ranks = [start(run, 0), start(run, 1)]
    # the same ports, another config.json: what a node sees whose file system lags behind
    text = (
        Path(rank.__file__)
        .read_text()
        .replace("port = first_port(", f"port = {port} or first_port(")
    )
    (tmp_path / "rank.py").write_text(text)
    argv = [
        sys.executable,
        str(tmp_path / "rank.py"),
        str(other.path),
        "--attempt=1",
        "--meet-within=20",
    ]
    words = ["--rank=2", "--local-rank=2", "--world-size=3", "--local-world-size=3", "--node=node2"]
    ranks.append(subprocess.Popen([*argv, *words], stderr=subprocess.PIPE, text=True))
    for code, said in end(ranks):
        assert code == rank.NOT_READY
        assert "rank 2 on node node2 has different settings" in said


def test_a_node_that_does_not_see_the_run_is_named(run: RunDir) -> None:
    right = hashlib.sha256(run.run_file.read_bytes()).hexdigest()
    ((code, words),) = end([start(run, 1, "--run-hash=0000", "--files-within=0.5")])
    assert code == rank.NOT_READY
    assert "node node1 sees another" in words and "RAMPUP_RUNS" in words
    run.run_file.unlink()
    ((code, words),) = end([start(run, 1, f"--run-hash={right}", "--files-within=0.5")])
    assert "node node1 can't read" in words


def test_a_wrong_number_of_tasks_names_the_directive(run: RunDir) -> None:
    ((code, words),) = end([start(run, 0, "--world-size=2")])
    assert code == rank.NOT_READY
    assert "2 tasks were started, the run has 3 ranks" in words and "--ntasks-per-node=3" in words


def test_strangers_at_the_door_do_no_harm(run: RunDir) -> None:
    import socket

    first = start(run, 0)
    place = ("127.0.0.1", rank.first_port(f"{run.path}/1", 0) + rank.PORTS_IN_BLOCK - 1)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(place, timeout=1) as knock:
                knock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            break
        except OSError:
            time.sleep(0.02)
    assert [code for code, _ in end([first, start(run, 1), start(run, 2)])] == [0, 0, 0]


@pytest.mark.parametrize(("number", "place"), [(0, 0), (0, rank.PORTS_IN_BLOCK - 1), (1, 2)])
def test_a_port_that_is_taken_means_the_next_block(run: RunDir, number: int, place: int) -> None:
    """Those of torch and of the meeting on the first rank, that of TensorFlow on each."""
    import socket

    with socket.socket() as other:
        other.bind(("", rank.first_port(f"{run.path}/1", 0) + place))
        other.listen()
        ((code, words),) = end([start(run, number)])
    assert code == rank.PORT_TAKEN and "is taken" in words
    assert run.attempt(1).port_taken_file.exists()


def test_slurm_tells_a_task_who_it_is(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = {
        "SLURM_PROCID": "3",
        "SLURM_LOCALID": "1",
        "SLURM_NTASKS": "4",
        "SLURM_NNODES": "2",
        "SLURM_NODEID": "1",
    }
    for name, value in {**slurm, "SLURMD_NODENAME": "gpu7"}.items():
        monkeypatch.setenv(name, value)
    found = rank.parse_options(["/run", "--attempt=2"])
    assert (found.rank, found.local_rank, found.world_size, found.local_world_size) == (3, 1, 4, 2)
    assert (found.node_rank, found.node, found.attempt) == (1, "gpu7", 2)


def test_tensorflow_finds_each_rank_once() -> None:
    found = json.loads(
        rank.build_tf_config(["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2"], 3, 12000)
    )
    assert found["cluster"]["worker"] == [
        "10.0.0.1:12001",
        "10.0.0.1:12002",
        "10.0.0.2:12001",
        "10.0.0.2:12002",
    ]
    assert found["task"] == {"type": "worker", "index": 3}
    assert rank.build_tf_config(["10.0.0.1"] * 15, 3, 12000) == "", (
        "a block has no ports for so many"
    )
