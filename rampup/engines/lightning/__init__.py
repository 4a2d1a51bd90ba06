"""The lightning engine; importing it refuses a version of Lightning that is not to be used."""

from rampup.core.engines.lightning import check_installed

check_installed()  # before anything of it is imported
