# SPDX-License-Identifier: Apache-2.0
"""The page's sections: what each run shows, as charts and tables. A section whose run is not there says which command makes it.
"""

import dataclasses
from collections.abc import Callable

from bench import election, heartbeat, offload, parking, raft_hedge
from plots.looks import CAUSES, HEARTBEATS, MODES, OFFLOADS, PARKING, STORES
from report import charts
from report.page import Row, amount, count, legend, made_by, number, panels, percent, table
from report.published import Run

_SPREAD = ("min", "avg", "p50", "p95", "p99", "max")


@dataclasses.dataclass(frozen=True)
class Section:
    name: str  # of its run, and its anchor
    title: str
    command: str
    content: Callable[[Run], str]

    def html(self, run: Run | None) -> str:
        if run is None:
            return f'<p class="missing">There is no run of this yet. <code>{self.command}</code> makes one.</p>'
        return self.content(run) + "\n" + made_by(run, self.command)


def demo(run: Run) -> str:
    shown = [(at, row) for at, row in enumerate(run.rows) if row["system"] in run.form["series"]]
    drawn = [(STORES[row["system"]][0],
              charts.panel(f"demo-{row['system']}", f"Waits over time: {row['label']}",
                           lambda axis, key=row["system"]: charts.timeline(axis, run.form["series"][key], STORES[key][1], 5000)))
             for _, row in shown]
    drawn.append(("All operations",
                  charts.panel("demo-tail", "Share of operations that waited longer than x", lambda axis: charts.tails(
                      axis, [(run.form["series"][row["system"]]["tail_ms"], *STORES[row["system"]][1:3]) for _, row in shown],
                      "ms"))))
    rows = [Row(STORES[row["system"]][0],
                [number(run, f"/rows/{at}/operations", count), number(run, f"/rows/{at}/client_errors", count),
                 *(number(run, f"/rows/{at}/unavailable_ms/{kill}") for kill in range(len(row["unavailable_ms"]))),
                 *(number(run, f"/figures/{row['system']}/{key}_ms") for key in ("p50", "p99", "p999")),
                 number(run, f"/rows/{at}/acked_lost", count), number(run, f"/rows/{at}/double_applied", count)],
                ours=row["system"] == "hedgerow") for at, row in shown]
    kills = ("first kill", "second kill", "third kill")[:len(shown[0][1]["unavailable_ms"])]
    return (
        "<p>A replicated store under load, whose leading server is killed three times and comes back two seconds later. The line is "
        "the longest wait of each moment, the band reaches down to the median, a cross is an operation without an answer. Grey: the "
        "killed server is away.</p>" + panels(drawn) + legend((STORES[row["system"]] for _, row in shown)) +
        table("Longest wait around each kill, and percentiles of all waits, in ms; an operation without an answer has waited its "
              "client's whole timeout", ("client", "operations", "errors", *kills, "p50", "p99", "p99.9", "writes lost",
                                         "applied twice"), rows))


def demo_dns(run: Run) -> str:
    shown = [(at, row) for at, row in enumerate(run.rows) if row["mode"] in run.form["series"]]
    drawn = [(MODES[row["mode"]][0],
              charts.panel(f"dns-{row['mode']}", f"Waits over time: {MODES[row['mode']][0]}",
                           lambda axis, key=row["mode"]: charts.timeline(axis, run.form["series"][key], MODES[key][1], 2000)))
             for _, row in shown]
    drawn.append(("All queries", charts.panel("dns-tail", "Share of queries that waited longer than x", lambda axis: charts.tails(
        axis, [(run.form["series"][row["mode"]]["tail_ms"], *MODES[row["mode"]][1:3]) for _, row in shown], "ms"))))
    rows = [Row(MODES[row["mode"]][0],
                [number(run, f"/rows/{at}/{key}") for key in ("p50_ms", "p99_ms", "max_ms")] +
                [number(run, f"/rows/{at}/lost", count), number(run, f"/rows/{at}/extra_load", percent)],
                ours=row["mode"] == "wheel") for at, row in shown]
    return ("<p>Two servers of one zone behind one address. The first is stopped for a second now and then (grey).</p>" + panels(drawn) +
            legend(MODES[row["mode"]] for _, row in shown) +
            table("Answer times in ms", ("client", "p50", "p99", "slowest", "lost", "extra load"), rows))


