#!/bin/bash -l
# Run @run_id@, written by rampup @version@. `sbatch job.sh` starts it by hand.
#@put directives

set -uo pipefail  # not -e: each exit code that matters is checked below
#@put home
export SLURM_EXPORT_ENV=ALL  # srun passes on what is set here, even at sites that submit with --export=NONE

run_dir=@run_dir@
python=@python@
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}  # one task of an array, not all of it
job=${job:-${SLURM_JOB_ID:?start this script with sbatch}}
host=${SLURMD_NODENAME:-$HOSTNAME}
started=$(date +%s.%N)

# Rank 0 will be on the first node. Only Slurm can read its own lists of nodes.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
first=$(head -n 1 <<< "$hosts")
first=${first:-${SLURMD_NODENAME:-}}  # no scontrol on this node: a batch script runs on the first one
if [ -z "$first" ]; then
  echo "rampup: scontrol on $host does not say which is the first node of $SLURM_JOB_NODELIST" >&2
  exit 69
fi
master=${first}@master_suffix@
if ! getent hosts "$master" > /dev/null; then  # a name that only Slurm knows: ask it for the address
  address=$(scontrol show node "$first" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')
  master=${address:-$master}
fi

#@put after
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

# Which job runs this attempt, and later how it ended: replaced as a whole, so a reader never sees half of it.
facts() {
  printf '{"scheduler": "slurm", "launcher": "@launcher@", "job": "%s", "host": "%s", "nodes": "%s", '\
'"world_size": %d, "started": %s%s}\n' "$job" "$host" "$SLURM_JOB_NODELIST" @world_size@ "$started" "$1" \
    > "$attempt_dir/.attempt.json" &&
    mv "$attempt_dir/.attempt.json" "$attempt_dir/attempt.json"
}
facts ""
#@if waits

if [ -n "$refused" ]; then
  echo "rampup: $refused" >&2
  facts ", \"ended\": $(date +%s.%N), \"outcome\": \"cancelled\", \
\"cause\": \"${refused//[^a-zA-Z0-9 .,:;()_\/+=@~-]/ }\""
  exit @never@
fi
#@end

# Every rank compares this with its own copy: do all nodes see the same run directory?
run_hash=$(sha256sum < "$run_dir/run.json" | cut -d ' ' -f 1)
#@put clock

# The newest checkpoint, by the name of its directory; -1 without any. An attempt that adds none makes no progress.
newest_step() {
  local newest=-1 name
  for name in "$run_dir"/checkpoints/step-*; do
    name=${name##*/step-}
    if [[ $name =~ ^[0-9]+$ ]] && [ "$name" -gt "$newest" ]; then newest=$name; fi
  done
  echo "$newest"
}
step_before=${RAMPUP_STEP_BEFORE:-$(newest_step)}  # set by a pack for a run that has only the rest of its time

# Slurm ends a job with TERM to the ranks and to this shell, and KILL some seconds later: stay until then, to record
# how the ranks ended. TERM makes srun kill them all at once, so it gets one only where Slurm sends none: when
# this script is not the batch job itself but was started inside an allocation.
stopped=""
step=""
code=143  # when the end comes before the ranks have begun
trap 'stopped=yes; [ -z "$step" ] || [ "${SLURM_TASK_PID:-}" = $$ ] || kill -TERM "$step"' TERM
#@if checks_software

not_ready() {  # something that the ranks need is missing: print it, record it, start none
  echo "rampup: error: $1" >&2
  facts ", \"ended\": $(date +%s.%N), \"exit_code\": @not_ready@, \"outcome\": \"failed\", \
\"cause\": \"${1//[^a-zA-Z0-9 .,:;()_\/+=@~-]/ }\""
  echo "failed $1" > "$attempt_dir/outcome"
  exit @not_ready@
}

#@end
#@put software
#@if loads_modules
# Any Python can run rank.py: if this one needed modules that are gone, use the one that the job's modules provide
"$python" -I -S -c "" 2> /dev/null || python=$(command -v python3 || command -v python || echo "$python")
#@end

#@if names_progress

# What the paths of --progress hold, as one sum: an attempt that changes none of them makes no progress.
describe_progress() { "$python" -I -S "$run_dir/rank.py" "$run_dir" --attempt="$attempt" --describe-progress; }
progress_before=$(describe_progress)
#@end
#@put start_ranks
#@if smoke

# --smoke: the first attempt takes a step and saves it; the second, from the top of this script, must resume from there:
# its ranks fail without a checkpoint.
if [ "$code" -eq 0 ] && [ -z "$stopped" ] && [ "$attempt" -eq 1 ]; then
  facts ", \"ended\": $(date +%s.%N), \"exit_code\": 0"
  exec bash -l "$run_dir/job.sh"
fi
#@end


trap '' TERM  # from here on nothing may be interrupted
ended=$(date +%s.%N)

# Why did the ranks end? Those that stopped gracefully left a file; only Slurm knows the reason of a TERM from
# outside. It shows a job that it is ending as COMPLETING, whatever the cause, before any TERM arrives: ask even if none
# has come, because quick ranks end before this shell gets its own. Then ask what differs: has the job been requeued,
# was it preempted, is its time over? Otherwise somebody cancelled it.
why=""
if [ -e "$attempt_dir/again" ]; then read -r why < "$attempt_dir/again"; fi
if [ "$why" = asked ] && [ "$code" -ne 0 ]; then why=""; fi  # one rank asks, another fails
#@put ask
if [ "$why" = preempt ] || [ -n "$stopped" ] || [ "$code" -ne 0 ]; then
  if [ "${restarts:-0}" -gt "${SLURM_RESTART_COUNT:-0}" ]; then
    why=requeued
  elif [ -n "$preempted" ]; then
    why=preempt
  elif [[ $seen == *Reason=TimeLimit* ]]; then  # it was reached before the ranks could stop by themselves
    why=timeout
  elif [ "$why" = preempt ] || { [ -n "$stopped" ] && [ "$why" != stop ]; }; then
    why=ended  # cancelled, whatever the ranks asked for
  fi
fi

# Put this job back into the queue under its own id, or, where the site does not allow that, another one behind it.
# Slurm makes a requeued job wait two minutes; its owner may lift that, but not within the second of the requeue.
next_job=""
go_on() {
  local said
  if [ -d "$run_dir/attempts/$((attempt + 1))" ]; then  # this attempt is stale: Slurm gave the run to another one
    outcome=stopped
    return
  fi
  if [ "${SLURM_TASK_PID:-}" != $$ ]; then  # inside an allocation, which is not ours to requeue
    if [ "$why" = asked ]; then exec bash -l "$run_dir/job.sh"; fi
    if [ "$why" != timeout ]; then outcome=stopped; fi
    return
  fi
  facts ", \"ended\": $ended, \"exit_code\": $code, \"outcome\": \"again\", \"why\": \"$why\""
#@if requeue
#@put requeue
#@end
  local name dropped=()
  for name in $(compgen -e); do  # a job submitted inside a job would inherit its requests
    case $name in SLURM_CONF) ;; SLURM* | SBATCH_* | SRUN_*) dropped+=(-u "$name") ;; esac
  done
  if said=$(env "${dropped[@]}" sbatch --parsable --dependency=afterany:"$job" "$run_dir/job.sh" 2>&1); then
    outcome=again
    next_job=${said%%;*}
  else
    cause="could not be restarted: ${said//[^a-zA-Z0-9 .,:;()_-]/ }"
  fi
}

