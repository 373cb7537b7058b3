# SPDX-License-Identifier: Apache-2.0
"""A DNS leader that stops again and again: every 1, 2, 3 or 10 seconds, for 50, 500 or 1,500 ms (where that is shorter than
the period), at 300 to 5,000 queries/s from one socket whose 16-bit ids wrap. Hedgerow with its defaults, beside a client that
hedges for itself.

Run by `./dev bench repeated-stalls`; writes results/repeated-stalls/ and exits 1 when something it must show is missed.
`--cells 2s-500ms-5000 --seconds 10` is a quick look at one of them.
"""

import argparse
import contextlib
import dataclasses

from bench import cpu_time, experiment
from bench.dns_rig import DELAY, DnsRig, Stalls
from bench.manifest import add_config
from bench.outcome import Check, Results, at_least, at_most, median
from bench.stopping import run
from deploy.lab import Lab

NAME = "repeated-stalls"
MODES = ("app-cc", "wheel")
DELAY_MS = 10.0
assert DELAY == "10ms"
# Beyond the delay: of p99.9, and of the slowest answer.
P999_MS, WORST_MS = 10.0, 50.0
# Two runs of one mode differ by so much on a shared machine; more counts as worse than the client's own hedging.
P999_SPREAD_MS, WORST_SPREAD_MS = 1.0, 10.0
SECONDS = 30.0


@dataclasses.dataclass(frozen=True)
class Cell:
    period_s: float
    stall_ms: int
    rate: int

    @property
    def name(self) -> str:
        return f"{self.period_s:g}s-{self.stall_ms}ms-{self.rate}"

    @property
    def stalls(self) -> Stalls:
        """The leader serves first, and stops at the end of each period."""
        for_s = self.stall_ms / 1e3
        return Stalls(first_after_s=self.period_s - for_s, every_s=self.period_s, for_s=for_s)

    @property
    def seconds(self) -> float:
        """Three stalls at least."""
        return max(SECONDS, 3 * self.period_s)


CELLS = {cell.name: cell for cell in (
    Cell(period_s, stall_ms, rate) for period_s in (1.0, 2.0, 3.0, 10.0) for stall_ms in (50, 500, 1500)
    for rate in (300, 1000, 5000) if stall_ms < period_s * 1e3)}

_SUMS = ("n", "lost", "late", "wrong", "duplicates", "hedges", "suspected", "stalls")


def row_of(cell: Cell, mode: str, runs: list[dict]) -> dict:
    """p99.9 and extra load are medians over the runs, the worst answer is that of all runs, counts are sums."""
    return {"cell": cell.name, "mode": mode, "period_s": cell.period_s, "stall_ms": cell.stall_ms, "rate": cell.rate,
            "runs": len(runs), **{key: sum(run[key] for run in runs) for key in _SUMS},
            **{key: median(run[key] for run in runs) for key in ("p50_ms", "p99_ms", "p999_ms", "extra_load")},
            "max_ms": max(run["max_ms"] for run in runs),
            "suspect_after_ms": max(run["suspect_after_ms"] for run in runs), "config_hash": runs[0]["config_hash"]}


def must_show(rows: list[dict]) -> list[Check]:
    found = {(row["cell"], row["mode"]): row for row in rows}
    checks = []
    for name in dict.fromkeys(row["cell"] for row in rows):
        ours, theirs = found.get((name, "wheel")), found.get((name, "app-cc"))
        if ours is None:
            continue
        checks += [
            at_least(f"{name}: stalls", ours["stalls"], 1),
            at_most(f"{name}: p99.9 (delay + 10 ms)", ours["p999_ms"], DELAY_MS + P999_MS, "ms"),
            at_most(f"{name}: worst (delay + 50 ms)", ours["max_ms"], DELAY_MS + WORST_MS, "ms"),
            at_most(f"{name}: lost, wrong or twice", ours["lost"] + ours["wrong"] + ours["duplicates"], 0)]
        if theirs is not None:
            checks += [
                at_most(f"{name}: p99.9 beside the client's own hedging", ours["p999_ms"],
                        theirs["p999_ms"] + P999_SPREAD_MS, "ms"),
                at_most(f"{name}: worst beside the client's own hedging", ours["max_ms"],
                        theirs["max_ms"] + WORST_SPREAD_MS, "ms")]
    return checks


