  said=$(scontrol requeue "$job" 2>&1)
  if [ -z "$said" ] || [[ $said == *"pending execution"* ]]; then  # done, or Slurm did it already
    outcome=again
    scontrol update jobid="$job" starttime=now+3seconds 2> /dev/null
    return
  fi
  if [[ $said != *disabled* ]]; then
    cause="could not be restarted: ${said//[^a-zA-Z0-9 .,:;()_-]/ }"
    return
  fi
