# SPDX-License-Identifier: Apache-2.0
"""`hedgerow reload`: services and backends come, go and change under load and no query is lost; what cannot be applied
is refused as a whole, by its key; a dry run says the same and does nothing; a daemon that is killed in the midst is
succeeded by one that knows where it was."""

import copy
import json
import os
import random
import signal
import subprocess
import time

import pytest

from deploy.lab import VIP_RAW
from harness import machine
from harness.dns import UdpClient, dig, query, start_dnsperf, stop_dnsperf, who_answers
from harness.product import BIN, DNS4, DNS6, METRICS, VIP4, VIP6, wait_until
from test_adoption import NEXT, end, gone, pins, start

VIP_NEW = "10.99.0.77"
VIP_TAKER = "10.99.0.78"
OWN = pytest.mark.own
# Before which of its writes a daemon is killed in the midst of a reload: here some, in the long tests all. What packets
# meet at each of them: bpf/tests/reload_steps_test.cc.
KILLS = range(1, int(os.environ["HR_RELOAD_KILLS"]) + 1) if "HR_RELOAD_KILLS" in os.environ else (2, 6, 9)
STORM = int(os.environ.get("HR_RELOADS", "8"))
# A deadline, ten seconds, and the margin: then nothing in flight can know what was removed.
FORGOTTEN_WITHIN_S = 20


def service_of(config: dict, name: str = DNS4) -> dict:
    return next(service for service in config["services"] if service["name"] == name)


def reload(product, config: dict, *words: str, check: bool = True) -> dict:
    """The file says `config` from now on; what reload says of it."""
    product.write(config)
    done = product.admin("reload", "--json", *words, check=False)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return {**json.loads(done.stdout), "exit": done.returncode}


def changed(config: dict, name: str = DNS4, **settings) -> dict:
    config = copy.deepcopy(config)
    service_of(config, name).update(settings)
    return config


def without(config: dict, backend: str, **settings) -> dict:
    config = changed(config, **settings)
    service = service_of(config)
    service["backends"] = [each for each in service["backends"] if each["name"] != backend]
    return config


def with_service(config: dict, name: str, vip: str, backends: list[dict], **settings) -> dict:
    config = copy.deepcopy(config)
    config["services"].append({**copy.deepcopy(service_of(config)), "name": name, "vip": vip, "backends": backends,
                               "primary": backends[0]["name"], **settings})
    return config


def with_cluster(config: dict, lab, key: str) -> dict:
    """A service whose leader is announced under this key."""
    backends = [{"name": host.name, "address": host.ipv4, "port": 4801, "node": number}
                for number, host in enumerate(lab.replicas, 1)]
    return with_service(config, "kv", VIP_RAW[0], backends, port=4801, profile="hkv", cluster={"id": 7, "key": key})


def reload_that_fails(lab, product, config: dict, vip: str) -> None:
    """Another program's route to `vip`, which a reload to `config` adds: it is begun, and undone."""
    lab.client.run(["ip", "route", "add", f"{vip}/32", "dev", "lo"])
    try:
        product.write(config)
        done = product.admin("reload", check=False)
        assert done.returncode == 1 and vip in done.stderr, done.stderr
    finally:
        lab.client.run(["ip", "route", "del", f"{vip}/32", "dev", "lo"])
    assert product.status()["reloads"]["last_result"] == "failed" and product.status()["state"] == "running"


def delay_ms(product, name: str = DNS4) -> float:
    return int(product.service_status(name)["delay_ns"]) / 1e6


def entries(product) -> dict[str, int]:
    """How many there are in each map that grows and shrinks with the configuration."""
    def count(name: str) -> int:
        shown = subprocess.run(["bpftool", "-j", "map", "dump", "pinned", pins(product) / f"map-{name}"], check=True,
                               capture_output=True, text=True, timeout=10).stdout
        return len(json.loads(shown))

    return {name: count(name) for name in ("vips", "vip_addresses", "backend_ids", "clusters")}


@pytest.fixture(autouse=True)
def put_back(request, product):
    """What the next test of this module finds is what `up` was given."""
    yield
    if product.is_up and request.node.get_closest_marker("own") is None:
        reload(product, product._config_up)


