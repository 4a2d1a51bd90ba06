"""The launcher `spawn`: the supervisor starts every rank on this machine itself."""

from rampup.launchers.base import Launcher


class Spawn(Launcher):
    name = "spawn"
