"""An evaluator that behaves badly in a worker, by what its section is called: `dies`, `hangs`, `forks`, `raises`,
`leaks`. Only the cases at odd positions do; what is done alone is done by a section called `..._once` well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from stub_evaluator import StubEvaluator

from skidpad.evaluation.evaluator import Arm, Finished, PlannedCase
from skidpad.settings.suite import EvaluatorType


class HostileEvaluator(StubEvaluator):
    """A stub that hurts its worker."""

    TYPE: ClassVar[EvaluatorType] = EvaluatorType("hostile", StubEvaluator.TYPE.settings, StubEvaluator.TYPE.baseline)

    def run(self, arm: Arm, planned: Sequence[PlannedCase], *, epoch: int = 0, step: int = 0) -> list[Finished]:
        bad = [item for item in planned if item.position % 2]
        if bad and arm.name == "idm" and not (len(planned) == 1 and self.spec.name.endswith("_once")):
            getattr(self, self.spec.name.split("_")[0])()
        return super().run(arm, planned, epoch=epoch, step=step)

    def well(self) -> None:
        """Nothing bad."""

    def dies(self) -> None:
        """As a process that the system kills for its memory."""
        os.kill(os.getpid(), signal.SIGKILL)

    def hangs(self) -> None:
        """For longer than anybody waits."""
        time.sleep(600)

    def forks(self) -> None:
        """A child that does not listen to a request to end, and the worker waits for it."""
        note = Path(os.environ["SKIDPAD_TEST_NOTE"])
        child = subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 600 & wait"])
        note.write_text(str(child.pid))
        child.wait()

    def raises(self) -> None:
        """Something the evaluator did not expect."""
        raise ZeroDivisionError("asked to raise")

    def leaks(self) -> None:
        """A descriptor, a thread and a child, at every batch."""
        os.open(os.devnull, os.O_RDONLY)
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        subprocess.Popen(["sleep", "600"])

    kept: ClassVar[list[Any]] = []