# -- what is shown, and what is applied ---------------------------------------------------------------------------


def test_a_setting_is_shown_and_applied(lab, servers, product):
    config = product.up().config()
    wanted = changed(config, delay="300ms", budget="100%")
    preview = reload(product, wanted, "--dry-run")
    paths = {change["path"]: (change["from"], change["to"]) for change in preview["changes"]}
    assert paths == {"services[dns4].delay": ("10ms", "300ms"), "services[dns4].budget": ("5%", "100%")}
    assert preview["applied"] is False and delay_ms(product) == 10
    plan = product.run("plan", "--json", "--config", product.write(wanted, "planned.yaml"), check=True).stdout
    assert {change["path"] for change in json.loads(plan)["reload"]["changes"]} == set(paths)
    assert reload(product, wanted)["applied"] is True
    assert delay_ms(product) == 300
    servers["a"].stall()
    with UdpClient(lab.client, VIP4) as client:
        client.send(query(3, "www.example.test"))
        assert client.receive(timeout_s=0.2) is None
        assert client.receive(timeout_s=1.0) is not None
    servers["a"].resume()
    assert reload(product, wanted) == {"file": str(product.folder / "hedgerow.yaml"), "changes": [], "problems": [],
                                       "applied": False, "exit": 0}
    assert "nothing to change" in product.admin("reload", "--preview").stdout


def test_another_file_can_be_looked_at_and_not_applied(lab, servers, product):
    config = product.up().config()
    product.write(config)
    other = product.write(changed(config, delay="4ms"), "other.yaml")
    shown = product.run("reload", "--config", other, "--dry-run")
    assert shown.returncode == 0 and "services[dns4].delay: 10ms -> 4ms" in shown.stdout, shown.stdout + shown.stderr
    refused = product.run("reload", "--config", other)
    assert refused.returncode == 1 and "hedgerow.yaml" in refused.stderr and delay_ms(product) == 10


def test_what_cannot_be_applied_refuses_the_whole_and_is_named(lab, servers, product):
    config = product.up().config()
    for change, key in (({"interface": "hr7"}, "interface"), ({"limits": {"requests": 4096}}, "limits.requests"),
                        ({"clock": {"tolerance": "50ms"}}, "clock.tolerance"),
                        ({"metrics": {"listen": "127.0.0.1:0"}}, "metrics.listen")):
        reply = reload(product, {**changed(config, delay="300ms"), **change}, check=False)
        assert reply["exit"] == 1 and reply["applied"] is False
        assert [problem.split(":")[0] for problem in reply["problems"]] == [key]
        assert delay_ms(product) == 10
        done = product.admin("reload", check=False)
        assert done.returncode == 1 and key in done.stderr and "refused as a whole" in done.stderr
    assert who_answers(lab.client, VIP4) == "a"


def test_a_file_with_errors_changes_nothing(lab, servers, product):
    config = product.up().config()
    before = entries(product)
    product.write(changed(config, delay="10 parsecs"))
    done = product.admin("reload", check=False)
    assert done.returncode == 2 and "services[0].delay" in done.stderr
    assert product.status()["state"] == "running" and who_answers(lab.client, VIP4) == "a"
    assert entries(product) == before and delay_ms(product) == 10


def test_a_backend_nobody_has_a_route_to_is_refused_and_everything_stays(lab, servers, product):
    config = copy.deepcopy(product.up().config())
    service_of(config)["backends"].append({"name": "far", "address": "203.0.113.7", "port": 53})
    before = machine.take(lab.client, product.instance)
    reply = reload(product, config, check=False)
    assert reply["exit"] == 1 and "203.0.113.7" in reply["problems"][0]
    assert machine.differences(before, machine.take(lab.client, product.instance)) == []


