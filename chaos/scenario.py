# SPDX-License-Identifier: Apache-2.0
"""A scenario is a short TOML file in chaos/scenarios: one fault, whom it meets, how long it lasts. Strict: what is
misspelt is an error and not a default.
"""

import dataclasses
import tomllib
from pathlib import Path

FOLDER = Path(__file__).parent / "scenarios"
FAULTS = ("kill", "power-cut", "pause", "cut", "cut-out", "cut-in")
TARGETS = ("leader", "all")


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    what: str
    fault: str
    target: str
    lasts_s: float
    pause_s: tuple[float, float]  # after the cluster is whole again, before the next fault


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str, folder: Path = FOLDER) -> Scenario:
    with open(folder / f"{name}.toml", "rb") as file:
        return parse(name, tomllib.load(file))


def parse(name: str, content: dict) -> Scenario:
    wanted = {field.name for field in dataclasses.fields(Scenario)} - {"name"}
    for key in sorted(content.keys() ^ wanted):
        raise ValueError(f"{name}: {'does not know' if key in content else 'lacks'} the key '{key}'")
    if content["fault"] not in FAULTS:
        raise ValueError(f"{name}: fault '{content['fault']}' is none of {', '.join(FAULTS)}")
    if content["target"] not in TARGETS:
        raise ValueError(f"{name}: target '{content['target']}' is none of {', '.join(TARGETS)}")
    if content["target"] == "all" and content["fault"] not in ("kill", "power-cut"):
        raise ValueError(f"{name}: fault '{content['fault']}' meets one node at a time")
    pause = content["pause_s"]
    if not (isinstance(pause, list) and len(pause) == 2 and 0 < pause[0] <= pause[1] <= 60):
        raise ValueError(f"{name}: pause_s must be [from, to] within 60 s, not {pause}")
    if not 0 < content["lasts_s"] <= 60:
        raise ValueError(f"{name}: lasts_s must be above 0 and at most 60, not {content['lasts_s']}")
    return Scenario(name=name, **{**content, "pause_s": tuple(pause)})
