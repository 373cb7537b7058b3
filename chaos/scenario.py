# SPDX-License-Identifier: Apache-2.0
"""A scenario is a short TOML file in chaos/scenarios: which faults, which nodes they meet, how long they last; what must hold; what a
client may see; what shows that the faults were there; and how `./dev chaos all` runs it. A file says of [client] and [run] only what
differs from the values below. Strict: what is misspelt is an error and not a default. What must hold is no part of it: nothing
acknowledged is lost, nothing is applied twice, and the history is linearizable, whatever happens (promises.py).

    what = "..."                            # one sentence
    target = "leader"                       # leader, follower (one, drawn), all, majority (the leader and followers)
    lasts_s = 2.0
    [[fault]]                               # several begin and end together
    kind = "kill"                           # chaos/faults; with the keys of its kind
    [client]                                # "any" in place of a number: nothing is promised
    errors = 0                              # or errors_share = 0.01
    duplicate_answers = 0
    waits_at_most_ms = 2000                 # on any machine
    [client.quiet]                          # may be left out; on a machine that does nothing else (./dev chaos NAME)
    memory = { p50_ms = 5, p99_ms = 20 }
    disk = { p50_ms = 60 }
    [bites]                                 # at least so much of it at every event
    killed = 1
    [run]                                   # by ./dev chaos all
    mode = "memory"
    replicas = 3
    quick = 2                               # events
    full = 20
"""

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path

from chaos.faults import KINDS, TARGETS, FaultSpec

FOLDER = Path(__file__).parent / "scenarios"
# From when the cluster is whole again to the next event, drawn anew each time: no fault may fall into step with a timer.
PAUSE_S = (1.2, 2.2)
MODES, REPLICAS = ("memory", "disk"), (3, 5, 7)
OUTAGE = "outage_ms"  # what clients see can show a fault, too
_QUIET = ("p50_ms", "p99_ms")
_ANY = "any"


@dataclasses.dataclass(frozen=True)
class Client:
    """What a client may see. None: nothing is promised."""

    errors: int | None = 0
    errors_share: float | None = None
    duplicate_answers: int | None = 0
    waits_at_most_ms: float | None = 2000
    quiet: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)  # by mode


@dataclasses.dataclass(frozen=True)
class Run:
    mode: str = "memory"
    replicas: int = 3
    quick: int = 2
    full: int = 20


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    what: str
    faults: tuple[FaultSpec, ...]
    target: str
    lasts_s: float
    client: Client
    bites: Mapping[str, float]
    run: Run

    @property
    def kinds(self) -> set[str]:
        return {fault.kind for fault in self.faults}

    @property
    def kills(self) -> bool:
        """A node that is killed may lose what it has not synced."""
        return bool(self.kinds & {"kill", "power-cut"})

    @property
    def needs(self) -> set[str]:
        """Of the lab, and of the proxy: fields of faults.World."""
        return set().union(*(fault.of.needs for fault in self.faults))

    def as_json(self) -> dict:
        return {**dataclasses.asdict(self), "faults": [{"kind": fault.kind, **fault.keys} for fault in self.faults]}


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str, folder: Path = FOLDER) -> Scenario:
    with open(folder / f"{name}.toml", "rb") as file:
        return parse(name, tomllib.load(file))


def parse(name: str, content: dict) -> Scenario:
    try:
        return _parse(name, content)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _parse(name: str, content: dict) -> Scenario:
    _only("", content, ("what", "target", "lasts_s", "fault", "bites"), ("client", "run"))
    faults = tuple(map(FaultSpec.parse, content["fault"]))
    if not faults:
        raise ValueError("there is no [[fault]]")
    target = content["target"]
    if target not in (known := (*TARGETS, "majority")):
        raise ValueError(f"target '{target}' is none of {', '.join(known)}")
    for fault in faults:
        if target not in fault.of.targets:
            raise ValueError(f"fault '{fault.kind}' cannot meet '{target}', only {', '.join(fault.of.targets)}")
    if not 0 < content["lasts_s"] <= 60:
        raise ValueError(f"lasts_s must be above 0 and at most 60, not {content['lasts_s']}")
    return Scenario(name, content["what"], faults, target, content["lasts_s"], _client(content.get("client", {})),
                    _bites(content["bites"], faults), _run(content.get("run", {})))


def _client(content: dict) -> Client:
    _only("client", content, (), ("errors", "errors_share", "duplicate_answers", "waits_at_most_ms", "quiet"))
    if "errors" in content and "errors_share" in content:
        raise ValueError("[client] has errors or errors_share, not both")
    for key in ("errors", "duplicate_answers"):
        if content.get(key, 0) not in (0, _ANY):
            raise ValueError(f'[client] {key} is 0 or "{_ANY}"')
    if not 0 <= content.get("errors_share", 0) < 1:
        raise ValueError(f"[client] errors_share must be below 1, not {content['errors_share']}")
    for mode, limits in content.get("quiet", {}).items():
        if mode not in MODES or not limits or set(limits) - set(_QUIET):
            raise ValueError(f"[client.quiet] has {' and '.join(MODES)}, with {' and '.join(_QUIET)}, not {mode} = {limits}")
    promised = {"errors": None, **content} if "errors_share" in content else content
    return Client(**{key: None if value == _ANY else value for key, value in promised.items()})


def _bites(content: dict, faults: tuple[FaultSpec, ...]) -> dict[str, float]:
    known = [KINDS[fault.kind].shows for fault in faults]
    for name, amount in content.items():
        if name not in (*known, OUTAGE):
            raise ValueError(f"[bites] nothing counts '{name}'; there is {', '.join((*known, OUTAGE))}")
        if isinstance(amount, bool) or not isinstance(amount, (int, float)) or amount <= 0:
            raise ValueError(f"[bites] {name} must be above 0, not {amount}")
    for fault in faults:
        if fault.of.shows not in content:
            raise ValueError(f"[bites] does not say what shows the fault '{fault.kind}': {fault.of.shows}")
    return dict(content)


def _run(content: dict) -> Run:
    _only("run", content, (), tuple(field.name for field in dataclasses.fields(Run)))
    run = Run(**content)
    _among("mode", run.mode, MODES)
    _among("replicas", run.replicas, REPLICAS)
    if not 1 <= run.quick <= run.full <= 1000:
        raise ValueError(f"[run] quick and full must be 1 to 1000 events, and quick the smaller: {content}")
    return run


def _among(key: str, value: object, known: tuple) -> None:
    if value not in known:
        raise ValueError(f"[run] {key} '{value}' is none of {', '.join(map(str, known))}")


def _only(table: str, content: Mapping, must: tuple[str, ...], may: tuple[str, ...] = ()) -> None:
    where = f"[{table}] " if table else ""
    for key in sorted(content.keys() - {*must, *may}):
        raise ValueError(f"{where}does not know the key '{key}'")
    for key in sorted(set(must) - content.keys()):
        raise ValueError(f"{where}lacks the key '{key}'")
