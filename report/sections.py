# SPDX-License-Identifier: Apache-2.0
"""The page's sections: what each run shows, as its experiment's charts, and as tables. A section whose run is not there says which command
makes it.
"""

import dataclasses
from collections.abc import Callable

from bench import election, heartbeat, offload, parking, raft_hedge
from plots import charts
from plots.looks import CAUSES, HEARTBEATS, MODES, OFFLOADS, PARKING, STORES
from report.experiments import CHARTS
from report.page import Row, count, legend, made_by, number, panels, percent, table
from report.published import Run

_SPREAD = ("min", "avg", "p50", "p95", "p99", "max")


@dataclasses.dataclass(frozen=True)
class Section:
    name: str  # of its run, and its anchor
    title: str
    command: str
    text: str
    tables: Callable[[Run], str]
    filled: bool = False  # the legend's keys

    def html(self, run: Run | None) -> str:
        if run is None:
            return f'<p class="missing">There is no run of this yet. <code>{self.command}</code> makes one.</p>'
        declared = CHARTS[self.name]
        drawn = panels((panel.title, charts.svg(panel)) for panel in declared.panels(run.form))
        return (f"<p>{self.text}</p>{drawn}{legend(declared.shown(run.form), self.filled)}{self.tables(run)}\n"
                f"{made_by(run, self.command)}")


def demo(run: Run) -> str:
    rows = [Row(STORES[row["system"]][0],
                [number(run, f"/rows/{at}/operations", count), number(run, f"/rows/{at}/client_errors", count),
                 *(number(run, f"/rows/{at}/unavailable_ms/{kill}") for kill in range(len(row["unavailable_ms"]))),
                 *(number(run, f"/figures/{row['system']}/{key}_ms") for key in ("p50", "p99", "p999")),
                 number(run, f"/rows/{at}/acked_lost", count), number(run, f"/rows/{at}/double_applied", count)],
                ours=row["system"] == "hedgerow") for at, row in enumerate(run.rows) if row["system"] in run.form["series"]]
    kills = ("first kill", "second kill", "third kill")[:len(run.rows[0]["unavailable_ms"])]
    return table("Longest wait around each kill, and percentiles of all waits, in ms; an operation without an answer has waited its "
                 "client's whole timeout", ("client", "operations", "errors", *kills, "p50", "p99", "p99.9", "writes lost",
                                            "applied twice"), rows)


def demo_dns(run: Run) -> str:
    rows = [Row(MODES[row["mode"]][0],
                [number(run, f"/rows/{at}/{key}") for key in ("p50_ms", "p99_ms", "max_ms")] +
                [number(run, f"/rows/{at}/lost", count), number(run, f"/rows/{at}/extra_load", percent)],
                ours=row["mode"] == "wheel") for at, row in enumerate(run.rows) if row["mode"] in run.form["series"]]
    return table("Answer times in ms", ("client", "p50", "p99", "slowest", "lost", "extra load"), rows)


def hedging(run: Run) -> str:
    faults = {"stall": "the leader stops now and then", "loss": "packets of the leader are lost"}
    return "".join(
        table(f"Waits in ms while {text}", ("client", "operation", "requests", "p50", "p99", "p99.9", "slowest", "no answer", "extra load"),
              [Row(MODES[row["mode"]][0],
                   [row["operation"], number(run, f"/rows/{at}/n", count),
                    *(number(run, f"/rows/{at}/{key}_ms") for key in ("p50", "p99", "p999", "max")),
                    number(run, f"/rows/{at}/lost", count), number(run, f"/rows/{at}/extra_load", percent)],
                   ours=row["mode"] == "wheel") for at, row in enumerate(run.rows) if row["variant"] == variant])
        for variant, text in faults.items() if any(row["variant"] == variant for row in run.rows))


def kills(run: Run) -> str:
    keys = [(at, row, f"{row['mode']}-{row['system']}") for at, row in enumerate(run.rows)]
    rows = [Row(f"{STORES[row['system']][0]}, {row['mode']} mode",
                [number(run, f"/figures/{key}/n", count), *(number(run, f"/figures/{key}/{each}") for each in _SPREAD),
                 number(run, f"/rows/{at}/outage_p50_ms"), number(run, f"/rows/{at}/outage_max_ms"),
                 number(run, f"/rows/{at}/client_errors", count), number(run, f"/rows/{at}/acked_lost", count)],
                ours=row["system"] == "hedgerow") for at, row, key in keys]
    return table("Longest wait of a client around a kill, in ms",
                 ("system", "kills", *_SPREAD, "without a write: p50", "max", "errors", "writes lost"), rows)


