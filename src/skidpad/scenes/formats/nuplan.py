"""nuPlan logs (R25): an SQLite database of one drive, with its map in a GeoPackage. Experimental: written from the
published schema, never yet tried on a recorded log.

Each entry of the table `scene` is a scene, sampled every 0.1 s by time. Ego poses are of the rear axle and are moved to
the middle of the box. Light states of the public mini set are known to be wrong (nuplan-devkit issue 329).

Options: `map`, the .gpkg file of the log's city, or `none` for traffic without a road; `scenario`, the name of one
scene.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from skidpad.errors import FormatError, SettingsError
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats.nuplan_map import CityMap, add_map, read_map
from skidpad.scenes.formats.nuplan_tracks import Clock, add_boxes, add_ego, lights_of
from skidpad.scenes.formats.source import SQLITE_MAGIC, Limits, Source, read_source
from skidpad.scenes.formats.sqlite_file import Database
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import Scene

FORMAT = "nuplan"
OPTIONS = frozenset({"map", "scenario"})
NO_MAP = "none"

LICENCE = "CC BY-NC-SA 4.0 and the nuPlan terms of use: non-commercial"
ATTRIBUTION = "nuPlan dataset, Motional"

DT_US = 100_000
_TABLES = {
    "log": ("logfile", "location", "map_version"),
    "scene": ("token", "name", "goal_ego_pose_token"),
    "lidar_pc": ("token", "timestamp", "scene_token", "ego_pose_token"),
    "ego_pose": ("token", "x", "y", "z", "qw", "qx", "qy", "qz", "vx", "vy", "angular_rate_z"),
    "lidar_box": ("lidar_pc_token", "track_token", "x", "y", "z", "yaw", "length", "width", "height", "vx", "vy"),
    "track": ("token", "category_token"),
    "category": ("token", "name"),
    "traffic_light_status": ("lidar_pc_token", "lane_connector_id", "status"),
    "scenario_tag": ("lidar_pc_token", "type"),
}


class _SceneRow(NamedTuple):
    token: bytes
    name: str
    goal: bytes | None


def sniff(head: bytes, name: str) -> float:
    """1 for an SQLite database whose schema speaks of lidar clouds and ego poses, else 0."""
    return 1.0 if head.startswith(SQLITE_MAGIC) and b"lidar_pc" in head and b"ego_pose" in head else 0.0


def read_each(source: Source, limits: Limits, options: Mapping[str, Any]) -> Iterator[Scene]:
    """The scenes of a log, in the order of its table.

    Raises FormatError where the database or the map break their format or a limit, SettingsError without the option
    `map` and for a scene that is not there.
    """
    loss = LossReport()
    with Database(source, tuple(_TABLES), limits, loss, plain=True) as database:
        for table, columns in _TABLES.items():
            database.require(table, columns)
        log = database.first("SELECT logfile, location, map_version FROM log")
        if log is None:
            raise FormatError(f"{source.name}: table 'log' is empty, expected the log's row.")
        city = _city(options, source, str(log[1]), limits)
        wanted = options.get("scenario")
        scenes = [
            _SceneRow(token, str(name), goal)
            for token, name, goal in database.rows("SELECT token, name, goal_ego_pose_token FROM scene ORDER BY name")
            if wanted in (None, name)
        ]
        if not scenes:
            if wanted is not None:
                raise SettingsError(f"{source.name}: option scenario is {wanted!r}, which is no scene of the log.")
            raise FormatError(f"{source.name}: table 'scene' is empty, expected scenes.")
        for scene in scenes:
            found = _scene(database, scene, [str(value) for value in log], city, source, limits, loss)
            database.check_unchanged()
            yield found


def _city(options: Mapping[str, Any], source: Source, location: str, limits: Limits) -> CityMap | None:
    given = options.get("map")
    if given is None:
        raise SettingsError(
            f"{source.name}: option map is missing. Name the GeoPackage of {location!r} with map=<path>/map.gpkg, or "
            f"say map={NO_MAP} for traffic without a road."
        )
    if given == NO_MAP:
        return None
    file = read_source(str(given), limits)
    try:
        return read_map(file, limits)
    except FormatError as error:
        if file.name in str(error):
            raise
        raise FormatError(f"{file.name}: {error}") from error


def _scene(
    database: Database,
    scene: _SceneRow,
    log: list[str],
    city: CityMap | None,
    source: Source,
    limits: Limits,
    common: LossReport,
) -> Scene:
    logfile, location, version = log
    loss = LossReport()
    for kind, entry in common.entries().items():
        loss.count(kind, entry.examples[0], entry.count)
    query = "SELECT timestamp FROM lidar_pc WHERE scene_token = ? ORDER BY timestamp"
    times = np.array([_whole(row[0], "timestamp", scene) for row in database.rows(query, (scene.token,))], np.int64)
    if not len(times):
        raise FormatError(f"scene {scene.name!r} has no lidar clouds, expected at least one.")
    # As Python's integers: two stamps of a damaged file may lie farther apart than 64 bits reach.
    limits.check("rows", (int(times[-1]) - int(times[0])) / DT_US + 1, f"scene {scene.name!r}")
    clock = Clock.of(times, DT_US, loss)
    scene_id = f"{logfile}-{scene.name}" if logfile else scene.name
    builder = SceneBuilder(
        scene_id, f"nuplan {location}", FORMAT, version, source.digest, DT_US, loss=loss, limits=limits
    )
    path = add_ego(database, scene.token, scene.goal, clock, builder)
    add_boxes(database, scene.token, clock, builder, limits)
    lights = lights_of(database, scene.token, clock, loss, limits)
    has_z = False
    if city is not None:
        has_z = add_map(city, path, lights, builder)
    else:
        loss.count("dropped_light_without_lane", "there is no map", len(lights))
    return builder.finish(
        has_z=has_z,
        edges_from_borders=city is not None,
        sdc=0,
        labels={"location": location, "tags": _tags(database, scene, clock)},
        licence=LICENCE,
        attribution=ATTRIBUTION,
    )


def _whole(value: Any, what: str, scene: _SceneRow) -> int:
    if not isinstance(value, int):
        raise FormatError(f"scene {scene.name!r}: {what} {str(value)[:40]!r}, expected an integer.")
    return value


def _tags(database: Database, scene: _SceneRow, clock: Clock) -> list[str]:
    """Kinds of moments that the log marks in a scene, with the row of the first of each."""
    query = (
        "SELECT p.timestamp, t.type FROM scenario_tag t JOIN lidar_pc p ON p.token = t.lidar_pc_token "
        "WHERE p.scene_token = ? ORDER BY p.timestamp"
    )
    first: dict[str, int] = {}
    for time, kind in database.rows(query, (scene.token,)):
        first.setdefault(str(kind), clock.nearest(_whole(time, "timestamp", scene)))
    return [f"{kind} from row {row}" for kind, row in first.items()]
