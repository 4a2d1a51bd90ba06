"""A model of Keras 3 is refused on the login node, by the source of the function that builds it."""

from pathlib import Path

import pytest

from rampup.config.resolve import Request, resolve
from rampup.errors import Refused

REFUSED = {
    "import keras": "import keras\n\ndef build():\n    return keras.Sequential()\n",
    "under another name": "import keras as k\n\ndef build():\n    return k.Sequential()\n",
    "a part of it": "from keras import layers\n\ndef build():\n    return layers.Dense(1)\n",
    "inside": "def build():\n    from keras.models import Sequential\n    return Sequential()\n",
}
TAKEN = {
    "tf_keras": "import tf_keras as keras\n\ndef build():\n    return keras.Sequential()\n",
    "of TensorFlow": "from tensorflow import keras\n\ndef build():\n    return keras.Model()\n",
    "unused": "import keras\n\ndef build():\n    return None\n",
    "only the job can tell": (
        "try:\n    import tf_keras as keras\nexcept ImportError:\n    import keras\n\n"
        "def build():\n    return keras.Sequential()\n"
    ),
}


def load(folder: Path, text: str) -> None:
    (folder / "mine.py").write_text(f"{text}\ndef rows():\n    return None\n")
    resolve(Request(target="mine:build", settings=("data=mine:rows",)), folder)


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_keras_3_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(Refused, match="mine:build builds a model of Keras 3") as refused:
        load(tmp_path, text)
    assert "import tf_keras as keras" in refused.value.hint


@pytest.mark.parametrize("text", TAKEN.values(), ids=TAKEN)
def test_what_may_be_keras_2_is_taken(tmp_path: Path, text: str) -> None:
    load(tmp_path, text)
