"""An evaluator that hurts whoever runs it, by what its section is called: `dies`, `hangs`, `leaks`, `raises`, `waits`
for the file that SKIDPAD_GATE names, `well`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import ClassVar

from stub_evaluator import StubEvaluator

from skidpad.evaluation.evaluator import Arm, Finished, PlannedCase
from skidpad.settings.suite import EvaluatorType

HELD: list[bytes] = []
"""What has leaked."""


class HostileEvaluator(StubEvaluator):
    """A stub whose cases at odd positions do harm under "idm"; in a section `..._once` not when they run alone. What
    its records call steps is `eval.worst_n`, so that they show which settings they were made with."""

    TYPE: ClassVar[EvaluatorType] = EvaluatorType("hostile", StubEvaluator.TYPE.settings, StubEvaluator.TYPE.baseline)

    def run(self, arm: Arm, planned: Sequence[PlannedCase], *, epoch: int = 0, step: int = 0) -> list[Finished]:
        harm, _, when = self.spec.name.partition("_")
        bad = [item for item in planned if item.position % 2]
        if bad and arm.name == "idm" and not (len(planned) == 1 and when == "once"):
            if harm == "dies":  # as a process that the system kills for its memory
                os.kill(os.getpid(), signal.SIGKILL)
            if harm == "hangs":
                time.sleep(600)
            if harm == "leaks":
                HELD.append(b"x" * (1 << 30))
                time.sleep(600)
            if harm == "raises":
                raise ZeroDivisionError("asked to raise")
            while harm == "waits" and not os.path.exists(os.environ["SKIDPAD_GATE"]):
                time.sleep(0.05)
        finished = super().run(arm, planned, epoch=epoch, step=step)
        for one in finished:
            if isinstance(one.record.result, dict):
                one.record.result["steps"] = self.spec.eval.worst_n
        return finished