def hedging(run: Run) -> str:
    faults = {"stall": "the leader stops now and then", "loss": "packets of the leader are lost"}
    modes = MODES.of(row["mode"] for row in run.rows)
    drawn = []
    for variant in raft_hedge.VARIANTS:
        for operation in raft_hedge.OPERATIONS:
            keys = [(mode, f"{variant}-{operation}-{mode}") for mode in modes]
            curves = [(run.form["series"][key]["tail_ms"], *MODES[mode][1:3]) for mode, key in keys if key in run.form["series"]]
            if curves:
                drawn.append((f"{operation}: {faults[variant]}",
                              charts.panel(f"hedge-{variant}-{operation}", f"Share of {operation}s that waited longer than x",
                                           lambda axis, found=curves: charts.tails(axis, found, "ms", (0.05, 6500)))))
    tables = [table(f"Waits in ms while {text}", ("client", "operation", "requests", "p50", "p99", "p99.9", "slowest", "no answer",
                                                  "extra load"),
                    [Row(MODES[row["mode"]][0],
                         [row["operation"], number(run, f"/rows/{at}/n", count),
                          *(number(run, f"/rows/{at}/{key}_ms") for key in ("p50", "p99", "p999", "max")),
                          number(run, f"/rows/{at}/lost", count), number(run, f"/rows/{at}/extra_load", percent)],
                         ours=row["mode"] == "wheel")
                     for at, row in enumerate(run.rows) if row["variant"] == variant])
              for variant, text in faults.items() if any(row["variant"] == variant for row in run.rows)]
    return ("<p>The store's leader falters without dying. A client that asks once, one that hedges by itself, and the first again behind "
            "the proxy.</p>" + panels(drawn) + legend(MODES[mode] for mode in modes) + "".join(tables))


def kills(run: Run) -> str:
    keys = [(at, row, f"{row['mode']}-{row['system']}") for at, row in enumerate(run.rows)]
    drawn = []
    for mode in dict.fromkeys(row["mode"] for row in run.rows):
        curves = [(run.form["series"][key]["unavailable_ms"], *STORES[row["system"]][1:3]) for _, row, key in keys
                  if row["mode"] == mode]
        drawn.append((f"Longest wait of each kill, {mode} mode",
                      charts.panel(f"kills-{mode}", f"Share of kills whose longest wait was at most x, {mode} mode",
                                   lambda axis, found=curves: charts.steps(axis, found, "longest wait (ms)", "kills"))))
    rows = [Row(f"{STORES[row['system']][0]}, {row['mode']} mode",
                [number(run, f"/figures/{key}/n", count), *(number(run, f"/figures/{key}/{each}") for each in _SPREAD),
                 number(run, f"/rows/{at}/outage_p50_ms"), number(run, f"/rows/{at}/outage_max_ms"),
                 number(run, f"/rows/{at}/client_errors", count), number(run, f"/rows/{at}/acked_lost", count)],
                ours=row["system"] == "hedgerow") for at, row, key in keys]
    return ("<p>The leader is killed at random moments under load, again and again. Of each kill, how long the client that waited longest "
            "had to wait for its answer. An operation with an error, or without an answer, has waited its whole timeout. What a client that asks "
            "again sees is the time without a write: the longest in which none was acknowledged.</p>" + panels(drawn) + legend(STORES[row["system"]] for _, row, _ in keys) +
            table("Longest wait of a client around a kill, in ms", ("system", "kills", *_SPREAD, "without a write: p50", "max", "errors", "writes lost"), rows))


