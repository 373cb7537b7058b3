# SPDX-License-Identifier: Apache-2.0
"""`hedgerow check` with nsd: everything well, a dead standby, a stopped and a dead leader, no backend, a dead daemon."""

import json
import os
import signal

import pytest

from deploy.lab.cluster import hedgerow_cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.servers.hedgerow_node import NodeSettings
from harness.dns import UdpClient
from harness.product import DNS4, RAW4, VIP4, VIP6, answer_every_port_unreachable, wait_until

pytestmark = pytest.mark.servers(a="nsd", b="nsd")


def check(product, *words: str) -> tuple[int, dict]:
    done = product.run("check", *words, "--socket", product.socket, "--json")
    return done.returncode, json.loads(done.stdout)


def first_line(product, *words: str) -> str:
    return product.run("check", *words, "--socket", product.socket).stdout.splitlines()[0]


def results(service: dict) -> tuple[str, dict[str, str]]:
    return service["proxied"]["result"], {each["name"]: each["direct"]["result"] for each in service["backends"]}


def test_all_is_well_on_both_families(lab, servers, proxy):
    code, report = check(proxy)
    assert code == 0 and report["ok"], report
    for service in report["services"]:
        assert results(service) == ("answers", {"a": "answers", "b": "answers"})
        assert 0 < service["proxied"]["answer_ns"] < 1e9 and service["hedged"]
    for service in report["services"]:
        assert service["hedge"]["ok"] and service["hedge"]["answer_ns"] >= 10e6, service  # after the delay
    assert first_line(proxy) == "all 2 services that were checked work"
    for word in (DNS4, VIP4, f"{VIP4}:53"):
        assert first_line(proxy, word) == "dns4: works"
    assert first_line(proxy, f"[{VIP6}]:53") == "dns6: works"
    elsewhere = proxy.run("check", f"{VIP4}:54", "--socket", proxy.socket)
    assert elsewhere.returncode == 1 and "there are: dns4, dns6" in elsewhere.stderr
    # What it asked went the way of any request, and what it asked directly went past the proxy.
    assert proxy.figure("requests") == 10 and proxy.figure("passed_through") == 0
    assert proxy.service_status()["backends"][0]["last_answer_age_ns"] > 0


def test_a_dead_standby_is_named(lab, servers, proxy):
    answer_every_port_unreachable(lab.replica("b"))
    servers["b"].kill()
    code, report = check(proxy, DNS4)
    assert code == 1
    assert results(report["services"][0]) == ("answers", {"a": "answers", "b": "refused"})
    assert first_line(proxy, DNS4) == "dns4: works, but the standby b fails"
    assert "no process has this port" in proxy.run("check", DNS4, "--socket", proxy.socket).stdout


def test_a_stopped_leader_is_silent_and_the_vip_answers(lab, servers, proxy):
    servers["a"].stall()
    code, report = check(proxy, DNS4, "--timeout", "300ms")
    servers["a"].resume()
    assert code == 1
    assert results(report["services"][0]) == ("answers", {"a": "silent", "b": "answers"})
    assert report["services"][0]["verdict"] == "dns4: works, but the leader a fails"


def test_a_dead_leader_and_then_no_backend_at_all(lab, servers, proxy):
    answer_every_port_unreachable(*lab.replicas)
    servers["a"].kill()
    code, report = check(proxy, DNS4)
    assert code == 1
    assert results(report["services"][0]) == ("answers", {"a": "refused", "b": "answers"})
    servers["b"].kill()
    code, report = check(proxy, DNS4, "--timeout", "300ms")
    assert code == 1
    proxied, direct = results(report["services"][0])
    assert proxied in ("refused", "silent") and direct == {"a": "refused", "b": "refused"}
    assert report["services"][0]["verdict"] == "dns4: DOES NOT WORK: no backend answers"
    wait_until(lambda: first_line(proxy, DNS4, "--timeout", "50ms").startswith("dns4: DOES NOT WORK"), what="the verdict")


