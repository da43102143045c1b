"""Training in stages: a suite whose `train.after` names another one goes on from that one's last weights.

Each stage is a run like any other, in a folder of its own: what `train.start` with the checkpoint of the one before it
would make by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skidpad.errors import EXIT_INTERRUPTED, EXIT_OK, SettingsError
from skidpad.evaluation.evaluators import TYPES
from skidpad.settings.suite import load_suite
from skidpad.training.checkpoints import Checkpoints
from skidpad.training.ranks import Ranks
from skidpad.training.run import TrainingResult, check_suite, train_suite, trained_by
from skidpad.training.trainer import device_of

if TYPE_CHECKING:
    from skidpad.evaluation.manager import Page, ProgressCallback
    from skidpad.evaluation.renders import Draw
    from skidpad.settings.suite import Suite

STAGES = "stages"
"""Inside the folder of a run: the runs of its earlier stages, by the names of their suites."""
OF_ONE_STAGE = ("train.after=", "train.start=")


def stages_of(path: Path, overrides: Sequence[str]) -> list[Suite]:
    """The suites that are trained one after the other, that of `path` last. Overrides hold for all of them, but for
    those that say what a suite begins with.

    Raises SettingsError as `load_suite` does, and where two stages bear one name, as those of a circle do.
    """
    found = [load_suite(path, overrides, types=TYPES)]
    shared = [text for text in overrides if not text.startswith(OF_ONE_STAGE)]
    while (spec := found[0].training) is not None and (before := spec.after) is not None:
        found.insert(0, load_suite(before, shared, types=TYPES))
        names = [suite.path.stem for suite in found]
        if names[0] in names[1:]:
            raise SettingsError(
                f"train.after: the stages would be {', '.join(names)}. Each needs a name of its own, and none comes "
                "before itself."
            )
    return found


def train_stages(
    path: Path,
    overrides: Sequence[str],
    folder: Path,
    *,
    resume: bool = False,
    page: Page | None = None,
    draw: Draw | None = None,
    progress: ProgressCallback | None = None,
    reproduce: str = "",
) -> TrainingResult:
    """`train_suite` for a suite and all that its `train.after` asks for, the earliest first; how the last one ended, or
    the one that was stopped.

    resume  go on where the folder stands, in whichever stage that is

    Raises what `train_suite` raises; what settings and folders tell, before the first stage begins.
    """
    stages = stages_of(path, overrides)
    folders = [*(folder / STAGES / suite.path.stem for suite in stages[:-1]), folder]
    begin: list[str] = []
    code = EXIT_OK
    with Ranks.met(device_of(trained_by(stages[-1]).train.device)) as ranks:
        for suite, own in zip(stages, folders, strict=True):
            check_suite(suite, ranks.count)
            if not resume:
                Checkpoints(own / "checkpoints", "", keep_last=1, keep_every=0).refuse_if_any()
        for suite, own in zip(stages, folders, strict=True):
            if begin:
                shared = [text for text in overrides if not text.startswith(OF_ONE_STAGE)]
                suite = load_suite(suite.path, [*shared, *begin], types=TYPES)
            result = train_suite(
                suite,
                own,
                resume=resume,
                page=page,
                draw=draw,
                progress=progress,
                reproduce=reproduce,
                ranks=ranks,
            )
            code = max(code, result.exit_code)
            if result.exit_code == EXIT_INTERRUPTED:
                break
            begin = [f"train.start={ranks.of_first(result.checkpoint)}"]
    return result._replace(exit_code=code)  # An evaluator that fails in an early stage is not forgotten.
