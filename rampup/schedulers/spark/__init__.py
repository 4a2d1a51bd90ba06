"""The scheduler `spark`: the ranks of a run are the tasks of one barrier stage."""