outcome=failed
cause=""
if [ "$code" -eq 0 ]; then outcome=completed; fi
if [ -n "$stopped" ]; then outcome=stopped; fi  # Slurm itself knows why
case $why in
  requeued | preempt)
    go_on
    ;;
  timeout | asked)
    [ -e "$attempt_dir/again" ] || echo "$why" > "$attempt_dir/again"
    starts=$(cat "$run_dir"/attempts/*/again 2> /dev/null | grep -c -e timeout -e asked)
    outcome=timeout
    if [ "$starts" -gt @starts_allowed@ ]; then
      cause="it was restarted @requeues@ times after a time limit: resources.requeues allows no more"
#@if counts_steps
    elif [ "$why" = timeout ] && [ "$(newest_step)" -le "$step_before" ]; then
      cause="the time limit was reached, and no checkpoint was added before: a restart would make no progress"
#@end
#@if names_progress
    elif [ "$why" = timeout ] && [ "$step_before" != -2 ] && [ "$(describe_progress)" = "$progress_before" ]; then
      cause="the time limit was reached, and nothing that --progress names has changed: a restart would make no progress"
#@end
    else
      go_on
    fi
    ;;
  stop)
    outcome=cancelled
    cause="stopped gracefully, on request"
    ;;
  ended)
    outcome=stopped
    ;;
esac
[ -z "$cause" ] || echo "rampup: $cause" >&2
if [ "$outcome" = timeout ] && [ "$code" -eq 0 ]; then code=124; fi  # Slurm must not count it as done
facts ", \"ended\": $ended, \"exit_code\": $code, \"outcome\": \"$outcome\", \"why\": \"$why\", \
\"cause\": \"$cause\", \"next_job\": \"$next_job\""
echo "$outcome $cause" > "$attempt_dir/outcome"  # for the script of a pack
exit "$code"
