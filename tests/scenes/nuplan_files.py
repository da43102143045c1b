"""A nuPlan log and its map, made by a schema of our own (R25): no data of that set is at hand."""

from __future__ import annotations

import sqlite3
import struct

import numpy as np
from small_world import world_points

from skidpad.scenes.scene import SIGNAL_LIGHT, Scene

EPSG = 32611
SHIFT = np.array([664_000.0, 3_997_000.0, 600.0])  # Las Vegas, in metres of zone 11
START_US = 1_620_000_000_000_000
SCHEMA = """
CREATE TABLE log (token BLOB, vehicle_name TEXT, date TEXT, timestamp INT, logfile TEXT, location TEXT,
  map_version TEXT);
CREATE TABLE scene (token BLOB, log_token BLOB, name TEXT, goal_ego_pose_token BLOB, roadblock_ids TEXT);
CREATE TABLE lidar_pc (token BLOB, ego_pose_token BLOB, scene_token BLOB, timestamp INT);
CREATE TABLE ego_pose (token BLOB, timestamp INT, x REAL, y REAL, z REAL, qw REAL, qx REAL, qy REAL, qz REAL, vx REAL,
  vy REAL, angular_rate_z REAL);
CREATE TABLE lidar_box (lidar_pc_token BLOB, track_token BLOB, x REAL, y REAL, z REAL, yaw REAL, width REAL,
  length REAL, height REAL, vx REAL, vy REAL);
CREATE TABLE track (token BLOB, category_token BLOB);
CREATE TABLE category (token BLOB, name TEXT);
CREATE TABLE traffic_light_status (lidar_pc_token BLOB, lane_connector_id INT, status TEXT);
CREATE TABLE scenario_tag (lidar_pc_token BLOB, type TEXT);
"""
_STATES = {0: "unknown", 1: "red", 2: "yellow", 3: "green"}


def token(kind: int, number: int) -> bytes:
    return struct.pack(">II", kind, number)


def nuplan_log(scene: Scene, *, scenes: tuple[str, ...] = ("scene-001",), more: str = "") -> bytes:
    """A log of which every scene is `scene`, at 20 Hz with a jitter of a millisecond, a minute apart."""
    base = sqlite3.connect(":memory:", isolation_level=None)
    base.execute("PRAGMA page_size = 512")
    base.executescript(SCHEMA)
    put = base.execute
    put("INSERT INTO log VALUES (?, 'car', '', 0, 'log-7', 'las_vegas', '9.15')", (token(1, 0),))
    for n, name in enumerate(("vehicle", "pedestrian", "traffic_cone", "spaceship")):
        put("INSERT INTO category VALUES (?, ?)", (token(2, n), name))
    tracks, meta = scene.tracks, scene.meta
    others = [n for n in range(tracks.count) if n != meta.sdc]
    for n in others:
        put("INSERT INTO track VALUES (?, ?)", (token(3, n), token(2, {1: 0, 2: 1}[int(tracks.type[n])])))
    put(
        "INSERT INTO ego_pose VALUES (?, 0, ?, ?, ?, 1, 0, 0, 0, 0, 0, 0)",
        (token(4, 9999), *(SHIFT + np.array([88.539, 0, 7]))),
    )
    clouds = 0
    for number, name in enumerate(scenes):
        put("INSERT INTO scene VALUES (?, ?, ?, ?, '')", (token(5, number), token(1, 0), name, token(4, 9999)))
        for half in range(2 * meta.steps - 1):
            cloud, pose = token(6, clouds), token(4, clouds)
            clouds += 1
            time = START_US + 60_000_000 * number + 50_000 * half + (1000 if half % 3 == 1 else 0)
            put("INSERT INTO lidar_pc VALUES (?, ?, ?, ?)", (cloud, pose, token(5, number), time))
            row = half // 2
            at = np.array([float(getattr(tracks, axis)[meta.sdc, row]) for axis in "xyz"]) + meta.origin + SHIFT
            yaw, speed = float(tracks.heading[meta.sdc, row]), float(tracks.vx[meta.sdc, row])
            if half % 2:  # a row that must not be taken
                at[0] += 1000.0
            axle = at - (1.461 * np.cos(yaw), 1.461 * np.sin(yaw), 0.0)
            turn = (np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2))
            put("INSERT INTO ego_pose VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0)", (pose, time, *axle, *turn, speed))
            for n in others:
                if tracks.valid[n, row]:
                    place = np.array([float(getattr(tracks, axis)[n, row]) for axis in "xyz"]) + meta.origin + SHIFT
                    names = ("heading", "width", "length", "height", "vx", "vy")
                    rest = [float(getattr(tracks, name)[n, row]) for name in names]
                    put(f"INSERT INTO lidar_box VALUES ({', '.join('?' * 11)})", (cloud, token(3, n), *place, *rest))
            for n in np.flatnonzero(scene.signals.kind == SIGNAL_LIGHT):
                status = _STATES[int(scene.signals.state[n, row])]
                put("INSERT INTO traffic_light_status VALUES (?, 12, ?)", (cloud, status))
            if half == 2:
                put("INSERT INTO scenario_tag VALUES (?, 'starting_left_turn')", (cloud,))
    if more:
        base.executescript(more)
    data = base.serialize()
    base.close()
    return data