def offloads(run: Run) -> str:
    closed = [(at, row) for at, row in enumerate(run.rows) if row.get("rate_per_s") is None]
    most = max(row["clients"] for _, row in closed)
    sizes = sorted({row["replicas"] for _, row in closed})
    variants = OFFLOADS.of(row["variant"] for _, row in closed)
    place = {(row["replicas"], row["variant"]): at for at, row in closed if row["clients"] == most}

    def chart(key: str, unit: str, text: Callable[[float], str]) -> Callable:
        series = [(OFFLOADS[name][1], [(f"{run.name}/rows/{place[size, name]}/{key}", run.rows[place[size, name]][key])
                                       if (size, name) in place else None for size in sizes]) for name in variants]
        return lambda axis: charts.bars(axis, [f"{size} replicas" for size in sizes], series, unit, text)

    drawn = [("Puts answered in a second", charts.panel("offload-puts", "Puts per second by number of replicas",
                                                        chart("put_per_s", "puts/s", lambda value: f"{value / 1000:,.0f}k"))),
             ("Processor time of the cluster for each put", charts.panel(
                 "offload-cpu", "Processor time per put by number of replicas",
                 chart("cluster_cpu_us_per_op", "us for each put", amount)))]
    rows = [Row(OFFLOADS[row["variant"]][0],
                [number(run, f"/rows/{at}/replicas", count), number(run, f"/rows/{at}/clients", count),
                 number(run, f"/rows/{at}/put_per_s", count), number(run, f"/rows/{at}/p50_us"), number(run, f"/rows/{at}/p99_us"),
                 number(run, f"/rows/{at}/leader_cpu_us_per_op"), number(run, f"/rows/{at}/cluster_cpu_us_per_op"),
                 number(run, f"/rows/{at}/runs", count)], ours=row["variant"] == "all") for at, row in closed]
    return ("<p>Puts in memory mode, each client waits for its answer. With the offloads on, the kernel's programs answer appends, count "
            "quorums and send broadcasts for the processes. Bars are of the largest number of clients; figures are medians of the runs."
            "</p>" + panels(drawn) + legend((OFFLOADS[name] for name in variants), filled=True) +
            table("Puts; latencies and processor time in us", ("variant", "replicas", "clients", "puts/s", "p50", "p99", "CPU, leader",
                                                               "CPU, cluster", "runs"), rows))


def heartbeats(run: Run) -> str:
    loads = {"idle": "idle machine", "stress": "two busy processes for each processor"}
    servers = HEARTBEATS.of(row["server"] for row in run.rows)
    cells = [(load, server) for load in heartbeat.LOADS for server in servers if f"{load}-{server}" in run.form["figures"]]
    drawn = [(loads[load], charts.panel(f"heartbeat-{load}", f"Share of heartbeats that waited longer than x, {loads[load]}",
                                        lambda axis, here=load: charts.tails(axis, [
                                            (run.form["series"][f"{here}-{server}"]["tail_us"], *HEARTBEATS[server][1:3])
                                            for found, server in cells if found == here], "us")))
             for load in heartbeat.LOADS if any(load == found for found, _ in cells)]
    rows = [Row(HEARTBEATS[server][0],
                ["idle" if load == "idle" else "busy", number(run, f"/figures/{load}-{server}/n", count),
                 *(number(run, f"/figures/{load}-{server}/{each}") for each in _SPREAD)], ours=server == "xdp")
            for load, server in cells]
    return ("<p>How long a follower takes to answer its leader's heartbeat. A late answer is what starts needless elections.</p>" +
            panels(drawn) + legend(HEARTBEATS[server] for server in servers) +
            table("From heartbeat to answer, in us", ("answered by", "machine", "heartbeats", *_SPREAD), rows))


