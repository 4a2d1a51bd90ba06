"""Whether a resumed run can be equal bit for bit to one that was never interrupted, and if not,
why.

An engine writes its facts into every checkpoint, and compares them with its own when it resumes
from one. Pure.
"""

from collections.abc import Mapping
from typing import Any

WORDS = {
    "world_size": "{} ranks then, {} now",
    "threads": "{} threads per rank then, {} now",
    "cpu": "CPU {} then, {} now",
    "device": "device {} then, {} now",
    "gradients": "gradients={} then, {} now",
    "inter_threads": "{} operations at the same time then, {} now",
    "onednn": "TF_ENABLE_ONEDNN_OPTS={} then, {} now",
    "data": "data with the checksum {} then, {} now",
}


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is not the same, in a person's words."""
    found = [
        words.format(then.get(key), now.get(key))
        for key, words in WORDS.items()
        if then.get(key) != now.get(key)
    ]
    before, versions = then.get("versions", {}), now.get("versions", {})
    return found + [
        f"{name} {before.get(name)} then, {versions.get(name)} now"
        for name in sorted(before.keys() | versions.keys())
        if before.get(name) != versions.get(name)
    ]


def resumed_line(step: int, why_not: list[str]) -> str:
    return f"resumed at step {step}" + (
        f"; not bit for bit: {'; '.join(why_not)}" if why_not else ""
    )
