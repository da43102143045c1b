"""Hand-written CommonRoad files of at most 4 KiB, one of each version, for the tests beside this file."""

from __future__ import annotations

HEAD_2018 = (
    '<commonRoad commonRoadVersion="2018b" benchmarkID="TST_Small-1_1_T-1" timeStepSize="0.1" '
    'author="A. N. Other" source="by hand" date="2024-01-01" tags="highway two_lane">'
)
HEAD_2020 = (
    '<commonRoad commonRoadVersion="2020a" benchmarkID="TST_Small-2_1_T-1" timeStepSize="0.1" author="A. N. Other">'
)


def bound(tag: str, *points: tuple[float, float], marking: str = "") -> str:
    inner = "".join(f"<point><x>{x}</x><y>{y}</y></point>" for x, y in points)
    return f"<{tag}>{inner}{f'<lineMarking>{marking}</lineMarking>' if marking else ''}</{tag}>"


def lanelet(
    identity: int, x0: float, x1: float, y: float, extra: str = "", *, width: float = 4.0, marking: str = ""
) -> str:
    """A straight lanelet along x."""
    left = bound("leftBound", (x0, y + width / 2), (x1, y + width / 2), marking=marking)
    right = bound("rightBound", (x0, y - width / 2), (x1, y - width / 2), marking=marking)
    return f'<lanelet id="{identity}">{left}{right}{extra}</lanelet>\n'


def state(tag: str, step: int, x: float, y: float, *, speed: str | None = "10.0", heading: str = "0.0") -> str:
    velocity = "" if speed is None else f"<velocity><exact>{speed}</exact></velocity>"
    return (
        f"<{tag}><position><point><x>{x}</x><y>{y}</y></point></position>"
        f"<orientation><exact>{heading}</exact></orientation><time><exact>{step}</exact></time>{velocity}</{tag}>"
    )


RECTANGLE = "<shape><rectangle><length>4.5</length><width>1.8</width></rectangle></shape>"


def obstacle_2018(identity: int, role: str, kind: str, states: str, shape: str = RECTANGLE) -> str:
    return f'<obstacle id="{identity}"><role>{role}</role><type>{kind}</type>{shape}{states}</obstacle>\n'


def dynamic(identity: int, kind: str, states: str, shape: str = RECTANGLE) -> str:
    return f'<dynamicObstacle id="{identity}"><type>{kind}</type>{shape}{states}</dynamicObstacle>\n'


def driven(first: int, rows: int, *, x: float = 10.0, y: float = 0.0) -> str:
    """An initial state and a trajectory at 10 m/s along x."""
    states = "".join(state("state", first + row, x + row, y) for row in range(1, rows))
    return state("initialState", first, x, y) + (f"<trajectory>{states}</trajectory>" if rows > 1 else "")


PROBLEM = (
    '<planningProblem id="90">' + state("initialState", 0, 5.0, 0.0, speed="8.0") + "<goalState>"
    "<time><intervalStart>20</intervalStart><intervalEnd>30</intervalEnd></time><position><rectangle>"
    "<length>10.0</length><width>4.0</width><orientation>0.0</orientation>"
    "<center><x>80.0</x><y>0.0</y></center></rectangle></position></goalState></planningProblem>\n"
)

SMALL_2018 = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    + HEAD_2018
    + "\n"
    + lanelet(1, 0, 50, 0, '<successor ref="3"/><adjacentLeft ref="2" drivingDir="same"/><speedLimit>13.5</speedLimit>')
    + lanelet(2, 0, 50, 4, '<adjacentRight ref="1" drivingDir="same"/>')
    + lanelet(3, 50, 100, 0, '<predecessor ref="1"/>')
    + obstacle_2018(10, "dynamic", "car", driven(0, 4))
    + obstacle_2018(11, "static", "parkedVehicle", state("initialState", 0, 30.0, 4.0, speed=None))
    + PROBLEM
    + "</commonRoad>\n"
)

SIGNS = (
    '<trafficSign id="40"><trafficSignElement><trafficSignID>274</trafficSignID>'
    "<additionalValue>8.5</additionalValue></trafficSignElement></trafficSign>\n"
)
LIGHT = (
    '<trafficLight id="50"><cycle>'
    "<cycleElement><duration>7</duration><color>red</color></cycleElement>"
    "<cycleElement><duration>2</duration><color>redYellow</color></cycleElement>"
    "<cycleElement><duration>11</duration><color>green</color></cycleElement>"
    "<cycleElement><duration>3</duration><color>yellow</color></cycleElement>"
    "<timeOffset>5</timeOffset></cycle><active>true</active></trafficLight>\n"
)
INTERSECTION = (
    '<intersection id="60"><incoming><incomingLanelet ref="1"/><successorsStraight ref="3"/></incoming>'
    "</intersection>\n"
)

SMALL_2020 = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    + HEAD_2020
    + "\n<location><geoNameId>-999</geoNameId><gpsLatitude>48.2</gpsLatitude>"
    + "<gpsLongitude>11.6</gpsLongitude></location>"
    + "<scenarioTags><urban/><intersection/></scenarioTags>\n"
    + lanelet(
        1,
        0,
        50,
        0,
        '<successor ref="3"/><laneletType>urban</laneletType><trafficSignRef ref="40"/><trafficLightRef ref="50"/>',
        marking="solid",
    )
    + lanelet(3, 50, 70, 0, '<predecessor ref="1"/><laneletType>intersection</laneletType>')
    + SIGNS
    + LIGHT
    + INTERSECTION
    + dynamic(10, "truck", driven(2, 4))
    + PROBLEM
    + "</commonRoad>\n"
)


def file_2018(*parts: str) -> bytes:
    return (HEAD_2018 + "\n" + "".join(parts) + "</commonRoad>").encode()


def file_2020(*parts: str) -> bytes:
    return (HEAD_2020 + "\n" + "".join(parts) + "</commonRoad>").encode()
