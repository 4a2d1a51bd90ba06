"""`on="spark"` on a real Spark with two executors: what comes back, what dies, and what is left."""

import ipaddress
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hostile import functions
from hostile.cases import FAILURES, RESULTS

import rampup
from rampup.errors import Refused
from rampup.rundir.files import RunDir

from .conftest import (
    ENDED_WITHIN_S,
    GONE_WITHIN_S,
    QUICK_JAVA,
    START_WITHIN_S,
    descendants_of,
    is_there,
    listening_of,
    processes_of,
    wait_for,
)
from .deaths import CAUSES, die

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def describe_rank() -> dict[str, str]:
    import os

    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    return {name: os.environ[name] for name in (*names, "CUDA_VISIBLE_DEVICES")}


def test_a_function_runs_as_the_tasks_of_one_stage(spark: Any) -> None:
    job = rampup.launch(describe_rank, np=2, gpus_per_node=1, on="spark", wait=False)
    found = job.result()
    assert found == {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "CUDA_VISIBLE_DEVICES": "7",
    }
    run = RunDir(job.dir)
    assert (run.attempt(1).facts["scheduler"], run.attempt(1).facts["launcher"]) == (
        "spark",
        "barrier",
    )
    assert processes_of(run.path) == []


def add_up() -> float:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(total)
    dist.destroy_process_group()
    return float(total.item())


def test_ranks_of_two_executors_join_by_torch_distributed(spark: Any) -> None:
    assert rampup.launch(add_up, np=2, on="spark") == 3.0


def test_a_session_of_another_thread_is_found(spark: Any) -> None:
    """Spark's own "active session" belongs to a thread."""
    found: list[Any] = []
    thread = threading.Thread(
        target=lambda: found.append(rampup.launch(describe_rank, gpus_per_node=1, on="spark"))
    )
    thread.start()
    thread.join()
    assert found and found[0]["WORLD_SIZE"] == "1"


def is_loopback(address: str) -> bool:
    found: Any = ipaddress.ip_address(address)
    return bool((getattr(found, "ipv4_mapped", None) or found).is_loopback)


def test_everything_of_the_session_listens_on_loopback(spark: Any) -> None:
    java = spark.sparkContext._gateway.proc.pid
    found = listening_of(java)
    assert found, "the driver and its executors listen"
    assert all(is_loopback(address) for address, _ in found), found


def list_secrets() -> list[str]:
    import os

    return [name for name in os.environ if "SECRET" in name or "SPARK_AUTH" in name]


def test_ranks_get_no_secret_of_spark(spark: Any) -> None:
    assert rampup.launch(list_secrets, np=2, on="spark") == []


@pytest.mark.parametrize("case", ["closure", "torch module"])
def test_a_hostile_function_that_returns(case: str, spark: Any) -> None:
    assert functions.launch(case, {"np": 2, "on": "spark"}) == RESULTS[case]


@pytest.mark.parametrize("case", ["odd exception", "kill -9"])
def test_a_hostile_function_that_fails(case: str, spark: Any) -> None:
    rank, kind, words = FAILURES[case]
    with pytest.raises(rampup.RunFailed) as caught:
        functions.launch(case, {"np": 2, "on": "spark"})
    assert (caught.value.rank, caught.value.type) == (rank, kind)
    assert words in str(caught.value)


@pytest.mark.parametrize("kind", CAUSES)
def test_after_a_death_nothing_is_left_and_the_cause_is_named(kind: str, spark: Any) -> None:
    assert die(kind).ended_s < ENDED_WITHIN_S


@pytest.mark.slow
def test_twenty_deaths(spark: Any) -> None:
    """Five of each kind, in an order that changes: about five minutes."""
    kinds = [*CAUSES] * 5
    random.shuffle(kinds)
    print("\n| death | run ended after | nothing left after | cause |\n| --- | --- | --- | --- |")
    for kind in kinds:
        ended_s, gone_s, cause = die(kind)
        print(f"| {kind} | {ended_s:.1f} s | {gone_s:.1f} s | {cause} |", flush=True)
        assert ended_s < ENDED_WITHIN_S