def offloads(run: Run) -> str:
    rows = [Row(OFFLOADS[row["variant"]][0],
                [number(run, f"/rows/{at}/replicas", count), number(run, f"/rows/{at}/clients", count),
                 number(run, f"/rows/{at}/put_per_s", count), number(run, f"/rows/{at}/p50_us"), number(run, f"/rows/{at}/p99_us"),
                 number(run, f"/rows/{at}/leader_cpu_us_per_op"), number(run, f"/rows/{at}/cluster_cpu_us_per_op"),
                 number(run, f"/rows/{at}/runs", count)], ours=row["variant"] == "all")
            for at, row in enumerate(run.rows) if row.get("rate_per_s") is None]
    return table("Puts; latencies and processor time in us", ("variant", "replicas", "clients", "puts/s", "p50", "p99", "CPU, leader",
                                                              "CPU, cluster", "runs"), rows)


def heartbeats(run: Run) -> str:
    cells = [(load, server) for load in heartbeat.LOADS for server in HEARTBEATS.of(row["server"] for row in run.rows)
             if f"{load}-{server}" in run.form["figures"]]
    rows = [Row(HEARTBEATS[server][0],
                ["idle" if load == "idle" else "busy", number(run, f"/figures/{load}-{server}/n", count),
                 *(number(run, f"/figures/{load}-{server}/{each}") for each in _SPREAD)], ours=server == "xdp")
            for load, server in cells]
    return table("From heartbeat to answer, in us", ("answered by", "machine", "heartbeats", *_SPREAD), rows)


def elections(run: Run) -> str:
    spans = {"vote_us": "request for votes to quorum, us", "pre_vote_us": "pre-vote to quorum, us",
             "outage_ms": "fault to next leader, ms"}
    keys = [(at, row, f"{row['replicas']}-{row['mode']}-{row['cause']}") for at, row in enumerate(run.rows)]
    return "".join(table(f"From {text}", ("the leader is", "nodes", "terms", *_SPREAD), [
        Row(f"{CAUSES[row['cause']][0]}, {row['mode']} mode",
            [number(run, f"/rows/{at}/replicas", count), number(run, f"/figures/{key}/{span}/n", count),
             *(number(run, f"/figures/{key}/{span}/{each}") for each in _SPREAD)])
        for at, row, key in keys if span in run.form["figures"][key]]) for span, text in spans.items())


def costs(run: Run) -> str:
    variants = {"1000": "low rate", "20000": "high rate", "highest": "highest rate"}
    rows = [Row(f"{PARKING[row['mode']][0]}, {variants[row['variant']]}",
                [number(run, f"/rows/{at}/rate", count), number(run, f"/rows/{at}/hr_splitter_ns"), number(run, f"/rows/{at}/hr_reply_ns"),
                 number(run, f"/rows/{at}/cpu_us_per_request"), number(run, f"/rows/{at}/p50_ms"), number(run, f"/rows/{at}/p99_ms"),
                 number(run, f"/rows/{at}/runs", count)], ours=row["mode"] == "wheel")
            for at, row in enumerate(run.rows)]
    return table("Kernel programs in ns a run, processor time in us a request, answers in ms",
                 ("requests", "requests/s", "splitter", "reply", "CPU", "p50", "p99", "runs"), rows)


SECTIONS = (
    Section("demo", "A leader dies under load", "sudo ./dev demo",
            "A replicated store under load, whose leading server is killed three times and comes back two seconds later. The line is the "
            "longest wait of each moment, the band reaches down to the median, a cross is an operation without an answer. Grey: the killed "
            "server is away.", demo),
    Section("demo-dns", "A DNS server stalls", "sudo ./dev demo dns",
            "Two servers of one zone behind one address. The first is stopped for a second now and then (grey).", demo_dns),
    Section(raft_hedge.NAME, "A leader falters", "sudo ./dev bench raft-hedge",
            "The store's leader falters without dying. A client that asks once, one that hedges by itself, and the first again behind the "
            "proxy.", hedging),
    Section("chaos-leader-kill", "Many kills", "sudo ./dev chaos leader-kill",
            "The leader is killed at random moments under load, again and again. Of each kill, how long the client that waited longest had to "
            "wait for its answer. An operation with an error, or without an answer, has waited its whole timeout. What a client that asks "
            "again sees is the time without a write: the longest in which none was acknowledged.", kills),
    Section(offload.NAME, "The store's offloads", "sudo ./dev bench offload",
            "Puts in memory mode, each client waits for its answer. With the offloads on, the kernel's programs answer appends, count quorums "
            "and send broadcasts for the processes. Bars are of the largest number of clients.", offloads, filled=True),
    Section(heartbeat.NAME, "Heartbeats", "sudo ./dev bench heartbeat",
            "How long a follower takes to answer its leader's heartbeat. A late answer is what starts needless elections.", heartbeats),
    Section(election.NAME, "Elections", "sudo ./dev bench election",
            "The leader of an idle cluster is killed, stopped or cut off, and another one is elected. Memory mode is drawn as a line, disk "
            "mode dashed.", elections),
    Section(parking.NAME, "Cost of a request", "sudo ./dev bench parking",
            "What parking costs when every answer comes at once, so that no hedge is ever sent.", costs, filled=True),
)
