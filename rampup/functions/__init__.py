"""`rampup.launch` and `rampup.attach`: a Python function as a run, from a script or a notebook."""