def test_what_goes_wrong_on_the_way_is_undone_and_an_administrators_choices_hold(lab, servers, product):
    config = product.up().config()
    product.admin("drain", "b", DNS4)
    product.admin("dry-run", DNS6, "on")
    before = entries(product)
    wanted = with_service(changed(config, delay="300ms"), "new", VIP_NEW,
                          [{"name": "b", "address": lab.replica("b").ipv4, "port": 5398}])
    service_of(wanted, DNS6)["dry_run"] = "on"
    reload_that_fails(lab, product, wanted, VIP_NEW)
    assert delay_ms(product) == 10 and entries(product)["vips"] == before["vips"]
    assert [backend["name"] for backend in product.service_status()["backends"] if backend["drained"]] == ["b"]
    assert product.service_status(DNS6)["dry_run"] is True
    assert who_answers(lab.client, VIP4) == "a"
    product.admin("undrain", "b", DNS4)
    product.admin("dry-run", DNS6, "off")


@OWN
def test_a_routing_rule_goes_with_its_route_where_a_reload_is_undone(lab, servers, product):
    rules = lambda: sorted(lab.client.run(["ip", "rule", "show"]).stdout.splitlines())
    config = product.config(rule_priority=5000)
    product.up(config)
    before = rules()
    assert any(rule.startswith("5000:") for rule in before)
    wanted = config
    for name, vip, port in (("first", VIP_NEW, 5398), ("second", VIP_TAKER, 5399)):
        wanted = with_service(wanted, name, vip, [{"name": "b", "address": lab.replica("b").ipv4, "port": port}])
    reload_that_fails(lab, product, wanted, VIP_TAKER)
    assert rules() == before


@OWN
def test_what_came_of_reloads_shows_in_status_and_metrics(lab, servers, product):
    config = product.up(metrics=METRICS).config(metrics=METRICS)
    first = product.status()["reloads"]
    assert first["last_result"] == "" and product.metric("hedgerow_config_last_reload_successful") == 1
    since = product.metric("hedgerow_config_last_reload_success_timestamp_seconds")
    assert abs(since - time.time()) < 60
    reload(product, changed(config, delay="4ms"))
    applied = product.status()["reloads"]
    assert applied["last_result"] == "applied" and applied["config_hash"] != first["config_hash"]
    assert product.metric("hedgerow_config_info", hash=applied["config_hash"]) == 1
    assert product.metric("hedgerow_config_last_reload_success_timestamp_seconds") > since
    reload(product, {**config, "interface": "hr7"}, check=False)
    refused = product.status()["reloads"]
    assert refused["last_result"] == "refused" and "interface" in refused["last_problems"][0]
    assert refused["config_hash"] == applied["config_hash"]
    assert product.metric("hedgerow_config_last_reload_successful") == 0
    assert "last reload  refused" in product.admin("status").stdout
    product.write("services: 7")
    product.admin("reload", check=False)
    reload(product, config)
    counted = {result: product.metric("hedgerow_reloads_total", result=result)
               for result in ("applied", "unchanged", "invalid", "refused", "failed")}
    assert counted == {"applied": 2, "unchanged": 0, "invalid": 1, "refused": 1, "failed": 0}
    assert product.status()["reloads"]["config_hash"] == first["config_hash"]
    assert product.metric("hedgerow_config_last_reload_successful") == 1


def test_sighup_reloads(lab, servers, product):
    config = product.up().config()
    product.write(changed(config, primary="b"))
    os.kill(product.pid, signal.SIGHUP)
    wait_until(lambda: who_answers(lab.client, VIP4) == "b", what="the other primary")
    product.write(changed(config, delay="10 parsecs"))
    os.kill(product.pid, signal.SIGHUP)
    wait_until(lambda: "not reloaded" in product.log.read_text(), what="the refusal")
    assert dig(lab.client, VIP4, "www.example.test").status == "NOERROR"
    assert product.status()["reloads"]["last_result"] == "invalid"


# -- without loss -------------------------------------------------------------------------------------------------


