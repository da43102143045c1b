"""The drivers every result is shown beside (E71).

`stationary`, `constant_velocity` and `random` are policies; `idm` and `log` are controllers put on the agents under
test; `log_actions` is a policy that reads the future of the log through the simulator: what this vehicle model could
do at best if it wanted to drive like the human.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from skidpad.policies.policy import ActionSelection, Policy, PolicySpec, RowStreams, State
from skidpad.settings.schema import ControllerName

ActionType = Literal["discrete", "continuous"]
REST_SECONDS, FIRM_BRAKE = np.float32(0.5), np.float32(4.0)  # s, m/s^2: how `Stationary` brakes by jerks
F32 = NDArray[np.float32]


@dataclass(frozen=True)
class Baseline:
    """How a baseline is run: one of the two is set.

    policy      makes a fresh policy for worlds of an action type ("continuous" unless told)
    controller  what drives the agents under test instead of a policy: `Simulator(..., substitute=controller)`
    """

    name: str
    policy: Callable[..., Policy] | None
    controller: ControllerName | None


class Scripted(ABC):
    """A driver without memory and without a network. Subclasses say `actions`."""

    name = ""
    layout: str | None = None
    needs_state = False

    def __init__(
        self, action_type: ActionType = "continuous", dynamics: str = "classic", compat_dynamics: str = "none"
    ) -> None:
        from skidpad.simulation.actions import SPACES

        self.dynamics = dynamics
        self.space = SPACES[dynamics, compat_dynamics]
        self.spec = PolicySpec(self.name, self.layout, action_type, needs_state=self.needs_state)

    @property
    def discrete(self) -> bool:
        """Whether actions are indices into the table."""
        return self.spec.action_type == "discrete"

    def initial_state(self, rows: int) -> State:
        """None: nothing is remembered."""
        return None

    def act(
        self,
        observation: F32,
        state: State,
        reset: NDArray[np.bool_],
        *,
        selection: ActionSelection,
        streams: RowStreams,
        simulator: Any = None,
    ) -> tuple[NDArray[Any], State]:
        """As `Policy.act`; the selection makes no difference, because there is no distribution to select from."""
        return self.actions(observation, streams, simulator), state

    @abstractmethod
    def actions(self, observation: F32, streams: RowStreams, simulator: Any) -> NDArray[Any]:
        """Actions of all rows."""

    def from_commands(self, commands: F32) -> NDArray[Any]:
        """Actions for commands (rows, 2) f32 in the units of the space: scaled into the box, or the nearest of the
        table."""
        unit = self.space.unit(commands)
        if not self.discrete:
            return np.asarray(np.clip(unit, -1.0, 1.0), np.float32)
        distance = ((unit[:, None, :] - self.space.box[None]) ** 2).sum(axis=2)
        return self.space.split(np.asarray(distance.argmin(axis=1), np.int32))


class Stationary(Scripted):
    """Brakes to rest and stays. With discrete actions rest is what the table can reach: below half of its weakest brake
    times dt."""

    name = "stationary"
    layout = "compact/1"

    def actions(self, observation: F32, streams: RowStreams, simulator: Any) -> NDArray[Any]:
        """The deceleration that reaches rest within the step, as far as the box allows; under jerk dynamics the jerk
        towards a deceleration that dies away with the speed."""
        speed, dt = self._ego(observation, "speed"), self._ego(observation, "dt")
        commands = np.zeros((len(observation), 2), np.float32)
        change = -speed
        if self.dynamics == "jerk":
            accel = self._ego(observation, "longitudinal acceleration")
            change = np.maximum(-speed / REST_SECONDS, -FIRM_BRAKE) - accel
        np.divide(change, dt, out=commands[:, 0], where=dt > 0)
        return self.from_commands(commands)

    @staticmethod
    def _ego(observation: F32, name: str) -> F32:
        """(rows,) f32 one feature of the ego block, in its unit."""
        from skidpad.simulation.layout import LAYOUTS

        features = LAYOUTS["compact/1"].block("ego").features
        column = [feature.name for feature in features].index(name)
        return observation[:, column] * np.float32(features[column].divisor)


class ConstantVelocity(Scripted):
    """No acceleration, wheels straight: speed and heading of the start row for ever."""

    name = "constant_velocity"

    def actions(self, observation: F32, streams: RowStreams, simulator: Any) -> NDArray[Any]:
        """Zero commands."""
        return self.from_commands(np.zeros((len(observation), 2), np.float32))


class Random(Scripted):
    """An action drawn uniformly, a new one each step."""

    name = "random"

    def actions(self, observation: F32, streams: RowStreams, simulator: Any) -> NDArray[Any]:
        """Any index of the table, or any point of the box."""
        if self.discrete:
            return self.space.split((streams.uniform(1)[:, 0] * len(self.space.box)).astype(np.int32))
        return streams.uniform(2) * np.float32(2.0) - np.float32(1.0)


class LogActions(Scripted):
    """Follows the log through the dynamics, looking half a second ahead (S47): needs the simulator."""

    name = "log_actions"
    needs_state = True

    def actions(self, observation: F32, streams: RowStreams, simulator: Any) -> NDArray[Any]:
        """Actions of all policy rows of `simulator`."""
        actions: NDArray[Any] = simulator.log_actions()
        return actions


BASELINES: dict[str, Baseline] = {
    "stationary": Baseline("stationary", Stationary, None),
    "constant_velocity": Baseline("constant_velocity", ConstantVelocity, None),
    "random": Baseline("random", Random, None),
    "idm": Baseline("idm", None, "idm"),
    "log": Baseline("log", None, "replay"),
    "log_actions": Baseline("log_actions", LogActions, None),
}
