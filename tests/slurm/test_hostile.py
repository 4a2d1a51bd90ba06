"""Hostile words on a real Slurm: they arrive in the ranks as they were typed, and sbatch reads
directives as we do."""

import json
import sys
from pathlib import Path
from typing import Any

from rampup.core.spec import Cluster, Resources, RunSpec
from rampup.schedulers.slurm.job_script import render

ARGUMENTS = [
    'it\'s "quoted" \\ twice\\\\',
    "$(touch pwned) `touch pwned` ${HOME} $0",
    "two\nlines\r\n\ttab\x1b[31m",
    "--nodes=9",
    "-rf",
    "",
    "#SBATCH --nodes=9",
    "; exit 3 && reboot | cat > pwned",
    "grüße 日本 😀 e\u0301 \u202e\u2028",
    "%j %% {run_dir} {0} * ? ~ !!",
    "\udcff\udc80",  # bytes that are no text
    "x" * 100_000,
]
COMMENTS = [
    "hello",
    "it's",
    'say "hi"',
    "back\\slash \\\\ twice",
    "a # b",
    "$(id) `id` $HOME",
    "grüße 日本 😀",
    "--nodes=3",
    "#SBATCH --nodes=3",
    "hetjob",
    " : ",
    "%j %%",
    "'\"'\"'",
    "x" * 1024,
]


def test_hostile_arguments_arrive_unchanged(cli: Any, sandbox: Any, tmp_path: Path) -> None:
    """All in one job of two ranks, in a directory whose name is hostile too."""
    script = cli.script(
        "import json, sys; print(json.dumps(sys.argv[1:]))", "it's $(a) 'script'.py"
    )
    odd = tmp_path / 'it\'s "100%j" $(id) grüße'
    words = (
        "--on",
        sandbox.name,
        "--nodes",
        "2",
        "--name",
        "../$(x)\n-",
        "--slurm",
        "comment=it's $(me)",
    )
    run = cli(
        "run", *words, "--", sys.executable, script, *ARGUMENTS, RAMPUP_RUNS=str(odd)
    ).stdout.strip()
    told = cli.json("wait", run, RAMPUP_RUNS=str(odd))
    assert told["state"] == "completed", told
    for rank in (0, 1):
        log = Path(told["dir"]) / "attempts" / "1" / f"rank-{rank}.log"
        assert json.loads(log.read_text()) == ARGUMENTS
    assert Path(told["dir"]).parent == odd
    assert [path.name for path in Path(told["dir"]).glob("slurm-*.log")]
    assert not list(cli.cwd.glob("pwned"))


def test_sbatch_reads_directives_as_they_were_given(sandbox: Any, tmp_path: Path) -> None:
    folder = tmp_path / "runs-abc234"
    folder.mkdir()
    cluster = Cluster(name=sandbox.name, scheduler="slurm", launcher="srun", account="rampup")
    for comment in COMMENTS:
        spec = RunSpec(
            name="hostile",
            kind="command",
            recipe=None,
            command=("true",),
            train={},
            resources=Resources(slurm=[f"comment={comment}", "hold"]),
            cluster=cluster,
            origins={},
            config_file=None,
            cwd="/",
        )
        (folder / "job.sh").write_text(render(spec, folder))
        job = sandbox.run("sbatch", "--parsable", str(folder / "job.sh")).strip()
        assert (
            sandbox.run("squeue", "--noheader", "-j", job, "-o", "%k|%D|%j")
            == f"{comment}|1|hostile-abc234\n"
        )
        sandbox.run("scancel", job)


def test_what_rampup_must_know_is_refused_before_anything_is_made(cli: Any, sandbox: Any) -> None:
    for word in ("ntasks-per-n=4", "output=/dev/null", "comment", "N=3"):
        done = cli("run", "--on", sandbox.name, "--slurm", word, "--", "true", check=3)
        assert "hint:" in done.stderr
    assert not cli.runs.exists() or not list(cli.runs.glob("2*"))