def geometry(points: np.ndarray, *, polygon: bool = False, z: bool = False, multi: bool = False) -> bytes:
    """A GeoPackage line or polygon."""
    table = np.asarray(points, float)[:, : 3 if z else 2]
    code = (3 if polygon else 2) + (1000 if z else 0)
    body = struct.pack("<BI", 1, code)
    if polygon:
        table = np.concatenate([table, table[:1]])
        body += struct.pack("<I", 1)
    body += struct.pack("<I", len(table)) + table.astype("<f8").tobytes()
    if multi:
        body = struct.pack("<BII", 1, code + 3, 1) + body
    return b"GP\0\1" + struct.pack("<i", EPSG) + body


def city_map(scene: Scene, *, degrees: bool = False, multi: bool = False) -> bytes:
    """The map of the small world: lane 11, connectors 12 and 13 that leave it, borders 1.85 m aside, one of them
    against the lane's direction."""
    base = sqlite3.connect(":memory:", isolation_level=None)
    put = base.execute
    put("CREATE TABLE gpkg_geometry_columns (table_name TEXT, column_name TEXT, geometry_type_name TEXT, srs_id INT)")
    put("CREATE TABLE meta (fid INTEGER, key TEXT, value TEXT)")
    put("INSERT INTO meta VALUES (1, 'projectedCoordSystem', ?)", (f"epsg:{EPSG}",))
    layers = {
        "baseline_paths": "lane_fid REAL, lane_connector_fid REAL",
        "lanes_polygons": "lane_fid INT, left_boundary_fid INT, right_boundary_fid INT, speed_limit_mps REAL",
        "lane_connectors": "exit_lane_fid INT, entry_lane_fid INT, intersection_fid INT, speed_limit_mps REAL",
        "gen_lane_connectors_scaled_width_polygons": "lane_connector_fid TEXT, left_boundary_fid, right_boundary_fid",
        "boundaries": "kind INT",
        "crosswalks": "is_marked INT",
        "stop_polygons": "stop_polygon_type_fid INT",
        "carpark_areas": "kind INT",
    }
    for name, columns in layers.items():
        put(f"CREATE TABLE {name} (fid INTEGER PRIMARY KEY, geom BLOB, {columns})")
        put("INSERT INTO gpkg_geometry_columns VALUES (?, 'geom', '', ?)", (name, 4326 if degrees else EPSG))

    def shape(points: np.ndarray, *, polygon: bool = False) -> bytes:
        moved = points + SHIFT * (1.0, 1.0, 0.0)
        if degrees:
            moved[:, :2] = to_degrees(moved[:, :2])
        return geometry(moved, polygon=polygon, multi=multi)

    for n in range(scene.road.lane_count):
        fid, points = int(scene.road.source_id[n]), world_points(scene, n)
        along = np.diff(points[[0, -1], :2], axis=0)[0]
        aside = 1.85 * np.array([-along[1], along[0], 0.0]) / np.hypot(*along)
        put("INSERT INTO boundaries VALUES (?, ?, 0)", (10 * fid, shape(points + aside)))
        put("INSERT INTO boundaries VALUES (?, ?, 0)", (10 * fid + 1, shape((points - aside)[::-1])))
        ids = (fid, None) if fid == 11 else (None, fid)
        put("INSERT INTO baseline_paths VALUES (NULL, ?, ?, ?)", (shape(points), *ids))
        if fid == 11:
            put("INSERT INTO lanes_polygons VALUES (1, NULL, 11, 110, 111, 13.9)")
        else:
            put("INSERT INTO lane_connectors VALUES (?, NULL, 11, 99, 5, 13.9)", (fid,))
            put(
                "INSERT INTO gen_lane_connectors_scaled_width_polygons VALUES (NULL, NULL, ?, ?, ?)",
                (str(fid), str(10 * fid), str(10 * fid + 1)),
            )
    put("INSERT INTO crosswalks VALUES (23, ?, 1)", (shape(world_points(scene, 5), polygon=True),))
    corners = np.array([(49.0, -2, 0), (51, -2, 0), (51, 2, 0), (49, 2, 0)])
    put("INSERT INTO stop_polygons VALUES (1, ?, 1)", (shape(corners, polygon=True),))
    put("INSERT INTO carpark_areas VALUES (1, NULL, 0)")
    data = base.serialize()
    base.close()
    return data


def to_degrees(xy: np.ndarray) -> np.ndarray:
    """(n, 2) longitude, latitude [degrees] of metres in zone 11, by Newton on the projection."""
    from skidpad.scenes.formats.projection import utm

    found = np.column_stack([np.full(len(xy), -115.2), np.full(len(xy), 36.1)])
    for _ in range(6):
        x, y = utm(found[:, 1], found[:, 0], EPSG)
        scale = np.cos(np.radians(found[:, 1])) * 111_320.0
        found += np.column_stack([(xy[:, 0] - x) / scale, (xy[:, 1] - y) / 110_950.0])
    for _ in range(20):
        x, y = utm(found[:, 1], found[:, 0], EPSG)
        found += np.column_stack([(xy[:, 0] - x) / 90_000.0, (xy[:, 1] - y) / 110_950.0])
    return found
