# SPDX-License-Identifier: Apache-2.0
"""What parking costs: the same service with every request parked (`wheel`, the default), with every request cloned
into a queueing discipline (`qdisc-htb`, the published technique on a kernel without netem, by bench/delay_line) and
with none of it (`none`, attempts: 1), and with a second copy at once (`copies`, idle_copies: 30%; the splitter then sends that copy,
too), at 1,000/s, at 20,000/s and at the highest rate without loss.

Answers come at once from an echo server, so parking and the clock are pure overhead. Time per run of each kernel
program, CPU per request, laps of the clock. Run by `./dev bench parking`; writes results/parking/ and exits 1 when
something it must show is missed.
"""

import argparse
import contextlib
import time

from bench import bpf_stats, delay_line, experiment, highest_rate, product
from bench.client_run import ClientRun, Destinations, EventHook, command, run_client
from bench.histogram import of_client, percentiles
from bench.outcome import at_least, at_most, median
from bench.pinning import CLIENT_CPU, SERVER_CPU, client_and_server, on_cpu, pin
from bench.replicas import BenchServer
from deploy.lab import VIP_RAW, Lab
from plots import looks
from plots.charts import Bars, Charts

NAME = "parking"
PORT = 9000
MODES = ("none", "wheel", "copies", "qdisc-htb")
RATES = {"1000": 1_000, "20000": 20_000}
HIGHEST = "highest"
PROGRAMS = ("hr_splitter", "hr_reply", "hr_clock", "hr_rescuer")
REST_S = 10.0
_CLIMB_FROM = 25_000
_TRIAL_S = 1.5
_DELAY_MS = 10
# Counts of a trial that must be 0: a request that is not tracked, or whose clone found no place, costs less than a parked one. With `none`
# requests are passed through on purpose.
_UNDONE = {mode: ("lost", "delay_line_full", *(() if mode == "none" else ("passed_through",))) for mode in MODES}


class Rig:
    def __init__(self, lab: Lab):
        self.lab = lab
        a, b = lab.replica("a"), lab.replica("b")
        self.to = Destinations(f"{a.ipv4}:{PORT}", f"{b.ipv4}:{PORT}", f"{VIP_RAW[0]}:{PORT}")
        self.backends = {"a": a.ipv4, "b": b.ipv4}

    def service(self, mode: str) -> dict:
        keys = {"none": {"attempts": 1}, "copies": {"idle_copies": "30%"}}.get(mode, {})
        return product.service("raw", VIP_RAW[0], PORT, "raw", self.backends, **keys)

    def servers(self, stack: contextlib.ExitStack) -> None:
        for host in self.lab.replicas:
            server = stack.enter_context(BenchServer(host, "hr-echo-server", [f"--listen={host.ipv4}:{PORT}"]))
            pin(server.pid, SERVER_CPU)

    def client(self, mode: str, rate: float, seconds: float, on_event: EventHook) -> ClientRun:
        flags = ["--workload=raw", "--loop=open", f"--rate={rate}", f"--seconds={seconds}", "--warmup=200",
                 "--timeout=1s", "--linger=200ms"]
        argv = command(mode if mode in delay_line.MODES else "wheel", self.to, flags, f"{_DELAY_MS}ms")
        return run_client(self.lab.client, on_cpu(argv, CLIENT_CPU), self.lab,
                          on_event=on_event)


