"""The sandbox is a real Slurm: what it starts, what jobs see in it, and that nothing of it stays
behind."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Sandbox

ROOT = Path(__file__).parents[2]
SMALL = ("--nodes", "1", "--no-accounting")
"""Up in a blink."""
NOBODY = 65534


def mentions(text: str) -> set[int]:
    """The living processes with that text in their command line or environment, whoever they
    are."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if text.encode() in words:
                found.add(int(entry.name))
    return found


def sleeping(seconds: int) -> bool:
    """Whether `sleep`, started as `nap(seconds)`, is there as a process of its own."""
    commands = [Path(f"/proc/{pid}/cmdline") for pid in mentions(nap(seconds).replace(" ", "\0"))]
    programs = [path.read_bytes().partition(b"\0")[0] for path in commands if path.exists()]
    return any(program.endswith(b"sleep") for program in programs)


def nap(seconds: int) -> str:
    """A `sleep` that is told apart from those of any other test on this machine."""
    return f"sleep {seconds}.{os.getpid()}"


# what is there ------------------------------------------------------------------------------------


def test_status_shows_daemons_nodes_and_jobs(sandbox: Sandbox) -> None:
    job = sandbox.sbatch("sleep 60", "--job-name=shown")
    found = sandbox.status()
    sandbox.run("scancel", job)
    assert found["state"] == "up"
    assert list(found["daemons"]) == [
        "munged",
        "mariadbd",
        "slurmdbd",
        "slurmctld",
        "node1",
        "node2",
        "node3",
        "node4",
    ]
    assert all(found["daemons"].values())
    assert [node["node"] for node in found["nodes"]] == ["node1", "node2", "node3", "node4"]
    assert {node["gres"] for node in found["nodes"]} == {"gpu:pretend:4"}
    assert [row["job_name"] for row in found["jobs"] if row["job"] == job] == ["shown"]


def test_up_again_changes_nothing(sandbox: Sandbox) -> None:
    before = sandbox.status()["daemons"]
    again = sandbox.up("--nodes", "2")
    assert "was up already: 4 nodes" in again.stderr and "keeps the options" in again.stderr
    assert f"export SLURM_CONF={sandbox.env['SLURM_CONF']}" in again.stdout
    assert again.stderr.splitlines()[-1] == f"next: rampup run digits --on {sandbox.name} --nodes 2"
    assert sandbox.status()["daemons"] == before


def test_settings_for_another_slurm_do_not_matter(sandbox: Sandbox) -> None:
    again = sandbox.up(
        SLURM_CONF="/nowhere/slurm.conf", SLURM_CLUSTERS="elsewhere", SQUEUE_FORMAT="%i"
    )
    assert "4 nodes" in again.stderr


def test_only_the_calling_user_can_read_its_secrets(sandbox: Sandbox) -> None:
    assert sandbox.directory.stat().st_mode & 0o077 == 0
    assert sandbox.layout.short.stat().st_mode & 0o077 == 0
    assert sandbox.layout.munge_key.stat().st_mode & 0o077 == 0


# what jobs see ------------------------------------------------------------------------------------


def test_a_job_starts_at_once(sandbox: Sandbox) -> None:
    began = time.time()
    job = sandbox.sbatch("date +%s.%N")
    sandbox.wait_for(lambda: sandbox.output(job).endswith("\n"), "the first line")
    assert float(sandbox.output(job)) - began < 5


def test_gpus_are_counted_and_given_out(sandbox: Sandbox) -> None:
    show = 'echo "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"'
    seen = sandbox.run(
        "srun", "-N2", "--ntasks-per-node=1", "--gpus-per-node=2", "bash", "-c", show
    )
    nodes, gpus = zip(*(line.split() for line in seen.splitlines()), strict=True)
    assert len(set(nodes)) == 2 and gpus == ("0,1", "0,1")
    refused = sandbox.call("srun", "-N1", "--gpus-per-node=5", "true")
    assert refused.returncode != 0 and "configuration is not available" in refused.stderr


