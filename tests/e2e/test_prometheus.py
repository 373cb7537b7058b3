# SPDX-License-Identifier: Apache-2.0
"""Alert rules, dashboards and the list of metrics, against a Prometheus that scrapes a daemon, three nodes and a group of `hedgerow steer`."""

import contextlib
import os
import re
import subprocess
import time

import pytest
import yaml

from deploy.lab.cluster import hedgerow_cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.servers.hedgerow_node import NodeSettings
from harness import prometheus
from harness.dns import finish_dnsperf, start_dnsperf
from harness.prometheus import Prometheus, Relay
from harness.product import METRICS, PROJECT, VIP4, wait_until
from harness.steer import Group, Netns, made_folder

NODE_PORTS = (9471, 9472, 9473)
STEER_METRICS = "127.0.0.1:9467"


@pytest.fixture(autouse=True, scope="module")
def need_prometheus():
    if not prometheus.installed():
        pytest.fail("Prometheus is not installed: run `sudo ./dev deps`", pytrace=False)


@pytest.fixture(scope="module")
def observed(stacks, need_prometheus):
    """A proxy, a cluster and a group of `hedgerow steer` at work, and the Prometheus that watches them."""
    stack = stacks.get({"replicas": 3}, {"a": "nsd", "b": "knot"})
    # No pause of a busy machine makes a backend suspect.
    product = stack.product.up(metrics=METRICS, services=stack.product.services("dns", delay="300ms", suspect_min="5s", suspect_max="5s"))
    with contextlib.ExitStack() as running:
        data = running.enter_context(DataDirs(stack.product.instance, "memory"))
        cluster = hedgerow_cluster(stack.lab, data.path, NodeSettings(memcached=()))
        for node in cluster.nodes:
            node.config["metrics_listen"] = "127.0.0.1:9465"
        running.enter_context(cluster)
        cluster.wait_ready()
        for port, host in zip(NODE_PORTS, stack.lab.replicas, strict=True):
            running.enter_context(Relay(stack.lab.client, port, host, 9465))
        group = Group(Netns(stack.lab.client.netns), running.enter_context(made_folder()), f"prometheus-{os.getpid()}")
        running.callback(group.stop)
        group.start("--metrics", STEER_METRICS)
        watcher = running.enter_context(Prometheus(stack.lab.client, {
            "hedgerow": ["127.0.0.1:9464"], "hedgerow-steer": [STEER_METRICS], "hedgerow-node": [f"127.0.0.1:{port}" for port in NODE_PORTS]}))
        finish_dnsperf(start_dnsperf(stack.lab.client, VIP4, seconds=2, rate=100))
        watcher.wait_for_samples()
        yield stack, product, watcher


def promtool(*words: object) -> str:
    done = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, check=False, timeout=150,
                          cwd=prometheus.RULES.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_promtool_accepts_the_rules_and_the_example():
    promtool("check", "rules", prometheus.RULES)
    promtool("check", "config", prometheus.EXAMPLE)


def test_every_alert_fires_on_its_condition_and_rests_otherwise():
    promtool("test", "rules", *prometheus.RULES_TESTS)


