#!/bin/bash -l
# Run abc234, written by rampup 1.2.3. `sbatch job.sh` starts it by hand.
#SBATCH --job-name=mnist-abc234
#SBATCH --output=/shared/runs/20260102-030405-mnist-abc234/slurm-%j.log
#SBATCH --open-mode=append
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=8
#SBATCH --time=0-01:30:00
#SBATCH --gres=gpu:a100:2
#SBATCH --requeue

set -uo pipefail  # not -e: each exit code that matters is looked at below
export SLURM_EXPORT_ENV=ALL  # srun passes on what is set here, also at sites that submit with --export=NONE

run_dir=/shared/runs/20260102-030405-mnist-abc234
python=/shared/env/bin/python3
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}  # one task of an array, not all of it
job=${job:-${SLURM_JOB_ID:?start this script with sbatch}}
host=${SLURMD_NODENAME:-$HOSTNAME}
started=$(date +%s.%N)

# Rank 0 will be on the first node. Only Slurm can read its own lists of nodes.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
first=$(head -n 1 <<< "$hosts")
first=${first:-${SLURMD_NODENAME:-}}  # no scontrol on this node: a batch script runs on the first one
if [ -z "$first" ]; then
  echo "rampup: scontrol on $host does not tell which is the first node of $SLURM_JOB_NODELIST" >&2
  exit 69
fi
master=${first}
if ! getent hosts "$master" > /dev/null; then  # a name that only Slurm knows: ask it for the address
  address=$(scontrol show node "$first" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')
  master=${address:-$master}
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
facts() {
  printf '{"launcher": "srun", "job": "%s", "host": "%s", "nodes": "%s", "world_size": %d, "started": %s%s}\n' \
    "$job" "$host" "$SLURM_JOB_NODELIST" 4 "$started" "$1" > "$attempt_dir/.attempt.json" &&
    mv "$attempt_dir/.attempt.json" "$attempt_dir/attempt.json"
}
facts ""

# Every rank compares this with what it reads: do all nodes see the same run directory?
run_hash=$(sha256sum < "$run_dir/run.json" | cut -d ' ' -f 1)

# Slurm ends a job with TERM to the ranks and to this shell, and KILL some seconds later: stay until then, to write
# down how the ranks ended. TERM makes srun kill them all at once, so it gets one only where Slurm sends none: when
# this script is not the batch job itself but was started inside an allocation.
stopped=""
step=""
code=143  # when the end comes before the ranks have begun
trap 'stopped=yes; [ -z "$step" ] || [ "${SLURM_TASK_PID:-}" = $$ ] || kill -TERM "$step"' TERM

# One task per rank. --cpus-per-task again: not every version of Slurm hands it on from sbatch. --nodelist: rank 0 is
# where we say that it is. A rank that fails ends all of them (--kill-on-bad-exit), one that ends well leaves the
# others in peace (--wait=0). rank.py needs the standard library alone (-I -S) and becomes the program of the run: no
# shell is left in between that a signal could hit.
for try in 0 1 2; do
  rm -f "$attempt_dir/port-taken"
  if [ -n "$stopped" ]; then break; fi
  srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=8 \
    --kill-on-bad-exit=1 --wait=0 --nodelist="$first" \
    "$python" -I -S "$run_dir/rank.py" "$run_dir" --attempt="$attempt" --port-retry="$try" --cpus=8 \
    --master-addr="$master" --hosts="${hosts//$'\n'/,}" --started="$started" --run-hash="$run_hash" &
  step=$!
  while :; do  # a trapped signal ends `wait`, not srun
    wait "$step"
    code=$?
    kill -0 "$step" 2> /dev/null || break
  done
  [ -e "$attempt_dir/port-taken" ] || break  # another program on the node has our ports: take the next block
done

ended=$(date +%s.%N)
outcome=failed
if [ "$code" -eq 0 ]; then outcome=completed; fi
if [ -n "$stopped" ]; then outcome=stopped; fi  # why, Slurm itself will tell
facts ", \"ended\": $ended, \"exit_code\": $code, \"outcome\": \"$outcome\""
exit "$code"
