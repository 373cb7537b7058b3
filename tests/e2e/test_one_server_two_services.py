# SPDX-License-Identifier: Apache-2.0
"""A server of two services: what `validate` proposes, an instance for each, serves, hedges and fails over in both."""

import contextlib

import pytest

from harness.dns import finish_dnsperf, start_dnsperf
from harness.product import DNS4, VIP4, Product, wait_until

OTHER_VIP = "10.99.0.54"
pytestmark = pytest.mark.servers(a="nsd", b="nsd")


@pytest.fixture
def beside(lab, product):
    """The second instance, with a folder of its own."""
    made = Product(lab, f"{product.instance}b")
    made.folder = lab.client.scratch("hedgerow-beside")
    made.socket, made.log = made.folder / "admin.sock", made.folder / "hedgerowd.log"
    yield made
    if made.is_up:
        with contextlib.suppress(Exception):
            made.down()
    made.sweep()


def test_in_one_file_it_is_refused_with_the_way_on(lab, servers, product):
    services = [product.service(DNS4), product.service(DNS4, vip=OTHER_VIP)]
    services[1]["name"] = "second"
    done = product.run("validate", "--config", product.write(product.config(services=services)))
    assert done.returncode == 2 and "an instance of its own" in done.stdout + done.stderr, done.stdout + done.stderr


def test_an_instance_for_each_serves_hedges_and_fails_over(lab, servers, product, beside):
    product.up(services=[product.service(DNS4)])
    beside.up(interface="hr1", services=[{**beside.service(DNS4, vip=OTHER_VIP), "primary": "b"}])
    for vip in (VIP4, OTHER_VIP):  # the same server by both, over TCP too, and answers come from the VIP that was asked
        said = lab.client.run(["dig", f"@{vip}", "+tcp", "+short", "+tries=1", "www.example.test"]).stdout
        assert said.strip() == "192.0.2.1", vip
    loads = [start_dnsperf(lab.client, vip, seconds=4, rate=300) for vip in (VIP4, OTHER_VIP)]
    wait_until(lambda: product.figure("requests") > 300, 20, "the load")
    servers["a"].stall()
    wait_until(lambda: product.figure("requests") > 800, 20, "the load")
    servers["a"].resume()
    for load in loads:
        report = finish_dnsperf(load)
        assert report.lost == 0 and report.sent > 1000, report.text
    assert product.won(DNS4)["b"] > 0, "while its leader stood"
    assert beside.won(DNS4)["b"] > 900 and beside.figure("hedges") < 300, "whose leader is the other server"
    for each in (product, beside):
        assert each.figure("requests") > 1000
        each.check_identity()
    beside.down()
    assert finish_dnsperf(start_dnsperf(lab.client, VIP4, seconds=0.5, rate=200)).lost == 0, "what is left"
    product.finish()


ASK_BOTH = """
import socket, struct, sys
asking, wrong = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), []
asking.settimeout(10)
for number in range(100):
    vip = sys.argv[1 + number % 2]
    asking.sendto(struct.pack("!6H", 1000 + number, 0x100, 1, 0, 0, 0) + b"\\3www\\7example\\4test\\0" + struct.pack("!HH", 1, 1), (vip, 53))
    answer, sender = asking.recvfrom(4096)
    if sender[0] != vip or answer[:2] != struct.pack("!H", 1000 + number):
        wrong.append(number)
print(wrong)
"""


def test_one_socket_that_asks_both_hears_from_whom_it_asked(lab, servers, product, beside):
    product.up(services=[product.service(DNS4)])
    beside.up(interface="hr1", services=[beside.service(DNS4, vip=OTHER_VIP)])
    assert lab.client.run(["/usr/bin/python3", "-c", ASK_BOTH, VIP4, OTHER_VIP]).stdout.strip() == "[]"
    beside.down()
    product.finish()
