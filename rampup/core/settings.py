"""Settings as user code sees them. The worker and `rampup.init()` hand them to user code.

Which settings exist is declared in core/spec.py and core/engines/; config/setting_tables.py checks their
values. core/redact.py says what is shown and stored of them. Nothing here reads a file.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rampup.errors import nearest


class Settings(Mapping[str, Any]):
    """The settings of a run as user code sees them: `settings.lr` or `settings["lr"]`, read-only. An
    unknown name is answered with the nearest one."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle ask for these before _values exists
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(
                f"no setting named {name}; {nearest(name, self._values)}"
            ) from None

    def __repr__(self) -> str:
        return f"Settings({self._values!r})"
