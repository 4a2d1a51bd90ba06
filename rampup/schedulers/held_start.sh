#!/bin/sh
# Wait until the process that started this has written down what it starts, then become the program.
# If that process dies first, standard input ends, and the program is never started.
read -r go || exit 125
exec "$@" < /dev/null
