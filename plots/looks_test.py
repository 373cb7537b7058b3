# SPDX-License-Identifier: Apache-2.0
"""Every system that an experiment measures has a label and a colour, and one that has none is drawn after the others."""

import pytest

from bench import at_once, client_run, delay_line, heartbeat, kv, offload, parking, proxy_cost, raft_hedge, steer_systems
from chaos import systems
from plots import looks


@pytest.mark.parametrize("table, names", [
    (looks.MODES, (*client_run.MODES, *delay_line.MODES, *raft_hedge.MODES)), (looks.PARKING, parking.MODES), (looks.STORES, (*systems.SYSTEMS, *systems.ABLATIONS)),
    (looks.KV, kv.SYSTEMS), (looks.OFFLOADS, offload.VARIANTS), (looks.HEARTBEATS, heartbeat.SERVERS), (looks.AT_ONCE, at_once.SYSTEMS),
    (looks.STEERING, steer_systems.SYSTEMS), (looks.PROXIES, proxy_cost.SYSTEMS)])
def test_the_systems_of_an_experiment_have_labels(table, names):
    assert set(names) <= set(table)


def test_a_system_without_an_entry_is_the_last_and_has_its_own_name():
    assert looks.MODES.of(["newer", "wheel", "baseline", "wheel"]) == ["baseline", "wheel", "newer"]
    assert looks.MODES["newer"].label == "newer"
