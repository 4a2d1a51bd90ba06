"""Jets of W and Z bosons and of top quarks: the set that comes with rampup, and files of others.

`shipped` reads the jets that lie beside it, `files` reads HDF5 files of two layouts, `prepare` makes
one layout of the other for `rampup fetch jets`, and `features` has what they share.
"""
