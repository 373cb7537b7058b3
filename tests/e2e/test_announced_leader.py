# SPDX-License-Identifier: Apache-2.0
"""A cluster announces its leader to the proxy, and its nodes name the leader when they refuse."""

import itertools

import pytest

from harness import node
from harness.dns import UdpClient
from harness.product import METRICS, RAW4, RAW6, wait_until

CLUSTER, EPOCH = 7, 3
KEY = bytes(range(100, 116))
OTHER_KEY = bytes(range(16))
FAMILIES = pytest.mark.parametrize("service", ["kv4", "kv6"], ids=["ipv4", "ipv6"])
# Tests of this file share a proxy, whose leaders only ever move to a higher term.
TERMS = itertools.count(1)

pytestmark = [pytest.mark.lab(replicas=3), pytest.mark.servers(a="node", b="node", c="node")]


class Cluster:
    """One service of the proxy, seen from a client and from the nodes."""

    def __init__(self, lab, product, service: str):
        self.lab, self.product, self.service = lab, product, service
        self.six = service.endswith("6")
        self._seqs = itertools.count(1)

    def up(self, **changes) -> None:
        """Both families' services, of one cluster, with its key in a file."""
        key_file = self.product.folder / "announce.key"
        self._write_keys(KEY)
        cluster = {"id": CLUSTER, "key_file": str(key_file), "epoch": EPOCH}
        self.product.up(metrics=METRICS, services=[{
            "name": name, "vip": vip, "port": node.PORT, "profile": "hkv", "primary": "a", "cluster": {**cluster},
            "backends": [{"name": host.name, "address": host.ipv6 if name == "kv6" else host.ipv4, "port": node.PORT,
                          "node": number} for number, host in enumerate(self.lab.replicas, 1)], **changes}
            for name, vip in (("kv4", RAW4), ("kv6", RAW6))])

    def use_keys(self, *keys: bytes) -> None:
        """From now on these are the proxy's."""
        self._write_keys(*keys)
        self.product.admin("reload")

    def _write_keys(self, *keys: bytes) -> None:
        key_file = self.product.folder / "announce.key"
        key_file.touch(mode=0o600)
        key_file.write_text("".join(f"{key.hex()}\n" for key in keys), encoding="ascii")

    def client(self) -> UdpClient:
        return UdpClient(self.lab.client, RAW6 if self.six else RAW4, node.PORT)

    def ask(self, key: bytes = b"who", timeout_s: float = 3.0) -> str:
        """Who answers."""
        with self.client() as client:
            client.send(node.get(1, next(self._seqs), key))
            status, _, value = node.answer_of(client.receive(timeout_s))
            assert status == node.OK
            return value.decode()

    def say(self, leader: str, *, key: bytes = KEY, **fields) -> bytes:
        """The announcement that this replica leads, sent by it to the proxy's host."""
        host = self.lab.replica(leader)
        fields = {"epoch": EPOCH, "term": next(TERMS), **fields}
        datagram = node.announcement(key, cluster=CLUSTER, address=host.ipv6 if self.six else host.ipv4, **fields)
        self.send(leader, datagram)
        return datagram

    def send(self, replica: str, datagram: bytes) -> None:
        proxy = self.lab.client.ipv6 if self.six else self.lab.client.ipv4
        with UdpClient(self.lab.replica(replica), proxy, node.ANNOUNCE_PORT, connected=False) as sender:
            sender.send(datagram)

    def leader(self) -> dict:
        return next(each for each in self.product.ask("leader", "show")["leaders"] if each["service"] == self.service)

    def await_leader(self, name: str) -> None:
        wait_until(lambda: self.leader()["leader"] == name, what=f"{name} as the leader")

    def figure(self, key: str) -> int:
        return self.product.figure(key, self.service)


@pytest.fixture
def cluster(lab, product, service):
    return Cluster(lab, product, service)


def test_the_key_hash_is_the_papers():
    """Appendix A of the SipHash paper: key 00..0f, message 00..0e."""
    assert node.siphash(bytes(range(16)), bytes(range(15))) == 0xA129CA6149BE45E5


