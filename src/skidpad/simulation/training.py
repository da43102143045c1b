"""Worlds to learn in: their settings (S120), and exactly as many policy rows as were asked for (S53)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skidpad.errors import ProtocolError, SettingsError
from skidpad.scenes.case import Case
from skidpad.scenes.scene import Scene
from skidpad.settings.schema import TRAINING_DEFAULTS, EnvSettings
from skidpad.simulation.simulator import Simulator


def training_settings(**keys: Any) -> EnvSettings:
    """Settings under which an agent that collides, leaves the road or passes a red light or stop sign stops there, and
    its episode with it, unless `keys` of EnvSettings say otherwise. Without them it drives on, as in evaluation."""
    return EnvSettings(**{**TRAINING_DEFAULTS, **keys})


def training_simulator(
    scenes: Sequence[Scene],
    settings: EnvSettings,
    *,
    rows: int,
    worlds: int | None = None,
    seed: int = 0,
    **options: Any,
) -> Simulator:
    """A simulator of exactly `rows` policy rows over `scenes`, drawn in a seeded order, each once per pass.

    On logs worlds are taken until their policy rows are that many, and the last one is limited, by the ranks of
    `population.select`; on bare maps the number is cut into worlds of min_agents_per_world to max_agents_per_world.

    worlds   how many it must be; by default whatever the rows take
    seed     of the order and of every world
    options  of Simulator; `autoreset` is "same_step" unless given

    Raises SettingsError where no such worlds exist: a budget that cannot be met, or scenes without anybody to drive;
    ProtocolError for no scene.
    """
    if not scenes:
        raise ProtocolError("no scene: worlds to train in need at least one")
    if rows < 1:
        raise SettingsError(f"a budget of {rows} agents; expected at least 1")
    pool = [Case(scene.digest, scene.meta.scene_id, seed) for scene in scenes]
    by_digest = {scene.digest: scene for scene in scenes}
    return Simulator(
        pool, settings, scenes=by_digest, rows=rows, worlds=worlds, **{"autoreset": "same_step", **options}
    )
