"""What the job script does when the ranks have ended: find out why, start the run again where that
makes sense, and write down how it went. Pure text for slurm_script.py; docs/job-script.md and
docs/reliability.md explain it.

Ranks that stopped in good order end with 0 and leave one word in attempts/<n>/again. Starting again
is the script's business, not Python's: it has nothing to unlearn when a rank hangs, and needs no
scontrol inside a container.
"""

CLOCK = """
# When Slurm will end the job, and when the ranks are to stop by themselves: {lead_s} s earlier, or a quarter of the
# time if that is less. Slurm's own warning (--signal) may come up to a minute early, and never reaches this shell.
ends=${{SLURM_JOB_END_TIME:-}}
if [ -z "$ends" ]; then
  ends=$(squeue --noheader --jobs="$job" --format=%e 2> /dev/null)
  ends=$(date -d "$ends" +%s 2> /dev/null)
fi
stop_at=""
if [[ $ends =~ ^[0-9]+$ ]]; then
  lead=$(((ends - ${{started%.*}}) / 4))
  if [ "$lead" -gt {lead_s} ]; then lead={lead_s}; fi
  stop_at=$((ends - lead))
fi
"""

STEPS = """
# The newest checkpoint, by the name of its directory; -1 without any. An attempt that adds none makes no progress.
newest_step() {
  local newest=-1 name
  for name in "$run_dir"/checkpoints/step-*; do
    name=${name##*/step-}
    if [[ $name =~ ^[0-9]+$ ]] && [ "$name" -gt "$newest" ]; then newest=$name; fi
  done
  echo "$newest"
}
step_before=${RAMPUP_STEP_BEFORE:-$(newest_step)}  # said by a pack to a run that has only the rest of its time
"""

AFTER = """
trap '' TERM  # from here on nothing may be cut short
ended=$(date +%s.%N)

# Why did the ranks end? Those that stopped in good order left a word; of a TERM from outside only Slurm knows the
# reason. It shows a job that it is ending as COMPLETING, whatever the cause, before any TERM arrives: ask even if none
# has come, for quick ranks are gone before this shell gets its own. Then ask what differs: has the job been requeued,
# was it preempted, is its time over? Otherwise somebody cancelled it.
why=""
if [ -e "$attempt_dir/again" ]; then read -r why < "$attempt_dir/again"; fi
if [ "$why" = asked ] && [ "$code" -ne 0 ]; then why=""; fi  # one asks, another fails
{ask}
if [ "$why" = preempt ] || [ -n "$stopped" ] || [ "$code" -ne 0 ]; then
  if [ "${{restarts:-0}}" -gt "${{SLURM_RESTART_COUNT:-0}}" ]; then
    why=requeued
  elif [ -n "$preempted" ]; then
    why=preempt
  elif [[ $seen == *Reason=TimeLimit* ]]; then  # it came before the ranks could stop by themselves
    why=timeout
  elif [ "$why" = preempt ] || {{ [ -n "$stopped" ] && [ "$why" != stop ]; }}; then
    why=ended  # cancelled, whatever the ranks wished
  fi
fi

# Put this job back into the queue under its own id, or, where the site does not allow that, another one behind it.
# Slurm makes a requeued job wait two minutes; its owner may lift that, but not within the second of the requeue.
next_job=""
go_on() {{
  local said
  if [ -d "$run_dir/attempts/$((attempt + 1))" ]; then  # this is a ghost: Slurm gave the run to another attempt
    outcome=stopped
    return
  fi
  if [ "${{SLURM_TASK_PID:-}}" != $$ ]; then  # inside an allocation, which is not ours to give back
    if [ "$why" = asked ]; then exec bash -l "$run_dir/job.sh"; fi
    if [ "$why" != timeout ]; then outcome=stopped; fi
    return
  fi
  facts ", \\"ended\\": $ended, \\"exit_code\\": $code, \\"outcome\\": \\"again\\", \\"why\\": \\"$why\\""
{requeue}
}}

outcome=failed
cause=""
if [ "$code" -eq 0 ]; then outcome=completed; fi
if [ -n "$stopped" ]; then outcome=stopped; fi  # why, Slurm itself will tell
case $why in
  requeued | preempt)
    go_on
    ;;
  timeout | asked)
    [ -e "$attempt_dir/again" ] || echo "$why" > "$attempt_dir/again"
    starts=$(cat "$run_dir"/attempts/*/again 2> /dev/null | grep -c -e timeout -e asked)
    outcome=timeout
    if [ "$((starts - {starts_before}))" -gt {requeues} ]; then
      cause="it was started again {requeues} times after a time limit: resources.requeues allows no more"
    elif [ "$why" = timeout ] && [ "$(newest_step)" -le "$step_before" ]; then
      cause="the time limit was reached, and no checkpoint was added before: starting again would go round in circles"
    else
      go_on
    fi
    ;;
  stop)
    outcome=cancelled
    cause="stopped in good order, on request"
    ;;
  ended)
    outcome=stopped
    ;;
esac
[ -z "$cause" ] || echo "rampup: $cause" >&2
if [ "$outcome" = timeout ] && [ "$code" -eq 0 ]; then code=124; fi  # Slurm must not take it for done
facts ", \\"ended\\": $ended, \\"exit_code\\": $code, \\"outcome\\": \\"$outcome\\", \\"why\\": \\"$why\\", \\
\\"cause\\": \\"$cause\\", \\"next_job\\": \\"$next_job\\""
exit "$code"
"""

ASK = """\
seen=$(scontrol show job "$job" 2> /dev/null)
restarts=$(sed -n 's/.*Restarts=\\([0-9]*\\).*/\\1/p' <<< "$seen")
preempted=$(sed -n 's/.*PreemptTime=\\([0-9][^ ]*\\).*/\\1/p' <<< "$seen")
if [[ $seen == *JobState=COMPLETING* ]]; then stopped=yes; fi"""

REQUEUE = """\
  said=$(scontrol requeue "$job" 2>&1)
  if [ -z "$said" ] || [[ $said == *"pending execution"* ]]; then  # done, or Slurm had done it already
    outcome=again
    scontrol update jobid="$job" starttime=now+3seconds 2> /dev/null
    return
  fi
  if [[ $said != *disabled* ]]; then
    cause="could not be started again: ${said//[^a-zA-Z0-9 .,:;()_-]/ }"
    return
  fi"""

CHAIN = """\
  local name dropped=()
  for name in $(compgen -e); do  # a job that is submitted inside a job would inherit what that one asked for
    case $name in SLURM_CONF) ;; SLURM* | SBATCH_* | SRUN_*) dropped+=(-u "$name") ;; esac
  done
  if said=$(env "${dropped[@]}" sbatch --parsable --dependency=afterany:"$job" "$run_dir/job.sh" 2>&1); then
    outcome=again
    next_job=${said%%;*}
  else
    cause="could not be started again: ${said//[^a-zA-Z0-9 .,:;()_-]/ }"
  fi"""


def before(lead_s: int) -> str:
    """Lines that run before the ranks start: when to stop, and how far the run has come."""
    return clock(lead_s) + STEPS


def clock(lead_s: int) -> str:
    """Lines that leave in $stop_at when to stop; empty where nobody knows. They need $job and
    $started."""
    return CLOCK.format(lead_s=lead_s)


def after(requeue: bool, requeues: int, starts_before: int) -> str:
    """Lines that run when the ranks have ended, to the end of the script."""
    lines = f"{REQUEUE}\n{CHAIN}" if requeue else CHAIN
    return AFTER.format(ask=ASK, requeue=lines, requeues=requeues, starts_before=starts_before)
