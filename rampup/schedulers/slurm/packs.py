"""Runs of a study inside one job of Slurm, K at a time: the text of its script. Pure; called by
launch.py.

Each run has its own job script, which notices that it runs inside an allocation; the pack gives it
its share of the job, starts the next one when one has ended, and puts the whole job back into the
queue when the time is over and runs are left. How a run ended it reads in the run's own
attempt.json, and never writes there.
"""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from rampup import __version__
from rampup.core.spec import RunSpec
from rampup.errors import Refused
from rampup.launchers import find_launcher
from rampup.schedulers.slurm.arrays import OF_ONE_RUN
from rampup.schedulers.slurm.commands import SIZES
from rampup.schedulers.slurm.options import directive, log_pattern, options_of
from rampup.schedulers.slurm.script import ASK, REQUEUE, clock

MEMORY = re.compile(r"(\d+)([KMGTP]?)B?", re.IGNORECASE)

SCRIPT = """\
#!/bin/bash
# {count} runs of the study {study}, {at_once} at a time inside this job. Written by rampup {version}.
{directives}

set -uo pipefail
folder={folder}  # a link to each run, by its number
name={name}
job=${{SLURM_JOB_ID:?start this script with sbatch}}
started=$(date +%s.%N)
{clock}
# srun inherits the resources of the whole job: each run gets its share, and none waits for another.
unset {sizes}
{exports}
if [ "${{SLURM_MEM_PER_NODE:-0}}" -gt 0 ]; then
  export SLURM_MEM_PER_NODE=$((SLURM_MEM_PER_NODE / {at_once}))
fi

# Whether the run still belongs to this job: cancelling it, or moving it to another job, is recorded.
is_ours() {{
  local line last=""
  while IFS= read -r line; do
    case $line in
      *'"what": "submitting"'* | *'"what": "submitted"'* | *'"what": "cancelled"'*) last=$line ;;
    esac
  done < "$1/control.jsonl"
  [[ $last == *"\\"job_name\\": \\"$name\\""* ]]
}}

# How the newest attempt of a run ended, if this job began it: this script is older than all of those.
outcome_of() {{
  local number=0 facts
  while [ -d "$1/attempts/$((number + 1))" ]; do number=$((number + 1)); done
  facts=$1/attempts/$number/attempt.json
  if [ "$number" -gt 0 ] && [ "$facts" -nt "$folder.sh" ]; then
    sed -n 's/.*"outcome": "\\([a-z]*\\)".*"cause": "\\([^"]\\?\\).*/\\1\\2/p' "$facts"
  fi
}}

# Nothing is left to do for it. After a time limit without a recorded cause it has saved, and can continue later.
is_done() {{
  case $(outcome_of "$1") in completed* | failed* | cancelled* | timeout?*) ;; *) return 1 ;; esac
}}

stopped=""
trap 'stopped=yes' TERM
is_over() {{ [ -n "$stopped" ] || {{ [ -n "$stop_at" ] && [ "$(date +%s)" -ge "$stop_at" ]; }}; }}

# Wait until fewer than this many run. A run that is no longer ours is ended.
pids=()
wait_for_room() {{
  local number
  while :; do
    for number in "${{!pids[@]}}"; do
      if ! kill -0 "${{pids[number]}}" 2> /dev/null; then
        unset "pids[number]"
      elif [ -z "${{ending[number]:-}}" ] && ! is_ours "$folder/$number"; then
        kill -TERM "${{pids[number]}}"
        ending[number]=yes
      fi
    done
    if [ "${{#pids[@]}}" -lt "$1" ]; then return; fi
    sleep 0.5
  done
}}

begun=()
ending=()
late=""  # the first runs have the whole time of the job; a later one may have no time left to save
for ((number = 0; number < {count}; number++)); do
  run=$folder/$number
  if is_done "$run"; then continue; fi
  wait_for_room {at_once}
  if is_over; then break; fi
  if ! is_ours "$run"; then continue; fi
  if [ "${{#begun[@]}}" -ge {at_once} ]; then late=-2; fi
  RAMPUP_STEP_BEFORE=$late bash -l "$run/job.sh" >> "$run/slurm-$job.log" 2>&1 &
  pids[number]=$!
  begun+=("$number")
  echo "rampup: $(date +%T) run $(readlink "$run" | sed 's/.*-//') begins"
done
wait_for_room 1
trap '' TERM  # from here on nothing may be interrupted

left=0
bad=0
for ((number = 0; number < {count}; number++)); do
  if ! is_ours "$folder/$number"; then continue; fi
  case $(outcome_of "$folder/$number") in
    completed*) ;;
    failed* | cancelled* | timeout?*) bad=$((bad + 1)) ;;
    *) left=$((left + 1)) ;;
  esac
done
echo "rampup: of {count} runs $left are left, $bad did not end well"
if [ "$left" -eq 0 ]; then exit $((bad > 0)); fi

# Runs are left: is the time over, or did Slurm end the job? Without a run that ended or saved there is no progress, and
# a restart would repeat the same work.
moved=""
for number in "${{begun[@]}}"; do
  case $(outcome_of "$folder/$number") in completed* | failed* | cancelled* | timeout*) moved=yes ;; esac
done
why=${{moved:+timeout}}
{ask}
if [ -n "$stopped" ]; then
  if [ "${{restarts:-0}}" -gt "${{SLURM_RESTART_COUNT:-0}}" ]; then
    exit 143  # Slurm has requeued the job itself
  elif [ -n "$preempted" ]; then
    why=preempt
  elif [[ $seen != *Reason=TimeLimit* ]]; then
    exit 143  # cancelled
  fi
fi

cause=""
outcome=""
go_on() {{
{requeue}
  cause="this site does not put a job back into the queue"
}}
if [ -n "$why" ]; then go_on; else cause="no run ended or saved in the time of the job"; fi
if [ "$outcome" = again ]; then exit 0; fi
echo "rampup: $cause. The same sweep starts what is left" >&2
exit 124
"""


