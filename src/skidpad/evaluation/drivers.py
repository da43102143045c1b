"""The driver under test and those beside it, as the arms of an evaluation.

Whoever is under test, the same agents of the same cases are driven by every baseline of the section (E71): a score
without its rows beside it means nothing. Beside them may drive other weights, each as if it were under test itself.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from skidpad.errors import CheckpointError, SettingsError, SkidpadError, UsageError, nearest
from skidpad.evaluation.evaluator import Arm
from skidpad.policies.policy import Policy
from skidpad.settings.schema import EnvSettings, baselines_of
from skidpad.settings.suite import EvaluatorSpec
from skidpad.settings.weights import name_of

if TYPE_CHECKING:
    from skidpad.policies.checkpoint import Checkpoint

POLICY_ARM = "policy"
DEFAULT_FOCUS = "idm"


@dataclass(frozen=True)
class Driver:
    """What is under test: a policy object, a checkpoint, a baseline by name, or nothing but the baselines.

    digest  content digest of the weights, "" where there are none
    trains  the weights change from pass to pass
    """

    policy: Policy | None = None
    checkpoint: Checkpoint | None = None
    baseline: str | None = None
    digest: str = ""
    trains: bool = False

    @staticmethod
    def of(policy: Policy | None, policy_digest: str, baseline: str | None, checkpoint: Path | None) -> Driver:
        """Raises UsageError for more than one of them, an unknown baseline, or a policy object without a digest;
        CheckpointError or IntegrityError for a file that is no checkpoint."""
        if sum(item is not None for item in (policy, baseline, checkpoint)) > 1:
            raise UsageError(
                "a policy, a policy name and a checkpoint were given together; give one driver under test."
            )
        if policy is not None:
            return Driver().with_policy(policy, policy_digest)
        if baseline is not None:
            from skidpad.policies.baselines import BASELINES

            if baseline not in BASELINES:
                known = ", ".join(sorted(BASELINES))
                raise UsageError(f"unknown policy {baseline!r}{nearest(baseline, BASELINES)}. Known: {known}.")
            return Driver(baseline=baseline)
        if checkpoint is not None:
            from skidpad.policies.checkpoint import load_checkpoint

            loaded = load_checkpoint(checkpoint)
            return Driver(checkpoint=loaded, digest=loaded.digest)
        return Driver()

    def with_policy(self, policy: Policy | None, digest: str, checkpoint: Checkpoint | None = None) -> Driver:
        """The same place under test with other weights, as training goes on.

        checkpoint  the file that holds them, for modes that cannot be given an object

        Raises UsageError for a policy object without a digest, or a digest that is not the checkpoint's.
        """
        if checkpoint is not None and digest not in ("", checkpoint.digest):
            raise UsageError(
                f"policy_digest is {digest}, but {checkpoint.path} holds weights of digest {checkpoint.digest}. Save "
                "the weights that are under test."
            )
        digest = checkpoint.digest if checkpoint is not None else digest
        if not digest:
            raise UsageError("a policy object needs policy_digest, the content digest of its weights, for its records.")
        return Driver(policy=policy, checkpoint=checkpoint, digest=digest, trains=True)

    def kept_in(self, folder: Path) -> Driver:
        """The same driver, its checkpoint's bytes lying in a folder, where nobody else removes or replaces them."""
        if self.checkpoint is None:
            return self
        path = folder / f"weights{self.checkpoint.path.suffix}"
        try:
            os.link(self.checkpoint.path, path)
        except OSError:  # another file system, or one without hard links
            shutil.copyfile(self.checkpoint.path, path)
        return replace(self, checkpoint=replace(self.checkpoint, path=path))

    @property
    def focus(self) -> str:
        """The arm that a report is about."""
        return self.baseline or (POLICY_ARM if self.has_arm else DEFAULT_FOCUS)

    @property
    def has_arm(self) -> bool:
        """Whether there is an arm besides the baselines."""
        return self.policy is not None or self.checkpoint is not None

    @property
    def identity(self) -> dict[str, str | None]:
        """What a run folder is registered for. In training it stands for many weights."""
        named = POLICY_ARM if self.has_arm else self.baseline
        fixed = self.checkpoint is not None and not self.trains
        return {"policy": named, "checkpoint": self.digest if fixed else ""}

    @property
    def path(self) -> str | None:
        """Where the weights lie, for whoever wants to see them again. Of training none: each checkpoint has its own."""
        return None if self.checkpoint is None or self.trains else str(self.checkpoint.path.absolute())

    def is_beside(self, arm: Arm) -> bool:
        """Whether a driver beside is the one under test itself: the same weights, for the whole run. It is not run
        twice. Weights that train are others with every pass."""
        return bool(self.digest) and not self.trains and arm.checkpoint == self.digest

    def check_reference(self, spec: EvaluatorSpec, beside: Sequence[Arm]) -> None:
        """Raises SettingsError where paired differences would be taken from the driver under test."""
        if any(arm.name == spec.eval.reference and self.is_beside(arm) for arm in beside):
            raise SettingsError(
                f"[eval.{spec.name}]: eval.reference = {spec.eval.reference!r} has the weights of the driver under "
                "test, and nothing is compared with itself. Name another of eval.baselines."
            )

    def arms(self, spec: EvaluatorSpec, beside: Sequence[Arm]) -> list[Arm]:
        """The driver under test first, where it is not itself a baseline, then those of `eval.baselines` in its order.

        beside  of the section, as `arms_beside` gives them; who is under test itself is left out

        Raises CheckpointError when the checkpoint does not fit the section's worlds, SettingsError as
        `check_reference`.
        """
        from skidpad.policies.baselines import BASELINES

        arms = []
        if self.policy is not None:
            arms.append(Arm(POLICY_ARM, self.policy, None, self.digest))
        elif self.checkpoint is not None:
            from skidpad.policies.checkpoint import CheckpointPolicy

            driver = CheckpointPolicy(self.checkpoint, spec.env, spec.action_selection, spec.vec.infer_batch)
            arms.append(Arm(POLICY_ARM, driver, None, self.digest, repeats=True))
        others = {arm.name: arm for arm in beside if not self.is_beside(arm)}
        self.check_reference(spec, beside)
        names = [name_of(entry) for entry in spec.eval.baselines]
        if self.baseline is not None and self.baseline not in names:
            names.insert(0, self.baseline)
        if self.baseline is not None and self.baseline not in baselines_of(spec.env.simulation_mode):
            raise UsageError(
                f"[eval.{spec.name}]: {self.baseline!r} follows a log, and a bare map has none. Name another driver."
            )
        for name in names:
            if name not in BASELINES:
                arms += [others[name]] if name in others else []
                continue
            baseline = BASELINES[name]
            world = (spec.env.action_type, spec.env.dynamics, spec.env.compat.dynamics)
            policy = baseline.policy(*world) if baseline.policy else None
            arms.append(Arm(name, policy, baseline.controller, repeats=True))
        return arms