@OWN
@pytest.mark.lab(replicas=3)
@pytest.mark.servers(a="nsd", b="knot", c="nsd")
def test_backends_and_services_come_and_go_under_5000_queries_a_second_and_none_is_lost(lab, servers, product):
    whole = with_cluster(product.config(), lab, "00" * 15 + "01")
    product.up(without(whole, "c"))
    loads = [start_dnsperf(lab.client, vip, seconds=60, rate=2500) for vip in (VIP4, VIP6)]
    time.sleep(0.5)
    new = [{"name": "c", "address": lab.replica("c").ipv4, "port": 5300}]
    rotated = copy.deepcopy(whole)
    service_of(rotated, "kv")["cluster"]["key"] = "00" * 15 + "02"
    steps = [whole, changed(whole, delay="3ms", attempts=3, budget="20%"), with_service(whole, "new", VIP_NEW, new),
             without(whole, "a", primary="b"), whole, rotated, without(rotated, "b"), changed(rotated, primary="c"),
             {**rotated, "unattended_timeout": "30s"}, without(rotated, "c")]
    for step in steps:
        assert reload(product, step)["applied"] is True
        time.sleep(0.3)
    reports = [stop_dnsperf(load) for load in loads]
    assert [report.lost for report in reports] == [0, 0], reports[0].text + reports[1].text
    for service, report in zip((DNS4, DNS6), reports, strict=True):
        assert report.sent > 5_000
        assert product.figure("requests", service) == report.sent
    assert int(product.status()["reloads"]["applied"]) == len(steps)


@OWN
@pytest.mark.lab(replicas=3)
@pytest.mark.servers(a="nsd", b="knot", c="nsd")
def test_a_removed_leader_answers_what_it_was_asked_and_nothing_more(lab, servers, product):
    whole = product.config()
    product.up(whole)
    servers["a"].stall()
    with UdpClient(lab.client, VIP4) as client:
        product.admin("bypass", DNS4, "on")  # nobody else is to answer
        client.send(query(3, "www.example.test"))
        assert client.receive(timeout_s=0.2) is None
        reload(product, without(whole, "a", primary="b"))
        assert who_answers(lab.client, VIP4) == "b"
        servers["a"].resume()
        assert client.receive(timeout_s=2) is not None
    assert [backend["name"] for backend in product.service_status()["backends"]] == ["b", "c"]


def test_a_request_that_waits_is_hedged_by_whom_a_reload_has_added(lab, servers, product):
    """Parked under one configuration, sent on under the next."""
    parked = without(product.config(), "b", delay="1s", deadline="20s", budget="100%")
    service_of(parked)["backends"].append({"name": "late", "address": lab.replica("b").ipv4, "port": 5399})
    product.up()
    reload(product, parked)
    servers["a"].stall()
    with UdpClient(lab.client, VIP4) as client:
        client.send(query(7, "www.example.test"))
        reload(product, changed(product.config(), delay="1s", deadline="20s", budget="100%"))
        assert client.receive(timeout_s=5) is not None
        servers["a"].resume()
        assert client.receive(timeout_s=0.5) is None  # the loser's
    assert product.figure("won_by_hedge") + product.figure("won_by_failover") == 1


def anything(config: dict, lab, draw: random.Random) -> dict:
    """Some configuration that this one may be reloaded to, or refused in favour of."""
    config = copy.deepcopy(config)
    service = service_of(config)
    service["backends"] = draw.sample(service["backends"], draw.randint(1, len(service["backends"])))
    service["primary"] = draw.choice(service["backends"])["name"]
    service.update(delay=draw.choice(["2ms", "10ms", "40ms"]), attempts=draw.randint(1, 4),
                   budget=draw.choice(["5%", "100%"]), dry_run=draw.choice(["on", "off"]))
    if draw.random() < 0.5:
        port = draw.choice([5300, 5301])
        config = with_service(config, draw.choice(["new", "newer"]), VIP_NEW,
                              [{"name": "c", "address": lab.replica("c").ipv4, "port": port}])
    cluster = service_of(config, "kv")
    if draw.random() < 0.5:
        config["services"].remove(cluster)
    else:
        cluster["cluster"]["key"] = f"{draw.randint(1, 99):032d}"
    return config


