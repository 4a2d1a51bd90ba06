"""DeepCam on a real Slurm: preempted and put back into the queue, its MLPerf log is one log."""

from pathlib import Path
from typing import Any

from deepcam_sets import make_calm_set
from mlperf_checker import COMMON, accepts, keys, read_lines, values, without

from rampup.export.mlperf import make_log
from rampup.rundir import mlperf
from rampup.rundir.files import RunDir

from .conftest import Sandbox

SETTINGS = (
    *("width=0.05", "batch_size=4", "eval_batch_size=1", "epochs=12", "lr=0.01", "warmup_steps=4"),
    *("target=1.1", "checkpoint.every=2steps"),
)


def test_a_requeued_run_has_one_log(cli: Any, sandbox: Sandbox, tmp_path: Path) -> None:
    make_calm_set(tmp_path / "calm", train=32)
    words = (f"data={tmp_path / 'calm'}", "--nodes", "2", "--cpus-per-task", "1")
    started = cli("run", "deepcam", *SETTINGS, *words, "--slurm", "exclusive", "--on", sandbox.name)
    run = RunDir(cli.json("show", started.stdout.strip())["dir"])
    sandbox.wait_for(lambda: any(run.checkpoints.glob("step-*")), "a checkpoint", 180)
    sandbox.sbatch("sleep 0.5", "--partition=urgent", "--nodes=4", "--exclusive")
    assert cli.json("wait", run.id)["state"] == "completed"
    first, second = run.attempts()
    assert first.facts["outcome"] == "again"
    event = second.event("resumed")
    assert event and event["step"] > 0
    log = second.mlperf_file.read_text()
    assert accepts(log, tmp_path)
    assert log == mlperf.write_log(make_log(run, has_ended=True))
    for key in COMMON:
        assert not accepts(without(log, key), tmp_path), key
    assert values(log, "number_of_nodes") == [2] and values(log, "number_of_ranks") == [2]
    assert keys(log).count("run_start") == keys(log).count("resumed") == 1
    start, stop = (line["time_ms"] for line in read_lines(log) if line["key"].startswith("run_s"))
    assert stop / 1000 > second.facts["started"] > start / 1000, "the time in the queue is in it"
    shown = cli("show", run.id).stdout
    assert "mlperf: accepted by the official checker (open division)" in shown
