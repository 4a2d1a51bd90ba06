"""The job script: pure text from a RunSpec, the same every time. docs/job-script.md explains it
rule by rule.

It needs nothing of rampup on the compute nodes but the run directory: `sbatch job.sh` works by
hand. No value of the user's program is in it; those are read from config.json by rank.py. plan.py
puts in the lines of the launcher.
"""

import shlex
import sys
from pathlib import Path

from rampup import __version__
from rampup.core import environment as software
from rampup.core.spec import RunSpec
from rampup.errors import Refused
from rampup.launchers import find_launcher
from rampup.schedulers.slurm import again as slurm_again
from rampup.schedulers.slurm.options import directive, options_of

BODY = """
set -uo pipefail  # not -e: each exit code that matters is looked at below
{home}export SLURM_EXPORT_ENV=ALL  # srun passes on what is set here, also at sites that submit with --export=NONE

run_dir={run_dir}
python={python}
job=${{SLURM_ARRAY_JOB_ID:+${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID}}  # one task of an array, not all of it
job=${{job:-${{SLURM_JOB_ID:?start this script with sbatch}}}}
host=${{SLURMD_NODENAME:-$HOSTNAME}}
started=$(date +%s.%N)

# Rank 0 will be on the first node. Only Slurm can read its own lists of nodes.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
first=$(head -n 1 <<< "$hosts")
first=${{first:-${{SLURMD_NODENAME:-}}}}  # no scontrol on this node: a batch script runs on the first one
if [ -z "$first" ]; then
  echo "rampup: scontrol on $host does not tell which is the first node of $SLURM_JOB_NODELIST" >&2
  exit 69
fi
master=${{first}}{master_suffix}
if ! getent hosts "$master" > /dev/null; then  # a name that only Slurm knows: ask it for the address
  address=$(scontrol show node "$first" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')
  master=${{address:-$master}}
fi

# A requeued job starts this script again from the top: the attempt is the first whose directory mkdir can make.
mkdir -p "$run_dir/attempts"
attempt=1
until mkdir "$run_dir/attempts/$attempt" 2> /dev/null; do
  if [ ! -d "$run_dir/attempts/$attempt" ]; then
    echo "rampup: can't write $run_dir on $host" >&2
    exit 74
  fi
  attempt=$((attempt + 1))
done
attempt_dir=$run_dir/attempts/$attempt
echo "rampup: attempt $attempt of job $job begins on $SLURM_JOB_NODELIST"

# Who runs this attempt, and later how it ended: replaced as a whole, so a reader never sees half of it.
facts() {{
  printf '{{"scheduler": "slurm", "launcher": "{launcher}", "job": "%s", "host": "%s", "nodes": "%s", '\\
'"world_size": %d, "started": %s%s}}\\n' "$job" "$host" "$SLURM_JOB_NODELIST" {world_size} "$started" "$1" \\
    > "$attempt_dir/.attempt.json" &&
    mv "$attempt_dir/.attempt.json" "$attempt_dir/attempt.json"
}}
facts ""

# Every rank compares this with what it reads: do all nodes see the same run directory?
run_hash=$(sha256sum < "$run_dir/run.json" | cut -d ' ' -f 1)
{before}
# Slurm ends a job with TERM to the ranks and to this shell, and KILL some seconds later: stay until then, to write
# down how the ranks ended. TERM makes srun kill them all at once, so it gets one only where Slurm sends none: when
# this script is not the batch job itself but was started inside an allocation.
stopped=""
step=""
code=143  # when the end comes before the ranks have begun
trap 'stopped=yes; [ -z "$step" ] || [ "${{SLURM_TASK_PID:-}}" = $$ ] || kill -TERM "$step"' TERM
{setup}
{start_ranks}
{smoke}
{after}"""

NOT_READY = """
not_ready() {{  # what the ranks need is not here: say so, write it down, start none
  echo "rampup: error: $1" >&2
  facts ", \\"ended\\": $(date +%s.%N), \\"exit_code\\": {code}, \\"outcome\\": \\"failed\\", \\
\\"cause\\": \\"${{1//[^a-zA-Z0-9 .,:;()_\\/+=@~-]/ }}\\""
  exit {code}
}}

"""
ANY_PYTHON = """\
# rank.py can do with any Python: where this one needed modules that are gone, with the one that they brought
"$python" -I -S -c "" 2> /dev/null || python=$(command -v python3 || command -v python || echo "$python")
"""

SMOKE = """
# --smoke: the first attempt takes a step and saves it; the second, from the top of this script, must go on from there.
if [ "$code" -eq 0 ] && [ -z "$stopped" ]; then
  if [ "$attempt" -eq 1 ]; then
    facts ", \\"ended\\": $(date +%s.%N), \\"exit_code\\": 0"
    exec bash -l "$run_dir/job.sh"
  fi
  if ! grep -q '"resumed"' "$attempt_dir/events.jsonl"; then
    echo "rampup: error: the second attempt did not resume from the checkpoint of the first" >&2
    code=1
  fi
fi
"""


def render(
    spec: RunSpec,
    run_dir: Path,
    python: str = sys.executable,
    version: str = __version__,
) -> str:
    """The text of job.sh for a run that will live in `run_dir`; `start_ranks` are the launcher's
    lines."""
    if spec.resources.devices is not None:
        raise Refused(
            f"devices = {spec.resources.devices}: on a cluster Slurm chooses the GPUs",
            "ask for a number of them, --gpus-per-node N, and leave out --devices (or say --devices none)",
        )
    run_id = run_dir.name.rpartition("-")[2]
    directives = [directive(key, value) for key, value in options_of(spec, run_dir, run_id).items()]
    head = (
        "#!/bin/bash -l",  # a login shell: at many sites only that one has the command `module`
        f"# Run {run_id}, written by rampup {version}. `sbatch job.sh` starts it by hand.",
        *directives,
    )
    body = BODY.format(
        home=software.home(spec.cluster.home, spec.cluster.name),
        setup=setup(spec, run_dir),
        run_dir=shlex.quote(str(run_dir)),
        python=shlex.quote(python),
        world_size=spec.resources.world_size,
        master_suffix=shlex.quote(spec.cluster.master_suffix) if spec.cluster.master_suffix else "",
        launcher=spec.cluster.launcher,
        start_ranks=find_launcher(spec.cluster.launcher).start_ranks(spec),
        smoke=SMOKE if spec.smoke and spec.kind == "engine" else "",
        before=slurm_again.before(spec.resources.lead_s),
        after=slurm_again.after(
            spec.cluster.requeue, spec.resources.requeues, spec.timeouts_before
        ),
    )
    return "\n".join(head) + "\n" + body


def setup(spec: RunSpec, run_dir: Path) -> str:
    """The lines that make ready what the ranks run in, and none where that is nothing."""
    chosen = software.of(spec, run_dir)
    lines = software.setup(chosen)
    if chosen.modules or chosen.env:
        lines = NOT_READY.format(code=software.NOT_READY) + lines
    return f"{lines}{ANY_PYTHON}" if chosen.modules else lines