@OWN
@pytest.mark.lab(replicas=3)
@pytest.mark.servers(a="nsd", b="knot", c="nsd")
def test_many_reloads_in_a_row_lose_nothing_and_leave_nothing_behind(lab, servers, product):
    config = with_cluster(product.config(), lab, "00" * 15 + "01")  # announcements are awaited from the start
    product.up(config)
    before, seed = entries(product), time.time_ns()
    draw = random.Random(seed)
    load = start_dnsperf(lab.client, VIP4, seconds=20 + 2 * STORM, rate=2000)
    results = [reload(product, anything(config, lab, draw), check=False) for _ in range(STORM)]
    reload(product, config)
    unexpected = [problem for result in results for problem in result["problems"] if "may still answer" not in problem]
    assert unexpected == [], f"seed {seed}"
    assert sum(result["applied"] for result in results) >= STORM // 3, f"seed {seed}"
    time.sleep(0.5)  # a quick machine is done in less, and what the last one removed is asked for once more
    report = stop_dnsperf(load)
    assert report.lost == 0 and report.sent > 1000, f"seed {seed}\n{report.text}"
    if "HR_RELOADS" in os.environ:  # else the next test waits for that
        wait_until(lambda: entries(product) == before, timeout_s=FORGOTTEN_WITHIN_S, what="the maps as they were")


@OWN
def test_what_was_removed_is_forgotten_with_its_uplink_when_nothing_in_flight_knows_it(lab, servers, product):
    """One test for both: the wait is the long part."""
    config = product.up().config()

    def descriptors() -> int:
        return len(os.listdir(f"/proc/{product.pid}/fd"))

    before, files = entries(product), descriptors()
    lab.client.run(["ip", "link", "add", "hrfar0", "type", "veth", "peer", "name", "hrfar1"])
    try:
        lab.client.run(["ip", "address", "add", "10.88.0.1/24", "dev", "hrfar0"])
        lab.client.run(["ip", "link", "set", "hrfar0", "up"])
        extra = with_service(config, "extra", "fd99::77", [{"name": "x", "address": lab.replica("a").ipv6, "port": 5399}])
        reload(product, with_service(extra, "far", VIP_NEW, [{"name": "far", "address": "10.88.0.9", "port": 53}]))
        assert "hrfar0" in [uplink["name"] for uplink in product.status()["uplinks"]]
        assert "fd99::77" in lab.client.run(["ip", "-6", "route", "show", "dev", "hr0"]).stdout
        assert lab.client.run(["ping", "-c", "1", "-W", "1", "fd99::77"], check=False).returncode == 0
        reload(product, without(config, "b"))
    finally:
        lab.client.run(["ip", "link", "del", "hrfar0"])  # while its backend may still answer
    assert [service["name"] for service in product.status()["services"]] == [DNS4, DNS6]
    # Its address may not be another's before that.
    moved = with_service(without(config, "b"), "taker", VIP_TAKER,
                         [{"name": "b", "address": lab.replica("b").ipv4, "port": 53}])
    refused = reload(product, moved, check=False)
    assert refused["exit"] == 1 and "was service dns4's" in refused["problems"][0]
    reload(product, config)  # in time: the same as ever
    wait_until(lambda: "fd99::77" not in lab.client.run(["ip", "-6", "route", "show", "dev", "hr0"]).stdout,
               timeout_s=FORGOTTEN_WITHIN_S, what="the route's end")
    assert lab.client.run(["ping", "-c", "1", "-W", "1", "fd99::77"], check=False).returncode != 0
    wait_until(lambda: entries(product) == before, timeout_s=FORGOTTEN_WITHIN_S, what="the maps as they were")
    wait_until(lambda: descriptors() <= files, timeout_s=FORGOTTEN_WITHIN_S, what="as many open files as before")
    said = product.log.read_text(encoding="utf-8")
    time.sleep(1.5)
    assert product.log.read_text(encoding="utf-8") == said, "nothing is tried every second any more"
    assert product.status()["state"] == "running"


# -- and the daemon's end -----------------------------------------------------------------------------------------