def measure_at(rig: Rig, proxy: delay_line.Hedger, mode: str, rate: float, seconds: float) -> dict:
    """One run: the client's report and what the kernel programs did meanwhile."""
    before = proxy.status_at_rest()
    at_edge = {}  # of the measured part: shares of time leave the client's start, its warm-up and its end out

    def on_event(event: dict) -> None:
        if event["event"] in ("measuring", "measured"):
            at_edge[event["event"]] = bpf_stats.programs_of(int(before["pid"])), laps_of(proxy.status())

    bpf_stats.programs_of(int(before["pid"]))  # their names are looked up once, before the load
    client = rig.client(mode, rate, seconds, on_event)
    measured_s = client.spent.wall_us / 1e6
    (programs_before, laps_before), (programs_after, laps_after) = at_edge["measuring"], at_edge["measured"]
    programs, laps = bpf_stats.between(programs_before, programs_after), laps_after - laps_before
    of_trial = counted(before, proxy.status_at_rest())
    summary = client.summary
    return {"rate": rate, "n": summary["n"], "lost": summary["lost"], "send_lag_p99_us": summary["send_lag_p99_us"],
            "achieved_rate": summary["rate_per_second"], "p50_ms": summary["p50_ms"], "p99_ms": summary["p99_ms"],
            "p99_us": summary["p99_ms"] * 1e3, "programs": programs, "laps": laps, "laps_per_second": laps / measured_s, **of_trial,
            "cpu_us_per_request": client.spent.experiment_us / summary["n"],
            "core_share": client.spent.experiment_us / client.spent.wall_us,
            "kernel_core_share": client.spent.kernel_us / client.spent.wall_us,
            "clock_program_share": programs.get("hr_clock", {}).get("total_ns", 0) / (measured_s * 1e9),
            "cpu": client.spent.as_json(), "client": client.report}


def counted(before: dict, after: dict) -> dict:
    """What the counters counted from one status to the other."""
    first, last = (product.service_figures(status, "raw") for status in (before, after))
    return {"identity_ok": last["identity_ok"], **{key: last[key] - first[key] for key in ("passed_through", "delay_line_full", "idle_copies")}}


def laps_of(status: dict) -> int:
    return product.number(status.get("clock", {}).get("laps"))


def laps_at_rest(proxy: product.Product) -> int:
    # Answered requests linger for a second in the wheel; then nothing is left to do.
    deadline = time.monotonic() + 10
    while (laps := laps_of(proxy.status())) is not None and time.monotonic() < deadline:
        time.sleep(1.0)
        if laps_of(proxy.status()) == laps:
            break
    before = laps_of(proxy.status())
    time.sleep(REST_S)
    return laps_of(proxy.status()) - before


def row_of(mode: str, variant: str, runs: list[dict], config_hash: str) -> dict:
    """Percentiles are of all runs' requests together, the rest are medians over the runs, and sums."""
    def middle(value) -> float | None:
        found = [value(run) for run in runs]
        found = [each for each in found if each is not None]
        return median(found) if found else None

    row = {"mode": mode, "variant": variant, "runs": len(runs), "rate": middle(lambda run: run["rate"]),
           "n": sum(run["n"] for run in runs), "lost": sum(run["lost"] for run in runs)}
    for program in PROGRAMS:
        row[f"{program}_ns"] = middle(lambda run, p=program: run["programs"].get(p, {}).get("ns_per_run"))
    for key in ("laps_per_second", "cpu_us_per_request", "core_share", "kernel_core_share", "clock_program_share"):
        row[key] = middle(lambda run, k=key: run[k])
    row |= percentiles(map(of_client, runs), of=("p50", "p99"))
    rest = [run["laps_at_rest"] for run in runs if "laps_at_rest" in run]
    row["laps_at_rest"] = max(rest) if rest else None
    row["idle_copies"] = sum(run["idle_copies"] for run in runs)
    row["delay_line_full"] = sum(run["delay_line_full"] for run in runs)
    row["passed_through"] = sum(run["passed_through"] for run in runs)
    row["config_hash"] = config_hash
    return row


