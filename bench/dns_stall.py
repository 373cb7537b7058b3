# SPDX-License-Identifier: Apache-2.0
"""A real DNS service whose primary stops again and again, by clients that hedge and that do not. `stalled`: one second in every ten, at
1,000 queries/s. `slow`: both servers are slower than the hedge delay, where hedging must keep to its budget. And cells
PERIOD-STALL-RATE: a stop at the end of every 1, 2, 3 or 10 seconds, for 50, 500 or 1,500 ms (where that is shorter than the period), at
300 to 5,000 queries/s from one socket whose 16-bit ids wrap; `--cells repeated --rounds 1` is all 33 of them.

`--cells 2s-500ms-5000 --rounds 1 --seconds 10` is a quick look at one of them.
"""

import argparse
import contextlib
import dataclasses

from bench import experiment, series
from bench.client_run import MODES
from bench.dns_rig import DnsRig, Stalls
from bench.histogram import of_client, percentiles
from bench.outcome import Check, at_least, at_most, median
from deploy.lab import Lab
from plots import looks
from plots.charts import Bars, Charts, Tails

NAME = "dns-stall"
BUDGET, DELAY_MS = 0.05, 10.0
# Of repeated stalls, beyond the delay: of p99.9, and of the slowest answer; and by how much two runs of one mode differ on a shared machine.
P999_MS, WORST_MS = 10.0, 50.0
P999_SPREAD_MS, WORST_SPREAD_MS = 1.0, 10.0


@dataclasses.dataclass(frozen=True)
class Cell:
    seconds: float
    rate: int = 1000
    stalls: Stalls | None = None
    answer_delay_ms: float = 0
    modes: tuple[str, ...] = MODES


def _repeated(period_s: float, stall_ms: int, rate: int) -> Cell:
    """The leader serves first, and stops at the end of each period; three stalls at least."""
    for_s = stall_ms / 1e3
    return Cell(max(30.0, 3 * period_s), rate, Stalls(period_s - for_s, period_s, for_s), modes=("app-cc", "wheel"))


REPEATED = {f"{period_s:g}s-{stall_ms}ms-{rate}": _repeated(period_s, stall_ms, rate) for period_s in (1.0, 2.0, 3.0, 10.0)
            for stall_ms in (50, 500, 1500) for rate in (300, 1000, 5000) if stall_ms < period_s * 1e3}
# Of `slow`, 16 ms are more than the delay: every request is slow enough to be hedged, and no server is at fault.
CELLS = {"stalled": Cell(30, stalls=Stalls()), "slow": Cell(10, answer_delay_ms=16), **REPEATED}
_SUMS = ("n", "lost", "late", "timeouts", "wrong", "duplicates", "hedges", "suspected", "stalls", "not_held")


def row_of(cell: str, mode: str, runs: list[dict]) -> dict:
    """Percentiles are of all runs' requests together; costs are medians over the runs; counts are sums; extra_load_max is the worst run's."""
    hedged = [run for run in runs if run["hedges"]]
    return {"cell": cell, "mode": mode, "runs": len(runs), **{key: sum(run[key] for run in runs) for key in _SUMS},
            **percentiles(map(of_client, runs)),
            **{key: median(run[key] for run in runs) for key in ("extra_load", "cpu_us_per_request")},
            "extra_load_max": max(run["extra_load"] for run in runs), "suspect_after_ms": max(run["suspect_after_ms"] for run in runs),
            **{key: median(run[key] for run in hedged) if hedged else None for key in ("fire_error_p50_us", "fire_error_p99_us")},
            "stalls_least": min(run["stalls"] for run in runs), "config_hash": runs[0]["config_hash"]}


