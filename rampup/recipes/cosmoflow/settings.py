"""What the settings of the cosmoflow recipe may be: looked at before anything is submitted, so
without a framework."""

from pathlib import Path

from rampup.recipe import Needs, Refused, Settings, check_cosmoflow, dataset_folder, nearest

DEMO = "cosmoflow-demo"
"""The set that `rampup fetch` makes; anything else is a folder."""
LOSSES = ("mse", "mae")
ACTIVATIONS = ("leaky_relu", "relu", "elu", "selu", "gelu", "swish", "tanh")
DIVISIONS, STATUSES = ("open", "closed"), ("onprem", "cloud", "preview", "research")
KNOWN = {
    "loss": LOSSES,
    "hidden_activation": ACTIVATIONS,
    "division": DIVISIONS,
    "status": STATUSES,
}
LEAST = {
    "n_train": 0,
    "n_valid": 0,
    "conv_size": 1,
    "n_conv_layers": 1,
    "kernel_size": 1,
    "fc1_size": 1,
    "fc2_size": 1,
}


def check(settings: Settings) -> Needs:
    for name, least in LEAST.items():
        if settings[name] < least:
            raise Refused(f"{name}={settings[name]} is too small", f"{name}={least} is the least")
    for name, known in KNOWN.items():
        if settings[name] not in known:
            raise Refused(f"{name}={settings[name]} is not known", nearest(settings[name], known))
    if not settings.organisation:
        raise Refused("organisation= is empty, and MLPerf asks for one", "organisation=NAME")
    if not 0 <= settings.dropout < 1:
        raise Refused(
            f"dropout={settings.dropout}: it is the part that is left out, below 1", "dropout=0.5"
        )
    if settings.l2 < 0:
        raise Refused(f"l2={settings.l2} would reward large weights", "l2=0")
    if settings.data == DEMO:
        return Needs(data=(DEMO,))
    check_cosmoflow(Path(settings.data))
    return Needs()


def find_folder(settings: Settings) -> Path:
    """Return where the data is."""
    return dataset_folder(DEMO) if settings.data == DEMO else Path(settings.data)
