"""What a suite may say: strict, frozen models with every default written once.

Nothing below the settings reads a key by string, and no key here is without effect. Units stand in the field's
description; a field without one has none. `sections.py` builds the trees that these models check, and adds file and
line to what they refuse.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
ControllerName = Literal["policy", "replay", "idm", "static"]


class Settings(BaseModel):
    """Base of all settings: strict types, no unknown keys, immutable."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


class IdmSettings(Settings):
    """The intelligent driver model (Treiber, Hennecke, Helbing 2000), driven through the dynamics by pure pursuit."""

    max_acceleration: Positive = Field(1.0, description="m/s^2")
    comfortable_deceleration: Positive = Field(3.0, description="m/s^2")
    min_gap: Positive = Field(1.0, description="m, bumper to bumper at rest")
    headway: Positive = Field(1.5, description="s")
    desired_speed: Positive = Field(10.0, description="m/s, where the lane has no limit")


class PerturbationSettings(Settings):
    """What may be taken from a policy's observation and actions to harden it. All off by default; rates are per
    second."""

    lane_dropout: Probability = 0.0
    edge_dropout: Probability = 0.0
    blindness: Probability = Field(0.0, description="share of episodes in which partner rows may vanish")
    blindness_rate: NonNegative = Field(0.1, description="1/s, onset in such an episode")
    phantom_braking: Probability = Field(0.0, description="share of episodes with sudden full brakes")
    phantom_braking_rate: NonNegative = Field(0.1, description="1/s, onset in such an episode")
    perturbation_seconds: Positive = Field(3.0, description="s, how long one blindness or brake lasts")


class EnvSettings(Settings):
    """The world: who exists, who is under test, how they move, and the rules. `env.*` in a suite."""

    simulation_mode: Literal["replay"] = "replay"
    scenario_length: Annotated[int, Field(gt=0)] | None = Field(
        None, description="steps; default: rows left in the log"
    )
    init_step: Annotated[int, Field(ge=0)] = Field(0, description="log row of state 0")
    dt: Annotated[float, Field(gt=0, le=0.5)] | None = Field(None, description="s per step; default: the log's own")

    control: Literal["vehicles", "tracks_to_predict", "sdc"] = "vehicles"
    max_controlled: Annotated[int, Field(gt=0)] | None = None
    sdc_controller: ControllerName = "policy"
    vehicle_controller: ControllerName = "policy"
    other_controller: Literal["replay", "static"] = "replay"

    dynamics: Literal["classic"] = "classic"
    action_type: Literal["discrete", "continuous"] = "continuous"
    layout: Literal["compact/1"] = "compact/1"

    goal_source: Literal["log"] = "log"
    num_goals: Annotated[int, Field(ge=1, le=20)] = 3
    goal_radius: Positive = Field(2.0, description="m")
    goal_speed: NonNegative = Field(0.0, description="m/s, fastest speed at the last goal; 0 = no gate")

    offroad: Literal["auto", "edges", "area"] = Field("auto", description="auto: area where the map has no edges")
    level_gate: Positive = Field(4.0, description="m, heights further apart do not meet")
    map_tolerance: NonNegative = Field(0.1, description="m, deviation allowed when thinning vertices; 0 keeps all")
    max_segment: Positive = Field(10.0, description="m, longer segments are split")

    idm: IdmSettings = IdmSettings()
    perturbation: PerturbationSettings = PerturbationSettings()


class VecSettings(Settings):
    """How many worlds are stepped together. Results do not depend on it. `vec.*` in a suite."""

    num_worlds: Annotated[int, Field(gt=0, le=65536)] = 64
    threads: Annotated[int, Field(gt=0, le=1024)] = 1
    infer_batch: Annotated[int, Field(gt=0, le=65536)] = Field(64, description="rows of one padded inference call")