def suspect_after_ms(status: dict | None) -> float:
    """The longest suspicion timeout at the end of a run."""
    if status is None:
        return 0.0
    backends = next(service for service in status["services"] if service["name"] == "dns")["backends"]
    return max(int(backend["suspect_after_ns"]) for backend in backends) / 1e6


def run_once(rig: DnsRig, cell: Cell, mode: str, seconds: float, round_number: int, results: Results,
             configs: dict[str, dict]) -> dict:
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(rig.hedgerow()) if mode == "wheel" else None
        done = rig.run(mode, rate=cell.rate, seconds=seconds, stall=True, stalls=cell.stalls, proxy=proxy)
    config = rig.config(mode, cell.rate, seconds, True, cell.stalls)
    record = {**done.figures(mode), "late": done.client.summary["late"],
              "suspect_after_ms": suspect_after_ms(done.status), "config_hash": add_config(configs, config)}
    results.write_raw(f"{cell.name}-{mode}-{round_number:02d}", {
        **record, "cell": cell.name, "round": round_number, "argv": done.client.argv, "client": done.client.report,
        "cpu": done.client.spent.as_json(), "status": done.status})
    return record


def measure(lab: Lab, arguments: argparse.Namespace, results: Results, configs: dict[str, dict]) -> list[dict]:
    runs: dict[tuple[str, str], list[dict]] = {}
    progress = experiment.Progress(arguments.rounds * len(arguments.cells) * len(arguments.modes))
    with DnsRig(lab, "bench-stalls") as rig:
        for round_number in range(1, arguments.rounds + 1):
            for name in arguments.cells:
                shift = round_number % len(arguments.modes)
                for mode in arguments.modes[shift:] + arguments.modes[:shift]:
                    cpu_time.wait_until_quiet(at_most_s=arguments.quiet_wait)
                    cell = CELLS[name]
                    record = run_once(rig, cell, mode, arguments.seconds or cell.seconds, round_number, results,
                                      configs)
                    runs.setdefault((name, mode), []).append(record)
                    progress.done(f"round {round_number} {name:14} {mode:7} p99.9 {record['p999_ms']:7.2f} ms  worst "
                                  f"{record['max_ms']:7.2f} ms  lost {record['lost']}  wrong {record['wrong']}  twice "
                                  f"{record['duplicates']}  extra load {record['extra_load']:.4f}")
    return [row_of(CELLS[name], mode, found) for (name, mode), found in runs.items()]


def parse(argv: list[str]) -> argparse.Namespace:
    parser = experiment.parser(NAME, __doc__)
    parser.set_defaults(rounds=1)
    parser.add_argument("--cells", type=experiment.some_of(CELLS), default=list(CELLS),
                        help="PERIOD-STALL-RATE, with commas between them: 2s-500ms-5000,10s-50ms-300")
    parser.add_argument("--modes", type=experiment.some_of(MODES), default=list(MODES))
    parser.add_argument("--seconds", type=float, help=f"of each run, not {SECONDS:g}")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    results, configs = Results(NAME, arguments.into), {}
    with Lab("benchstalls", replicas=2) as lab:
        rows = measure(lab, arguments, results, configs)
    return experiment.conclude(
        results, results.manifest(configs, rounds=arguments.rounds), rows, must_show(rows),
        {"cell": "cell", "mode": "mode", "n": "n", "lost": "lost", "wrong": "wrong", "duplicates": "twice",
         "p50_ms": "p50 ms", "p99_ms": "p99 ms", "p999_ms": "p99.9 ms", "max_ms": "worst ms",
         "extra_load": "extra load", "suspected": "suspected", "suspect_after_ms": "suspect after"}, None)


if __name__ == "__main__":
    run(main)
