"""sealed_stream: mappers watch streams, their states are sealed, and only then are vaults opened and states scored.

Phase one seals every pair of every episode, each hash in the chain; phase two opens vaults. No line that seals or
refuses in phase one follows one that opens, so nothing learned from a vault can reach a pair. This module alone writes:
workers return values. Whatever is written is never done again, so a run that was killed at any moment ends as one that
was not.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from skidpad.artifacts.digests import canonical_json, digest_bytes, digest_file
from skidpad.artifacts.files import LineFile, create, parse_json
from skidpad.artifacts.files import replace as replace_file
from skidpad.errors import EXIT_FAILED, EXIT_OK, CheckpointError, IntegrityError, UsageError, listed
from skidpad.evaluation.attempts import first_release, record_attempt
from skidpad.evaluation.interrupts import Interrupts
from skidpad.evaluation.metrics.lpips import weights_file
from skidpad.evaluation.metrics.scene_metrics import LPIPS
from skidpad.evaluation.scene_aggregates import summary_csv
from skidpad.evaluation.scene_statistics import conclude
from skidpad.evaluation.sealed_pool import Pool
from skidpad.evaluation.sealed_registration import check_registered, make_registration, read_registration, run_id_of
from skidpad.evaluation.sealed_scoring import ArmScores, Scored, ScoreJob
from skidpad.evaluation.sealed_strips import STRIPS_FILE
from skidpad.evaluation.sealed_tables import episodes_csv, metric_keys, queries_csv
from skidpad.runs.chain import Chain, read_chain
from skidpad.runs.folder import RunFolder
from skidpad.runs.manifest import environment, read_manifest, write_manifest
from skidpad.runs.records import Record, RecordFile, RecordKey
from skidpad.streaming.arguments import SealedArguments, check_arguments
from skidpad.streaming.arms import Arm, arms_of
from skidpad.streaming.audit import opening, watching
from skidpad.streaming.carrier import state_bytes
from skidpad.streaming.episode import EpisodeEntry, EpisodeIndex
from skidpad.streaming.mapper_file import LoadedWriter, Mapper, RenderProtocol, load_mapper, load_writer
from skidpad.streaming.memory import pair_bytes
from skidpad.streaming.provenance import Provenance
from skidpad.streaming.report_format import (
    RECORD_SCHEMA,
    REPORT_SCHEMA,
    averaged,
    checked_record,
    checked_report,
    document,
    pair_id,
    record_digest,
    report_row,
    result_digest,
)
from skidpad.streaming.schemas import ID_NAMES
from skidpad.streaming.sealed import OracleJob, PasteJob, RunSettings, Streamed, StreamJob

Page = Callable[[RunFolder, dict[str, Any]], str]
Say = Callable[[str], None]
ARGUMENTS = frozenset(field.name for field in fields(SealedArguments)) - {"official", "diagnostic", "parent"}
DEFAULT_CAP_MIB = 4096


@dataclass(frozen=True)
class Checked:
    """A run that may start: all arguments hold, nothing is decoded, no file of it exists."""

    arguments: SealedArguments
    provenances: Sequence[Provenance]
    available: int
    data: Path
    checkpoint: Path
    mapper: Mapper
    writer: LoadedWriter | None
    registration: dict[str, Any]
    opened: Mapping[str, Any]


def check_run(
    entries: Sequence[EpisodeEntry] | EpisodeIndex,
    checkpoint: Path,
    out: Path,
    *,
    registration: Path | None = None,
    kind: str = "development",
    parent: str | None = None,
    minimum_effect: float = 0.0,
    places: Mapping[str, str] | None = None,
    **given: Any,
) -> Checked:
    """Check everything a run needs in the order of M31, and make its registration. Writes nothing.

    registration  file that the run must agree with; its kind and parent are then the run's
    given         the fields of `SealedArguments`
    """
    if unknown := sorted(set(given) - ARGUMENTS):
        raise TypeError(f"unexpected arguments {listed(unknown)}; known: {listed(sorted(ARGUMENTS), len(ARGUMENTS))}")
    there = None
    if registration is not None:
        there = read_registration(registration)
        kind, parent = there["kind"], there["parent"]
        minimum_effect = there["primary"]["minimum_effect"]
    official, diagnostic = kind == "official", kind == "diagnostic"
    arguments = SealedArguments(**given, official=official, diagnostic=diagnostic, parent=parent)
    if isinstance(entries, EpisodeIndex):
        available, index = len(entries.episodes), entries.path
    else:
        available, index = len(entries), entries[0].folder / "index.json" if entries else Path("index.json")

    def select(count: int | None) -> Sequence[EpisodeEntry]:
        return entries.select(count) if isinstance(entries, EpisodeIndex) else list(entries)[:count]

    def released_by(selected: Sequence[EpisodeEntry]) -> str | None:
        found = first_release(index.parent, [entry.fields.vault_id for entry in selected])
        own = RunFolder(out)
        return None if own.is_started and read_manifest(own)["identity"]["run_id"] == found else found

    with watching(index.parent, "validate") as watch, opening(index.parent):
        provenances = check_arguments(
            arguments,
            count=available,
            index=str(index),
            out=out,
            select=select,
            places=places,
            released_by=released_by,
        )
    arms = arms_of(arguments.policies, arguments.controls)
    if any(arm.control == "WRONG_SCENE" for arm in arms) and len(provenances) < 2:
        raise UsageError("control WRONG_SCENE needs at least 2 episodes: it pastes the layer of the next one.")
    mapper = load_mapper(checkpoint, arguments.device)
    if "MEAN_FIELD" in arguments.controls and not mapper.controls:
        raise CheckpointError(
            f"{checkpoint}: control MEAN_FIELD needs a mapper with controls.*, this one has none. Leave the control "
            "out."
        )
    writer = None
    if arguments.writer is not None:
        render = RenderProtocol(arguments.render_samples, arguments.ray_chunk)
        writer = load_writer(Path(arguments.writer), mapper, render, float(arguments.max_units), arguments.device)
    made = make_registration(
        arguments, provenances, mapper, writer, kind=kind, parent=parent, minimum_effect=minimum_effect
    )
    if there is not None and registration is not None:
        check_registered(registration, there, made)
    row = watch.row(None)
    return Checked(arguments, provenances, available, index.parent, checkpoint, mapper, writer, made, row)


def evaluate_sealed_stream(
    entries: Sequence[EpisodeEntry] | EpisodeIndex,
    checkpoint: Path,
    out: Path,
    *,
    name: str = "sealed",
    registration: Path | None = None,
    diagnostic: bool = False,
    parent: str | None = None,
    minimum_effect: float = 0.0,
    workers: int | None = None,
    keep_states: bool = False,
    strips: bool = False,
    state_cap_mib: int = DEFAULT_CAP_MIB,
    memory_cap_mib: int = DEFAULT_CAP_MIB,
    page: Page | None = None,
    say: Say = lambda text: None,
    reproduce: str = "",
    places: Mapping[str, str] | None = None,
    **given: Any,
) -> dict[str, Any]:
    """Run or resume a sealed evaluation; returns the parsed report.json.

    entries        of one index, in its order, or the index itself, whose entries are then checked as they are selected
    name           of the evaluator: its folder in the run
    registration   file to hold the run against; without one a development registration is made here
    diagnostic     the run may have ORACLE, which reads the vaults; it is marked so, and nothing in it is evidence
    workers        processes; 0 runs in this process, which must compute with one thread already; None: one per core
    keep_states    leave the sealed states in the folder
    strips         keep small pictures of what each policy shows at the hidden views, for the page
    state_cap_mib  most disk the waiting states may take
    memory_cap_mib  most memory the pairs that run at once may take, beside what each process has imported
    page           makes report.html
    say            told one line per pair and phase
    given          max_episodes, policies, controls, residual_threshold, render_samples, ray_chunk, warmup, stream,
                   queries, max_units, writer, device, split, release; `SealedArguments` has the defaults

    Raises UsageError (exit 2) for what the person can fix, before a file of the run exists; IntegrityError (exit 3)
    where a digest or a seal does not hold; KeyboardInterrupt when it was asked to stop: the same call continues.
    """
    if diagnostic and registration is not None:
        raise UsageError("a diagnostic run is not a registered one: leave the registration out.")
    run = check_run(
        entries,
        checkpoint,
        out,
        registration=registration,
        kind="diagnostic" if diagnostic else "development",
        parent=parent,
        minimum_effect=minimum_effect,
        places=places,
        **given,
    )
    arms = arms_of(run.arguments.policies, run.arguments.controls)
    pairs = len(run.provenances) * sum(arm.seals for arm in arms)
    needed = pairs * state_bytes(run.mapper.carrier.preset)
    if needed > state_cap_mib << 20:
        raise UsageError(
            f"the sealed states of {pairs} pairs need {needed >> 20} MiB between the phases, state_cap_mib = "
            f"{state_cap_mib}. Raise it, or run fewer episodes."
        )
    count = min(os.cpu_count() or 1, pairs) if workers is None else workers
    _check_memory(run, max(count, 1), memory_cap_mib)
    with Interrupts(say) as interrupts, RunFolder(out).held() as folder, ExitStack() as stack:
        settings = RunSettings(
            data=run.data,
            mapper=run.checkpoint,
            mapper_hash=(run.mapper.info["content_hash"], run.mapper.info["file_sha256"]),
            writer=None if run.arguments.writer is None else Path(run.arguments.writer),
            render=RenderProtocol(run.arguments.render_samples, run.arguments.ray_chunk),
            max_units=float(run.arguments.max_units),
            residual_threshold=float(run.arguments.residual_threshold),
            shuffle_seed=run.registration["shuffle_seed"],
            device=run.arguments.device,
            strips=strips,
            lpips=weights_file() if LPIPS in run.registration["metrics"] else None,
        )
        pool = stack.enter_context(Pool(settings, count, lambda: interrupts.asked))
        book = stack.enter_context(_Book(run, folder, name, arms, reproduce))
        book.start()
        _seal_all(book, pool, interrupts, say)
        _score_all(book, pool, interrupts, say)
        return book.finish(page, keep_states)


def _check_memory(run: Checked, at_once: int, cap_mib: int) -> None:
    """Refuse before anything is allocated what would not fit."""
    carrier, asked = run.mapper.carrier, run.arguments
    each = pair_bytes(carrier.preset, asked.render_samples, asked.ray_chunk, carrier.config["completion"])
    if each * at_once > cap_mib << 20:
        raise UsageError(
            f"{at_once} pairs of preset {carrier.preset.name} at once need about {each * at_once >> 20} MiB of memory, "
            f"memory_cap_mib = {cap_mib}. Raise it, or run with fewer workers."
        )


def exit_code(report: Mapping[str, Any]) -> int:
    """0 when every pair ended well, 1 otherwise."""
    return EXIT_OK if report["status"] == "complete" else EXIT_FAILED


# -- phases -----------------------------------------------------------------------------------------------------------


def _seal_all(book: _Book, pool: Pool, interrupts: Interrupts, say: Say) -> None:
    """Phase one: every pair that is neither sealed nor refused. The pasted control waits for what it is made of."""
    todo = [pair for pair in book.pairs if pair.arm.seals and not book.is_closed(pair.id)]
    if todo and book.opened:
        raise IntegrityError(
            f"{book.folder.path}: {listed(pair.id for pair in todo)} are not sealed, and vaults were opened already. "
            "Nothing can be added to this run any more."
        )
    for done in pool.run(book.stream_jobs([pair for pair in todo if pair.arm.control != "WRONG_SCENE"])):
        book.close(done.result, say)
    interrupts.stop_here()
    pasted = [pair for pair in todo if pair.arm.control == "WRONG_SCENE"]
    for pair in pasted:
        if problem := book.missing_state(pair):
            error = {"type": "RefusedError", "message": problem, "traceback": ""}
            book.close(Streamed(pair.id, "refused", error), say)
    for done in pool.run(book.paste_jobs([pair for pair in pasted if not book.is_closed(pair.id)])):
        book.close(done.result, say)
    interrupts.stop_here()


def _score_all(book: _Book, pool: Pool, interrupts: Interrupts, say: Say) -> None:
    """Phase two: every sealed state that is not scored, with the arms that are made of its renders."""
    book.record_refused()
    for done in pool.run(book.score_jobs()):
        book.score(done.result, say)
    interrupts.stop_here()


@dataclass(frozen=True)
class _Pair:
    """One (episode, arm)."""

    source: Provenance
    arm: Arm
    position: int

    @property
    def id(self) -> str:
        return pair_id(self.source.episode_id, self.arm.name)

    @property
    def base(self) -> str:
        """The pair whose state it is scored from: its own, where it has one."""
        return self.id if self.arm.seals else pair_id(self.source.episode_id, self.arm.policy)


class _Book:
    """The run folder of a sealed run while it is written: chain, records, waiting states, and what was done already."""

    def __init__(self, run: Checked, folder: RunFolder, name: str, arms: Sequence[Arm], reproduce: str) -> None:
        self.run, self.folder, self._name, self._reproduce = run, folder, name, reproduce
        self.pairs = [_Pair(source, arm, n) for n, source in enumerate(run.provenances) for arm in arms]
        self._by_id = {pair.id: pair for pair in self.pairs}
        self._root = folder.evaluator(name)
        self._states, self._files = self._root / "states", self._root / "pairs"
        self._open = ExitStack()
        self.run_id = run_id_of(run.registration)
        self.sealed: dict[str, dict[str, Any]] = {}
        self.refused: dict[str, dict[str, Any]] = {}
        self.opened: dict[str, dict[str, Any]] = {}
        self._digests: dict[str, str] = {}

    def __enter__(self) -> _Book:
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.close()

    # -- starting ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Write the manifest, or check that the folder's is the same run, and read what was done."""
        run, resumed = self.run, self.folder.is_started
        write_manifest(
            self.folder,
            identity={"run_id": self.run_id, "registration": run.registration},
            evaluators={
                self._name: {
                    "type": "sealed_stream",
                    "provenance": [source.to_json() for source in run.provenances],
                    "subset": self._subset(),
                    "paths": {"data": str(run.data), "checkpoint": str(run.checkpoint)},
                }
            },
            suite={},
            reproduce=self._reproduce,
            threads=1,
        )
        for path in (self._states, self._files):
            path.mkdir(parents=True, exist_ok=True)
        self._chain = Chain(self.folder.chain)
        self._open.callback(self._chain.close)
        self._records = RecordFile(self.folder.records)
        self._open.callback(self._records.close)
        self._lines = LineFile(self._root / "opened.jsonl")
        self._open.callback(self._lines.close)
        for event in read_chain(self.folder.chain):
            self._note(event["event"], event["data"], event["hash"])
        manifest = digest_file(self.folder.manifest)
        self._log("resumed" if resumed else "registered", {"run_id": self.run_id, "manifest": manifest})
        self._log("started", {"evaluator": self._name, "pairs": len(self.pairs)})
        self._write_opened(run.opened)

    def _subset(self) -> dict[str, Any]:
        return {
            "requested": self.run.arguments.max_episodes,
            "selected": len(self.run.provenances),
            "available": self.run.available,
            "episode_ids": [source.episode_id for source in self.run.provenances],
        }

    def _log(self, event: str, data: Mapping[str, Any]) -> None:
        self._note(event, data, self._chain.append(event, data))

    def _note(self, event: str, data: Mapping[str, Any], link: str) -> None:
        row = {**data, "hash": link}
        if event == "sealed":
            self.sealed[data["pair_id"]] = row
        elif event == "refused":
            self.refused[data["pair_id"]] = row
        elif event == "vault_opened":
            self.opened.setdefault(data["pair_id"], row)
        elif event == "scored":
            self._digests[data["pair_id"]] = data["record_digest"]

    def _write_opened(self, row: Mapping[str, Any] | None) -> None:
        if row is not None:
            self._lines.append(canonical_json(row))

    # -- phase one --------------------------------------------------------------------------------------------------

    def is_closed(self, pair: str) -> bool:
        """Whether phase one has nothing left to do for it."""
        return pair in self.sealed or pair in self.refused

    def _state(self, pair: str) -> Path:
        return self._states / f"{pair}.state"

    def stream_jobs(self, pairs: Sequence[_Pair]) -> Iterator[StreamJob]:
        """One job per pair. That ORACLE is given a vault is in the chain, and in the ledger, before it is."""
        for pair in pairs:
            source, arm, count = pair.source, pair.arm, pair.source.entry.query_count
            if arm.kind != "diagnostic":
                yield StreamJob(source.online, arm, count)
                continue
            vault = source.entry.vault_id
            before, ledger = record_attempt(self.run.data, self.run_id, vault)
            self._log(
                "oracle_opened",
                {"pair_id": pair.id, "vault_id": vault, "attempts_before": before, "ledger": ledger},
            )
            yield OracleJob(source.online, arm, count, source.vault)

    def close(self, result: Any, say: Say) -> None:
        """Keep a sealed state and commit to its hash, or note why there is none."""
        assert isinstance(result, Streamed)
        _raise_if_invalid(result)
        self._write_opened(result.opened)
        if result.state is None:
            self._log("refused", {"pair_id": result.pair, "status": result.status, "error": result.error})
        else:
            replace_file(self._state(result.pair), result.state)
            self._log("sealed", {"pair_id": result.pair, **result.seal})
        seconds = float(result.seal.get("adapt_s", 0.0)) + float(result.seal.get("decode_s", 0.0))
        total = sum(pair.arm.seals for pair in self.pairs)
        word = "sealed" if result.state is not None else result.status
        done = sum(pair.arm.seals and self.is_closed(pair.id) for pair in self.pairs)
        say(f"{word} {result.pair.replace('@', ' ')} {seconds:.1f} s ({done}/{total})")

    def _pasted_from(self, pair: _Pair) -> tuple[str, str]:
        sources = self.run.provenances
        other = sources[(pair.position + 1) % len(sources)]
        return pair_id(pair.source.episode_id, pair.arm.policy), pair_id(other.episode_id, pair.arm.policy)

    def missing_state(self, pair: _Pair) -> str | None:
        """Why WRONG_SCENE cannot be made, or None."""
        gone = [one for one in self._pasted_from(pair) if one not in self.sealed]
        return f"{pair.id}: {listed(gone)} was not sealed, so there is no layer to paste." if gone else None

    def paste_jobs(self, pairs: Sequence[_Pair]) -> Iterator[PasteJob]:
        """WRONG_SCENE of these pairs; states are read as their turn comes."""
        for pair in pairs:
            own, other = (self._waiting(one) for one in self._pasted_from(pair))
            yield PasteJob(pair.arm, own, other, pair.id)

    def _waiting(self, pair: str) -> bytes:
        """The waiting state as it was sealed. Raises IntegrityError when it is another, or gone."""
        path = self._state(pair)
        data = path.read_bytes() if path.exists() else b""
        if digest_bytes(data) != self.sealed[pair]["state_sha256"]:
            raise IntegrityError(
                f"{path}: is not the state that was sealed. Its vault stays shut; this run cannot be completed."
            )
        return data

    # -- phase two --------------------------------------------------------------------------------------------------

    def record_refused(self) -> None:
        """Records of what phase one refused, and of the controls that were to be made of it."""
        for pair in self.pairs:
            if self._is_recorded(pair) or pair.base not in self.refused or pair.base in self.sealed:
                continue
            row = self.refused[pair.base]
            error = dict(row["error"])
            if pair.base != pair.id:
                error = {**error, "message": f"{pair.base} has no sealed state: {error['message']}"}
                if pair.id not in self.refused:
                    self._log("refused", {"pair_id": pair.id, "status": row["status"], "error": error})
            self._write_record(pair, self._record(pair, row["status"], error))

    def score_jobs(self) -> Iterator[ScoreJob]:
        """One job per sealed state with arms that have no record; the chain says that its vault opens, then it does."""
        for pair in self.pairs:
            if not pair.arm.seals or pair.id not in self.sealed:
                continue
            arms = [one for one in self.pairs if one.base == pair.id and not self._is_recorded(one)]
            arms = [one for one in arms if not self._take_up(one)]
            if not arms:
                continue
            state = self._waiting(pair.id)
            self._announce(pair)
            seal = self.sealed[pair.id]
            yield ScoreJob(
                pair.id,
                tuple(one.arm for one in arms),
                state,
                seal["state_hash"],
                seal["forgetting"],
                pair.source.vault,
            )

    def _announce(self, pair: _Pair) -> None:
        if pair.id in self.opened:
            return
        vault = pair.source.entry.vault_id
        data: dict[str, Any] = {
            "pair_id": pair.id,
            "vault_id": vault,
            "state_hash": self.sealed[pair.id]["state_hash"],
        }
        if all(row["vault_id"] != vault for row in self.opened.values()):
            data["attempts_before"], data["ledger"] = record_attempt(self.run.data, self.run_id, vault)
        self._log("vault_opened", data)

    def score(self, result: Any, say: Say) -> None:
        """Write the records of a scored state."""
        assert isinstance(result, Scored)
        _raise_if_invalid(result)
        self._write_opened(result.opened)
        if result.strips:
            with closing(LineFile(self._root / STRIPS_FILE)) as file:
                for name, views in result.strips.items():
                    rows = [{"query": query, "png": png} for query, png in views.items()]
                    file.append(canonical_json({"name": name, "views": rows}))
        owner = self._by_id[result.pair]
        scored = {one.arm.name: one for one in result.arms}
        for pair in self.pairs:
            if pair.base != owner.id or self._is_recorded(pair):
                continue
            own = scored.get(pair.arm.name) or ArmScores(pair.arm, result.status, result.error, averaged([]), 0.0)
            _raise_if_invalid(own)
            record = self._record(pair, own.status, own.error, result, own)
            if own.status != "ok":
                self._log("refused", {"pair_id": pair.id, "status": own.status, "error": own.error})
            self._write_record(pair, record)
        done, seconds = len(self._records.records), sum(one.score_s for one in result.arms)
        word = "scored" if result.status == "ok" else result.status
        say(f"{word} {result.pair.replace('@', ' ')} {seconds:.1f} s ({done}/{len(self.pairs)})")

    # -- records ----------------------------------------------------------------------------------------------------

    def _key(self, pair: _Pair) -> RecordKey:
        content = self.run.registration["mapper"]["content_hash"]
        return RecordKey(self._name, content, pair.source.episode_id, pair.arm.name)

    def _is_recorded(self, pair: _Pair) -> bool:
        return self._key(pair) in self._records

    def _file(self, pair: _Pair) -> Path:
        return self._files / f"{pair.id}.json"

    def _record(
        self,
        pair: _Pair,
        status: str,
        error: Mapping[str, str] | None,
        scored: Scored | None = None,
        arm: ArmScores | None = None,
    ) -> dict[str, Any]:
        entry, registration = pair.source.entry, self.run.registration
        seal, opened = self.sealed.get(pair.base), self.opened.get(pair.base)
        facts = (scored.facts if scored else None) or {"sealed": None, "actions": [], "history": [], "budget": None}
        times = {
            "decode_s": seal["decode_s"] if seal else 0.0,
            "adapt_s": seal["adapt_s"] if seal else 0.0,
            "score_s": arm.score_s if arm else 0.0,
        }
        provenance = pair.source.to_json()
        return {
            "schema": RECORD_SCHEMA,
            "pair_id": pair.id,
            **{name: getattr(entry, name) for name in ID_NAMES},
            "policy": pair.arm.name,
            "kind": pair.arm.kind,
            "status": status,
            "error": None if error is None else dict(error),
            "learned": pair.arm.policy == "LEARNED",
            "mapper": registration["mapper"],
            "writer": registration["writer"] if pair.arm.policy == "LEARNED" else None,
            "render_protocol": registration["render_protocol"],
            "budget_protocol": registration["budget_protocol"],
            "roots": {name: text for name, text in provenance.items() if name not in ID_NAMES},
            **facts,
            "metrics": dict(arm.metrics) if arm else averaged([]),
            "times": {**times, "total_s": sum(times.values())},
            "memory": {
                "peak_rss_bytes": max(seal["peak_rss_bytes"] if seal else 0, scored.peak_rss_bytes if scored else 0),
                "peak_device_bytes": seal["peak_device_bytes"] if seal else None,
            },
            "run_id": self.run_id,
            "chain": {"sealed": seal["hash"] if seal else None, "opened": opened["hash"] if opened else None},
        }

    def _write_record(self, pair: _Pair, record: dict[str, Any]) -> None:
        """The full record first, then its chain line, then its line: a kill in between is taken up by `_take_up`."""
        data = document(checked_record(record, pair.id))
        if self._file(pair).exists():  # only of a refused pair, whose file a killed run may have left
            data = self._file(pair).read_bytes()
        else:
            create(self._file(pair), data)
        self._append(pair, data)

    def _take_up(self, pair: _Pair) -> bool:
        """Whether a killed run left the pair's full record, whose line is then written."""
        if not self._file(pair).exists():
            return False
        self._append(pair, self._file(pair).read_bytes())
        return True

    def _append(self, pair: _Pair, data: bytes) -> None:
        record = checked_record(parse_json(data), str(self._file(pair)))
        if record["pair_id"] != pair.id or record["run_id"] != self.run_id:
            raise IntegrityError(f"{self._file(pair)}: belongs to {record['pair_id']} of run {record['run_id']}.")
        digest, sha256 = record_digest(record), digest_bytes(data)
        if pair.id not in self._digests:
            self._log("scored", {"pair_id": pair.id, "record_digest": digest, "file_sha256": sha256})
        entry = pair.source.entry
        averages = record["metrics"]["averages"]
        self._records.append(
            Record(
                **self._key(pair)._asdict(),
                epoch=0,
                step=0,
                case_index=pair.position,
                scene_id=entry.scene_id,
                scene_digest=entry.online_root,
                seed=0,
                benchmark_seed=self.run.registration["bootstrap"]["seed"],
                replicate=0,
                ego=-1,
                ego_rule="",
                status=record["status"],
                error=record["error"],
                result={
                    "ids": {name: record[name] for name in ID_NAMES},
                    "kind": pair.arm.kind,
                    "metrics": {name: {"value": v, "valid": v is not None} for name, v in averages.items()},
                    "record_digest": digest,
                },
                cost={"seconds": record["times"]["total_s"], "file_sha256": sha256, "host": socket.gethostname()},
            )
        )

    # -- the end ----------------------------------------------------------------------------------------------------

    def finish(self, page: Page | None, keep_states: bool) -> dict[str, Any]:
        """Tables, page, and last of all the report, which closes the folder for ever."""
        files = [self._file(pair).read_bytes() for pair in self.pairs]
        records = [checked_record(parse_json(data), pair.id) for pair, data in zip(self.pairs, files, strict=True)]
        if not keep_states:
            shutil.rmtree(self._states, ignore_errors=True)
        derived = conclude(self.run.registration, records)
        tables = {
            "episodes.csv": episodes_csv(records),
            "queries.csv": queries_csv(records),
            "summary.csv": summary_csv(derived["summaries"]),
        }
        for name, data in tables.items():
            replace_file(self._root / name, data)
        status = "complete" if all(record["status"] == "ok" for record in records) else "incomplete"
        self.folder.page.unlink(missing_ok=True)
        digests = {
            path.relative_to(self.folder.path).as_posix(): digest_file(path)
            for path in self.folder.files()
            if path != self.folder.chain
        }
        opened = digests[f"{self._name}/opened.jsonl"]
        self._log("finished", {"status": status, "files": digests, "opened": opened})
        registration = self.run.registration
        report = {
            "schema": REPORT_SCHEMA,
            "status": status,
            "kind": registration["kind"],
            "run_id": self.run_id,
            "registration": registration,
            "environment": {**registration["environment"], "host": environment(1)},
            "provenance": [source.to_json() for source in self.run.provenances],
            "subset": self._subset(),
            "mapper": registration["mapper"],
            "writer": registration["writer"],
            "metric_keys": metric_keys(records),
            "records": [
                report_row(record, self._digests[record["pair_id"]], digest_bytes(data))
                for record, data in zip(records, files, strict=True)
            ],
            **derived,
            "attempts": self._attempts(),
            "chain_head": self._chain.head,
        }
        report["result_digest"] = result_digest(report)
        report = checked_report(report, str(self.folder.report))
        if page is not None:
            replace_file(self.folder.page, page(self.folder, report).encode())
        create(self.folder.report, document(report))
        return dict(parse_json(self.folder.report.read_bytes()))

    def _attempts(self) -> dict[str, Any]:
        rows = [row for row in self.opened.values() if "ledger" in row]
        states = {row["ledger"] for row in rows}
        worst = next((one for one in ("broken", "not writable") if one in states), "ok")
        return {"before": {row["vault_id"]: row["attempts_before"] for row in rows}, "ledger": worst}


def _raise_if_invalid(result: Streamed | Scored | ArmScores) -> None:
    """What does not hold ends the run: nothing may be recorded that rests on it."""
    if result.status == "invalid" and result.error is not None:
        raise IntegrityError(result.error["message"])