def test_an_unknown_account_is_refused(sandbox: Sandbox) -> None:
    assert sandbox.run("srun", "--account=rampup", "echo", "mine") == "mine\n"
    refused = sandbox.call("sbatch", "--account=nobodys", "--wrap", "true")
    assert refused.returncode != 0 and "Invalid account" in refused.stderr


def test_sacct_knows_memory_and_time(sandbox: Sandbox) -> None:
    burn = "import time; b = bytearray(150 << 20); b[::4096] = b'x' * len(b[::4096]); end = time.process_time() + 3\n"
    burn += "while time.process_time() < end: pass"
    job = sandbox.sbatch(f"srun {sys.executable} - <<'END'\n{burn}\nEND", "--mem=300M")
    fields = ("sacct", "-j", job, "-n", "-P", "-o", "State,MaxRSS,TotalCPU")
    sandbox.wait_for(lambda: sandbox.run(*fields).startswith("COMPLETED"), "the job in sacct")
    _, _, step = (line.split("|") for line in sandbox.run(*fields).splitlines())
    assert int(step[1].removesuffix("K")) > 140 * 1024
    assert float(step[2].rpartition(":")[2]) > 2.5


def test_an_urgent_job_preempts_and_the_other_starts_again(sandbox: Sandbox) -> None:
    text = (
        'echo "attempt ${SLURM_RESTART_COUNT:-0}"; [ -n "$SLURM_RESTART_COUNT" ] || srun sleep 300'
    )
    job = sandbox.sbatch(text, "--nodes=4", "--exclusive")
    sandbox.wait_for(lambda: "attempt 0" in sandbox.output(job), "the first attempt")
    urgent = sandbox.sbatch("echo urgent", "--partition=urgent", "--nodes=2", "--exclusive")
    sandbox.wait_for(lambda: "urgent" in sandbox.output(urgent), "the urgent job")
    sandbox.wait_for(lambda: sandbox.state(job) == "COMPLETED", "the second attempt")
    assert [line for line in sandbox.output(job).splitlines() if "attempt" in line] == [
        "attempt 0",
        "attempt 1",
    ]
    assert "DUE TO PREEMPTION" in sandbox.output(job)


def test_a_job_can_be_requeued(sandbox: Sandbox) -> None:
    job = sandbox.sbatch(
        'echo "attempt ${SLURM_RESTART_COUNT:-0}"; [ -n "$SLURM_RESTART_COUNT" ] || sleep 300'
    )
    sandbox.wait_for(lambda: "attempt 0" in sandbox.output(job), "the first attempt")
    sandbox.run("scontrol", "requeue", job)
    sandbox.wait_for(lambda: sandbox.state(job) == "PENDING", "the end of the first attempt")
    sandbox.run("scontrol", "update", f"jobid={job}", "starttime=now+2seconds")  # instead of 11
    # In the same second, the node would take the second attempt for the first, and the job would
    # fail for good.
    sandbox.wait_for(lambda: sandbox.state(job) == "COMPLETED", "the second attempt")
    assert "attempt 1" in sandbox.output(job)


def test_a_node_can_be_lost_and_come_back(sandbox: Sandbox) -> None:
    job = sandbox.sbatch(f"srun {nap(300)}", "--nodelist=node4")
    sandbox.wait_for(lambda: sleeping(300), "its task")
    sandbox.lose_node("node4")
    assert sandbox.processes("node4") == set() and not sleeping(300)
    assert sandbox.status()["state"] == "damaged" and sandbox.status()["daemons"]["node4"] is None
    sandbox.start("node4")
    sandbox.run("scancel", job)
    # By a job: sinfo may go on for a minute to show what was true within the second in which the
    # job ended.
    assert sandbox.run("srun", "--nodelist=node4", "echo", "back") == "back\n"
    assert sandbox.status()["state"] == "up"


# several, crashed ones, and the end ---------------------------------------------------------------