def must_show(rows: list[dict]) -> list:
    found = {(row["mode"], row["variant"]): row for row in rows}
    checks = [at_least("runs of each row", min((row["runs"] for row in rows), default=0), 5)]
    for variant in (*RATES, HIGHEST):
        with_ns = found.get(("wheel", variant), {}).get("hr_splitter_ns")
        without_ns = found.get(("none", variant), {}).get("hr_splitter_ns")
        factor = with_ns / without_ns if with_ns and without_ns else None
        checks.append(at_most(f"{variant}/s: splitter with parking / without", factor, 1.5))
    copies_ns, wheel_ns = (found.get((mode, "20000"), {}).get("hr_splitter_ns") for mode in ("copies", "wheel"))
    if copies_ns is not None:
        checks.append(at_most("20000/s: splitter with copies at once, beyond parking", copies_ns - wheel_ns, 150, "ns"))
    # All that the machine spends more with the wheel than without: laps, and parking itself.
    shares = [found.get((mode, "1000"), {}).get("core_share") for mode in ("wheel", "none")]
    more = max(0.0, shares[0] - shares[1]) if None not in shares else None
    # The whole product, which counts and tells duplicates apart, beside the bare technique, which does neither.
    cpu_us = {mode: found.get((mode, "20000"), {}).get("cpu_us_per_request") for mode in MODES}
    if cpu_us["qdisc-htb"] is not None:
        checks.append(at_most("20000/s: CPU of a request in the wheel (beside one in qdisc-htb)", cpu_us["wheel"],
                              cpu_us["qdisc-htb"], "us"))
    slow = found.get(("wheel", "1000"), {})
    # A request that is forwarded untracked costs the splitter less.
    checks.append(at_most("at all rates: requests of wheel that were not tracked",
                          sum(row["passed_through"] for row in rows if row["mode"] == "wheel"), 0))
    checks += [at_most("1000/s: a core's time for clock and parking", more, 0.02),
               at_most("1000/s: a core's time in the clock's program", slow.get("clock_program_share"), 0.02),
               at_most("at rest: laps in 10 s, worst run", slow.get("laps_at_rest"), 0)]
    return checks


_BY_RATE = {"group": "variant", "groups": {"1000": "low rate", "20000": "high rate", "highest": "highest rate"}}


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    with Lab("benchpark", replicas=2) as lab, bpf_stats.enabled():
        rig = Rig(lab)
        for turn in running.turns(mode=arguments.modes):
            mode = turn["mode"]
            turn.done({"runs": one_round(rig, mode, arguments), "config": {"mode": mode, "service": rig.service(mode), "rates": RATES}})


def one_round(rig: Rig, mode: str, arguments: argparse.Namespace) -> dict[str, dict]:
    runs = {}
    with contextlib.ExitStack() as stack:
        rig.servers(stack)
        proxy = stack.enter_context(delay_line.hedger(rig.lab.client, "bench-parking", rig.service(mode), mode))
        for variant, rate in RATES.items():
            runs[variant] = measure_at(rig, proxy, mode, rate, arguments.seconds)
            if variant == "1000" and mode == "wheel":
                runs[variant]["laps_at_rest"] = laps_at_rest(proxy)
        best = highest_rate.highest(lambda rate: measure_at(rig, proxy, mode, rate, _TRIAL_S), _UNDONE[mode], _DELAY_MS * 1e3, _CLIMB_FROM)
        if best is not None:
            runs[HIGHEST] = best
    return runs


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, ("mode",), must_show,
    lambda mode, records: [row_of(mode, variant, runs, records[0]["config_hash"]) for variant in (*RATES, HIGHEST)
                           if (runs := [record["runs"][variant] for record in records if variant in record["runs"]])],
    {"variant": "rate", "mode": "mode", "runs": "runs", "rate": "requests/s", "lost": "lost",
     "hr_splitter_ns": "splitter ns", "hr_reply_ns": "reply ns", "hr_clock_ns": "clock ns",
     "laps_per_second": "laps/s", "cpu_us_per_request": "cpu us", "core_share": "core share",
     "laps_at_rest": "laps at rest", "idle_copies": "copies", "delay_line_full": "line full"},
    Charts("What parking costs when every answer comes at once", looks.PARKING, "mode", (
        Bars("Splitter", y="hr_splitter_ns", unit="ns a run", **_BY_RATE), Bars("Reply program", y="hr_reply_ns", unit="ns a run", **_BY_RATE),
        Bars("All processors, servers included", y="cpu_us_per_request", unit="us a request", **_BY_RATE))),
    measure=measure, notes=lambda _: {"pinned": client_and_server(), "program_statistics": True}, options=(
        experiment.some("--modes", MODES), experiment.number("--seconds", 8.0, 0.1, 600, help="length of the runs at a fixed rate")))
