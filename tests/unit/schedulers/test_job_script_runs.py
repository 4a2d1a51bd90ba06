"""The job script as it runs: a real bash, and stand-ins for the programs of Slurm."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unit.job_scripts import make_spec, render

TOOLS = "bash cut date head mkdir mv rm sed sha256sum sleep touch"
SCONTROL = """
case "$2" in
  hostnames) printf 'node7\\nnode8\\n' ;;
  node) echo "NodeName=$3 Arch=x86_64"; echo "   NodeAddr=10.1.2.3 NodeHostName=$3 Version=22" ;;
esac
"""


class Node:
    """A compute node whose srun, scontrol and getent do as they are told; nothing else is on its
    PATH."""

    def __init__(self, folder: Path) -> None:
        self.run_dir, self.bin = folder / "runs-abc234", folder / "bin"
        self.run_dir.mkdir()
        self.bin.mkdir()
        (self.run_dir / "run.json").write_text("{}")
        for tool in TOOLS.split():
            (self.bin / tool).symlink_to(shutil.which(tool) or "")
        self.program("srun", 'printf "%s\\n" "$@" > "$TOLD"')
        self.program("scontrol", SCONTROL)
        self.program("getent", "exit 0")
        self.env = {
            "PATH": str(self.bin),
            "TOLD": str(folder / "srun-told"),
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NODELIST": "node[7-8]",
            "SLURMD_NODENAME": "node7",
            "RUN": str(self.run_dir),
        }

    def program(self, name: str, text: str) -> None:
        (self.bin / name).unlink(missing_ok=True)
        (self.bin / name).write_text(f"#!{shutil.which('bash')}\n{text}\n")
        (self.bin / name).chmod(0o755)

    def says(self, of_the_job: str) -> None:
        """What scontrol tells of the job; a requeue would be refused."""
        self.program(
            "scontrol",
            SCONTROL.replace(
                "esac", f"  job) echo 'JobId=4711 {of_the_job}' ;;\n  *) exit 1 ;;\nesac"
            ),
        )

    def start(self, **profile: Any) -> subprocess.Popen[str]:
        script = self.run_dir / "job.sh"
        script.write_text(render(make_spec({"nodes": 2}, **profile), self.run_dir, sys.executable))
        # exec: the script's pid is the one that SLURM_TASK_PID names in a batch job
        argv = ["bash", "-c", 'SLURM_TASK_PID=${BATCH:+$$} exec bash "$0"', str(script)]
        return subprocess.Popen(
            argv, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, **profile: Any) -> tuple[int, str]:
        """Exit code and stderr."""
        started = self.start(**profile)
        _, err = started.communicate(timeout=45)
        return started.returncode, err

    def facts(self, attempt: int = 1) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            (self.run_dir / "attempts" / str(attempt) / "attempt.json").read_text()
        )
        return found

    @property
    def told(self) -> list[str]:
        """What srun was told."""
        return Path(self.env["TOLD"]).read_text().splitlines()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_run_that_ends_well(node: Node) -> None:
    assert node.run() == (0, "")
    facts = node.facts()
    assert (facts["outcome"], facts["exit_code"], facts["job"], facts["host"]) == (
        "completed",
        0,
        "4711",
        "node7",
    )
    assert facts["nodes"] == "node[7-8]" and facts["world_size"] == 2
    assert facts["started"] <= facts["ended"] <= time.time() + 1
    assert {"--master-addr=node7", "--nodelist=node7", "--port-retry=0", "--attempt=1"} <= set(
        node.told
    )
    assert (
        f"--run-hash={'44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a'}"
        in node.told
    )


def test_the_exit_code_of_the_ranks_is_the_jobs_own(node: Node) -> None:
    node.program("srun", "exit 3")
    assert node.run()[0] == 3
    assert (node.facts()["outcome"], node.facts()["exit_code"]) == ("failed", 3)


ASKS = 'echo asked > "$RUN"/attempts/1/again; exit 0'


@pytest.mark.parametrize(("ranks", "code"), [("exit 0", 0), ("exit 3", 3), (ASKS, 0)])
def test_ranks_that_obey_before_the_shell_hears_of_it_are_stopped(
    node: Node, ranks: str, code: int
) -> None:
    node.program("srun", ranks)
    node.says("JobState=COMPLETING")
    assert node.run()[0] == code
    assert (node.facts()["outcome"], node.facts()["why"]) == ("stopped", "ended")


@pytest.mark.parametrize("batch", ["", "yes"])
@pytest.mark.parametrize("remembered", ["PreemptTime=2026-01-01T00:00:00", "Restarts=1"])
def test_a_good_end_counts_whatever_slurm_remembers_of_earlier(
    node: Node, batch: str, remembered: str
) -> None:
    """A job that was suspended once and went on keeps its PreemptTime."""
    node.env["BATCH"] = batch
    node.says(f"JobState=RUNNING {remembered}")
    assert node.run()[0] == 0
    assert (node.facts()["outcome"], node.facts()["why"]) == ("completed", "")


def test_an_srun_that_is_killed_is_a_failure(node: Node) -> None:
    node.program("srun", "kill -KILL $$")
    assert node.run()[0] == 137
    assert (node.facts()["outcome"], node.facts()["exit_code"]) == ("failed", 137)


def test_a_node_without_srun_is_a_failure(node: Node) -> None:
    (node.bin / "srun").unlink()
    assert node.run()[0] == 127
    assert node.facts()["outcome"] == "failed"


@pytest.mark.parametrize("nodes", ["r1i[0-3]n[1,2]", "gpu[01]-a[2-3]", "node7"])
def test_lists_of_nodes_are_read_by_slurm(node: Node, nodes: str) -> None:
    node.env["SLURM_JOB_NODELIST"] = nodes
    node.program("scontrol", 'printf "first of <%s>\\nsecond\\n" "$3"')
    assert node.run()[0] == 0
    assert f"--master-addr=first of <{nodes}>" in node.told


def test_each_start_claims_an_attempt_of_its_own(node: Node) -> None:
    for number in (1, 2, 3):
        assert node.run()[0] == 0
        assert node.facts(number)["outcome"] == "completed"
        assert f"--attempt={number}" in node.told


def test_a_name_that_does_not_resolve_becomes_an_address(node: Node) -> None:
    node.program("getent", "exit 2")
    assert node.run()[0] == 0
    assert "--master-addr=10.1.2.3" in node.told
    assert "--nodelist=node7" in node.told


@pytest.mark.parametrize("suffix", ["-ib", "i", ".fast.example.org"])
def test_the_fast_network_has_names_of_its_own(node: Node, suffix: str) -> None:
    assert node.run(master_suffix=suffix) == (0, "")
    assert f"--master-addr=node7{suffix}" in node.told
    assert "--nodelist=node7" in node.told


def test_without_scontrol_the_batch_script_knows_its_node(node: Node) -> None:
    (node.bin / "scontrol").unlink()
    # and no name service either: the ranks will say which name it was
    node.program("getent", "exit 2")
    assert node.run()[0] == 0
    assert "--master-addr=node7" in node.told


def test_without_scontrol_in_an_allocation_it_says_so(node: Node) -> None:
    (node.bin / "scontrol").unlink()
    del node.env["SLURMD_NODENAME"]
    code, err = node.run()
    assert code == 69
    assert "does not say which is the first node of node[7-8]" in err
    assert not (node.run_dir / "attempts").exists()  # nothing has begun


def test_in_an_allocation_the_node_may_be_nameless(node: Node) -> None:
    del node.env["SLURMD_NODENAME"]
    assert node.run()[0] == 0
    assert "--master-addr=node7" in node.told
    assert node.facts()["host"]


def test_outside_of_slurm_it_says_so(node: Node) -> None:
    del node.env["SLURM_JOB_ID"]
    code, err = node.run()
    assert code != 0 and "start this script with sbatch" in err
    assert not (node.run_dir / "attempts").exists()


def test_one_task_of_an_array_names_itself(node: Node) -> None:
    node.env.update(SLURM_ARRAY_JOB_ID="4000", SLURM_ARRAY_TASK_ID="12")
    assert node.run()[0] == 0
    assert node.facts()["job"] == "4000_12"


def test_a_run_directory_that_cannot_be_written_is_named(node: Node) -> None:
    (node.run_dir / "attempts").write_text("not a directory")
    code, err = node.run()
    assert code == 74 and f"can't write {node.run_dir} on node7" in err


def test_taken_ports_are_tried_three_times(node: Node) -> None:
    node.program(
        "srun", f'echo "$*" >> "$TOLD"; touch {node.run_dir}/attempts/1/port-taken; exit 98'
    )
    assert node.run()[0] == 98
    assert [word for line in node.told for word in line.split() if "port-retry" in word] == [
        f"--port-retry={number}" for number in range(3)
    ]
    assert node.facts()["outcome"] == "failed"


def test_the_next_block_of_ports_may_be_free(node: Node) -> None:
    taken = f"touch {node.run_dir}/attempts/1/port-taken; exit 98"
    node.program("srun", f'echo "$*" >> "$TOLD"; case "$*" in *port-retry=0*) {taken};; esac')
    assert node.run()[0] == 0
    assert len(node.told) == 2
    assert node.facts()["outcome"] == "completed"


# the end comes from outside -----------------------------------------------------------------------

DEAF = 'trap "echo TERM >> $TOLD" TERM; echo begun >> "$TOLD"; for i in 1 2 3 4 5; do sleep 0.1; done; exit 7'
"""Ranks that are told to end and take half a second for it."""


def ended_by_term(node: Node, eventually: Callable[..., None]) -> tuple[int, list[str]]:
    node.program("srun", DEAF)
    script = node.start()
    eventually(lambda: Path(node.env["TOLD"]).exists(), what="srun")
    time.sleep(0.1)  # the trap of the stand-in
    os.kill(script.pid, signal.SIGTERM)
    script.communicate(timeout=45)
    return script.returncode, node.told


def test_a_batch_job_waits_for_ranks_that_slurm_ends(
    node: Node, eventually: Callable[..., None]
) -> None:
    """`wait` returns at the signal, and srun is still alive: its exit code must not be lost, nor
    its end missed."""
    node.env["BATCH"] = "yes"
    code, told = ended_by_term(node, eventually)
    assert (code, told) == (7, ["begun"])  # no TERM from us: srun would kill the ranks at once
    facts = node.facts()
    assert (facts["outcome"], facts["exit_code"]) == ("stopped", 7)
    assert facts["ended"] - facts["started"] > 0.5


def test_in_an_allocation_the_script_ends_the_ranks_itself(
    node: Node, eventually: Callable[..., None]
) -> None:
    code, told = ended_by_term(node, eventually)
    assert (code, told) == (7, ["begun", "TERM"])
    assert node.facts()["outcome"] == "stopped"


def test_an_end_before_the_ranks_begin_starts_none(node: Node) -> None:
    node.program("rm", "kill -TERM $PPID; sleep 0.2")  # rm is called just before srun
    assert node.run() == (143, "")
    assert not Path(node.env["TOLD"]).exists()
    assert (node.facts()["outcome"], node.facts()["exit_code"]) == ("stopped", 143)