def scale(spec: RunSpec, at_once: int) -> RunSpec:
    """What the job of a pack asks for: so many runs side by side."""
    if not find_launcher(spec.cluster.launcher).shares_jobs:
        raise Refused(
            f"--pack divides a job by srun, and {spec.cluster.launcher} takes all of it",
            "--launcher pmix, or no --pack",
        )
    resources = spec.resources
    mem = options_of(spec, Path("run"), "run").get("mem")
    more = replace(
        resources,
        tasks_per_node=at_once * resources.tasks_per_node,
        gpus_per_node=at_once * resources.gpus_per_node,
        mem=times(mem, at_once) if mem else None,
    )
    return replace(spec, resources=more)


def times(mem: str, count: int) -> str:
    found = MEMORY.fullmatch(mem)
    if found is None:
        raise Refused(f"mem = {mem!r} can't be multiplied for --pack {count}", "write --mem 16G")
    return f"{int(found[1]) * count}{found[2]}"


def share_of(spec: RunSpec) -> dict[str, str]:
    """Variables that keep a step inside its share of a job that runs have together."""
    count, kind = spec.resources.gpus_per_node, spec.cluster.gpu_type
    gpus = {"SLURM_GPUS_PER_NODE": f"{kind}:{count}" if kind else str(count)} if count else {}
    return {"SLURM_EXACT": "1", **gpus}


def script(study: str, folder: Path, name: str, spec: RunSpec, count: int, at_once: int) -> str:
    """The text of the pack's script; `folder` has a link to each run, named by its number."""
    of_job = options_of(scale(spec, at_once), folder, "run")
    options: Mapping[str, str] = {
        "job-name": name,
        "output": log_pattern(folder.parent, f"{folder.name}.log"),
        "open-mode": "append",
        **{key: value for key, value in of_job.items() if key not in OF_ONE_RUN},
    }
    return SCRIPT.format(
        count=count,
        study=study,
        at_once=at_once,
        version=__version__,
        directives="\n".join(directive(key, value) for key, value in options.items()),
        folder=shlex.quote(str(folder)),
        name=shlex.quote(name),
        sizes=" ".join(SIZES),
        clock=clock(spec.resources.lead_s),
        exports="\n".join(
            f"export {key}={shlex.quote(value)}" for key, value in share_of(spec).items()
        ),
        ask=ASK,
        requeue=f"  local said\n{REQUEUE}" if spec.cluster.requeue else "",
    )