def must_show(rows: list[dict]) -> list[Check]:
    found = {(row["cell"], row["mode"]): row for row in rows}
    named = [row for row in rows if row["cell"] in REPEATED]
    checks = []
    if len(named) < len(rows):
        checks.append(at_least("runs of each row", min(row["runs"] for row in rows if row not in named), 10))
    if stalled := found.get(("stalled", "wheel")):
        checks += [at_least("stalled: stalls met by the wheel in each run", stalled["stalls_least"], 1),
                   at_most("stalled: wheel p99 (delay + 2 ms)", stalled["p99_ms"], DELAY_MS + 2, "ms"),
                   at_most("stalled: wheel p99.9", stalled["p999_ms"], 25, "ms"),
                   at_most("stalled: wheel client time-outs", stalled["timeouts"], 0)]
    if slow := found.get(("slow", "wheel")):
        checks += [at_most("both slow: wheel extra_load, worst run (budget + 1 point)", slow["extra_load_max"], BUDGET + 0.01),
                   at_least("both slow: wheel hedges", slow["hedges"], 1),
                   at_most("both slow: answers that were not held", slow["not_held"], 0),
                   at_most("both slow: times a backend was SUSPECT", slow["suspected"], 0)]
    for name in dict.fromkeys(row["cell"] for row in named):
        ours, theirs = found.get((name, "wheel")), found.get((name, "app-cc"))
        if ours is None:
            continue
        checks += [at_least(f"{name}: stalls in each run", ours["stalls_least"], 1),
                   at_most(f"{name}: p99.9 (delay + 10 ms)", ours["p999_ms"], DELAY_MS + P999_MS, "ms"),
                   at_most(f"{name}: worst (delay + 50 ms)", ours["max_ms"], DELAY_MS + WORST_MS, "ms"),
                   at_most(f"{name}: lost, wrong or twice", ours["lost"] + ours["wrong"] + ours["duplicates"], 0)]
        if theirs is not None:
            checks += [at_most(f"{name}: p99.9 beside the client's own hedging", ours["p999_ms"], theirs["p999_ms"] + P999_SPREAD_MS, "ms"),
                       at_most(f"{name}: worst beside the client's own hedging", ours["max_ms"], theirs["max_ms"] + WORST_SPREAD_MS, "ms")]
    return checks


def suspect_after_ms(status: dict | None) -> float:
    """The longest suspicion timeout at the end of a run."""
    backends = next(service for service in status["services"] if service["name"] == "dns")["backends"] if status else []
    return max((int(backend["suspect_after_ns"]) for backend in backends), default=0) / 1e6


def run_once(rig: DnsRig, mode: str, cell: Cell, seconds: float) -> dict:
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(rig.hedgerow()) if mode == "wheel" else None
        done = rig.run(mode, rate=cell.rate, seconds=seconds, stalls=cell.stalls, proxy=proxy)
    return {**done.figures(mode), "late": done.client.summary["late"], "suspect_after_ms": suspect_after_ms(done.status),
            "argv": done.client.argv, "client": done.client.report, "cpu": done.client.spent.as_json(),
            "replica_packets": done.replica_packets, "status": done.status, "config": rig.config(mode, cell.rate, seconds, cell.stalls)}


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    cells = [name for each in arguments.cells for name in (REPEATED if each == "repeated" else [each])]
    running.expect(arguments.rounds * sum(len(CELLS[name].modes) for name in cells))
    with Lab("benchdns", replicas=2) as lab:
        for number in range(1, arguments.rounds + 1):
            for name in cells:
                cell = CELLS[name]
                with DnsRig(lab, "bench-dns", cell.answer_delay_ms) as rig:
                    for mode in experiment.rotated([mode for mode in cell.modes if mode in arguments.modes], number):
                        if turn := running.turn(number, cell=name, mode=mode):
                            turn.done(run_once(rig, mode, cell, arguments.seconds or cell.seconds))


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, ("cell", "mode"), must_show, lambda cell, mode, runs: [row_of(cell, mode, runs)],
    {"cell": "cell", "mode": "mode", "runs": "runs", "n": "n", "timeouts": "time-outs", "lost": "lost", "wrong": "wrong",
     "duplicates": "twice", "p50_ms": "p50 ms", "p99_ms": "p99 ms", "p999_ms": "p99.9 ms", "max_ms": "max ms", "extra_load_max": "extra load",
     "suspected": "suspected", "suspect_after_ms": "suspect after", "cpu_us_per_request": "cpu us"},
    Charts("DNS queries to nsd and knot, hedged after 10 ms", looks.MODES, "mode",
           (Tails(panel=("cell",), key=("cell", "mode"), titles={"stalled": "primary stopped for 1 s in every 10", "slow": "both servers are slow"}),
            Bars("extra load, worst run", panel=("cell",), y="extra_load_max", unit="% of the requests", scale=100)),
           series.client_latency("cell", "mode")),
    measure=measure, options=(
        experiment.some("--cells", [*CELLS, "repeated"], ["stalled", "slow"]), experiment.some("--modes", MODES),
        experiment.number("--seconds", None, 0.1, 600, help="of each run")))
