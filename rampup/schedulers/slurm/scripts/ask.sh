seen=$(scontrol show job "$job" 2> /dev/null)
restarts=$(sed -n 's/.*Restarts=\([0-9]*\).*/\1/p' <<< "$seen")
preempted=$(sed -n 's/.*PreemptTime=\([0-9][^ ]*\).*/\1/p' <<< "$seen")
if [[ $seen == *JobState=COMPLETING* ]]; then stopped=yes; fi
