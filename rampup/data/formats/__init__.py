"""Readers for the usual file formats. Each is a SampleReader; `rampup.torch` and `rampup.keras`
export them. None imports the library of its format before it reads the first sample."""
