#!/bin/sh
# A Slurm in trouble: the real sacct, slow, dying or lying as ODD_SACCT says.
# Every call is a line in the file ODD_SEEN, where there is one; ODD_SLOW_S says how slow (3 s).
if [ -n "$ODD_SEEN" ]; then echo sacct >> "$ODD_SEEN"; fi
case $ODD_SACCT in
  "slow before") sleep "${ODD_SLOW_S:-3}"; exec /usr/bin/sacct "$@" ;;
  "slow after") /usr/bin/sacct "$@"; sleep "${ODD_SLOW_S:-3}" ;;
  "dies") /usr/bin/sacct "$@" | head -c 20; kill -9 $$ ;;
  "fails") echo "sacct: error: Unable to contact slurm controller (connect failure)" >&2; exit 1 ;;
  "says nothing") exit 0 ;;
  "says half") /usr/bin/sacct "$@" | head -n 1 ;;
  "says more") echo "maintenance on Sunday | all nodes | 8 h | - | - | -"; exec /usr/bin/sacct "$@" ;;
  *) exec /usr/bin/sacct "$@" ;;
esac
