"""The `srun` launcher: one task per rank, each starts rank.py, which execs. Pure text for the job script."""

import shlex

from rampup.spec import RunSpec

PORT_TRIES = 3
LOOP = """\
# One task per rank. --cpus-per-task again: not every version of Slurm hands it on from sbatch. --nodelist: rank 0 is
# where we say that it is. A rank that fails ends all of them (--kill-on-bad-exit), one that ends well leaves the
# others in peace (--wait=0). rank.py needs the standard library alone (-I -S){becomes}
for try in {tries}; do
  rm -f "$attempt_dir/port-taken"
  if [ -n "$stopped" ]; then break; fi
  srun {sizes} \\
    {manners} --nodelist="$first" \\
    "$python" -I -S "$run_dir/rank.py" "$run_dir" --attempt="$attempt" --port-retry="$try" --cpus={cpus} \\
    --master-addr="$master" --hosts="${{hosts//$'\\n'/,}}" --started="$started" --run-hash="$run_hash" \\
    --stop-at="$stop_at"{stay} &
  step=$!
  while :; do  # a trapped signal ends `wait`, not srun
    wait "$step"
    code=$?
    kill -0 "$step" 2> /dev/null || break
  done
  [ -e "$attempt_dir/port-taken" ] || break  # another program on the node has our ports: take the next block
done"""

BECOMES = """ and becomes the program of the run: no
# shell is left in between that a signal could hit."""
STAYS = """ and stays as the parent of the program:
# one that ends with code 85 asks to be started again, which must not look like a failure to srun."""


def sizes(spec: RunSpec) -> list[str]:
    resources = spec.resources
    return [
        f"--nodes={resources.nodes}",
        f"--ntasks={resources.world_size}",
        f"--ntasks-per-node={resources.tasks_per_node}",
        f"--cpus-per-task={cpus(spec)}",
    ]


def manners(spec: RunSpec) -> list[str]:
    words = ["--kill-on-bad-exit=1", "--wait=0"]
    if spec.cluster.cpu_bind:
        words.append(f"--cpu-bind={spec.cluster.cpu_bind}")
    elif spec.cluster.hint:  # the two exclude each other on one command line
        words.append(f"--hint={spec.cluster.hint}")
    return words


def cpus(spec: RunSpec) -> int:
    return spec.resources.cpus_per_task or 1


def start_and_wait(spec: RunSpec) -> str:
    """The lines that start the ranks and leave their exit code in $code."""
    tries = " ".join(map(str, range(PORT_TRIES)))
    return LOOP.format(
        tries=tries,
        sizes=shlex.join(sizes(spec)),
        manners=shlex.join(manners(spec)),
        cpus=cpus(spec),
        becomes=BECOMES if spec.kind == "engine" else STAYS,
        stay="" if spec.kind == "engine" else " --stay",
    )