def test_more_ranks_than_slots_are_refused(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rampup.schedulers.spark import driver

    monkeypatch.setattr(driver, "SLOTS_WITHIN_S", 0.0)
    with pytest.raises(rampup.RunFailed, match=r"executors can run [012] tasks"):
        rampup.launch(add_up, np=3, on="spark")


def test_executors_that_do_not_see_the_run_are_named(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver hands out the hash of run.json: executors that read another one see another
    storage."""
    from rampup.schedulers.spark import driver

    monkeypatch.setattr(driver, "FILES_WITHIN_S", 0.0)
    usual = driver.Driver.make_order
    monkeypatch.setattr(
        driver.Driver, "make_order", lambda *words: {**usual(*words), "run_hash": "another"}
    )
    with pytest.raises(rampup.RunFailed, match=r"the executor on .* sees another .*run\.json"):
        rampup.launch(add_up, np=2, on="spark")


def count_starts() -> int:
    import os
    import time

    with open(f"{os.environ['RAMPUP_RUN_DIR']}/starts", "a") as file:
        file.write(os.environ["RANK"])
    time.sleep(0.5)
    if os.environ["RANK"] == "1":
        os._exit(7)
    time.sleep(60)
    return 0


def test_no_rank_is_started_a_second_time(spark: Any) -> None:
    """Spark begins a failed stage again by itself."""
    with pytest.raises(rampup.RunFailed, match="rank 1 exited with code 7") as caught:
        rampup.launch(count_starts, np=2, on="spark")
    run = rampup.attach(caught.value.run)
    assert sorted((run.dir / "starts").read_text()) == ["0", "1"]


def resume_after_a_kill(last: int) -> list[int]:
    import os

    import rampup

    run = rampup.init()
    state = run.resume() or {"seen": []}
    for step in range(run.step + 1, last + 1):
        state["seen"].append(step)
        run.save(state, step)
        if step == 3 and not run.step:
            run.finish()
            os._exit(85)
    run.finish()
    return state["seen"]


def fail_at_first() -> list[int]:
    import os

    import rampup

    run = rampup.init()
    state = run.resume() or {"total": 0}
    run.save({"total": state["total"] + 3}, run.step + 1)
    run.finish()
    if os.environ["RAMPUP_ATTEMPT"] == "1":
        raise ValueError("not yet")
    return [int(os.environ["RAMPUP_ATTEMPT"]), state["total"]]


def test_a_function_that_asks_for_it_is_started_again_and_resumes(spark: Any) -> None:
    job = rampup.launch(resume_after_a_kill, 5, on="spark", wait=False)
    assert job.result() == [1, 2, 3, 4, 5]
    assert len(RunDir(job.dir).attempt_numbers()) == 2


def test_a_run_of_this_session_is_resumed_in_it(spark: Any) -> None:
    job = rampup.launch(fail_at_first, on="spark", wait=False)
    with pytest.raises(rampup.RunFailed, match="not yet"):
        job.result()
    assert job.resume().result() == [2, 3]
    assert rampup.attach(job.id).result() == [2, 3]


def test_a_dataframe_becomes_parquet_that_the_ranks_read(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "numbers"
    spark.range(100).selectExpr("id as x", "array(float(id), float(2 * id)) as y").write.parquet(
        str(folder)
    )

    def read(folder: str) -> list[float]:
        from pathlib import Path

        import numpy as np

        import rampup
        from rampup.torch import Column, ParquetRows

        run = rampup.init()
        rows = ParquetRows(
            sorted(Path(folder).glob("*.parquet")),
            {"x": Column((), np.int64), "y": Column((2,))},
        )
        mine = np.arange(len(rows))[run.rank :: run.world_size]
        x, y = np.empty(len(mine), np.int64), np.empty((len(mine), 2), np.float32)
        rows.read(mine, (x, y))
        run.finish()
        return [len(rows), len(mine), float((y.sum(axis=1) - 3 * x).sum()), int(x.sum())]

    assert rampup.launch(read, str(folder), np=2, on="spark") == [100, 50, 0.0, 2450]


def test_without_gpus_in_the_session_or_a_place_it_is_refused(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rampup.schedulers.spark import session as sessions

    monkeypatch.setenv("CONDA_EXE", "/bin/true")  # a machine that has conda
    with pytest.raises(Refused, match="in a Spark executor"):
        rampup.launch(add_up, np=2, on="spark", env="conda:mine")
    monkeypatch.setattr(sessions, "find_active", lambda: None)
    with pytest.raises(Refused, match="no Spark session in this process"):
        rampup.launch(add_up, np=2, on="spark")
    assert not list(Path(os.environ["RAMPUP_RUNS"]).glob("*add_up-*/attempts/1/task-0-2"))


LAUNCHES = """
import time
import rampup

def endure(words):
    print(words, flush=True)
    time.sleep(300)

print("dir", rampup.launch(endure, "ready", np=2, on="spark", wait=False).dir)
"""


def test_commands_and_functions_run_in_a_session_of_their_own(java: None, cli: Any) -> None:
    """It takes half a minute: two JVMs, one after the other. The profile names the master."""
    profile = cli.cwd / ".rampup" / "clusters" / "spark.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text(
        'scheduler = "spark"\nlauncher = "barrier"\nspark_master = "local[2]"\nabout = "here"\n'
    )
    cli.env |= {"SPARK_LOCAL_IP": "127.0.0.1", **QUICK_JAVA}
    words = ("--on", "spark", "--tasks-per-node", "2", "--json")
    done = cli("run", *words, "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE")
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["state"] == "completed"
    logs = [RunDir(found["dir"]).attempt(1).rank_log(rank).read_text() for rank in (0, 1)]
    assert logs == ["rank 0 of 2\n", "rank 1 of 2\n"]
    program = [sys.executable, cli.script(LAUNCHES)]
    started = subprocess.run(
        program, cwd=cli.cwd, env=cli.env, check=True, stdout=subprocess.PIPE, text=True
    )
    run = RunDir(Path(started.stdout.split()[-1]))
    log = run.attempt(1).rank_log(0)
    wait_for(lambda: log.exists() and "ready" in log.read_text(), "the ranks run", START_WITHIN_S)
    cli("cancel", run.id)
    assert cli.json("show", run.id)["state"] == "cancelled"
    wait_for(lambda: not processes_of(run.path), "nothing is left", GONE_WITHIN_S)


DRIVES = """
import json, os, sys
from pyspark.sql import SparkSession
import rampup
from tests.spark.deaths import endure

builder = SparkSession.builder.master("local-cluster[2,1,512]")
for key, value in json.loads(sys.argv[1]).items():
    builder = builder.config(key, value)
session = builder.getOrCreate()
job = rampup.launch(endure, np=2, on="spark", wait=False)
print("dir", job.dir, session.sparkContext._gateway.proc.pid, flush=True)
sys.stdin.readline()
session.stop()
print("stopped", flush=True)
sys.stdin.readline()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_nothing_is_left_when_the_driver_or_its_session_ends(
    how: str, java: None, tmp_path: Path
) -> None:
    """Half a minute each: a session of its own."""
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
    }
    own = {"RAMPUP_RUNS": str(tmp_path / "runs"), "XDG_STATE_HOME": str(tmp_path)}
    own |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    own |= {"SPARK_WORKER_DIR": str(tmp_path / "work"), **QUICK_JAVA}
    driver = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", DRIVES, json.dumps(conf)],
        env={**os.environ, **own, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert driver.stdin is not None and driver.stdout is not None
    try:
        line = next(line for line in driver.stdout if line.startswith("dir "))
        run, java_pid = RunDir(Path(line.split()[1])), int(line.split()[2])
        began = [run.attempt(1).path / f"began-{rank}" for rank in (0, 1)]
        wait_for(lambda: all(path.exists() for path in began), "both ranks run", START_WITHIN_S)
        family = descendants_of(java_pid)
        since = time.monotonic()
        if how == "killed":
            driver.kill()
        else:
            driver.stdin.write("\n")
            driver.stdin.flush()
        wait_for(lambda: not processes_of(run.path), "no rank is left", GONE_WITHIN_S)
        ranks_s = time.monotonic() - since
        gone = family if how == "killed" else family[1:]
        wait_for(lambda: not any(is_there(pid) for pid in gone), "no JVM", GONE_WITHIN_S)
        print(
            f"{how}: no rank after {ranks_s:.1f} s, no JVM after {time.monotonic() - since:.1f} s"
        )
    finally:
        driver.kill()
        driver.communicate()