def elections(run: Run) -> str:
    spans = {"vote_us": "request for votes to quorum, us", "pre_vote_us": "pre-vote to quorum, us",
             "outage_ms": "fault to next leader, ms"}
    keys = [(at, row, f"{row['replicas']}-{row['mode']}-{row['cause']}") for at, row in enumerate(run.rows)]
    drawn = []
    for size in election.REPLICAS:
        curves = [(run.form["series"][key]["outage_ms"], CAUSES[row["cause"]][1], "-" if row["mode"] == "memory" else "--")
                  for _, row, key in keys if str(row["replicas"]) == size]
        if curves:
            drawn.append((f"From the fault to the next leader, {'three' if size == '3' else 'five'} nodes",
                          charts.panel(f"election-{size}", "Share of elections that took at most x", lambda axis, found=curves:
                                       charts.steps(axis, found, "fault to next leader (ms)", "elections"))))
    tables = [table(f"From {text}", ("the leader is", "nodes", "terms", *_SPREAD), [
        Row(f"{CAUSES[row['cause']][0]}, {row['mode']} mode",
            [number(run, f"/rows/{at}/replicas", count), number(run, f"/figures/{key}/{span}/n", count),
             *(number(run, f"/figures/{key}/{span}/{each}") for each in _SPREAD)])
        for at, row, key in keys if span in run.form["figures"][key]]) for span, text in spans.items()]
    return ("<p>The leader of an idle cluster is killed, stopped or cut off, and another one is elected. Memory mode is drawn as a line, "
            "disk mode dashed.</p>" + panels(drawn) +
            legend(CAUSES[cause] for cause in CAUSES.of(row["cause"] for row in run.rows)) +
            "".join(tables))


def costs(run: Run) -> str:
    variants = {"1000": "low rate", "20000": "high rate", "highest": "highest rate"}
    place = {(row["variant"], row["mode"]): at for at, row in enumerate(run.rows)}
    there = [name for name in variants if any(name == variant for variant, _ in place)]
    modes = PARKING.of(mode for _, mode in place)

    def chart(key: str, unit: str) -> Callable:
        series = [(PARKING[mode][1], [(f"{run.name}/rows/{place[name, mode]}/{key}", run.rows[place[name, mode]][key])
                                       if (name, mode) in place and run.rows[place[name, mode]][key] is not None else None
                                       for name in there]) for mode in modes]
        return lambda axis: charts.bars(axis, [variants[name] for name in there], series, unit, amount)

    drawn = [(title, charts.panel(f"parking-{key}", title, chart(key, unit))) for key, title, unit in (
        ("hr_splitter_ns", "Splitter", "ns a run"), ("hr_reply_ns", "Reply program", "ns a run"),
        ("cpu_us_per_request", "All processors, servers included", "us a request"))]
    rows = [Row(f"{PARKING[row['mode']][0]}, {variants[row['variant']]}",
                [number(run, f"/rows/{at}/rate", count), number(run, f"/rows/{at}/hr_splitter_ns"), number(run, f"/rows/{at}/hr_reply_ns"),
                 number(run, f"/rows/{at}/cpu_us_per_request"), number(run, f"/rows/{at}/p50_ms"), number(run, f"/rows/{at}/p99_ms"),
                 number(run, f"/rows/{at}/runs", count)], ours=row["mode"] == "wheel")
            for at, row in enumerate(run.rows)]
    return ("<p>What parking costs when every answer comes at once, so that no hedge is ever sent.</p>" + panels(drawn) +
            legend((PARKING[mode] for mode in modes), filled=True) +
            table("Kernel programs in ns a run, processor time in us a request, answers in ms",
                  ("requests", "requests/s", "splitter", "reply", "CPU", "p50", "p99", "runs"), rows))


SECTIONS = (
    Section("demo", "A leader dies under load", "sudo ./dev demo", demo),
    Section("demo-dns", "A DNS server stalls", "sudo ./dev demo dns", demo_dns),
    Section(raft_hedge.NAME, "A leader falters", "sudo ./dev bench raft-hedge", hedging),
    Section("chaos-leader-kill", "Many kills", "sudo ./dev chaos leader-kill", kills),
    Section(offload.NAME, "The store's offloads", "sudo ./dev bench offload", offloads),
    Section(heartbeat.NAME, "Heartbeats", "sudo ./dev bench heartbeat", heartbeats),
    Section(election.NAME, "Elections", "sudo ./dev bench election", elections),
    Section(parking.NAME, "Cost of a request", "sudo ./dev bench parking", costs),
)
