#!/bin/sh
# A Slurm in trouble: the real squeue, slow, dying or lying as ODD_SQUEUE says.
# Every call is a line in the file ODD_SEEN, where there is one; ODD_SLOW_S says how slow (3 s).
if [ -n "$ODD_SEEN" ]; then echo squeue >> "$ODD_SEEN"; fi
case $ODD_SQUEUE in
  "slow before") sleep "${ODD_SLOW_S:-3}"; exec /usr/bin/squeue "$@" ;;
  "slow after") /usr/bin/squeue "$@"; sleep "${ODD_SLOW_S:-3}" ;;
  "dies") /usr/bin/squeue "$@" | head -c 20; kill -9 $$ ;;
  "fails") echo "squeue: error: Unable to contact slurm controller (connect failure)" >&2; exit 1 ;;
  "says nothing") exit 0 ;;
  "says half") /usr/bin/squeue "$@" | head -n 1 ;;
  "says more") echo "maintenance on Sunday | all nodes | 8 h | - | - | -"; exec /usr/bin/squeue "$@" ;;
  *) exec /usr/bin/squeue "$@" ;;
esac
