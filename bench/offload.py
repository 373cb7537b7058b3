# SPDX-License-Identifier: Apache-2.0
"""What the kernel offloads bring: puts of 64 bytes by 1, 4, 16 and 64 clients that each wait for an answer, 3, 5 and 7
replicas, in memory mode, with all offloads off, with each of the large ones alone (and what it needs), and with all; on demand with all
but one (`--variants all,no-append,...`), which shows what each is worth to the others;
each beside etcd on a tmpfs and a store on hashicorp/raft. Clients talk to the leader directly. Systems take turns within
each round. A round ends with `none` and `all` at the same load: puts fall due at nine tenths of the rate that `none` reached
in that round with 64 clients. Where the processor time goes is sampled in a run of its own after each measured one.
"""

import argparse
import dataclasses
import functools
import time

from bench import cpu_profile, experiment, store_load
from bench.histogram import percentiles
from bench.outcome import Check, at_least, at_most, median
from chaos.systems import HASHICORP, Running, Settings
from deploy.lab import Lab
from deploy.lab.cluster import Cluster
from plots import looks
from plots.charts import Bars, Charts, Lines

NAME = "offload"
TAG = "benchoff"
OFFLOADS = ("heartbeat", "vote", "append", "quorum", "broadcast", "watchdog")
# Named one alone, with what it needs: a follower whose kernel holds the log's end is fenced by every heartbeat that its
# process gets, and a leader's process that counts heartbeats itself is woken for each.
SETS = {"none": (), "broadcast": ("broadcast",), "append": ("append", "heartbeat"), "quorum": ("quorum", "heartbeat"),
        "all": OFFLOADS}
# What puts go through. The others pay in elections, which are measured elsewhere (`election`).
OF_PUTS = ("heartbeat", "append", "quorum", "broadcast")
_NEED_HEARTBEAT = ("append", "quorum")
SETS |= {f"no-{left_out}": tuple(name for name in OFFLOADS if name != left_out and
                                 not (left_out == "heartbeat" and name in _NEED_HEARTBEAT)) for left_out in OF_PUTS}
SPIN, BLOCKING = "50us", "0us"  # as shipped; the leader sleeps as soon as there is nothing to do
REPLICAS, CLIENTS = ("3", "5", "7"), ("1", "4", "16", "64")
VALUE_BYTES = 64
# Of a closed loop's latency a faster store's clients get nothing: they ask more. So both are asked at one rate as well.
PACED_VARIANTS, PACED_CLIENTS, PACED_SHARE = ("none", "all"), 64, 0.9
_ON_WITHIN_S = 5.0
_SPREAD = ("put_per_s", "p50_us", "p99_us", "leader_cpu_us_per_op", "cluster_cpu_us_per_op")
_MEDIANS = ("put_per_s", "leader_cpu_us_per_op", "cluster_cpu_us_per_op", "stack_share", "switch_share", "offload_share", "user_share", "client_cpu_us_per_op")
_SUMS = ("n", "failed", "lost", "leader_changed", "behind")


@dataclasses.dataclass(frozen=True)
class Variant:
    """What runs: our store with some of its offloads, or another one."""

    system: str = "hedgerow"
    offloads: str | None = None
    spin: str | None = None

    def store(self, replicas: int) -> tuple[str, Settings]:
        """As chaos/systems.py names it."""
        switched = tuple((name, "on" if name in SETS[self.offloads] else "off") for name in OFFLOADS) if self.offloads else ()
        system = {"hedgerow": "noproxy-noretry", "etcd": "etcd-default"}.get(self.system, self.system)
        return system, Settings("memory", replicas, offloads=switched, spin=self.spin)


VARIANTS = {**{name: Variant(offloads=name, spin=SPIN) for name in SETS},
            **{f"{name}-blocking": Variant(offloads=name, spin=BLOCKING) for name in ("none", "all")},
            "etcd": Variant("etcd"), HASHICORP: Variant(HASHICORP)}


@dataclasses.dataclass(frozen=True, order=True)
class Cell:
    """What a row is about; `variant` is one of VARIANTS."""

    replicas: int
    variant: str
    clients: int
    paced: bool = False  # at a fixed rate, not in a closed loop


def row_of(cell: Cell, runs: list[dict]) -> dict:
    """Percentiles are of all runs' requests together, those included in which the leader changed; rates, costs and shares are medians over
    the runs. With the smallest and the largest of a run. Counts are sums."""
    variant = VARIANTS[cell.variant]
    shown = {key: [each[key] for each in runs if each[key] is not None] for key in (*_MEDIANS, *_SPREAD)}
    return {"replicas": cell.replicas, "system": variant.system, "variant": cell.variant, "offloads": variant.offloads,
            "spin": variant.spin, "clients": cell.clients, "runs": len(runs),
            "rate_per_s": median([each["rate_per_s"] for each in runs]) if cell.paced else None,
            **{key: sum(each[key] for each in runs) for key in _SUMS},
            **percentiles((store_load.latency_of(each["report"]) for each in runs), "us", ("p50", "p99")),
            **{key: median(shown[key]) if shown[key] else None for key in _MEDIANS},
            **{f"{key}_{name}": pick(shown[key]) for key in _SPREAD for name, pick in (("min", min), ("max", max))},
            "xdp": runs[0]["xdp"], "config_hash": runs[0]["config_hash"]}


