"""Rows of one file, trained on while they are read; `kept` holds them in memory to compare."""

import os
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rampup.torch import Field, SampleReader, Task, TensorData

ROW = 4096
ROW_BYTES = 4 * ROW
MB = 1_000_000


class Rows(SampleReader):
    """A file of rows, read one by one."""

    fields = (Field((ROW,), np.float32),)

    def __init__(self, file: str, pause_s: float = 0.0) -> None:
        self._file, self._pause_s = file, pause_s
        self._size = os.path.getsize(file) // ROW_BYTES

    def __len__(self) -> int:
        return self._size

    def files(self) -> list[Path]:
        return [Path(self._file)]

    def read(self, indices: Any, out: Any) -> None:
        time.sleep(self._pause_s)
        with open(self.local_path(self._file), "rb", buffering=0) as file:
            for row, index in enumerate(indices.tolist()):
                if os.preadv(file.fileno(), [out[0][row]], index * ROW_BYTES) < ROW_BYTES:
                    raise EOFError(f"{self._file} ends before row {index}")


def limit_memory(megabytes: int) -> None:
    """Let this process have so much more memory than it has now."""
    status = Path("/proc/self/status").read_text().partition("VmData:")[2]
    most = 1024 * int(status.split()[0]) + megabytes * MB
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


class Streamed(Task):
    def data(self) -> Any:
        if self.settings.memory_mb:
            limit_memory(self.settings.memory_mb)
        if not self.settings.kept:
            return Rows(self.settings.file, self.settings.pause_s), None
        rows = np.fromfile(self.settings.file, np.float32).reshape(-1, ROW)
        return TensorData(torch.from_numpy(rows)), None

    def model(self) -> nn.Module:
        width = self.settings.width
        return nn.Sequential(nn.Linear(ROW, width), nn.Dropout(0.1), nn.ReLU(), nn.Linear(width, 1))

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        (rows,) = batch
        return (model(rows).squeeze(1) - rows.mean(1)).square().mean()
