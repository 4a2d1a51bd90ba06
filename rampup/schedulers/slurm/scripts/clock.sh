
# When Slurm will end the job, and when the ranks should stop by themselves: @lead_s@ s earlier, or a quarter of the
# time if that is less. Slurm's own warning (--signal) may come up to a minute early, and never reaches this shell.
ends=${SLURM_JOB_END_TIME:-}
if [ -z "$ends" ]; then
  ends=$(squeue --noheader --jobs="$job" --format=%e 2> /dev/null)
  ends=$(date -d "$ends" +%s 2> /dev/null)
fi
stop_at=""
if [[ $ends =~ ^[0-9]+$ ]]; then
  lead=$(((ends - ${started%.*}) / 4))
  if [ "$lead" -gt @lead_s@ ]; then lead=@lead_s@; fi
  stop_at=$((ends - lead))
fi