def test_without_the_daemon_the_kernel_part_answers_and_then_nothing_does(lab, servers, product):
    """The profile comes from the file, so no process is asked. A user without rights may do it, too."""
    proxy = product.up()
    file = str(proxy.folder / "hedgerow.yaml")
    pid = proxy.pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), what="the daemon's end")
    alone = proxy.run("check", "--socket", proxy.socket)
    assert alone.returncode == 3 and "`--config FILE` names the services" in alone.stderr
    done = proxy.run("check", DNS4, "--config", file)
    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == "dns4: works, but hedgerowd does not run"
    proxy.clean()
    gone = proxy.run("check", DNS4, "--config", file, "--timeout", "100ms")
    assert gone.returncode == 1
    assert gone.stdout.splitlines()[0] == ("dns4: DOES NOT WORK: the VIP fails, although every backend answers directly; "
                                           "hedgerowd does not run")
    proxy.is_up = False
    proxy.check_nothing_left()


@pytest.mark.servers()
def test_a_profile_without_a_harmless_request_wants_a_payload(lab, product):
    proxy = product.up(services=product.services("raw"))
    done = proxy.run("check", "raw4", "--socket", proxy.socket)
    assert done.returncode == 2 and "the profile raw names no harmless request; its key `check` can" in done.stderr
    asked = proxy.run("check", "raw4", "--payload", "0a1f", "--timeout", "50ms", "--socket", proxy.socket)
    assert asked.returncode == 1 and asked.stdout.startswith("raw4: DOES NOT WORK")
    with_check = [{**service, "raw": {**service["raw"], "check": {"bytes": "00"}}} for service in product.services("raw")]
    named = product.up(services=with_check).run("check", "raw4", "--timeout", "50ms", "--socket", proxy.socket)
    assert named.returncode == 1 and named.stdout.startswith("raw4: DOES NOT WORK")


@pytest.mark.parametrize("profile, port", [
    pytest.param("memcached", 11211, marks=pytest.mark.servers(a="memcached", b="memcached")),
    pytest.param("stun", 3478, marks=pytest.mark.servers(a="turnserver", b="turnserver"))])
def test_servers_of_other_protocols_answer_their_profiles_request(lab, servers, product, profile, port):
    service = {**product.service("raw4", port=port, profile=profile), "name": profile}
    service.pop("raw")
    for backend in service["backends"]:
        backend["port"] = port
    proxy = product.up(services=[service])
    done = proxy.run("check", profile, "--socket", proxy.socket)
    assert done.returncode == 0 and done.stdout.splitlines()[0] == f"{profile}: works", done.stdout


@pytest.mark.lab(replicas=3)
@pytest.mark.servers()
def test_a_cluster_answers_while_it_has_a_majority(lab, servers, product):
    with DataDirs(product.instance, "memory") as data, hedgerow_cluster(lab, data.path, NodeSettings(memcached=())) as cluster:
        cluster.wait_ready()
        backends = [{"name": host.name, "address": host.ipv4, "port": node.port, "node": number}
                    for number, (host, node) in enumerate(zip(lab.replicas, cluster.nodes, strict=True), 1)]
        proxy = product.up(services=[{"name": "kv4", "vip": RAW4, "port": 4800, "profile": "hkv", "backends": backends}])
        code, report = check(proxy, "kv4")
        assert code == 0, report
        assert results(report["services"][0]) == ("answers", {"a": "answers", "b": "answers", "c": "answers"})
        for node in cluster.nodes[1:]:  # without a majority no node leads, and no read is answered
            node.kill()

        def without_leader() -> bool:
            code, report = check(proxy, "kv4", "--timeout", "200ms")
            return code == 1 and report["services"][0]["verdict"].startswith("kv4: DOES NOT WORK")

        wait_until(without_leader, timeout_s=10, what="the verdict")


def test_a_standby_that_never_answered_is_found_before_a_hedge_needs_it(lab, servers, product):
    """Its port is refused, and no request is ever late."""
    service = product.service("dns4", primary="a", delay="500ms", backends=[
        {"name": "a", "address": lab.replica("a").ipv4, "port": 53}, {"name": "b", "address": lab.replica("b").ipv4, "port": 5399}])
    product.up(services=[service])
    with UdpClient(lab.client, VIP4) as client:
        def found() -> bool:
            assert client.ask(7, "www.example.test", timeout_s=1) is not None
            return any("standby b down" in each for each in product.status()["problems"])

        assert not found()
        wait_until(found, 20, "the problem")
    assert product.figure("hedges", "dns4") == 0