@OWN
def test_what_was_reloaded_is_what_the_next_daemon_takes_over(lab, servers, product):
    config = product.up().config()
    reload(product, without(config, "a", primary="b"))
    end(product, signal.SIGKILL)
    product._config_up = without(config, "a", primary="b")
    assert start(product, NEXT)["how"] == "upgraded"
    assert who_answers(lab.client, VIP4) == "b"
    assert [backend["name"] for backend in product.service_status()["backends"]] == ["b"]
    assert reload(product, config)["applied"] is True  # by a daemon that adopted it
    assert who_answers(lab.client, VIP4) == "a"
    end(product, signal.SIGTERM)
    product._config_up = config
    assert start(product, NEXT)["how"] == "adopted"
    assert who_answers(lab.client, VIP4) == "a"


@OWN
def test_a_restart_with_a_configuration_that_can_be_applied_takes_over_and_applies_it(lab, servers, product):
    config = product.up().config()
    assert who_answers(lab.client, VIP4) == "a"
    end(product, signal.SIGTERM)
    product._config_up = changed(config, primary="b", delay="300ms")
    assert start(product)["how"] == "adopted"
    assert who_answers(lab.client, VIP4) == "b" and product.figure("requests") == 2
    assert delay_ms(product) == 300


@OWN
def test_a_restart_with_what_a_reload_would_refuse_for_a_while_begins_anew(lab, servers, product):
    config = product.up().config()
    end(product, signal.SIGTERM)
    moved = [{"name": "b", "address": lab.replica("b").ipv4, "port": 53}]
    product._config_up = with_service(without(config, "b"), "taker", VIP_NEW, moved)
    assert start(product)["how"] == "made"
    assert who_answers(lab.client, VIP_NEW) == "b" and who_answers(lab.client, VIP4) == "a"
    assert "was service dns4's" in product.log.read_text()


@OWN
@pytest.mark.lab(replicas=3)
@pytest.mark.servers(a="nsd", b="knot", c="nsd")
def test_a_daemon_killed_in_the_midst_of_a_reload_leaves_what_the_next_one_puts_right(lab, servers, product):
    """At each of its writes to the kernel's maps there is a state in between; traffic meets it until the next daemon."""
    config = product.config()
    old = with_cluster(without(config, "c"), lab, "00" * 15 + "01")
    product.up(old)
    before = entries(product)
    wanted = without(config, "a", primary="b", delay="3ms", dry_run="on")
    new = [{"name": "c", "address": lab.replica("c").ipv4, "port": 5300}]
    wanted = with_service(wanted, "new", VIP_NEW, new)
    at = product.folder / "die-at"
    dying = ("env", f"LD_PRELOAD={BIN / 'hr-die.so'}", f"HEDGEROW_LAB_DIE_AT={at}")

    def die_at(number: int) -> bool:
        """Was the daemon killed before its write of this number?"""
        end(product, signal.SIGKILL)
        start(product, wrapper=dying)
        pid = product.pid
        at.write_text(f"{number}\n", encoding="ascii")
        product.write(wanted)
        done = product.admin("reload", check=False)
        at.unlink()
        if done.returncode == 0:
            return False
        wait_until(lambda: gone(pid), what=f"the daemon's end at write {number}: {done.stderr}")
        return True

    load = start_dnsperf(lab.client, VIP4, seconds=20 + 15 * len(KILLS), rate=1000)
    killed, begun = [], time.monotonic()
    for number in KILLS:
        if not die_at(number):
            break
        killed.append(number)
        assert start(product)["how"] == "adopted"  # with the configuration of before
        assert delay_ms(product) == 10 and product.service_status()["dry_run"] is False, number
        assert [backend["name"] for backend in product.service_status()["backends"]] == ["a", "b"], number
        assert product.service_status()["leader"] == "a" and who_answers(lab.client, VIP4) == "a", number
        found = entries(product)
        assert found["vips"] == before["vips"] and found["clusters"] == before["clusters"], number
        assert "in the midst of a reload" in product.log.read_text()
    assert len(killed) >= 3, f"killed at {killed} only"
    lasted_s = time.monotonic() - begun  # a quick machine is done within a second
    report = stop_dnsperf(load)
    assert report.lost == 0 and report.sent > 500 * lasted_s, report.text
    reload(product, old)
    assert reload(product, wanted)["applied"] is True
    assert who_answers(lab.client, VIP4) == "b"
