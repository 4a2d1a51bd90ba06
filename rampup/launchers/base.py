"""The lines of a job script that start the ranks and wait for them, whatever starts them: pure
text.

Each launcher says why it does what it does, and the words before rank.py; the rest is the same for
all.
"""

import shlex

from rampup.core.spec import RunSpec
from rampup.errors import Refused

PORT_TRIES = 3
BY_ANOTHER_KEY = {
    **dict.fromkeys(
        ("nodes", "ntasks", "ntasks-per-node", "tasks-per-node"), "--nodes and --tasks-per-node"
    ),
    **dict.fromkeys(
        ("cpus-per-task", "nodelist", "kill-on-bad-exit", "wait", "jobid"), "rampup says it"
    ),
    "cpu-bind": "the key cpu_bind",
    "hint": "the key hint",
    "mpi": "the launcher pmix",
}
"""Options of srun that a profile's `srun` can't have, and what there is instead."""
LOOP = """\
{comment}
for try in {tries}; do
  rm -f "$attempt_dir/port-taken"
  if [ -n "$stopped" ]; then break; fi
  {command} \\
    "$python" -I -S "$run_dir/rank.py" "$run_dir" --attempt="$attempt" --port-retry="$try" --cpus={cpus} \\
    --master-addr="$master" --hosts="${{hosts//$'\\n'/,}}" --started="$started" --run-hash="$run_hash" \\
    --stop-at="$stop_at"{options} &
  step=$!
  while :; do  # a trapped signal ends `wait`, not what it waits for
    wait "$step"
    code=$?
    kill -0 "$step" 2> /dev/null || break
  done
  [ -e "$attempt_dir/port-taken" ] || break  # another program on the node has our ports: take the next block
done"""
BECOMES = """\
# rank.py needs the standard library alone (-I -S) and becomes the program of the run: no shell is left in between that
# a signal could hit."""
STAYS = """\
# rank.py needs the standard library alone (-I -S) and stays as the parent of the program: one that ends with code 85
# asks to be started again, which must not look like a failure."""


def loop(spec: RunSpec, comment: str, command: str, options: tuple[str, ...] = ()) -> str:
    """`command` ends before rank.py; `options` are for rank.py."""
    engine = spec.kind == "engine"
    words = options if engine else (*options, "--stay")
    return LOOP.format(
        tries=" ".join(map(str, range(PORT_TRIES))),
        comment=f"{comment}\n{BECOMES if engine else STAYS}",
        command=command,
        cpus=cpus(spec),
        options="".join(f" {word}" for word in words),
    )


def cpus(spec: RunSpec) -> int:
    """Of one rank."""
    return spec.resources.cpus_per_task or 1


def sizes(spec: RunSpec, tasks_per_node: int, cpus_per_task: int) -> str:
    """For srun: --cpus-per-task again, because not every version of Slurm hands it on from
    sbatch."""
    nodes = spec.resources.nodes
    tasks = nodes * tasks_per_node
    return f"--nodes={nodes} --ntasks={tasks} --ntasks-per-node={tasks_per_node} --cpus-per-task={cpus_per_task}"


def manners(spec: RunSpec) -> str:
    """A rank that fails ends all of them, one that ends well leaves the others in peace; then what
    the site wants."""
    words = ["--kill-on-bad-exit=1", "--wait=0"]
    # it binds ranks, not an agent with all CPUs
    if spec.cluster.cpu_bind and spec.cluster.launcher != "torchrun":
        words.append(f"--cpu-bind={spec.cluster.cpu_bind}")
    elif spec.cluster.hint:  # the two exclude each other on one command line
        words.append(f"--hint={spec.cluster.hint}")
    further = f" \\\n    {shlex.join(words_of_the_site(spec))}" if spec.cluster.srun else ""
    return shlex.join(words) + further


def words_of_the_site(spec: RunSpec) -> list[str]:
    """The profile's `srun`, as it is, without what a launcher says itself."""
    for word in spec.cluster.srun:
        name = word.removeprefix("--").partition("=")[0]
        if not word.startswith("--") or not name or not word.isprintable():
            hint = 'each is a long option in one word: srun = ["--distribution=block:block"]'
            raise Refused(
                f"{word!r} in srun of cluster {spec.cluster.name} is no option of srun", hint
            )
        for own, instead in BY_ANOTHER_KEY.items():
            if own.startswith(name):  # srun takes the beginning of a name for the whole
                raise Refused(
                    f"{word!r} can't stand in srun of cluster {spec.cluster.name}", instead
                )
    return spec.cluster.srun