def figures(found: store_load.Measured) -> dict:
    """Of one measured run. The cluster's time is that of its processes and of the kernel outside of all processes; the
    load's is left out."""
    of_load = found.figures()
    return {**of_load, "behind": found.done.report.get("behind", 0), "put_per_s": of_load["n"] / found.done.report["seconds"],
            "leader_cpu_us_per_op": found.done.process_us(found.leader_pid) / found.done.answered,
            "cluster_cpu_us_per_op": of_load["servers_us_per_op"]}


def must_show(rows: list[dict]) -> list[Check]:
    def figure(name: str, replicas: int, variant: str, clients: int, paced: bool = False) -> float | None:
        return next((row[name] for row in rows if (row["replicas"], row["variant"], row["clients"]) ==
                     (replicas, variant, clients) and (row["rate_per_s"] is not None) == paced), None)

    def ratio(name: str, paced: bool = False) -> float | None:
        with_all, without = (figure(name, 7, variant, 64, paced) for variant in ("all", "none"))
        return with_all / without if with_all is not None and without else None

    one = {variant: figure("p50_us", 3, variant, 1) for variant in ("all", "all-blocking", HASHICORP)}
    theirs = one[HASHICORP]
    own = [row for row in rows if row["system"] == "hedgerow"]
    checks = [at_least("runs of each row", min((row["runs"] for row in rows), default=0), 10),
              at_most(f"3 replicas, 1 client, all on, leader spins {SPIN}: put p50", one["all"], 80, "us"),
              at_most("3 replicas, 1 client, all on, blocking: put p50", one["all-blocking"], 120, "us")]
    checks += [at_most(f"3 replicas, 1 client, {variant}: put p50, hashicorp/raft's", one[variant],
                       float("nan") if theirs is None else theirs, "us") for variant in ("all", "all-blocking")]
    for name in OF_PUTS:
        pair = [figure("cluster_cpu_us_per_op", 7, variant, 64) for variant in ("all", f"no-{name}")]
        if all(figure is not None for figure in pair):
            checks.append(at_most(f"7 replicas, 64 clients: cluster CPU per put, all / all but {name}", pair[0] / pair[1], 1.0))
    return [*checks,
            at_most("7 replicas, 64 clients: cluster CPU per put, all / none", ratio("cluster_cpu_us_per_op"), 0.5),
            at_least("7 replicas, 64 clients: puts per second, all / none", ratio("put_per_s"), 1.5),
            at_most("7 replicas, 64 clients, the same load for both: p99, all / none", ratio("p99_us", paced=True), 0.6),
            at_most("ours: requests without an answer or with an error", sum(row["failed"] + row["lost"] for row in own),
                    0)]


def measure_cell(lab: Lab, cluster: Cluster, cell: Cell, arguments: argparse.Namespace, rate_per_s: float) -> tuple[dict, list[str]]:
    """Where the time goes is sampled during a short load of its own: sampling would cost the measured one some of its time."""
    more = ["--store=etcd", "--connections=1"] if cell.variant == "etcd" else []
    if cell.paced:
        more.append(f"--rate={rate_per_s:.0f}")

    def load(seconds: float) -> store_load.Measured:
        return store_load.measured(lab, cluster, lambda leader: store_load.command(
            leader.endpoint, cell.clients, "put", VALUE_BYTES, warm_up_s=arguments.warm_up, measured_s=seconds, more=more))

    found = load(arguments.seconds)
    with cpu_profile.sampling() as profile:
        load(arguments.profile_seconds)
    shares = cpu_profile.shares(profile, {node.process.pid for node in cluster.nodes})
    return {**figures(found), **{f"{kind}_share": shares[kind] for kind in ("stack", "switch", "offload", "user")},
            "rate_per_s": rate_per_s if cell.paced else None, "profile": profile}, found.described()


def verified(cluster: Cluster, variant: Variant) -> str | None:
    """How XDP is attached, once every node says that exactly what was asked for is on; other stores have none."""
    if variant.system != "hedgerow":
        return None
    wanted = set(SETS[variant.offloads])
    deadline = time.monotonic() + _ON_WITHIN_S
    while True:
        said = [offload for node in cluster.nodes for offload in node.offloads()]
        wrong = [f"{each['name']}: {each.get('detail', '')}" for each in said
                 if bool(each.get("on")) != (each["name"] in wanted)]
        if said and not wrong:
            ways = {each["detail"].split()[0] for each in said if each.get("on") and each["name"] != "broadcast"
                    and " XDP " in each["detail"]}
            return "/".join(sorted(ways)) or "none"
        if time.monotonic() > deadline:
            raise RuntimeError(f"offloads {variant.offloads}: not as asked for: {'; '.join(wrong) or 'no node says'}")
        time.sleep(0.05)


