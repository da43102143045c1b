"""Verification of a sealed evaluation: order of the phases, records, everything derived from them, tables and page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skidpad.artifacts.digests import digest_bytes, digest_file
from skidpad.artifacts.files import parse_json
from skidpad.errors import SkidpadError
from skidpad.evaluation.metrics.scene_metrics import SCENE_METRICS, in_range
from skidpad.evaluation.scene_statistics import conclude, summary_csv
from skidpad.evaluation.sealed_registration import run_id_of
from skidpad.evaluation.sealed_tables import episodes_csv, metric_keys, queries_csv
from skidpad.evaluation.verify import MISSHAPEN, Findings, Page, check_files, checked_chain, read_json
from skidpad.runs.folder import RunFolder
from skidpad.runs.records import read_records
from skidpad.streaming.arms import arms_of
from skidpad.streaming.policies import DIAGNOSTIC
from skidpad.streaming.report_format import (
    averaged,
    checked_record,
    checked_report,
    pair_id,
    record_digest,
    report_row,
    result_digest,
)

Record = dict[str, Any]
Event = Mapping[str, Any]


def verify_sealed(
    folder: RunFolder,
    manifest: Mapping[str, Any],
    found: Findings,
    *,
    assets: Path | None,
    checkpoints: Path | None,
    replay: int,
    page: Page | None,
) -> None:
    """Check everything that a sealed run says; `verify_run` has the arguments."""
    identity = manifest["identity"]
    registration = identity["registration"]
    name = next(iter(manifest["evaluators"]))
    if run_id_of(registration) != identity["run_id"]:
        found.problems.append("manifest.json: its run id is not the content hash of its registration.")
    check_versions(registration, found)
    chain = checked_chain(folder, found)
    check_order(chain, identity["run_id"], found)
    check_diagnostic(chain, registration, found)
    records = read_pairs(folder, name, found)
    for record in records.values():
        check_record(record, registration, identity["run_id"], found)
    digests = {pair: record_digest(record) for pair, record in records.items()}
    check_against_chain(records, digests, chain, found)
    check_lines(folder, records, digests, found)
    expected = expected_pairs(registration)
    report = read_json(folder.report, found) if folder.is_finished else None
    if report is None:
        found.complete = False
        found.notes.append(f"the run is not finished: {len(records)} of {len(expected)} pairs have a record.")
    else:
        check_pairs(records, expected, found)
        ordered = [records[pair] for pair in expected if pair in records]
        check_report(folder, name, manifest, report, ordered, digests, chain, found, page)
        found.complete = all(record["status"] == "ok" for record in ordered)
    found.done.append(f"{len(chain)} events, {len(records)} records")
    if assets is not None or checkpoints is not None:
        from skidpad.evaluation.verify_assets import verify_assets, verify_checkpoints, verify_replay

        sources = None if assets is None else verify_assets(assets, manifest, records, found)
        files = None if checkpoints is None else verify_checkpoints(checkpoints, registration, found)
        if replay and sources and files:
            head = chain[-1]["hash"] if chain else ""
            verify_replay(replay, head, registration, sources, files, chain, found)


def check_versions(registration: Mapping[str, Any], found: Findings) -> None:
    """Metrics whose version is another one here cannot be checked against their range and direction."""
    here = {name: line.version for name, line in SCENE_METRICS.items()}
    other = sorted(name for name, version in registration["metrics"].items() if name in here and here[name] != version)
    if other:
        found.problems.append(f"registration: metrics of other versions than here: {', '.join(other)}.")


def expected_pairs(registration: Mapping[str, Any]) -> list[str]:
    """Every pair that the registration asks for."""
    arms = arms_of(registration["policies"], registration["controls"])
    return [pair_id(episode, arm.name) for episode in registration["episode_ids"] for arm in arms]


def check_pairs(records: Mapping[str, Record], expected: Sequence[str], found: Findings) -> None:
    """Exactly the pairs of the registration have records: none is left out, refused ones neither."""
    for pair in expected:
        if pair not in records:
            found.problems.append(f"{pair}: the registration asks for it, and it has no record.")
    for pair in sorted(set(records) - set(expected)):
        found.problems.append(f"{pair}: has a record, and the registration does not ask for it.")


def check_order(chain: Sequence[Event], run_id: str, found: Findings) -> None:
    """The chain begins with the registration, and nothing is sealed or refused by streaming after a vault opened."""
    if not chain:
        return
    if chain[0]["event"] != "registered" or chain[0]["data"].get("run_id") != run_id:
        found.problems.append("chain.jsonl: does not begin with the registration of this run.")
    first_open = next((event["seq"] for event in chain if event["event"] == "vault_opened"), None)
    sealed: set[str] = set()
    for event in chain:
        pair = event["data"].get("pair_id")
        if event["event"] == "sealed":
            if first_open is not None and event["seq"] > first_open:
                found.problems.append(f"chain.jsonl: {pair} was sealed after a vault had been opened.")
            if pair in sealed:
                found.problems.append(f"chain.jsonl: {pair} was sealed twice.")
            sealed.add(pair)
        elif event["event"] == "vault_opened" and pair not in sealed:
            found.problems.append(f"chain.jsonl: the vault of {pair} was opened before it was sealed.")
        elif event["event"] == "finished" and event is not chain[-1]:
            found.problems.append("chain.jsonl: goes on after the run had finished.")


def check_diagnostic(chain: Sequence[Event], registration: Mapping[str, Any], found: Findings) -> None:
    """Only a run that is marked as diagnostic has a policy that reads the vault."""
    if registration["kind"] == "diagnostic":
        return
    for name in sorted(set(registration["policies"]) & set(DIAGNOSTIC)):
        found.problems.append(f"registration: policy {name} reads the vault, and this run is {registration['kind']}.")
    for event in chain:
        if event["event"] == "oracle_opened":
            found.problems.append(f"chain.jsonl: {event['data'].get('pair_id')} was given a vault while streaming.")


def read_pairs(folder: RunFolder, name: str, found: Findings) -> dict[str, Record]:
    """The full records by pair, each checked for its fields and its name."""
    records: dict[str, Record] = {}
    for path in sorted((folder.evaluator(name) / "pairs").glob("*.json")):
        try:
            record = checked_record(parse_json(path.read_bytes()), path.name)
        except (SkidpadError, ValueError) as error:
            found.problems.append(f"{path.name}: {error}")
            continue
        if record["pair_id"] != path.stem or pair_id(record["episode_id"], record["policy"]) != path.stem:
            found.problems.append(f"{path.name}: holds the record of {record['pair_id']}.")
            continue
        records[path.stem] = record
    return records


def check_record(record: Record, registration: Mapping[str, Any], run_id: str, found: Findings) -> None:
    """What a record says of itself: averages from its rows, actions from its history, units from its operations."""
    pair = record["pair_id"]
    found.compare(f"{pair}: metrics", record["metrics"], averaged(record["metrics"]["per_query"]))
    for row in record["metrics"]["per_query"]:
        known = {name: entry["value"] for name, entry in row["metrics"].items() if name in SCENE_METRICS}
        try:
            in_range(known)
        except SkidpadError as error:
            found.problems.append(f"{pair}, query {row['frame_id']}: {error}")
    taken = [row["action"] for row in record["history"]]
    if record["actions"] != taken:
        found.problems.append(f"{pair}: its actions are not those of its history.")
    if record["budget"] is not None:
        spent = sum(operation["units"] for operation in record["budget"]["operations"].values())
        if spent != record["budget"]["units"]:
            found.problems.append(
                f"{pair}: its operations add up to {spent} units, it says {record['budget']['units']}."
            )
    for key in ("mapper", "render_protocol", "budget_protocol"):
        found.compare(f"{pair}: {key}", record[key], registration[key])
    if record["run_id"] != run_id:
        found.problems.append(f"{pair}: belongs to run {record['run_id']}.")
    if record["sealed"] is not None and record["sealed"]["checkpoint_hash"] != record["mapper"]["content_hash"]:
        found.problems.append(f"{pair}: was sealed with other slow weights than the mapper's.")


def check_against_chain(
    records: Mapping[str, Record], digests: Mapping[str, str], chain: Sequence[Event], found: Findings
) -> None:
    """What the chain committed to before: state hashes before any vault, digests when scored."""
    scored = {event["data"]["pair_id"]: event["data"] for event in chain if event["event"] == "scored"}
    sealed = {event["hash"]: event["data"] for event in chain if event["event"] == "sealed"}
    refused = {event["data"]["pair_id"] for event in chain if event["event"] == "refused"}
    for pair, record in sorted(records.items()):
        row = scored.get(pair)
        if row is None:
            found.problems.append(f"{pair}: has a record that the chain does not know.")
        elif digests[pair] != row["record_digest"]:
            found.problems.append(f"{pair}: its record is not the one that was scored.")
        seal = sealed.get(record["chain"]["sealed"])
        if record["sealed"] is not None:
            names = ("state_hash", "fast_state_hash", "checkpoint_hash")
            if seal is None or any(record["sealed"][name] != seal[name] for name in names):
                found.problems.append(f"{pair}: its state is not the one that was sealed.")
        if record["status"] != "ok" and pair not in refused:
            found.problems.append(f"{pair}: {record['status']}, and the chain does not say so.")
    for pair in sorted(scored.keys() - records.keys()):
        found.problems.append(f"{pair}: was scored, and its record is gone.")


def check_lines(folder: RunFolder, records: Mapping[str, Record], digests: Mapping[str, str], found: Findings) -> None:
    """One line per record, saying the same."""
    lines: dict[str, Any] = {}
    try:
        for line in read_records(folder.records):
            pair = pair_id(line.case, line.arm)
            if pair in lines:
                found.problems.append(f"records.jsonl: {pair} has two lines.")
            lines[pair] = line
    except SkidpadError as error:
        found.problems.append(str(error))
        return
    for pair in sorted(lines.keys() ^ records.keys()):
        found.problems.append(f"records.jsonl: {pair} has {'no record' if pair in lines else 'no line'}.")
    for pair in sorted(lines.keys() & records.keys()):
        line, record = lines[pair], records[pair]
        values = {name: entry["value"] for name, entry in line.result["metrics"].items()}
        same = line.status == record["status"] and values == record["metrics"]["averages"]
        if not same or line.result["record_digest"] != digests[pair]:
            found.problems.append(f"records.jsonl: the line of {pair} is not that of its record.")


def check_report(
    folder: RunFolder,
    name: str,
    manifest: Mapping[str, Any],
    report: dict[str, Any],
    records: Sequence[Record],
    digests: Mapping[str, str],
    chain: Sequence[Event],
    found: Findings,
    page: Page | None,
) -> None:
    """The report, the tables and the page, each derived again."""
    try:
        checked_report(report, "report.json")
    except SkidpadError as error:
        found.problems.append(str(error))
        return
    identity = manifest["identity"]
    registration = identity["registration"]
    last: Event = chain[-1] if chain else {"event": "", "data": {}, "hash": ""}
    if last["event"] != "finished":
        found.problems.append("chain.jsonl: does not end with the end of the run.")
    if report["chain_head"] != last["hash"]:
        found.problems.append("report.json: its chain head is not the head of chain.jsonl.")
    files = {**last["data"].get("files", {})}
    # Both are written after the chain's last line; the page is derived below, the chain speaks for itself.
    there = {item.relative_to(folder.path).as_posix() for item in folder.files()}
    later = {key: digest_bytes((folder.path / key).read_bytes()) for key in {"chain.jsonl", "report.html"} & there}
    check_files(folder, {**files, **later}, found)
    status = "complete" if all(record["status"] == "ok" for record in records) else "incomplete"
    part = manifest["evaluators"][name]
    derived: dict[str, Any] = {
        "status": status,
        "kind": registration["kind"],
        "run_id": identity["run_id"],
        "registration": registration,
        "provenance": part["provenance"],
        "subset": part["subset"],
        "mapper": registration["mapper"],
        "writer": registration["writer"],
        "metric_keys": metric_keys(records),
        "attempts": attempts_of(chain),
        **conclude(registration, records),
    }
    for key, value in derived.items():
        found.compare(f"report.{key}", report[key], value)
    stated = {key: value for key, value in report["environment"].items() if key != "host"}
    found.compare("report.environment", stated, registration["environment"])
    check_host(report, manifest, chain, found)
    pairs = folder.evaluator(name) / "pairs"
    rows = [report_row(one, digests[one["pair_id"]], digest_file(pairs / f"{one['pair_id']}.json")) for one in records]
    found.compare("report.records", report["records"], rows)
    if report["result_digest"] != result_digest(report):
        found.problems.append("report.json: its result digest is not that of its content.")
    if last["event"] == "finished" and last["data"].get("status") != status:
        found.problems.append(f"chain.jsonl: the run ended {last['data'].get('status')}, its records say {status}.")
    tables = {
        "episodes.csv": episodes_csv(records),
        "queries.csv": queries_csv(records),
        "summary.csv": summary_csv(derived["summaries"]),
    }
    for table, data in tables.items():
        path = folder.evaluator(name) / table
        if not path.exists() or path.read_bytes() != data:
            found.problems.append(f"{name}/{table}: is not the table of these records.")
    if page is not None and not _is_page(folder, report, page):
        found.problems.append("report.html: is not the page of this report.")


def _is_page(folder: RunFolder, report: dict[str, Any], page: Page) -> bool:
    try:
        return folder.page.read_bytes() == page(folder, report).encode()
    except MISSHAPEN:
        return False


def check_host(report: Mapping[str, Any], manifest: Mapping[str, Any], chain: Sequence[Event], found: Findings) -> None:
    """The machine as the manifest has it; a run that was resumed may have ended on another one."""
    host = report["environment"].get("host")
    if sum(event["event"] == "started" for event in chain) != 1:
        return
    # Whether the tree was clean may change while a run goes on; what counts is what was registered.
    kept = ("commit", "dirty")
    found.compare(
        "report.environment.host",
        {key: value for key, value in (host or {}).items() if key not in kept},
        {key: value for key, value in manifest["environment"].items() if key not in kept},
    )


def attempts_of(chain: Sequence[Event]) -> dict[str, Any]:
    """How often the vaults were opened before, from the events that opened them."""
    rows = [event["data"] for event in chain if event["event"] == "vault_opened" and "ledger" in event["data"]]
    states = {row["ledger"] for row in rows}
    worst = next((one for one in ("broken", "not writable") if one in states), "ok")
    return {"before": {row["vault_id"]: row["attempts_before"] for row in rows}, "ledger": worst}