def test_every_alert_has_such_a_test_and_says_what_to_do():
    tests = [test for file in prometheus.RULES_TESTS for test in yaml.safe_load(file.read_text(encoding="utf-8"))["tests"]]
    fires = {name for test in tests for step in test.get("promql_expr_test", []) for sample in step["exp_samples"]
             for name in re.findall(r'alertname="(\w+)"', sample["labels"])}
    assert fires == set(prometheus.rule_expressions())
    for group in yaml.safe_load(prometheus.RULES.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("page", "warning"), rule["alert"]
            assert rule["annotations"]["summary"] and rule["annotations"]["description"], rule["alert"]


def test_a_rule_that_cannot_fire_would_be_found(tmp_path):
    """The planted fault: a name that nobody exports, in a copy of the rules."""
    text = prometheus.RULES.read_text(encoding="utf-8").replace("hedgerow_problems > 0", "hedgerow_troubles > 0")
    (tmp_path / "hedgerow.rules.yml").write_text(text, encoding="utf-8")
    tests = yaml.safe_load((prometheus.RULES.parent / "hedgerow.rules_test.yml").read_text(encoding="utf-8"))
    tests["tests"] = [test for test in tests["tests"] if test["name"].startswith("HedgerowProblem")]
    copy = tmp_path / "hedgerow.rules_test.yml"
    copy.write_text(yaml.safe_dump(tests), encoding="utf-8")
    done = subprocess.run(["promtool", "test", "rules", copy], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0 and "HedgerowProblem" in done.stdout + done.stderr


def test_nothing_fires_and_nothing_is_about_to_at_rest(observed):
    _, _, watcher = observed
    assert watcher.alerts() == {}


def missing(watcher: Prometheus, expressions: dict[str, str]) -> list[str]:
    """Series that an expression reads and nobody exports."""
    wanted = {selector: place for place, text in expressions.items() for selector in prometheus.selectors(text)}
    return [f"{place}: {selector}" for selector, place in sorted(wanted.items()) if not watcher.query(f"count({selector})")]


def test_every_metric_of_the_rules_is_exported(observed):
    _, _, watcher = observed
    assert missing(watcher, prometheus.rule_expressions()) == []
    assert missing(watcher, {"planted": "rate(hedgerow_requests_total[1m]) / hedgerow_troubles"}) == ["planted: hedgerow_troubles"]
    assert missing(watcher, {"planted": 'hedgerow_bypass{reason="x"}'}) == ['planted: hedgerow_bypass{reason="x"}']


@pytest.mark.parametrize("path", prometheus.DASHBOARDS, ids=lambda path: path.stem)
def test_every_metric_of_a_dashboard_is_exported_and_its_expressions_are_understood(observed, path):
    _, _, watcher = observed
    expressions = prometheus.dashboard_expressions(path)
    assert len(expressions) > 15
    assert missing(watcher, expressions) == []
    answered = {place for place, text in expressions.items() if watcher.query(text)}
    quiet = set(expressions) - answered
    # What is drawn only when something is wrong or seldom is empty at rest; everything else has points.
    assert len(quiet) < len(expressions) / 4, quiet


def documented() -> dict[str, str]:
    """The rows of docs/metrics.md by metric."""
    rows = {}
    for line in (PROJECT / "docs" / "metrics.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| `hedgerow_"):
            for name in re.findall(r"`(hedgerow_[a-z0-9_]+)`", line.split("|")[1]):
                assert name not in rows, f"{name} twice"
                rows[name] = line
    return rows


def exported(text: str) -> dict[str, str]:
    """Families of a page, with their types."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))


def test_the_documentation_lists_what_is_exported_and_nothing_else(observed):
    stack, product, _ = observed
    fetch = "import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1], timeout=5).read().decode())"
    families = exported(product.metrics())
    for host, listen in [(stack.lab.client, STEER_METRICS), *((replica, "127.0.0.1:9465") for replica in stack.lab.replicas)]:
        families |= exported(host.run(["/usr/bin/python3", "-c", fetch, f"http://{listen}/metrics"]).stdout)
    rows = documented()
    assert sorted(set(families) - set(rows)) == [], "exported, but not documented"
    gone = [name for name, row in rows.items() if name not in families and "absent" not in row]
    assert gone == [], "documented, but not exported"
    for name, kind in families.items():
        assert (kind == "histogram") == ("histogram" in rows[name]), rows[name]
        assert (kind == "counter") == name.endswith("_total"), name


def test_an_alert_that_is_provoked_fires_and_no_other(observed):
    stack, product, watcher = observed
    client = stack.lab.client
    before = product.status()["routes_restored"]
    client.run(["ip", "route", "del", VIP4, "dev", "hr0"])
    wait_until(lambda: product.status()["routes_restored"] > before, what="the route")
    deadline = time.monotonic() + 10
    while (alerts := watcher.alerts()) != {"HedgerowRepairs": "firing"}:
        assert time.monotonic() < deadline, (alerts, watcher.query("hedgerow_routes_restored_total"))
        time.sleep(0.3)
    assert watcher.query('ALERTS{alertname="HedgerowRepairs",alertstate="firing"}')