@pytest.mark.own
@FAMILIES
def test_the_leader_follows_its_cluster(cluster):
    cluster.up()
    assert cluster.ask() == "a" and cluster.leader()["source"] == "configured"
    old = cluster.say("b", term=1_000, sequence=7)
    cluster.await_leader("b")
    assert cluster.ask() == "b"
    said = cluster.leader()
    assert (said["source"], said["announced"], said["resigning"]) == ("announced", "b", False)
    assert [int(said[name]) for name in ("cluster_epoch", "term", "sequence")] == [EPOCH, 1_000, 7]
    assert "announced: cluster epoch 3, term 1000, sequence 7, " in cluster.product.admin("leader", "show").stdout
    cluster.say("c", term=1_001)
    cluster.await_leader("c")
    cluster.send("b", old)
    wait_until(lambda: cluster.figure("announce_stale") == 1, what="the replay")
    assert cluster.ask() == "c"
    counted = {result: cluster.product.metric("hedgerow_announcements_total", result=result, service=cluster.service)
               for result in ("accepted", "stale")}
    assert counted == {"accepted": 2, "stale": 1}


@pytest.mark.own
@FAMILIES
def test_what_a_thief_announced_ends_with_the_key(cluster):
    cluster.up()
    cluster.say("b", term=1_000)
    cluster.await_leader("b")
    # No cluster comes so far by elections.
    cluster.say("c", term=2**64 - 1, sequence=2**64 - 1)
    wait_until(lambda: cluster.figure("announce_term") == 1, what="the refusal of that term")
    # It can have come this far, so this is believed while the key is.
    cluster.say("c", term=1_000_000, sequence=2**64 - 1)
    cluster.await_leader("c")
    cluster.use_keys(KEY, OTHER_KEY)
    cluster.say("b", term=1_001, key=OTHER_KEY)
    wait_until(lambda: cluster.figure("announce_stale") == 1, what="one order for both keys")
    cluster.use_keys(OTHER_KEY)
    cluster.say("b", term=1_002, key=OTHER_KEY)
    cluster.await_leader("b")
    cluster.say("c", term=1_000_001)
    wait_until(lambda: int(cluster.product.status()["reasons"].get("announce_tag", 0)) > 0, what="the refusal of the former key")
    assert cluster.ask() == "b"


