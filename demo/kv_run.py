# SPDX-License-Identifier: Apache-2.0
"""One way of asking in the demo: a fresh cluster of three, the load, three kills by the clock, the judgement. Store,
proxy, load, faults and judge are those of the chaos experiments (chaos/); what is different here is that all ways meet
their kills at the same instants, so that they can be compared by eye, and that it says what happens as it happens.
"""

import dataclasses
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from chaos import scenario as scenarios
from chaos import unavailable
from chaos.block import FINAL_READ_WITHIN_S
from chaos.faults import World, make
from chaos.judgement import judge
from chaos.load_process import sending
from chaos.systems import CLIENT_TIMEOUT_S, Running
from demo.kv_progress import Progress
from deploy.lab import CommandFailed, Lab

KILLS_AT_S = (3.0, 8.0, 13.0)  # after the first request
SECONDS = 17.0  # of sending
_LOOK_BEFORE_S = 0.5  # asking the nodes who leads costs processor time that the clients' answers need
_LOOK_AGAIN_S = 0.3


@dataclasses.dataclass
class KvRun:
    start_ns: int
    kills: list[dict]  # number, server, begin_ns, end_ns
    costs: list[unavailable.Cost]  # of each kill
    longest_ms: float  # of all waits, whenever; no answer is the client's time-out
    report: dict  # the load's counters
    verdict: dict
    proxy: dict | None  # status
    argv: list[str]


def run(lab: Lab, up: Running, history: Path, progress: Progress, kills_at_s: Sequence[float] = KILLS_AT_S, seconds: float = SECONDS,
        towards_the_end: Callable[[], None] = lambda: None) -> KvRun:
    """`history` is written: every operation. `towards_the_end`: of the sending, when the clients have had their answers."""
    folder = lab.client.scratch("load")
    report_file, final = folder / "report.json", folder / "final.csv"
    argv = [*up.load, f"--seconds={seconds:g}", f"--history={history}", f"--report={report_file}", "--progress"]
    leader = up.cluster.wait_ready()
    with sending(lab, argv, folder / "load.log", to_its_end_s=0,
                 on_line=lambda line: progress.on_tick(json.loads(line))) as load:
        start_ns = time.monotonic_ns()
        progress.begin(start_ns, leader.host.name)
        kills = [_kill(lab, up, progress, load, start_ns, number, at_s) for number, at_s in enumerate(kills_at_s, 1)]
        towards_the_end()
        _sleep_until(start_ns, seconds)
        progress.sent_all()
    proxy = up.proxy.status_at_rest() if up.proxy else None
    progress.judging()
    lab.client.run([*up.final, f"--of={history}", f"--history={final}"], timeout=FINAL_READ_WITHIN_S)
    events = [unavailable.Event(kill["begin_ns"], kill["end_ns"]) for kill in kills]
    requests, timeout_ns = unavailable.read_history(history), int(CLIENT_TIMEOUT_S * 1e9)
    longest_ns = max(request.ended_ns - request.intended_ns if request.ok else timeout_ns for request in requests)
    return KvRun(start_ns, kills, unavailable.costs(requests, events, timeout_ns), longest_ns / 1e6,
                 json.loads(report_file.read_text(encoding="ascii")), judge(history, final), proxy, argv)


def _kill(lab: Lab, up: Running, progress: Progress, load: subprocess.Popen, start_ns: int, number: int, at_s: float) -> dict:
    scenario = scenarios.load("leader-kill")
    _sleep_until(start_ns, at_s - _LOOK_BEFORE_S)
    leader = up.cluster.wait_ready()
    progress.leads(leader.host.name)
    _sleep_until(start_ns, at_s)
    fault = make(scenario.faults, World(lab, up.cluster, leader, [leader]))
    try:
        begin_ns = fault.begin()
        progress.killed(number, leader.host.name, begin_ns)
        _wait_for_successor(up, progress, start_ns, at_s + scenario.lasts_s)
        _sleep_until(start_ns, at_s + scenario.lasts_s)
    finally:
        end_ns = fault.end()
    progress.started_again(leader.host.name)
    if load.poll() is not None:
        raise CommandFailed(f"the load ended with {load.returncode} around kill {number}")
    _sleep_until(start_ns, at_s + scenario.lasts_s + unavailable.AFTER_NS / 1e9)
    progress.survived()
    return {"number": number, "server": leader.host.name, "begin_ns": begin_ns, "end_ns": end_ns}


def _wait_for_successor(up: Running, progress: Progress, start_ns: int, until_s: float) -> None:
    while time.monotonic_ns() < start_ns + (until_s - _LOOK_AGAIN_S) * 1e9:
        time.sleep(_LOOK_AGAIN_S)
        if (leader := up.cluster.leader()) is not None:
            progress.leads(leader.host.name)
            return


def _sleep_until(start_ns: int, at_s: float) -> None:
    time.sleep(max(0.0, at_s - (time.monotonic_ns() - start_ns) / 1e9))
