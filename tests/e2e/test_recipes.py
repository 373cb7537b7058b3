# SPDX-License-Identifier: Apache-2.0
"""docs/recipes: each configuration as its page has it, between two servers of which one stalls."""

import re
import shutil

import pytest
import yaml

from harness import recipes
from harness.dns import UdpClient, dig, who_answers
from harness.product import PROJECT, RAW4, VIP4, wait_until

EAGER = {"delay": "10ms", "deadline": "5s", "budget": "100%", "suspect_min": "10s"}


def written(page: str, language: str = "yaml", number: int = 0) -> str:
    text = (PROJECT / "docs" / "recipes" / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)[number]


def up(product, page: str, number: int = 0) -> str:
    service = yaml.safe_load(written(page, number=number))["services"][0]
    product.up(services=[{**service, **EAGER}])
    return service["name"]


def hedged(product, servers, name: str) -> None:
    """The stalled leader's request was won by a hedge, and its late answer is dropped."""
    assert product.won(name) == {"b": product.figure("won_by_hedge", name)}
    assert product.figure("won_by_hedge", name) >= 1
    servers["a"].resume()
    wait_until(lambda: product.figure("losers_dropped", name) >= 1, what="the leader's late answer dropped")
    assert product.figure("not_a_reply", name) == 0


# -- SNMP ----------------------------------------------------------------------------------------------------------

SNMPD = pytest.mark.servers(a="snmpd", b="snmpd")
V2C = ["-v2c", "-c", "public"]
V3 = ["-v3", "-l", "authNoPriv", "-u", "reader", "-a", "SHA", "-A", "password-of-reader"]
SYS_NAME = ".1.3.6.1.2.1.1.5.0"


def snmp(lab, command: str, access: list[str], *words: str):
    return lab.client.run(["env", "MIBS=", command, *access, "-r", "0", "-t", "2", "-On", RAW4, *words], check=False, timeout=20)


@SNMPD
@pytest.mark.parametrize("number, access", [(0, V2C), (1, V3)], ids=["v2c", "v3"])
def test_snmpget_is_answered_by_the_standby_while_the_leader_stalls(product, servers, lab, number, access):
    name = up(product, "snmp.md", number)
    assert snmp(lab, "snmpget", access, SYS_NAME).stdout.strip().endswith('STRING: "a"')
    servers["a"].stall()
    answer = snmp(lab, "snmpget", access, SYS_NAME)
    assert answer.stdout.strip().endswith('STRING: "b"'), answer.stderr
    servers["a"].resume()
    wait_until(lambda: product.figure("losers_dropped", name) >= 1, what="the leader's late answer dropped")
    assert product.figure("won_by_hedge", name) >= 1
    assert product.figure("unknown_operation", name) == product.figure("not_a_reply", name) == 0


@SNMPD
def test_without_the_proxy_snmpget_waits_for_the_stalled_agent(servers, lab):
    """The control."""
    servers["a"].stall()
    answer = lab.client.run(["env", "MIBS=", "snmpget", *V2C, "-r", "0", "-t", "0.5", lab.replica("a").ipv4, SYS_NAME], check=False)
    assert "Timeout" in answer.stderr
    servers["a"].resume()


@SNMPD
def test_an_snmpset_is_forwarded_once(product, servers, lab):
    name = up(product, "snmp.md")
    assert snmp(lab, "snmpset", V2C, SYS_NAME, "s", "x").returncode != 0, "the community may only read"
    assert product.figure("unknown_operation", name) == 1
    assert product.figure("extra_sends", name) == 0


# -- SIP and RADIUS ------------------------------------------------------------------------------------------------


@pytest.mark.servers(a="sip", b="sip")
def test_sip_options_are_answered_by_the_standby_while_the_leader_stalls(product, servers, lab):
    name = up(product, "sip.md")
    servers["a"].stall()
    with UdpClient(lab.client, RAW4, 5060) as client:
        client.send(recipes.options("call@host", 7))
        assert b"Server: b\r\n" in client.receive()
        hedged(product, servers, name)
        client.send(recipes.options("call@host", 8).replace(b"OPTIONS", b"INVITE"))
        assert b"Server: a\r\n" in client.receive()
    assert product.figure("unknown_operation", name) == 1, "an INVITE is forwarded once"


