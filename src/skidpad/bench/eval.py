"""`skidpad bench eval`: what a replay evaluation of a network costs, where the time goes, what a warm pool saves, and
what verifying the run costs.

Cases are logged cars of generated roads, one of them driven by a network of half a million parameters over 91 states,
64 worlds at once on one thread. Shares are of CPU time: of the simulator (building worlds, resetting, stepping), of the
network, of measuring; and, as the overhead, of everything around the evaluator's own work: manager, records, files. A
run of the same cases with the network and the fewest baselines is then verified, and some of its cases driven again.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skidpad.bench.calibration import DRIFT_LIMIT, calibrate, drift, machine
from skidpad.evaluation.drivers import Driver
from skidpad.evaluation.evaluator import Evaluator
from skidpad.evaluation.evaluators import EVALUATORS, TYPES
from skidpad.evaluation.interrupts import Interrupts
from skidpad.evaluation.passes import Running
from skidpad.evaluation.places import Places
from skidpad.evaluation.sources import SceneSources
from skidpad.policies.checkpoint import CheckpointPolicy, architecture_for, save_checkpoint
from skidpad.policies.network import ActorCritic
from skidpad.runs.folder import RunFolder
from skidpad.runs.records import RecordFile
from skidpad.scenes.archive import save_scene
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import ManagerSettings, NetworkSettings
from skidpad.settings.suite import EvaluatorSpec, Suite, load_suite
from skidpad.simulation.simulator import Simulator

SCHEMA = "skidpad.bench.eval/2"
ROADS = ("straight", "curve", "crossing", "roundabout", "merge", "dense")
STATES = 91
CASES, QUICK_CASES, POOL_CASES = 1000, 128, 128
REPLAYED = 5
HIDDEN = (768, 512)  # behind the encoders of compact/1, half a million parameters
FEWEST = ("stationary", "constant_velocity", "idm", "log")
WATCHED: Sequence[tuple[str, type, Sequence[str]]] = (
    ("simulator", Simulator, ("__init__", "take", "reset", "step")),
    ("network", CheckpointPolicy, ("act",)),
    ("metrics", Evaluator, ("results",)),
    ("evaluator", Evaluator, ("run",)),
)
SUITE = """
[eval.replay]
type = "human_replay"
keep_traces = "none"
env.scenes = {scenes}
env.scenario_length = {steps}
eval.egos = "each"
eval.replicates = {replicates}
"""


def bench_eval(*, quick: bool = False) -> dict[str, Any]:
    """Measure an evaluation; returns what `--json` prints."""
    before = calibrate()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for road in ROADS:
            save_scene(synthetic(road), folder / f"{road}.scene")
        save_driver(folder)
        cases = QUICK_CASES if quick else CASES
        figures = shares(folder, cases) | pool_figures(folder) | verify_figures(folder, cases)
    after = calibrate()
    return {
        "schema": SCHEMA,
        "machine": machine(),
        "calibration": {"before": before, "after": after, "reliable": drift(before, after) <= DRIFT_LIMIT},
        **figures,
        "verdicts": {
            "overhead_share": "met" if figures["overhead_share"] < 0.05 else "missed",
            "share_simulator_and_network": "met"
            if figures["share_simulator"] + figures["share_network"] >= 0.8
            else "missed",
        },
    }


def save_driver(folder: Path) -> None:
    """A network with random weights."""
    import torch

    architecture = architecture_for(section(folder, 1).env, NetworkSettings(hidden=HIDDEN, memory="none"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = ActorCritic(architecture.network)
    save_checkpoint(folder / "driver", network, architecture)


def suite_of(folder: Path, replicates: int, *overrides: str) -> Suite:
    """The suite that is run: each case of the folder's scenes so many times."""
    path = folder / "suite.toml"
    scenes = json.dumps([str(folder / f"{road}.scene") for road in ROADS])
    path.write_text(SUITE.format(scenes=scenes, steps=STATES - 1, replicates=replicates), encoding="utf-8")
    return load_suite(path, overrides, types=TYPES)


def section(folder: Path, replicates: int, *overrides: str) -> EvaluatorSpec:
    """Its one section."""
    return suite_of(folder, replicates, *overrides).spec("replay")


