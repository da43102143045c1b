"""Curves of a training run in other people's tools: TensorBoard and wandb behind one small sink.

Whatever is shown there also stands in the run folder. A tracker is a convenience: one that is missing or fails is
dropped with one warning, and the run goes on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

STEP = "step"


class Sink(Protocol):
    """Where values and files go."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Numbers by name, of one step, which may be an earlier one than the last."""

    def files(self, files: Mapping[str, Iterable[Path]], step: int) -> None:
        """Films and pages by name, `<evaluator>/render/<view>`."""

    def close(self) -> None:
        """Write what is left."""


class TensorBoard:
    """Scalars as TensorBoard's event files, and the paths of films and pages as text."""

    def __init__(self, folder: Path, run: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder / "tensorboard"))

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def files(self, files: Mapping[str, Iterable[Path]], step: int) -> None:
        for name, paths in files.items():
            self._writer.add_text(name, "\n\n".join(map(str, paths)), step)

    def close(self) -> None:
        self._writer.close()


class Wandb:
    """A run of wandb: offline, unless WANDB_MODE says online."""

    def __init__(self, folder: Path, run: str) -> None:
        import wandb

        self._wandb: Any = wandb
        mode = os.environ.get("WANDB_MODE", "offline")
        self._run = wandb.init(project="skidpad", id=run, dir=str(folder), mode=mode, resume="allow")
        # Its own step only goes up, and drops what belongs to an earlier one: a pass that ran in the background.
        self._run.define_metric(STEP)
        self._run.define_metric("*", step_metric=STEP)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log({**values, STEP: step})

    def files(self, files: Mapping[str, Iterable[Path]], step: int) -> None:
        for name, paths in files.items():
            for path in paths:
                kind = self._wandb.Video if path.suffix == ".mp4" else self._wandb.Html
                self._run.log({name: kind(str(path)), STEP: step})

    def close(self) -> None:
        self._run.finish()


SINKS: Mapping[str, Callable[[Path, str], Sink]] = {"tensorboard": TensorBoard, "wandb": Wandb}


class Trackers:
    """The sinks of a run by name. One that fails is dropped with one warning on standard error."""

    def __init__(
        self, names: Iterable[str], folder: Path, run: str, sinks: Mapping[str, Callable[[Path, str], Sink]] = SINKS
    ) -> None:
        self._open: dict[str, Sink] = {}
        for name in names:
            try:
                self._open[name] = sinks[name](folder, run)
            except ImportError:
                _warn(f"{name} is not installed: pip install 'skidpad[tracking]'. Training goes on without it.")
            except Exception as error:  # Whatever a tracker throws is no reason to stop a run.
                _warn(f"{name} could not be started ({' '.join(str(error).split())}). Training goes on without it.")

    def log(self, values: Mapping[str, float], step: int) -> None:
        """As `Sink.log`, to all."""
        self._each(lambda sink: sink.log(values, step))

    def files(self, files: Mapping[str, Iterable[Path]], step: int) -> None:
        """As `Sink.files`, to all."""
        if files:
            self._each(lambda sink: sink.files(files, step))

    def close(self) -> None:
        """As `Sink.close`, to all."""
        self._each(lambda sink: sink.close())

    def _each(self, do: Callable[[Sink], None]) -> None:
        for name, sink in list(self._open.items()):
            try:
                do(sink)
            except Exception as error:  # As above.
                del self._open[name]
                _warn(f"{name} failed ({' '.join(str(error).split())}) and is dropped. Training goes on without it.")


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)
