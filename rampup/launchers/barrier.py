"""The launcher `barrier`: each rank is a task of one barrier stage, which Spark starts all at once or
not at all. The scheduler `spark` runs the stage; no job script and no shell is involved."""

from rampup.launchers.base import Launcher


class Barrier(Launcher):
    name = "barrier"
    shares_jobs = False
    binds_ranks = False