def replicates_of(folder: Path, cases: int) -> int:
    """How often each case is run, so that there are at least so many."""
    return -(-cases // len(evaluator_of(section(folder, 1)).plan.cases))


class Bench:
    """A run folder in which the driver under test drives alone, pass after pass, as the manager would have it."""

    def __init__(self, folder: Path, cases: int, *overrides: str) -> None:
        self.evaluator = evaluator_of(section(folder, replicates_of(folder, cases), *overrides))
        self.cases = len(self.evaluator.plan.cases)
        self._driver = Driver.of(None, "", None, folder / "driver")
        self._runs = RunFolder(folder / "runs")
        self._runs.path.mkdir(exist_ok=True)
        self.places = Places(self._runs, ManagerSettings())
        self._passes = 0

    def run(self) -> None:
        """One pass over all cases, recorded."""
        self._passes += 1
        arms = self._driver.arms(self.evaluator.spec, [])[:1]
        records = RecordFile(self._runs.path / f"records-{len(list(self._runs.path.iterdir()))}.jsonl")
        try:
            with self.places.ready(self.evaluator, arms, self._driver, 0, self._passes) as where:
                show, progress = (lambda done, failed, total: None), (lambda text, done, total: None)
                Running(
                    self.evaluator, arms, where, self._runs, records, Interrupts(), show=show, progress=progress
                ).run_cases()
            if any(record.status != "ok" for record in records.records.values()):
                raise AssertionError("a case of the bench failed")
        finally:
            records.close()


def evaluator_of(spec: EvaluatorSpec) -> Evaluator:
    """The evaluator of a section, planned."""
    return EVALUATORS[spec.type](spec, SceneSources())


@contextmanager
def watched(seconds: dict[str, float]) -> Iterator[None]:
    """While entered, CPU seconds of the calls in WATCHED are added up."""
    plain = [(owner, name, getattr(owner, name)) for _, owner, names in WATCHED for name in names]

    def timed(what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            start = time.process_time()
            try:
                return call(*arguments, **named)
            finally:
                seconds[what] += time.process_time() - start

        return run

    for what, owner, names in WATCHED:
        for name in names:
            setattr(owner, name, timed(what, getattr(owner, name)))
    try:
        yield
    finally:
        for owner, name, call in plain:
            setattr(owner, name, call)


def shares(folder: Path, cases: int) -> dict[str, Any]:
    """Where the CPU time of a pass goes, kernels and scenes being warm."""
    Bench(folder, QUICK_CASES).run()
    bench = Bench(folder, cases)
    seconds: dict[str, float] = defaultdict(float)
    wall, start = time.perf_counter(), time.process_time()
    with watched(seconds):
        bench.run()
    total, wall = time.process_time() - start, time.perf_counter() - wall
    return {
        "cases": bench.cases,
        "states": STATES,
        "parameters": parameters(bench),
        "wall_seconds": wall,
        "cpu_seconds": total,
        "cases_per_second": bench.cases / total,
        "overhead_share": (total - seconds["evaluator"]) / seconds["evaluator"],
        **{f"share_{name}": seconds[name] / total for name in ("simulator", "network", "metrics")},
    }


def parameters(bench: Bench) -> int:
    """Numbers in the network."""
    policy: Any = bench._driver.arms(bench.evaluator.spec, [])[0].policy
    return sum(tensor.numel() for tensor in policy.network.parameters())


def pool_figures(folder: Path) -> dict[str, float]:
    """Wall seconds of a pass in a process that is made for it, and on a pool of one worker: its first pass, and the
    fastest of three warm ones."""
    fresh = min(timed_passes(Bench(folder, POOL_CASES, 'mode="subprocess"'), 2))
    passes = timed_passes(Bench(folder, POOL_CASES, 'mode="pool"', "vec.workers=1"), 4)
    return {
        "subprocess_pass_seconds": fresh,
        "pool_first_pass_seconds": passes[0],
        "pool_warm_pass_seconds": min(passes[1:]),
        "pool_speedup": fresh / min(passes[1:]),
    }


def verify_figures(folder: Path, cases: int) -> dict[str, float]:
    """CPU seconds of a whole run, of verifying it, and of verifying it with some cases driven again by every driver."""
    from skidpad.evaluation.manager import EvalManager
    from skidpad.evaluation.verify import verify_run

    run = folder / "verified"
    suite = suite_of(
        folder, replicates_of(folder, cases), f"eval.baselines={json.dumps(FEWEST)}", "keep_traces=selected"
    )

    def evaluate() -> None:
        with EvalManager(suite, run, checkpoint=folder / "driver") as manager:
            manager.run_all()
            manager.finish()

    def verify(replay: int) -> None:
        if found := verify_run(run, replay=replay).problems:
            raise AssertionError(f"the run of the bench does not verify: {found[0]}")

    evaluated, verified, replayed = cpu_of(evaluate), cpu_of(lambda: verify(0)), cpu_of(lambda: verify(REPLAYED))
    return {
        "run_cpu_seconds": evaluated,
        "verify_cpu_seconds": verified,
        "verify_share": verified / evaluated,
        f"verify_replay_{REPLAYED}_cpu_seconds": replayed,
        f"verify_replay_{REPLAYED}_share": replayed / evaluated,
    }


def cpu_of(work: Callable[[], None]) -> float:
    """CPU seconds of this process for some work."""
    start = time.process_time()
    work()
    return time.process_time() - start


def timed_passes(bench: Bench, count: int) -> list[float]:
    """Wall seconds of some passes, one after the other."""
    found = []
    try:
        for _ in range(count):
            start = time.perf_counter()
            bench.run()
            found.append(time.perf_counter() - start)
    finally:
        bench.places.close()
    return found
