"""Simulators that are kept from one batch of cases to the next: other cases are put into their worlds, instead of
building worlds anew (E43).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from skidpad.scenes.case import Case
from skidpad.scenes.map_cache import MapCache
from skidpad.scenes.scene import Scene
from skidpad.settings.schema import ControllerName, EnvSettings

if TYPE_CHECKING:
    from skidpad.simulation.simulator import Simulator

KEPT = 8  # of different settings or controllers: a section has one for its policies and one for each controller


class Worlds:
    """Simulators by what decides how they step: settings, controller, threads. `built` counts those that were made."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Any, Simulator] = OrderedDict()
        self.built = 0

    @contextmanager
    def taken(
        self,
        cases: Sequence[Case],
        env: EnvSettings,
        scenes: Mapping[str, Scene],
        *,
        threads: int,
        cache: MapCache,
        substitute: ControllerName | None,
    ) -> Iterator[Simulator]:
        """A simulator of these cases, not yet reset. One in whose use something was raised is closed and forgotten.

        Raises as `Simulator`.
        """
        from skidpad.simulation.simulator import Simulator

        key = (env, threads, substitute, id(cache))
        simulator = self._kept.pop(key, None)
        try:
            if simulator is None:
                simulator = Simulator(cases, env, scenes=scenes, threads=threads, cache=cache, substitute=substitute)
                self.built += 1
            else:
                simulator.take(cases, scenes)
            yield simulator
        except BaseException:
            if simulator is not None:
                simulator.close()
            raise
        self._kept[key] = simulator
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)[1].close()

    def close(self) -> None:
        """Close all simulators."""
        while self._kept:
            self._kept.popitem()[1].close()
