"""`python -m rampup` is the command line."""

from rampup.cli.app import main

main()