def test_one_beside_the_other_with_options_of_its_own(sandbox: Sandbox, another: Sandbox) -> None:
    options = (
        "--max-array-size",
        "20",
        "--no-requeue",
        "--grace-time",
        "7",
        "--node-timeout",
        "11",
    )
    began = time.monotonic()
    another.up(*SMALL, *options)
    assert time.monotonic() - began < 30
    config = another.run("scontrol", "show", "config")
    for line in (
        r"MaxArraySize\s+= 20",
        r"JobRequeue\s+= 0",
        r"SlurmdTimeout\s+= 11 sec",
        r"Storage\w+\s+= .*/none",
    ):
        assert re.search(line, config), line
    assert "GraceTime=7" in another.run("scontrol", "show", "partition", "normal")
    assert another.status()["daemons"].keys() == {"munged", "slurmctld", "node1"}
    profile = tomllib.loads(another.profile.read_text())
    assert "account" not in profile and profile["requeue"] is False and profile["max_nodes"] == 1
    assert another.run("srun", "echo", "here") == "here\n"
    assert sandbox.run("srun", "echo", "there") == "there\n"
    crashed(another)
    gone(another)
    assert sandbox.status()["state"] == "up" and sandbox.run("srun", "echo", "there") == "there\n"


def crashed(another: Sandbox) -> None:
    """Some daemons killed under a running job: the next `up` removes what is left and starts
    anew."""
    another.sbatch(f"srun {nap(1000)}")
    another.wait_for(lambda: sleeping(1000), "the job's task")
    before = another.processes()
    another.stop("slurmctld")
    another.stop("node1")
    status = another.call(
        sys.executable, "-m", "rampup", "sandbox", "status", "--name", another.name
    )
    assert status.returncode == 1 and "damaged" in status.stdout
    assert "removing what is left" in another.up(*SMALL).stderr
    after = another.status()
    assert after["state"] == "up" and after["jobs"] == []
    assert before.isdisjoint(another.processes())


def gone(another: Sandbox) -> None:
    """`down` ends daemons, steps, tasks and clients, also a task that hides; a user's own processes
    stay."""
    hidden = (
        f"setsid env -i SLURM_CONF={another.env['SLURM_CONF']} SLURMD_NODENAME=node1 {nap(1001)} &"
    )
    another.sbatch(f"srun bash -c '{hidden} trap \"\" TERM; {nap(1002)}; true'")
    with subprocess.Popen(nap(1003).split(), env=another.env) as own:
        client = subprocess.Popen(
            ["srun", *nap(1004).split()], env=another.env, stderr=subprocess.DEVNULL
        )
        another.wait_for(
            lambda: all(sleeping(seconds) for seconds in (1001, 1002, 1003, 1004)), "all tasks"
        )
        short = another.layout.short
        another.down()
        assert client.wait(10) == -signal.SIGKILL
        assert mentions(str(another.directory)) - {own.pid} == set()
        assert mentions(str(short)) == set()
        assert own.poll() is None
        own.kill()
    assert not another.directory.exists() and not short.exists() and not another.profile.exists()
    assert another.status()["state"] == "down"