def arms_beside(spec: EvaluatorSpec) -> list[Arm]:
    """The drivers with weights among `eval.baselines` of a section.

    Raises SettingsError for a file that holds no driver, or one that cannot drive here.
    """
    from skidpad.policies.checkpoint import load_checkpoint

    arms = []
    for name, path in spec.weights:
        try:
            arms.append(arm_beside(name, load_checkpoint(path), spec))
        except (SkidpadError, OSError) as error:
            key = "eval.baselines"
            where = spec.origins[key].where if key in spec.origins else f"[eval.{spec.name}]"
            raise SettingsError(f"{where}: {key} of [eval.{spec.name}], driver {name!r}: {error}") from error
    return arms


def arm_beside(name: str, checkpoint: Checkpoint, spec: EvaluatorSpec) -> Arm:
    """Weights as a driver beside the one under test: on the section's cases, in worlds of their own architecture.

    Raises CheckpointError where this version has no such worlds.
    """
    from skidpad.policies.checkpoint import CheckpointPolicy

    env = fitted(spec.env, checkpoint)
    policy = CheckpointPolicy(checkpoint, env, spec.action_selection, spec.vec.infer_batch)
    own = None if env == spec.env else env
    return Arm(name, policy, None, checkpoint.digest, repeats=True, weights=checkpoint, env=own)


def fitted(env: EnvSettings, checkpoint: Checkpoint) -> EnvSettings:
    """The settings of a world with everything that a checkpoint fixes, as a suite takes it from the one under test.

    Raises CheckpointError for values that no world here has.
    """
    values = env.model_dump()
    for key, value in checkpoint.architecture.settings().items():
        *groups, last = key.split(".")[1:]
        place = values
        for group in groups:
            place = place[group]
        place[last] = value
    try:
        return EnvSettings.model_validate(values)
    except ValueError as error:
        raise CheckpointError(f"{checkpoint.path}: asks for a world that there is not here: {error}") from error


def batch_sensitivity_of(arm: Arm, spec: EvaluatorSpec) -> str | None:
    """How a driver's actions depend on who shares its batch (E48), None where they do not."""
    from skidpad.policies.check import batch_sensitivity

    if arm.policy is None:
        return None
    try:
        return batch_sensitivity(arm.policy, arm.env or spec.env, selection=spec.action_selection)
    except Exception as error:  # A failure becomes a record: of each case, when it runs.
        return f"could not be checked ({type(error).__name__}: {error})"
