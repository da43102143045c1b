"""Where the passes of a run go: a section's mode becomes an engine, and what a worker must know becomes one file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from skidpad.artifacts.digests import digest_bytes
from skidpad.artifacts.files import create, temporary_folder
from skidpad.engines.cluster import Cluster, require_ray
from skidpad.engines.engine import Engine, Job
from skidpad.engines.inline import Inline
from skidpad.engines.processes import Processes
from skidpad.evaluation.drivers import Driver
from skidpad.evaluation.evaluator import Arm, Evaluator
from skidpad.evaluation.passes import Where
from skidpad.evaluation.remote import OPENER, Pass, handed_over
from skidpad.runs.folder import RunFolder
from skidpad.settings.schema import ManagerSettings
from skidpad.settings.suite import EvaluatorSpec


class Places:
    """The engines of a run: pools live as long as it does."""

    def __init__(self, folder: RunFolder, manager: ManagerSettings) -> None:
        self._folder, self._manager = folder, manager
        self._kept: dict[tuple[str, int, bool, int | None], Engine] = {}

    @staticmethod
    def check(spec: EvaluatorSpec) -> None:
        """Raises MissingExtraError for a section whose place needs a library that is absent (E45)."""
        if spec.mode == "ray":
            require_ray()

    @contextmanager
    def ready(
        self, evaluator: Evaluator, arms: Sequence[Arm], driver: Driver, epoch: int, step: int
    ) -> Iterator[Where]:
        """The place of one pass. Inline simulators, the hand-over file and the weights that lay beside it are gone
        afterwards, however it ended (E37, E42).

        Raises ProtocolError for a policy object in a mode that needs a file.
        """
        spec = evaluator.spec
        here = Pass(evaluator, arms, epoch, step)
        if spec.mode == "inline":
            try:
                yield Where(Inline(here.perform), NOWHERE, here.echo, spec.timeout_seconds)
            finally:
                evaluator.worlds.close()
            return
        with temporary_folder(self._folder.path, "pass") as own:
            if not spec.blocking:  # training goes on, and may remove the checkpoint meanwhile
                driver = driver.kept_in(own)
            data = handed_over(evaluator, driver, epoch, step)
            handover = own / "handover.json"
            create(handover, data)
            job = Job(OPENER, handover, digest_bytes(data))
            yield Where(self._engine(evaluator), job, here.echo, spec.timeout_seconds)

    def _engine(self, evaluator: Evaluator) -> Engine:
        spec = evaluator.spec
        memory = None if spec.vec.memory_gib is None else int(spec.vec.memory_gib * 2**30)
        if spec.mode == "subprocess":
            return Processes(1, keep=False, memory=memory)
        workers = spec.vec.workers or len(os.sched_getaffinity(0))
        # What runs in the background never waits for what does not.
        key = spec.mode, workers, spec.blocking, memory
        if key not in self._kept:
            self._kept[key] = (
                Processes(workers, keep=True, memory=memory)
                if spec.mode == "pool"
                else Cluster(workers, address=self._manager.ray_address, cache=self._manager.node_cache)
            )
        return self._kept[key]

    def close(self) -> None:
        """End all workers."""
        for engine in self._kept.values():
            engine.close()


NOWHERE = Job("", Path(), "")
