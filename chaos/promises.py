# SPDX-License-Identifier: Apache-2.0
"""What a run must show, from its rows (chaos/cell.py) and its scenario: what holds always, what clients were promised, that the faults
were there, and how we stand beside the others. Called by run.py.
"""

from bench.outcome import Check, at_least, at_most
from chaos.plants import LOST, NO_FAULT, STALE, TWICE
from chaos.scenario import Client, Scenario

# One of three met one when a power cut met all nodes; this many that all miss are no accident.
_KILLS_TO_MEET_A_WRITE = 20


def must_show(scenario: Scenario, rows: list[dict]) -> list[Check]:
    """What holds on any machine, and how we stand on one that does nothing else, beside other systems or not."""
    checks = []
    for row in rows:
        if row["system"] != "hedgerow":
            continue
        checks += held(row, row.get("events_wanted", row["events"]), scenario)
        if row["events_with_loss"] is not None or scenario.target == "all":
            continue
        others = {other["system"]: other for other in rows if other["mode"] == row["mode"]}
        checks += _quick_on_a_quiet_machine(row, scenario.client)
        if row["leader_resident_bytes"] is not None:
            checks.append(at_least(f"{row['mode']}: resident memory of the leader, of every event",
                                   row["leader_resident_bytes"] / 2**20, row["ballast_bytes"] / 2**20, "MiB"))
        checks += _beside(row, others)
        if row["hedge_delay"] == "0.5ms":
            checks.append(at_least(f"{row['mode']}: duplicates arrived per 100 events",
                                   100 * (row["duplicates_arrived"] or 0) / row["events"], 10_000))
    disagreed = sum(row["checkers_disagree"] for row in rows)
    return [*checks, at_most("histories on which the checkers do not agree, of all systems", disagreed, 0)]


def held(row: dict, events: int, scenario: Scenario) -> list[Check]:
    """Of a row of ours, on any machine. With disks that lose what was not synced only durability and errors are judged, since
    every write goes through one more program."""
    mode, client = row["mode"], scenario.client
    checks = [at_least(f"{mode}: events", row["events"], events),
              at_most(f"{mode}: acknowledged writes lost", row["acked_lost"], 0, finds=[LOST]),
              at_most(f"{mode}: increments applied twice", row["double_applied"], 0, finds=[TWICE]),
              at_least(f"{mode}: linearizable, as both checkers say", int(row["linearizable"]), 1, finds=[STALE])]
    checks += [at_least(f"{mode}: {name.replace('_', ' ')}, of every event", row["bites"][name], wanted, finds=[NO_FAULT])
               for name, wanted in scenario.bites.items()]
    if client.errors is not None:
        checks.append(at_most(f"{mode}: client errors", row["client_errors"], client.errors))
    if client.errors_share is not None:
        checks.append(at_most(f"{mode}: client errors, as a share", row["errors_share"], client.errors_share))
    if client.duplicate_answers is not None:
        checks.append(at_most(f"{mode}: answers that came twice", row["duplicate_answers"], client.duplicate_answers))
    if row["events_with_loss"] is not None:
        return [*checks, *_lost_something(row, events)]
    if client.waits_at_most_ms is not None:
        checks.append(at_most(f"{mode}: unavailable, at most", row["unavailable_max_ms"], client.waits_at_most_ms, "ms"))
    return checks


def _lost_something(row: dict, events: int) -> list[Check]:
    """Disks that lose nothing, or never a record of a log, would show nothing. The first is sure at every event, since a
    node keeps a few bytes unsynced on purpose; the second needs an event in the midst of a write."""
    checks = [at_least(f"{row['mode']}: events at which unsynced bytes were lost", row["events_with_loss"], events)]
    if events >= _KILLS_TO_MEET_A_WRITE:
        checks.append(at_least(f"{row['mode']}: of these, in the midst of a write to a log",
                               row["events_with_log_loss"], 1))
    return checks


def _quick_on_a_quiet_machine(row: dict, client: Client) -> list[Check]:
    limits = client.quiet.get(row["mode"], {})
    return [at_most(f"{row['mode']}: unavailable {name.removesuffix('_ms')}", row[f"unavailable_{name}"], limit, "ms", needs_full=True)
            for name, limit in limits.items()]


def _beside(row: dict, others: dict[str, dict]) -> list[Check]:
    mode, checks = row["mode"], []
    if "etcd-default" in others:
        # The kinder of its two figures: a write that etcd lost with its leader has waited its whole time-out.
        etcd = min(others["etcd-default"][f"{name}_p50_ms"] for name in ("unavailable", "outage"))
        checks.append(at_most(f"{mode}: unavailable p50, a tenth of etcd-default's (its kinder figure)",
                              row["unavailable_p50_ms"], etcd / 10, "ms", needs_full=True))
    if "noproxy-app" in others:
        checks.append(at_most(f"{mode}: unavailable p50, no worse than the application's (5 % for noise)",
                              row["unavailable_p50_ms"], 1.05 * others["noproxy-app"]["unavailable_p50_ms"], "ms", needs_full=True))
    return checks