@pytest.mark.servers(a="radius", b="radius")
@pytest.mark.parametrize("password, code", [(b"secret", recipes.ACCESS_ACCEPT), (b"wrong", recipes.ACCESS_REJECT)])
def test_radius_is_answered_by_the_standby_while_the_leader_stalls(product, servers, lab, password, code):
    name = up(product, "radius.md")
    servers["a"].stall()
    with UdpClient(lab.client, RAW4, 1812) as client:
        request = recipes.access_request(9, password)
        client.send(request)
        response = client.receive()
        assert response[0] == code and recipes.is_genuine(response, request)
        assert response.endswith(b"b"), "the standby's message"
        hedged(product, servers, name)


# -- Resolvers that forward to a VIP -------------------------------------------------------------------------------

LISTEN = "127.0.0.1"


def dnsmasq(folder):
    path = folder / "dnsmasq.conf"
    path.write_text(written("resolvers.md", "dnsmasq") + f"listen-address={LISTEN}\nbind-interfaces\nport=5301\nno-hosts\ncache-size=0\nuser=root\n"
                    f"pid-file={folder}/pid\n")
    return ["/usr/sbin/dnsmasq", "--keep-in-foreground", f"--conf-file={path}"]


def unbound(folder):
    path = folder / "unbound.conf"
    path.write_text(f"server:\n  interface: {LISTEN}\n  port: 5301\n  username: \"\"\n  chroot: \"\"\n  directory: \"{folder}\"\n  use-syslog: no\n"
                    f"  pidfile: \"{folder}/pid\"\n  do-daemonize: no\n  module-config: iterator\n  cache-max-ttl: 0\n  local-zone: \"test.\" nodefault\nremote-control:\n  control-enable: no\n"
                    + written("resolvers.md", "unbound"))
    return ["/usr/sbin/unbound", "-d", "-c", path]


def named(folder):
    path = folder / "named.conf"
    path.write_text("options {\n" + written("resolvers.md", "named") + f"listen-on port 5301 {{ {LISTEN}; }};\nlisten-on-v6 {{ none; }};\n"
                    f"directory \"{folder}\";\npid-file \"{folder}/pid\";\ndnssec-validation no;\nmax-cache-ttl 0;\nsession-keyfile \"{folder}/key\";\n"
                    "};\ncontrols { };\n")
    return ["/usr/sbin/named", "-g", "-n", "1", "-c", path]


@pytest.mark.parametrize("forwarder", [dnsmasq, unbound, named])
def test_a_forwarder_to_the_vip_answers_while_the_leader_stalls(product, servers, lab, forwarder):
    if not shutil.which(forwarder(lab.client.scratch("probe"))[0]):
        pytest.skip("this forwarder is not installed")
    folder = lab.client.scratch(f"forwarder-{forwarder.__name__}")
    child = lab.client.popen(forwarder(folder), log=folder / "log")
    try:
        # The kernel makes a key for TCP fast open when BIND or Unbound listens: before `up`, for it stays.
        wait_until(lambda: dig(lab.client, LISTEN, "example.test", "A", "-p", "5301", timeout_s=1).status, what="the forwarder", timeout_s=15)
        product.up(services=product.services("dns", **EAGER))
        wait_until(lambda: who_answers(lab.client, LISTEN, "-p", "5301") == "a", what=f"the forwarder at {VIP4}")
        servers["a"].stall()
        for number in range(3):
            answer = dig(lab.client, LISTEN, f"n{number}.example.test", "A", "-p", "5301", timeout_s=3)
            assert answer.status in ("NOERROR", "NXDOMAIN"), answer.text
        assert product.figure("won_by_hedge") >= 3
        servers["a"].resume()
        product.finish()  # while the forwarder is there, as it was before `up`
    finally:
        lab.client.stop(child)