@pytest.mark.own
@pytest.mark.parametrize("service", ["kv4"], ids=["ipv4"])
@pytest.mark.parametrize("forgets", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_cluster_set_up_anew_is_a_problem_until_its_leader_is_followed(cluster, forgets):
    cluster.up()
    cluster.say("b", term=1_000)
    cluster.await_leader("b")

    def announced(term: int) -> list[str]:
        cluster.say("c", term=term)
        return [each for each in cluster.product.status()["problems"] if each.startswith("leader_outdated: ")]

    terms = itertools.count(1)
    problems = wait_until(lambda: announced(next(terms)), timeout_s=15, what="the problem")
    assert len(problems) == 1 and cluster.service in problems[0] and "terms before 1000" in problems[0], problems
    if not forgets:
        cluster.say("c", term=1_001)
    wait_until(lambda: not announced(next(terms) if forgets else 1_001), timeout_s=30, what="the end of it")
    cluster.await_leader("c")
    wait_until(lambda: cluster.ask() == "c", what="an answer of it")  # the first request may be a standby's first one, too


@FAMILIES
def test_what_its_cluster_has_not_sealed_moves_nobody(cluster):
    cluster.up()
    cluster.say("a")
    cluster.await_leader("a")
    cluster.say("b", key=OTHER_KEY)
    cluster.say("b", epoch=EPOCH + 1)
    cluster.say("b", port=node.PORT + 1)
    reasons = wait_until(lambda: (found := cluster.product.status()["reasons"]).get("announce_endpoint") and found)
    assert {"announce_tag", "announce_epoch", "announce_endpoint"} <= reasons.keys()
    assert cluster.ask() == "a"


@FAMILIES
def test_what_waits_for_a_dead_leader_goes_to_the_new_one_at_once(cluster, servers):
    cluster.up(delay="4s", deadline="8s", suspect_min="10s")
    cluster.say("a")
    cluster.await_leader("a")
    servers["a"].stall()
    asked = cluster.figure("requests")
    with cluster.client() as client:
        client.send(node.get(1, 1_000_000, b"who"))
        wait_until(lambda: cluster.figure("requests") > asked, what="the request that waits")
        cluster.say("c")
        status, _, value = node.answer_of(client.receive(6))
        assert (status, value) == (node.OK, b"c")
        servers["a"].resume()
        assert client.receive(0.2) is None, "the former leader's answer is a loser's"
    assert cluster.figure("handed_over") == 1 and cluster.figure("won_by_failover") == 1
    assert cluster.figure("hedges") == 0, "the delay of a hedge was waited for"


@FAMILIES
def test_a_refusal_that_names_the_leader_sends_its_request_there(cluster):
    cluster.up(delay="1s", deadline="5s", suspect_min="10s")
    cluster.say("a")
    cluster.await_leader("a")
    assert cluster.ask(node.REFUSE + b"a3", timeout_s=0.5) == "c"
    assert cluster.ask(node.REFUSE + b"a2", timeout_s=0.5) == "b"
    assert cluster.figure("hinted") == 2
    assert cluster.ask() == "a", "the map is the cluster's"


@FAMILIES
def test_a_pinned_leader_stays_and_unpinning_follows_the_cluster(cluster):
    cluster.up()
    cluster.product.admin("leader", "set", cluster.service, "b")
    cluster.say("c")
    wait_until(lambda: cluster.leader()["announced"] == "c", what="the announcement")
    assert cluster.leader()["source"] == "pinned" and cluster.ask() == "b"
    cluster.product.admin("leader", "unset", cluster.service)
    assert cluster.ask() == "c"


@FAMILIES
def test_a_rotated_key_is_believed_from_the_reload_on_and_the_old_one_no_more(cluster):
    cluster.up()
    cluster.say("a")
    cluster.await_leader("a")
    key_file = cluster.product.folder / "announce.key"
    try:
        key_file.write_text(OTHER_KEY.hex() + "\n", encoding="ascii")
        reply = cluster.product.ask("reload")
        assert reply["applied"] and all("(hidden)" == change["to"] for change in reply["changes"]), reply
        assert OTHER_KEY.hex() not in str(reply)
        assert cluster.leader()["source"] == "announced", "what was announced before holds"
        before = int(cluster.product.status()["reasons"].get("announce_tag", 0))
        cluster.say("b")
        wait_until(lambda: int(cluster.product.status()["reasons"].get("announce_tag", 0)) > before, what="the refusal")
        assert cluster.ask() == "a"
        cluster.say("c", key=OTHER_KEY)
        cluster.await_leader("c")
        assert cluster.ask() == "c"
    finally:
        key_file.write_text(KEY.hex() + "\n", encoding="ascii")
        cluster.product.ask("reload")


def test_a_key_is_shown_nowhere(lab, product):
    service = {"name": "kv4", "vip": RAW4, "port": node.PORT, "profile": "hkv", "cluster": {"id": 1, "key": KEY.hex()},
               "backends": [{"name": "a", "address": lab.replica("a").ipv4, "port": node.PORT}]}
    product.up(metrics=METRICS, services=[service])
    config = product.write(product.config(services=[service]))
    shown = [product.run("plan", "--config", config, "--json").stdout, product.run("plan", "--config", config).stdout,
             product.admin("status", "--json").stdout, product.admin("leader", "show", "--json").stdout,
             product.metrics(), product.log.read_text(encoding="utf-8")]
    assert "(hidden)" in shown[0]
    assert not [text for text in shown if KEY.hex() in text.lower()]


def test_a_key_file_that_every_user_may_open_is_refused_at_its_place(lab, product):
    key_file = product.folder / "open.key"
    key_file.write_text(KEY.hex(), encoding="ascii")
    key_file.chmod(0o644)
    done = product.daemon(f"""services:
  - name: kv4
    vip: {RAW4}
    port: 4801
    profile: hkv
    cluster: {{id: 1, key_file: {key_file}}}
    backends: [{{name: a, address: {lab.replica("a").ipv4}, port: 4801}}]
""")
    assert done.returncode == 2
    assert 'hedgerow.yaml:6:32: services[0].cluster.key_file: the file "' in done.stderr
    assert "can be read by everybody (mode 0644), expected mode 0600 or 0640" in done.stderr