def test_an_interrupted_start_leaves_no_process(another: Sandbox) -> None:
    words = [sys.executable, "-m", "rampup", "sandbox", "up", "--name", another.name]
    with subprocess.Popen(
        words, env=another.env, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as starting:
        another.wait_for(
            lambda: (another.directory / "log" / "munged.out").exists(), "the first daemon"
        )
        starting.send_signal(signal.SIGINT)
        assert starting.wait(20) == 130
    assert mentions(str(another.directory)) == set()


# refusals -----------------------------------------------------------------------------------------


def test_a_daemon_that_fails_is_named_with_its_last_words(another: Sandbox, tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "slurmctld"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'fatal: out of cheese' >&2\nexit 1\n")
    broken.chmod(0o755)
    failed = another.up(*SMALL, check=4, PATH=f"{broken.parent}:{another.env['PATH']}")
    assert "error: slurmctld ended\n  fatal: out of cheese\n" in failed.stderr
    assert mentions(str(another.directory)) == set()
    assert not another.profile.exists()


def test_a_profile_of_a_real_site_is_not_overwritten(another: Sandbox) -> None:
    another.profile.parent.mkdir(parents=True)
    another.profile.write_text('scheduler = "slurm"\n')
    assert "not a sandbox" in another.up(*SMALL, check=3).stderr
    assert another.profile.read_text() == 'scheduler = "slurm"\n'


def test_missing_packages_give_the_apt_line(another: Sandbox) -> None:
    refused = another.up(check=3, PATH="")
    assert re.search(
        r"^hint: apt-get install slurm-wlm .*mariadb-server$", refused.stderr, re.MULTILINE
    )
    without = another.up("--no-accounting", check=3, PATH="")
    assert "mariadb" not in without.stderr and "hint: apt-get install slurm-wlm" in without.stderr


# an ordinary user ---------------------------------------------------------------------------------


@pytest.fixture
def ordinary(packages: None) -> Iterator[tuple[Path, list[str]]]:
    """A home directory with a short path, and how to start Python as somebody without rights."""
    if os.getuid() != 0:
        pytest.skip("the whole suite runs as an ordinary user already")
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        os.chown(home, NOBODY, NOBODY)
        for python in (sys.executable, "/usr/bin/python3"):
            words = [*become, python]
            probe = subprocess.run(
                [*words, "-c", "import msgspec, click"], env=ordinary_env(home), capture_output=True
            )
            if probe.returncode == 0:
                yield Path(home), words
                return
        pytest.skip("no Python that an ordinary user may start")


def ordinary_env(home: str) -> dict[str, str]:
    packages = ":".join(path for path in sys.path if "site-packages" in path)
    return {
        "HOME": home,
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{ROOT}:{packages}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def test_an_ordinary_user_needs_no_rights(ordinary: tuple[Path, list[str]]) -> None:
    home, python = ordinary
    env = ordinary_env(str(home))
    directory = home / ".local" / "state" / "rampup" / "sandbox" / "sandbox"

    def run(*words: str) -> str:
        done = subprocess.run(words, env=env, cwd=home, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    run(*python, "-m", "rampup", "sandbox", "up", "--nodes", "2", "--gpus-per-node", "2")
    env["SLURM_CONF"] = str(directory / "slurm.conf")
    assert (directory / "run" / "munge").is_socket(), "a short path keeps its sockets"
    assert run(*python[:-1], "srun", "-N2", "--account=rampup", "id", "-un") == "nobody\nnobody\n"
    del env["SLURM_CONF"]
    run(*python, "-m", "rampup", "sandbox", "down")
    assert not directory.exists()
    assert mentions(str(home)) == set()


# the guide ----------------------------------------------------------------------------------------


def test_the_commands_of_the_guide_work(another: Sandbox) -> None:
    """As one shell session, as a reader would type them."""
    blocks = re.findall(
        r"^```bash\n(.*?)^```$",
        (ROOT / "docs" / "sandbox.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    script = "set -euo pipefail\n" + "".join(blocks)
    env = {key: value for key, value in another.env.items() if key != "SLURM_CONF"}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=another.cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "node1" in done.stdout and "sandbox sandbox was removed" in done.stderr


# what listens ---------------------------------------------------------------------------------------


def test_no_daemon_listens_in_the_network(sandbox: Sandbox) -> None:
    if not socket.gethostbyname(socket.gethostname()).startswith("127."):
        pytest.skip("the name of this host stands for an address in a network")
    ours = {f"pid={pid}," for pid in sandbox.status()["daemons"].values()}
    table = subprocess.run(["ss", "-ltnpH"], check=True, capture_output=True, text=True).stdout
    listening = [line.split()[3] for line in table.splitlines() if any(pid in line for pid in ours)]
    assert len(listening) >= 3, table
    assert all(address.startswith("127.") for address in listening), listening
