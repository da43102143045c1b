"""The kernels of one configuration, and the working memory that a thread lends them."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.settings.schema import EnvSettings
from skidpad.simulation import state as at
from skidpad.simulation.layout_table import Layout
from skidpad.simulation.slots import lined_zeros, spread


def scratch_arrays(agents: int, layout: Layout, lanes: int, plans: bool) -> dict[str, NDArray[Any]]:
    """Working memory of one thread for worlds of up to `agents` agents and maps of up to `lanes` lanes: the fields of
    `slots.SCRATCH`. Contents mean nothing between calls. `plans`: PDM may drive somebody."""
    from skidpad.simulation.kernels.agent_grid import BLOCK as GRID_BLOCK
    from skidpad.simulation.kernels.agent_grid import GRID_ROWS
    from skidpad.simulation.kernels.contact import CONTACT_SLOTS
    from skidpad.simulation.kernels.idm import PATH_POINTS
    from skidpad.simulation.kernels.motion import BLOCK
    from skidpad.simulation.kernels.observe_rows import LINES
    from skidpad.simulation.kernels.pdm import PROPOSALS, TICKS
    from skidpad.simulation.kernels.routes import ROUTE_LANES

    rows = max(block.listed or block.rows for block in layout.road_blocks)
    slots = max(block.rows for block in layout.blocks)
    return {
        "path": np.zeros((PATH_POINTS, 4), np.float32),
        "path_lane": np.zeros(PATH_POINTS, np.int32),
        "pose": np.zeros(at.LOG_COLUMNS, np.float32),
        "contacts": np.zeros((GRID_ROWS, agents + GRID_BLOCK), np.float32),
        "places": np.zeros(CONTACT_SLOTS * agents + 2, np.int32),
        "ids": np.zeros(rows, np.int32),
        "squares": np.zeros(rows, np.float64),
        "near": np.zeros(agents + 1, np.int32),
        "value": np.zeros(agents + 32, np.float32),
        "square": np.zeros(agents + 8, np.float32),
        "hidden": np.zeros(agents, np.float32),
        "packed": np.zeros((agents, 16), np.float32),
        "slots": np.zeros(max(agents, slots), np.int32),
        "reach": np.zeros(slots, np.float32),
        "lines": lined_zeros((LINES, spread(layout.size + 8)), np.float32),
        "noted": np.zeros((LINES, 3), np.int32),
        "mark": np.zeros(lanes, np.uint8),
        "to_goal": np.full(lanes, np.inf, np.float32),
        "spare": np.zeros(ROUTE_LANES, np.int32),
        "lane_before": np.zeros(lanes, np.int32),
        "lane_queue": np.zeros(lanes, np.int32),
        "movers": np.zeros(agents, np.int32),
        "block": np.ones(BLOCK, np.float32),  # lanes that stand idle divide by a length
        "plan_block": np.zeros((TICKS + 1 if plans else 0, agents), np.float32),
        "plan_ways": np.zeros((PROPOSALS if plans else 0, TICKS + 1), np.float32),
        "plan_scores": np.zeros((3 if plans else 0, PROPOSALS), np.float32),
    }


class Phases(NamedTuple):
    """The kernels of one configuration, in the order of a step; `before` and `after` run around the first detection
    of an episode, `plan` and `slide` only where somebody is driven so."""

    before: tuple[Any, ...]
    after: tuple[Any, ...]
    take_box: Any
    take_index: Any
    plan: tuple[Any, ...]
    advance: Any
    slide: tuple[Any, ...]
    detect: Any
    outcomes: Any
    observe: Any

    @staticmethod
    def load(settings: EnvSettings, family: str, drivers: Collection[str | None]) -> Phases:
        """Import them, of the observing ones that of the layout's family; compiled before, they come from the cache.
        `drivers`: who may drive somebody, by the names of `env.vehicle_controller`."""
        from skidpad.simulation.kernels import planners, start
        from skidpad.simulation.kernels.actions import take_box, take_index
        from skidpad.simulation.kernels.advance import advance
        from skidpad.simulation.kernels.detect import detect
        from skidpad.simulation.kernels.outcomes import outcomes

        module = importlib.import_module(f"skidpad.simulation.kernels.observe_{family}")
        observe = getattr(module, f"observe_{family}")
        before: tuple[Any, ...] = (start.set_back, start.start_lights)
        if settings.simulation_mode == "replay":
            before += (start.place_logged,)
        if settings.simulation_mode == "gigaflow":
            before += (start.spawn_agents,)
        after: tuple[Any, ...] = (start.note_starts,)
        if settings.goals_from != "log":
            after += (start.start_goals,)
        idm, pdm = "idm" in drivers, "pdm" in drivers
        plan = (planners.plan_idm,) * idm + (planners.plan_pdm,) * pdm
        slide = (planners.slide_all,) * (idm and settings.compat.idm == "rails")
        return Phases(before, after, take_box, take_index, plan, advance, slide, detect, outcomes, observe)

    def move(self, *arguments: Any) -> None:
        """Everybody decides on the present state, then all move (S107)."""
        for phase in self.plan:
            phase(*arguments)
        self.advance(*arguments)
        for phase in self.slide:
            phase(*arguments)

    def start(self, *arguments: Any) -> None:
        """Put worlds into state 0, and show it."""
        for phase in self.before:
            phase(*arguments)
        self.detect(True, *arguments)
        for phase in self.after:
            phase(*arguments)
        self.observe(*arguments)

    def compile_ahead(self, arguments: tuple[Any, ...]) -> None:
        """Compile what `reset` and `step` will call; costs nothing once it is compiled."""
        from skidpad.artifacts.compile_ahead import compile_ahead

        # The small ones take less than the process that would compile them.
        large = [(phase, arguments) for phase in (self.outcomes, self.advance, *self.plan, self.observe)]
        compile_ahead([(self.detect, (True, *arguments)), *large])
