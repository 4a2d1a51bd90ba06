#!/bin/bash
# @count@ runs of the study @study@, @at_once@ at a time inside this job. Written by rampup @version@.
#@put directives

set -uo pipefail
folder=@folder@  # a link to each run, by its number
starts=(@starts@)  # of each run, which of its submissions is this one
count=${#starts[@]}
at_once=@at_once@
job=${SLURM_JOB_ID:?start this script with sbatch}
started=$(date +%s.%N)
#@put clock
# srun inherits the resources of the whole job: each run gets its share, and none waits for another.
unset @sizes@
#@put exports
if [ "${SLURM_MEM_PER_NODE:-0}" -gt 0 ]; then
  export SLURM_MEM_PER_NODE=$((SLURM_MEM_PER_NODE / at_once))
fi

# Whether the run still belongs to this job: moving it to another job, or cancelling it, makes a file in submissions/.
# They are listed, because a network file system may say for a minute that a file is not there.
is_ours() {
  local name
  for name in "$folder/$1"/submissions/*; do
    name=${name##*/}
    if [ "$name" = "${starts[$1]}.cancelled" ]; then return 1; fi
    if [[ $name =~ ^([0-9]+)\.json$ ]] && [ "${BASH_REMATCH[1]}" -gt "${starts[$1]}" ]; then return 1; fi
  done
}

# How the newest attempt of a run ended, if this job began it: this script is older than all of those.
outcome_of() {
  local number=0 run=$folder/$1 outcome=""
  while [ -d "$run/attempts/$((number + 1))" ]; do number=$((number + 1)); done
  if [ "$run/attempts/$number/outcome" -nt "$folder.sh" ]; then read -r outcome < "$run/attempts/$number/outcome"; fi
  echo "$outcome"
}

# Nothing is left to do for it. After a time limit without a recorded cause it has saved, and can continue later.
is_done() {
  case $(outcome_of "$1") in completed* | failed* | cancelled* | timeout?*) ;; *) return 1 ;; esac
}

stopped=""
trap 'stopped=yes' TERM
is_over() { [ -n "$stopped" ] || { [ -n "$stop_at" ] && [ "$(date +%s)" -ge "$stop_at" ]; }; }

# Wait until fewer than this many run. A run that is no longer ours is ended.
pids=()
wait_for_room() {
  local number
  while :; do
    for number in "${!pids[@]}"; do
      if ! kill -0 "${pids[number]}" 2> /dev/null; then
        unset "pids[number]"
      elif [ -z "${ending[number]:-}" ] && ! is_ours "$number"; then
        kill -TERM "${pids[number]}"
        ending[number]=yes
      fi
    done
    if [ "${#pids[@]}" -lt "$1" ]; then return; fi
    sleep 0.5
  done
}

begun=()
ending=()
late=""  # the first runs have the whole time of the job; a later one may have no time left to save
for ((number = 0; number < count; number++)); do
  run=$folder/$number
  if is_done "$number"; then continue; fi
  wait_for_room "$at_once"
  if is_over; then break; fi
  if ! is_ours "$number"; then continue; fi
  if [ "${#begun[@]}" -ge "$at_once" ]; then late=-2; fi
  RAMPUP_STEP_BEFORE=$late bash -l "$run/job.sh" >> "$run/slurm-$job.log" 2>&1 &
  pids[number]=$!
  begun+=("$number")
  echo "rampup: $(date +%T) run $(readlink "$run" | sed 's/.*-//') begins"
done
wait_for_room 1
trap '' TERM  # from here on nothing may be interrupted

left=0
bad=0
for ((number = 0; number < count; number++)); do
  if ! is_ours "$number"; then continue; fi
  case $(outcome_of "$number") in
    completed*) ;;
    failed* | cancelled* | timeout?*) bad=$((bad + 1)) ;;
    *) left=$((left + 1)) ;;
  esac
done
echo "rampup: of $count runs $left are left, $bad did not end well"
if [ "$left" -eq 0 ]; then exit $((bad > 0)); fi

# Runs are left: is the time over, or did Slurm end the job? Without a run that ended or saved there is no progress, and
# a restart would repeat the same work.
moved=""
for number in "${begun[@]}"; do
  case $(outcome_of "$number") in completed* | failed* | cancelled* | timeout*) moved=yes ;; esac
done
why=${moved:+timeout}
#@put ask
if [ -n "$stopped" ]; then
  if [ "${restarts:-0}" -gt "${SLURM_RESTART_COUNT:-0}" ]; then
    exit 143  # Slurm has requeued the job itself
  elif [ -n "$preempted" ]; then
    why=preempt
  elif [[ $seen != *Reason=TimeLimit* ]]; then
    exit 143  # cancelled
  fi
fi

cause=""
outcome=""
go_on() {
#@if requeue
  local said
#@put requeue
#@end
  cause="this site does not put a job back into the queue"
}
if [ -n "$why" ]; then go_on; else cause="no run ended or saved in the time of the job"; fi
if [ "$outcome" = again ]; then exit 0; fi
echo "rampup: $cause. The same sweep starts what is left" >&2
exit 124
