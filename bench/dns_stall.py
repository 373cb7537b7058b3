# SPDX-License-Identifier: Apache-2.0
"""A real DNS service at 1,000 queries/s whose primary is stopped for one second in every ten; and, as the opposite
case, a service whose two servers are both slower than the hedge delay, where hedging must keep to its budget.

Run by `./dev bench dns-stall`; writes results/dns-stall/ and exits 1 when something it must show is missed.
"""

import argparse
import contextlib
import dataclasses

from bench import cpu_time, experiment
from bench.client_run import MODES
from bench.dns_rig import DnsRig
from bench.manifest import add_config
from bench.outcome import Results, at_least, at_most, median
from bench.stopping import run
from deploy.lab import Lab

NAME = "dns-stall"
RATE = 1000
BUDGET, DELAY_MS = 0.05, 10.0


@dataclasses.dataclass(frozen=True)
class Variant:
    name: str
    seconds: float
    stall: bool
    answer_delay_ms: float
    modes: tuple[str, ...]


VARIANTS = {variant.name: variant for variant in (
    Variant("stalled", 30, True, 0, MODES),
    # More than the delay: every request is slow enough to be hedged, and none of them is anybody's fault.
    Variant("slow", 10, False, 16, MODES))}

_MEDIANS = ("p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms", "extra_load", "cpu_us_per_request")
_SUMS = ("n", "lost", "timeouts", "wrong", "duplicates", "hedges", "suspected", "stalls")


def row_of(mode: str, variant: str, runs: list[dict]) -> dict:
    """Percentiles and costs are medians over the runs; counts are sums; extra_load_max is the worst run's."""
    fire_errors = [run["fire_error_p99_us"] for run in runs if run["hedges"] > 0]
    return {"mode": mode, "variant": variant, "load": "idle", "runs": len(runs),
            **{key: sum(run[key] for run in runs) for key in _SUMS},
            **{key: median(run[key] for run in runs) for key in _MEDIANS},
            "extra_load_max": max(run["extra_load"] for run in runs),
            "fire_error_p50_us": median(run["fire_error_p50_us"] for run in runs if run["hedges"]) if fire_errors
            else None,
            "fire_error_p99_us": median(fire_errors) if fire_errors else None,
            "config_hash": runs[0]["config_hash"]}


def must_show(rows: list[dict]) -> list:
    found = {(row["mode"], row["variant"]): row for row in rows}
    stalled, slow = found.get(("wheel", "stalled"), {}), found.get(("wheel", "slow"), {})
    return [at_least("runs of each row", min((row["runs"] for row in rows), default=0), 10),
            at_least("stalled: stalls met by the wheel", stalled.get("stalls"), 1),
            at_most("stalled: wheel p99 (delay + 2 ms)", stalled.get("p99_ms"), DELAY_MS + 2, "ms"),
            at_most("stalled: wheel p99.9", stalled.get("p999_ms"), 25, "ms"),
            at_most("stalled: wheel client time-outs", stalled.get("timeouts"), 0),
            at_most("both slow: wheel extra_load, worst run (budget + 1 point)", slow.get("extra_load_max"),
                    BUDGET + 0.01),
            at_least("both slow: wheel hedges", slow.get("hedges"), 1),
            at_most("both slow: times a backend was SUSPECT", slow.get("suspected"), 0)]


def run_once(rig: DnsRig, mode: str, variant: Variant, round_number: int, results: Results,
             configs: dict[str, dict]) -> dict:
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(rig.hedgerow()) if mode == "wheel" else None
        done = rig.run(mode, rate=RATE, seconds=variant.seconds, stall=variant.stall, proxy=proxy)
    config = rig.config(mode, RATE, variant.seconds, variant.stall)
    record = {**done.figures(mode), "config_hash": add_config(configs, config)}
    results.write_raw(f"{variant.name}-{mode}-{round_number:02d}", {
        **record, "variant": variant.name, "round": round_number, "argv": done.client.argv,
        "client": done.client.report, "cpu": done.client.spent.as_json(), "replica_packets": done.replica_packets,
        "status": done.status})
    return record


def measure(lab: Lab, arguments: argparse.Namespace, results: Results, configs: dict[str, dict]) -> list[dict]:
    cells = {(variant.name, mode): [] for name in arguments.variants for variant in [VARIANTS[name]]
             for mode in variant.modes if mode in arguments.modes}
    progress = experiment.Progress(len(cells) * arguments.rounds)
    for round_number in range(1, arguments.rounds + 1):
        for name in arguments.variants:
            variant = VARIANTS[name]
            modes = [mode for mode in variant.modes if mode in arguments.modes]
            shift = round_number % len(modes) if modes else 0
            with DnsRig(lab, "bench-dns", variant.answer_delay_ms) as rig:
                for mode in modes[shift:] + modes[:shift]:
                    cpu_time.wait_until_quiet(at_most_s=arguments.quiet_wait)
                    record = run_once(rig, mode, variant, round_number, results, configs)
                    cells[name, mode].append(record)
                    progress.done(f"round {round_number} {name:7} {mode:8} p99 {record['p99_ms']:8.2f} ms  p99.9 "
                                  f"{record['p999_ms']:8.2f} ms  time-outs {record['timeouts']}  extra load "
                                  f"{record['extra_load']:.4f}")
    return [row_of(mode, name, runs) for (name, mode), runs in cells.items()]


def parse(argv: list[str]) -> argparse.Namespace:
    parser = experiment.parser(NAME, __doc__)
    parser.add_argument("--variants", type=experiment.some_of(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--modes", type=experiment.some_of(MODES), default=list(MODES))
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    results, configs = Results(NAME, arguments.into), {}
    with Lab("benchdns", replicas=2) as lab:
        rows = measure(lab, arguments, results, configs)
    return experiment.conclude(
        results, results.manifest(configs, rounds=arguments.rounds),
        rows, must_show(rows),
        {"variant": "variant", "mode": "mode", "runs": "runs", "n": "n", "timeouts": "time-outs", "p50_ms": "p50 ms",
         "p99_ms": "p99 ms", "p999_ms": "p99.9 ms", "max_ms": "max ms", "extra_load_max": "extra load",
         "suspected": "suspected", "cpu_us_per_request": "cpu us"}, "dns_stall")


if __name__ == "__main__":
    run(main)