def cells_of(arguments: argparse.Namespace) -> list[Cell]:
    closed = [Cell(replicas, variant, clients) for replicas in map(int, arguments.replicas)
              for variant in arguments.variants for clients in map(int, arguments.clients)]
    if not set(PACED_VARIANTS) <= set(arguments.variants) or str(PACED_CLIENTS) not in arguments.clients:
        return closed
    return closed + [Cell(replicas, variant, PACED_CLIENTS, paced=True) for replicas in map(int, arguments.replicas)
                     for variant in PACED_VARIANTS]


def turns_of(cells: list[Cell], replicas: int, number: int) -> list[list[Cell]]:
    """Who goes after whom in a round, which rotates; the paced ones come last, when their rate is known."""
    turns = []
    for paced in (False, True):
        here = [cell for cell in cells if (cell.replicas, cell.paced) == (replicas, paced)]
        variants = list(dict.fromkeys(cell.variant for cell in here))
        turns += [[cell for cell in here if cell.variant == variant] for variant in experiment.rotated(variants, number)]
    return turns


def paced_rate(records: list[dict], replicas: int) -> float:
    """Nine tenths of what `none` did last; 0 before."""
    runs = [each["put_per_s"] for each in records if not each["paced"] and
            (each["replicas"], each["variant"], each["clients"]) == (replicas, "none", PACED_CLIENTS)]
    return PACED_SHARE * runs[-1] if runs else 0.0


_MOST = {"where": lambda row: row.get("rate_per_s") is None and row["clients"] == PACED_CLIENTS, "group": "replicas",
         "groups": {int(size): f"{size} replicas" for size in REPLICAS}}
_CURVES = {"panel": ("replicas",), "titles": {3: "three replicas", 5: "five replicas", 7: "seven replicas"}, "x": "put_per_s", "label": "puts per second", "log": "xy", "unit": "us",
           "where": lambda row: row.get("rate_per_s") is None}


def measure(running: experiment.Running, arguments: argparse.Namespace) -> None:
    cells = cells_of(arguments)

    def one(lab: Lab, up: Running, cell: Cell) -> tuple[dict, list[str]]:
        rate_per_s = paced_rate(experiment.records_of(running.results.raw), cell.replicas) if cell.paced else 0.0
        xdp = verified(up.cluster, VARIANTS[cell.variant])
        result, load = measure_cell(lab, up.cluster, cell, arguments, rate_per_s)
        return {**result, "xdp": xdp}, [*load, *([f"--rate={PACED_SHARE:g} of none's"] if cell.paced else [])]

    store_load.on_fresh_stores(running, arguments, TAG, arguments.variants, cells, functools.partial(turns_of, cells),
                               lambda cell: VARIANTS[cell.variant].store(cell.replicas), one)


EXPERIMENT = experiment.Experiment(
    NAME, __doc__, [field.name for field in dataclasses.fields(Cell)], must_show, lambda *cell: [row_of(Cell(*cell[:-1]), cell[-1])],
    {"replicas": "replicas", "variant": "variant", "clients": "clients", "rate_per_s": "asked/s", "runs": "runs", "xdp": "XDP",
     "put_per_s": "puts/s", "put_per_s_min": "min", "put_per_s_max": "max", "p50_us": "p50 us", "p99_us": "p99 us",
     "leader_cpu_us_per_op": "leader us", "cluster_cpu_us_per_op": "cluster us", "stack_share": "stack", "switch_share": "switch",
     "offload_share": "offload", "failed": "failed", "lost": "lost", "behind": "behind", "leader_changed": "leader changed"},
    Charts("Puts of 64 bytes in memory mode, clients that wait for each answer", looks.OFFLOADS, "variant",
           (Bars("Puts answered in a second", y="put_per_s", unit="puts/s", text=lambda value: f"{value / 1000:,.0f}k", **_MOST),
            Bars("Processor time of the cluster for each put", y="cluster_cpu_us_per_op", unit="us for each put", **_MOST),
            Lines("p50", y="p50_us", **_CURVES), Lines("p99", y="p99_us", **_CURVES))),
    measure=measure, options=(
        experiment.some("--replicas", REPLICAS), experiment.some("--clients", CLIENTS),
        experiment.some("--variants", VARIANTS, [name for name in VARIANTS if not name.startswith("no-")]),
        experiment.number("--seconds", 2.0, 0.1, 600, help="measured part of each run"),
        experiment.number("--warm-up", 0.5, 0.0, 60, help="seconds before it"),
        experiment.number("--profile-seconds", 1.0, 0.1, 600, help="sampled, in a run of its own")))
