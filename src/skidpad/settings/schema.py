"""What a suite may say: strict, frozen models with every default written once.

Nothing below the settings reads a key by string, and no key here is without effect. Units stand in the field's
description; a field without one has none. `sections.py` builds the trees that these models check, and adds file and
line to what they refuse.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
ControllerName = Literal["policy", "replay", "idm", "pdm", "static"]
Behaviour = Literal["ignore", "stop", "remove"]


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


class PdmSettings(Settings):
    """The planner of proposals (Dauner et al. 2023): how far and how finely it looks ahead."""

    horizon_seconds: Annotated[float, Field(ge=0.5, le=8.0)] = Field(4.0, description="s")
    step_seconds: Annotated[float, Field(ge=0.1, le=1.0)] = Field(0.5, description="s, of a proposal's roll-out")


LayoutName = Literal[
    "default/1",
    "compact/1",
    "wide/1",
    "wide_32/1",
    "wide_20/1",
    "deferred/1",
    "deferred_32/1",
    "compact/1:exact",
    "wide/1:exact",
    "wide_32/1:exact",
    "wide_20/1:exact",
    "v3/1",
    "v3_train/1",
    "default/1:exact",
    "v3/1:exact",
    "v3_train/1:exact",
    "wide/1:spiral",
    "wide_32/1:spiral",
    "wide_20/1:spiral",
]


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
    light_randomisation: bool = Field(
        False, description="generated lights: drawn durations, some off, some always green"
    )


class RewardSettings(Settings):
    """Weights of the reward terms (S97). Those of events count once, those of rates per second."""

    collision: NonNegative = Field(1.5, description="per collision; 0.1 more for each m/s of speed")
    offroad: NonNegative = Field(1.5, description="per contact with an edge, or departure from the road")
    stop_line: NonNegative = Field(1.0, description="per red light or stop sign passed")
    goal: NonNegative = Field(1.0, description="per goal")
    lane_align: NonNegative = Field(0.025, description="1/s")
    velocity_align: NonNegative = Field(1.0, description="s/m, share of speed against the lane in lane_align")
    lane_centre: NonNegative = Field(0.001, description="1/(m s)")
    centre_bias: Finite = Field(0.0, description="m left of the centre line, where lane_centre is best")
    velocity: NonNegative = Field(0.0025, description="1/s, while faster than 2.5 m/s")
    comfort: NonNegative = Field(0.05, description="1/s, for each of three limits that is broken")
    overspeed: NonNegative = Field(0.05, description="1/s")
    reverse: NonNegative = Field(0.005, description="1/s")
    timestep: NonNegative = Field(2.5e-5, description="1/s, while moving")
    not_yielding: NonNegative = Field(0.0, description="per failure to yield")
    progress: NonNegative = Field(0.0, description="1/m along the route")
    ade: Finite = Field(0.0, description="1/(m s), times the distance to the log; negative punishes it")
    collision_each_step: bool = Field(False, description="charge a lasting contact in every step, not when it begins")


class CompatSettings(Settings):
    """Rules of older simulators, for their checkpoints and recordings. Never a default."""

    dynamics: Literal["none", "v2", "v2b"] = Field("none", description="motion models and action tables")
    types: Literal["own", "car"] = Field("own", description="car: cyclists and pedestrians move like cars")
    reward: Literal["none", "v2", "v3"] = Field(
        "none", description="v2: collision, off-road and goal only; v3: comfort and overspeed per step"
    )
    idm: Literal["none", "rails"] = Field(
        "none", description="rails: what IDM drives slides along the centre line, whatever its dynamics could follow"
    )
    lights: Literal["none", "independent"] = Field(
        "none", description="independent: generated lights of one junction do not know each other"
    )


class EnvSettings(Settings):
    """The world: who exists, who is under test, how they move, and the rules. `env.*` in a suite."""

    simulation_mode: Literal["replay", "gigaflow"] = Field(
        "replay", description="gigaflow: self-play on the map alone, agents are spawned"
    )
    scenario_length: Annotated[int, Field(gt=0)] | None = Field(
        None, description="steps; default: rows left in the log, 600 in gigaflow"
    )
    init_step: Annotated[int, Field(ge=0)] = Field(0, description="log row of state 0")
    init_spread: bool = Field(False, description="draw the row of state 0 from init_step to the end less horizon_min")
    horizon_min: Annotated[int, Field(gt=0)] = Field(10, description="rows that a drawn start leaves at least")
    allow_beyond_log: bool = Field(False, description="scenario_length may exceed the rows left")
    dt: Annotated[float, Field(gt=0, le=0.5)] | None = Field(None, description="s per step; default: the log's own")

    init: Literal["all_valid", "controllable"] = Field(
        "all_valid", description="who exists: everybody at the start row, or those under test only"
    )
    control: Literal["vehicles", "agents", "tracks_to_predict", "sdc", "none"] = "vehicles"
    max_controlled: Annotated[int, Field(gt=0)] | None = None
    max_agents: Annotated[int, Field(gt=0)] | None = Field(None, description="bodies in a world of a log")
    limit_rank: Literal["distance", "drawn"] = Field(
        "distance", description="who comes first under a limit: the nearest to the recording vehicle, or a seeded draw"
    )
    min_agents_per_world: Annotated[int, Field(gt=0)] = Field(32, description="gigaflow; at most max_agents_per_world")
    max_agents_per_world: Annotated[int, Field(gt=0)] = Field(32, description="gigaflow; numbers are drawn evenly")
    drop_static_in_path: bool = Field(False, description="remove parked tracks that a moving track drives through")
    sdc_controller: ControllerName = "policy"
    vehicle_controller: ControllerName = "policy"
    other_controller: Literal["auto", "policy", "replay", "idm", "pdm", "static"] = Field(
        "replay", description="auto: as vehicles, but the log beside planners"
    )
    spawn_sizes: Literal["training", "evaluation"] = Field(
        "evaluation", description="training: 0.8 to 7 m long, 0.8 to 2.7 m wide; evaluation: 2 to 5.5, 1.5 to 2.5"
    )
    spawn_speed: NonNegative = Field(0.0, description="m/s, of spawned agents")

    dynamics: Literal["classic", "jerk"] = "classic"
    reset_accel_on_stop: bool = Field(False, description="jerk: accelerations become 0 where a change of sign stops")
    action_type: Literal["discrete", "continuous"] = "continuous"
    layout: LayoutName = Field("compact/1", description="observation layout, as in docs/layouts.md")
    obs_dtype: Literal["float32", "bfloat16", "float16", "int8"] = Field(
        "float32", description="of the observation rows; bfloat16 as its bits, int8 in steps of 1/127"
    )
    own_size_margin: NonNegative = Field(0.0, description="m per side, added to its own size as an agent sees it")

    goal_source: Literal["log", "route", "map", "none"] | None = Field(
        None, description="default: log in replay, route in gigaflow; none: nobody is given a goal, logs only"
    )
    goal_behaviour: Literal["finite", "rolling", "retire", "respawn", "new", "stop"] = Field(
        "finite",
        description="what follows the last goal: another set, one more at each, the end of the drive; respawn, new, "
        "stop: peer v2",
    )
    goal_spacing: tuple[Positive, Positive] = Field((20.0, 200.0), description="m, least and most, route and map")
    num_goals: Annotated[int, Field(ge=1, le=20)] = 3
    goal_radius: Positive = Field(2.0, description="m")
    goal_speed: NonNegative = Field(0.0, description="m/s, fastest speed at the last goal; 0 = no gate")
    gate_all: bool = Field(False, description="the speed gate holds for every goal, not for the last one of a set only")
    end_on_goal: bool = Field(False, description="the episode ends when the one ego has reached its last goal")
    beyond_log: Literal["retire", "stay"] = Field(
        "retire", description="retire: a driven agent leaves when its track does, so that all arms drive equally long"
    )

    collision_behaviour: Behaviour = Field("ignore", description="what a collision does to those who drive")
    offroad_behaviour: Behaviour = Field("ignore", description="what leaving the road does")
    red_light_behaviour: Behaviour = Field("ignore", description="what passing a red light does")
    stop_sign_behaviour: Behaviour = Field("ignore", description="what rolling through a stop sign does")
    yellow_counts: bool = Field(False, description="passing a yellow light is passing a red one")
    inactive_threshold: NonNegative = Field(
        0.4, description="gone / active drivers above which the episode ends; gone: stopped, removed or without a goal"
    )

    offroad: Literal["auto", "edges", "area"] = Field("auto", description="auto: area where the map has no edges")
    level_gate: Positive = Field(4.0, description="m, heights further apart do not meet")
    map_tolerance: NonNegative = Field(0.1, description="m, deviation allowed when thinning vertices; 0 keeps all")
    max_segment: Positive = Field(10.0, description="m, longer segments are split")
    lists: Literal["auto", "stored", "computed"] = Field(
        "auto",
        description="lists of nearby road rows: kept with the map, or computed at each look-up; auto keeps what the "
        "budget allows. Speed and memory only: no result depends on it",
    )
    list_budget_mib: Positive = Field(32.0, description="MiB per map, most that kept lists may take")

    conditioning: bool = Field(False, description="show each agent its coefficients")
    randomise: bool = Field(False, description="draw each agent's coefficients, by episode; needs conditioning")
    log_coefficients: bool = Field(False, description="draw and show weights of wide range on a log scale")
    reward: RewardSettings = RewardSettings()

    idm: IdmSettings = IdmSettings()
    pdm: PdmSettings = PdmSettings()
    perturbation: PerturbationSettings = PerturbationSettings()
    compat: CompatSettings = CompatSettings()

    @property
    def goals_from(self) -> Literal["log", "route", "map"]:
        """Where goals come from: `goal_source`, or what the mode has. None at all are those of a log without any."""
        if self.goal_source == "none":
            return "log"
        return self.goal_source or ("log" if self.simulation_mode == "replay" else "route")

    @field_validator("max_agents_per_world")
    @classmethod
    def _not_fewer_than_least(cls, most: int, info: ValidationInfo) -> int:
        least = info.data.get("min_agents_per_world", most)
        if most < least:
            raise ValueError(f"is {most}, below min_agents_per_world = {least}")
        return most

    @field_validator("goal_source")
    @classmethod
    def _no_log_on_a_bare_map(cls, source: str | None, info: ValidationInfo) -> str | None:
        if source in ("log", "none") and info.data.get("simulation_mode") == "gigaflow":
            raise ValueError(f'is "{source}", which a bare map has not; expected route or map')
        return source

    @field_validator("goal_behaviour")
    @classmethod
    def _a_log_does_not_roll(cls, behaviour: str, info: ValidationInfo) -> str:
        data = info.data
        source = data.get("goal_source", "route") or ("log" if data.get("simulation_mode") == "replay" else "route")
        if behaviour == "rolling" and source in ("log", "none"):
            raise ValueError('is "rolling", and a log has one set of goals; set goal_source = "route" or "map"')
        return behaviour

    @field_validator("goal_spacing")
    @classmethod
    def _spacing_is_a_range(cls, spacing: tuple[float, float]) -> tuple[float, float]:
        if spacing[0] > spacing[1]:
            raise ValueError(f"goes from {spacing[0]:g} m down to {spacing[1]:g} m; expected least, most")
        return spacing

    @model_validator(mode="after")
    def _draws_are_shown(self) -> Self:
        if self.randomise and not self.conditioning:
            raise ValueError(
                "randomise draws coefficients that no agent is shown: set conditioning = true, or randomise = false"
            )
        if self.randomise and self.compat.reward == "v2":
            raise ValueError("compat.reward = 'v2' has fixed weights, which randomise would draw: choose one of them")
        return self


class VecSettings(Settings):
    """How many worlds are stepped together. Results do not depend on it. `vec.*` in a suite."""

    num_worlds: Annotated[int, Field(gt=0, le=65536)] = 64
    threads: Annotated[int, Field(gt=0, le=1024)] = 1
    workers: Annotated[int, Field(gt=0, le=1024)] | None = Field(
        None, description="processes of mode pool, actors of mode ray; default: the CPUs this process may use"
    )
    memory_gib: Positive | None = Field(
        None, description="GiB a worker of mode subprocess or pool and its children may hold; default: no limit"
    )
    infer_batch: Annotated[int, Field(gt=0, le=65536)] = Field(64, description="rows of one padded inference call")


TRAINING_DEFAULTS = dict.fromkeys(
    ("collision_behaviour", "offroad_behaviour", "red_light_behaviour", "stop_sign_behaviour"), "stop"
)
"""Keys of EnvSettings that are other in training: whoever collides, leaves the road or passes a red light or stop sign
stops there, and its episode with it."""


class NetworkSettings(Settings):
    """Sizes of the network that is trained. `policy.*` in a suite."""

    encoder: Annotated[int, Field(gt=0, le=8192)] = Field(
        32, description="width of the two layers that each row of a block goes through, before the maximum over rows"
    )
    hidden: tuple[Annotated[int, Field(gt=0, le=8192)], ...] = Field(
        (128, 128), min_length=1, max_length=16, description="widths of the layers after the encoders"
    )
    memory: Literal["none", "gru", "lstm"] = Field("none", description="recurrent cell after them")
    memory_width: Annotated[int, Field(gt=0, le=8192)] = Field(128, description="of the cell")


class TrainSettings(Settings):
    """How a driver is trained. `train.*` in a suite; `train.env.*` are settings of its worlds alone."""

    seed: Annotated[int, Field(ge=0)] = Field(0, description="of worlds, first weights and drawn actions")
    start: str | None = Field(
        None, description="checkpoint whose weights training begins with, or library:NAME; default: drawn"
    )
    after: str | None = Field(
        None, description="suite trained before this one, which begins with its last weights; not where start is given"
    )
    total_steps: Annotated[int, Field(gt=0)] = Field(10_000_000, description="agent-steps after which training ends")
    rows: Annotated[int, Field(gt=0, le=1_000_000)] = Field(512, description="drivers that are stepped together")
    threads: Annotated[int, Field(gt=0, le=1024)] = Field(1, description="of the simulator and of torch")
    horizon: Annotated[int, Field(gt=1, le=65536)] = Field(32, description="steps of each driver between updates")
    resample: Annotated[int, Field(ge=0)] = Field(
        0, description="updates after which all worlds draw new scenes; 0 = never"
    )
    epochs: Annotated[int, Field(gt=0)] = Field(2, description="passes over each batch")
    minibatches: Annotated[int, Field(gt=0)] = Field(4, description="parts of each pass")
    learning_rate: Positive = 1e-3
    schedule: Literal["constant", "linear", "cosine"] = Field("linear", description="learning rate, down to 0")
    gamma: Probability = Field(0.98, description="discount per step")
    gae_lambda: Probability = 0.95
    bootstrap: bool = Field(
        True, description="where an episode is cut off, the value of what was seen last stands for what would have come"
    )
    clip: Positive = Field(0.2, description="of the ratio of probabilities")
    value_clip: NonNegative = Field(0.2, description="farthest a value moves unpunished in an update; 0 = free")
    value_coefficient: NonNegative = 0.5
    entropy_coefficient: NonNegative = 0.01
    max_grad_norm: Positive = 0.5
    normalise: bool = Field(True, description="advantages to mean 0, deviation 1 in each batch")
    advantage_filter: NonNegative = Field(
        0.0, description="deviations of the advantages below which a step is not learnt from; 0 = all are"
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: a GPU where there is one")
    precision: Literal["float32", "bfloat16"] = Field("float32", description="of the network while it learns")
    compile: bool = Field(False, description="torch.compile the network for learning")
    save_every: Annotated[int, Field(gt=0)] = Field(100, description="updates between checkpoints")
    keep_last: Annotated[int, Field(gt=0)] = Field(2, description="newest checkpoints that stay")
    keep_every: Annotated[int, Field(ge=0)] = Field(
        0, description="updates of which checkpoints stay for ever; 0 = none"
    )
    best: str | None = Field(None, description="<evaluator>/<metric> whose best checkpoint stays")
    tracking: tuple[Literal["tensorboard", "wandb"], ...] = Field(
        (), description="where curves are shown beside the csv"
    )


ARCHITECTURE_KEYS = ("env.dynamics", "env.compat.dynamics", "env.action_type", "env.layout", "env.num_goals")
"""What decides the layout of observations and actions, and therefore comes from a checkpoint (E16)."""

PERTURBATIONS_OFF: dict[str, float | bool] = {
    "lane_dropout": 0.0,
    "edge_dropout": 0.0,
    "blindness": 0.0,
    "phantom_braking": 0.0,
    "light_randomisation": False,
}
"""The profile `clean`: every share at zero. Onset rates stay, so that switching one share on suffices (E14)."""

PERTURBATIONS_STRESS: dict[str, float | bool] = {
    "lane_dropout": 0.3,
    "edge_dropout": 0.4,
    "blindness": 0.02,
    "phantom_braking": 0.02,
    "light_randomisation": True,
}
"""The profile `stress`: everything at once, as strong as one trains with (S108)."""


class SuiteEnvSettings(EnvSettings):
    """`env.*` as a suite writes it: the world, and the scenes it is filled with."""

    scenes: str | tuple[str, ...] = Field((), description="file, folder, glob, list file, library:<glob>, or several")


class ManagerSettings(Settings):
    """Plain keys of `[eval]`: they belong to the manager."""

    benchmark_seed: Annotated[int, Field(ge=0)] = Field(0, description="seed of every section that sets none")
    fail_fast: bool = Field(False, description="stop at the first evaluator that is not ok")
    eval_budget_share: Probability = Field(
        0.1, description="share of a training's time that evaluation may take before a line says so"
    )
    ray_address: str = Field(
        "auto", min_length=1, description="of the cluster; auto: the one this machine belongs to; local: start one here"
    )
    node_cache: str | None = Field(
        None, min_length=1, description="folder of the caches on every node of the cluster; default: the user's own"
    )


class FileSettings(Settings):
    """Plain keys at the top of a suite file."""

    extends: str | tuple[str, ...] = Field((), description="files merged below this one, relative to it")


class StructureSettings(Settings):
    """Plain keys of one section that shape how it is put together and are gone afterwards."""

    inherits: str | tuple[str, ...] = Field((), description="parent sections; a later one is stronger")
    abstract: bool = Field(False, description="a template, never built")
    unset: str | tuple[str, ...] = Field((), description="keys taken away from everything weaker")
    clean: bool | None = Field(None, description="another spelling of perturbations = 'clean' or 'train'")


ModeName = Literal["inline", "subprocess", "pool", "ray"]
RecordLevel = Literal["states", "observations"]
ViewName = Literal["sim_state", "bev", "topdown_sim", "bev_all"]
BackendName = Literal["mp4", "triage_html", "obs_html"]
ActionSelection = Literal["deterministic", "expected", "sample"]


class HeaderSettings(Settings):
    """Plain keys of one section: what it is, when it runs, what it keeps."""

    type: str
    enabled: bool = True
    interval: Annotated[int, Field(ge=0)] = Field(0, description="epochs between runs; 0 = never on schedule")
    at_start: bool = Field(False, description="also at epoch 0")
    at_end: bool | None = Field(None, description="also at the end of training; default: interval > 0")
    perturbations: str = Field("clean", description="'clean', 'train', 'stress', or a table [perturbations.<name>]")
    action_selection: ActionSelection = Field(description="set by the evaluator type unless the section does")
    seed: Annotated[int, Field(ge=0)] | None = Field(None, description="default: [eval] benchmark_seed")
    mode: ModeName = Field(
        "inline",
        description="subprocess: a process for each pass. pool: vec.workers that stay. ray: as many on a cluster",
    )
    blocking: bool = Field(
        True, description="false: training goes on while a pass runs, in mode pool or ray; one pass at a time"
    )
    timeout_seconds: Positive | None = Field(
        None, description="s, longest time of a pass; inline, looked at between batches"
    )
    record: RecordLevel = Field("states", description="observations: also what the policy saw, expected and weighed")
    keep_traces: Literal["selected", "all", "none"] = "selected"
    render: bool = Field(False, description="draw cases of a pass into renders/<evaluator>/")
    render_interval: Annotated[int, Field(ge=0)] | None = Field(
        None, description="epochs between rendered passes, a multiple of interval; 0 = never on schedule; default: each"
    )
    render_at_end: bool | None = Field(
        None, description="also at the end of training; default: unless render_interval is 0"
    )
    render_views: tuple[ViewName, ...] = Field(
        ("sim_state",), min_length=1, description="of each mp4 a file of its own"
    )
    render_backend: tuple[BackendName, ...] = Field(
        ("mp4",), min_length=1, description="mp4: clips. triage_html: a page to play. obs_html: what the driver saw"
    )
    render_select: Literal["worst", "failed", "random", "first"] | tuple[str, ...] = Field(
        "worst", description="which cases, or their ids; failed: any contact, off-road or red light, worst first"
    )


BaselineName = Literal["stationary", "constant_velocity", "random", "idm", "log", "log_actions"]
BASELINE_NAMES: tuple[BaselineName, ...] = ("stationary", "constant_velocity", "random", "idm", "log", "log_actions")
OPTIONAL_BASELINES = frozenset({"random", "log_actions"})
LOG_BASELINES = frozenset({"log", "log_actions"})
"""They drive as the log says, so a bare map has none of them."""


def baselines_of(mode: Literal["replay", "gigaflow"]) -> tuple[BaselineName, ...]:
    """The baselines that worlds of a mode have, in the order they are shown."""
    return tuple(name for name in BASELINE_NAMES if mode == "replay" or name not in LOG_BASELINES)


class EvalKnobs(Settings):
    """`eval.*` of every evaluator type; a type with knobs of its own subclasses this."""

    num_scenarios: Annotated[int, Field(gt=0)] | None = Field(
        None,
        description="scenes; default: all. In gigaflow episodes, spread over the maps; default: replicates of each",
    )
    replicates: Annotated[int, Field(gt=0, le=10_000)] = Field(1, description="cases per scene and ego")
    egos: Literal["scene", "each"] = Field("scene", description="the scene's ego, or one case per eligible vehicle")
    primary: str = Field("score", min_length=1, description="metric of the headline")
    primary_margin: NonNegative = Field(0.02, description="smallest difference of interest, in the metric's unit")
    baselines: tuple[str, ...] = Field(
        BASELINE_NAMES,
        description="drivers beside the one under test: names as --policy takes them, and NAME=FILE.safetensors; "
        "default: the baselines that the mode has",
    )
    reference: str = Field(
        "log", description="the one of them that paired differences are taken from; default in gigaflow: idm"
    )
    cluster: Literal["log", "case", "map"] = Field(
        "log", description="what is resampled as a whole; gigaflow: case (default), or map where the maps are a sample"
    )
    worst_metric: str | None = Field(None, min_length=1, description="metric of the worst-N list; default: primary")
    worst_n: Annotated[int, Field(ge=0)] = Field(8, description="cases in the worst list and in the random one")
    max_failed_cases: Annotated[int, Field(ge=0)] = Field(0, description="cases that may fail while ok stays true")
    resamples: Annotated[int, Field(ge=100, le=1_000_000)] = Field(10_000, description="bootstrap resamples")
    interval_method: Literal["bca", "percentile"] = "bca"
    skip_metrics: tuple[str, ...] = Field((), description="metrics left out, by name or glob; default: none")
    plan_reference: Literal["log", "pdm"] = Field(
        "log",
        description="whose progress PDMS and EPDMS are held against; pdm: a PDM-style planner drives every case too",
    )
    render_num_scenarios: Annotated[int, Field(gt=0)] | None = Field(None, description="cases drawn in a pass")
    render_max_steps: Annotated[int, Field(gt=0)] | None = Field(None, description="steps drawn of each case")
    render_max_minutes: Positive = Field(10.0, description="min, estimated time of a pass above which it is refused")

    @field_validator("baselines")
    @classmethod
    def _each_once(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        if len({entry.partition("=")[0] for entry in entries}) < len(entries):
            raise ValueError("names a baseline twice")
        return entries
