#!/bin/sh
# A Slurm in trouble: the real sbatch, slow, dying or lying as ODD_SBATCH says. --test-only is left alone.
# Every call is a line in the file ODD_SEEN, where there is one; ODD_SLOW_S says how slow (3 s).
if [ -n "$ODD_SEEN" ]; then echo sbatch >> "$ODD_SEEN"; fi
case "$*" in *--test-only*) exec /usr/bin/sbatch "$@" ;; esac
case $ODD_SBATCH in
  "slow before") touch "$0.began"; sleep "${ODD_SLOW_S:-3}"; exec /usr/bin/sbatch "$@" ;;
  "slow after") /usr/bin/sbatch "$@"; sleep "${ODD_SLOW_S:-3}" ;;
  "dies before") kill -9 $$ ;;
  "dies") /usr/bin/sbatch "$@" > /dev/null; kill -9 $$ ;;
  "says nothing") /usr/bin/sbatch "$@" > /dev/null ;;
  "says more") /usr/bin/sbatch "$@"; echo bye ;;
  "says it in words") echo "Submitted batch job $(/usr/bin/sbatch "$@")" ;;
  "fails afterwards") /usr/bin/sbatch "$@" > /dev/null; echo "logbook: no route to host" >&2; exit 1 ;;
  "refuses") echo "sbatch: error: Batch job submission failed: Invalid account" >&2; exit 1 ;;
  "fills the disk") /usr/bin/sbatch "$@"; cat /dev/zero > "$ODD_DISK/filler" 2> /dev/null ;;
  *) exec /usr/bin/sbatch "$@" ;;
esac
