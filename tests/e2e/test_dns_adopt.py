# SPDX-License-Identifier: Apache-2.0
"""`hedgerow dns adopt` and `release`: a host's resolver is hedged without a change of its files. Each command has a resolv.conf of its own, in a
mount namespace."""

import json
import shutil

import pytest

from harness.containers import rules
from harness.dns import who_answers
from harness.other_users import open_folder
from harness.product import BIN, wait_until

pytestmark = pytest.mark.own
GLIBC_WAITS_S = 4.9  # 5 s for a server that does not answer, before it asks the next one
RESOLV = 'mount --bind "$0" /etc/resolv.conf; exec "$@"'
STUB = ('mount --bind "$0" /etc/resolv.conf; text=$(cat "$2"); mount -t tmpfs none /run; mkdir -p "$(dirname "$1")"; '
        'printf "%s\\n" "$text" > "$1"; shift 2; exec "$@"')

# Asks for so many names, one after the other, and says how long the longest and the median took and how many failed.
LOOP = """
import json, subprocess, sys, time
took, failed = [], 0
for _ in range(int(sys.argv[1])):
    begin = time.monotonic()
    done = subprocess.run(["getent", "-s", "dns", "hosts", "n%d.example.test" % (len(took) % 100)], stdout=subprocess.PIPE, check=False)
    took.append(time.monotonic() - begin)
    failed += done.returncode != 0 or b"198.51.100." not in done.stdout
print(json.dumps({"asked": len(took), "failed": failed, "worst_s": round(max(took), 4), "median_s": round(sorted(took)[len(took) // 2], 4)}))
"""

# Asks this host's server, and takes its time.
SLOW = """
import socket, sys, threading, time
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("", 5300))
def serve(query, client):
    time.sleep(1.5)
    asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asking.sendto(query, (sys.argv[1], 53))
    server.sendto(asking.recv(4096), client)
while True:
    threading.Thread(target=serve, args=server.recvfrom(4096), daemon=True).start()
"""


class Adopted:
    """A host with a resolv.conf, and the command on it."""

    def __init__(self, lab, product, text: str):
        self.lab, self.product = lab, product
        self.resolv = product.folder / "resolv.conf"
        self.resolv.write_bytes(text.encode())
        self.file = product.folder / "adopted.yaml"
        self.socket = f"/run/hedgerow/{product.instance}.sock"

    def inside(self, *words, check=True, timeout=40.0, stub: tuple[str, object] | None = None):
        script = [RESOLV] if stub is None else [STUB]
        extra = [] if stub is None else [stub[0], stub[1]]
        return self.lab.client.run(["unshare", "-m", "sh", "-c", *script, self.resolv, *extra, *words], check=check, timeout=timeout)

    def dns(self, verb: str, *options: str, check=True, **more):
        own = ["--config", self.file] + (["--instance", self.product.instance] if verb == "adopt" else [])
        return self.inside(BIN / "hedgerow", "dns", verb, *options, *own, check=check, **more)

    def plan(self, *options: str, **more) -> dict:
        return json.loads(self.dns("adopt", "--dry-run", "--json", *options, **more).stdout)

    def asks(self, number: int) -> dict:
        return json.loads(self.inside("/usr/bin/python3", "-c", LOOP, str(number), timeout=300).stdout)


@pytest.fixture
def host(lab, servers, product):
    machines = []

    def make(text: str | None = None):
        lines = "".join(f"nameserver {each.ipv4}\n" for each in lab.replicas)
        machines.append(Adopted(lab, product, f"search example.test\n{lines}options edns0 trust-ad\n" if text is None else text))
        return machines[-1]

    yield make
    for each in machines:
        if each.file.exists():
            each.dns("release", check=False)
        lab.client.run(["rm", "-f", f"/var/log/hedgerow/{product.instance}.log", each.socket])


def test_a_stopped_server_fails_no_lookup_and_release_gives_everything_back(lab, servers, product, host):
    adopted = host()
    before = adopted.resolv.read_bytes()
    servers["a"].stall()
    assert adopted.asks(1)["worst_s"] >= GLIBC_WAITS_S, "the control"
    servers["a"].resume()
    plan = adopted.plan()
    assert plan["servers"] == [each.ipv4 for each in lab.replicas] and plan["differences"] == []
    assert not adopted.file.exists(), "a dry run writes nothing"
    adopted.dns("adopt")
    assert adopted.asks(20)["failed"] == 0
    servers["a"].stall()
    done = adopted.asks(50)
    print(done)
    servers["a"].resume()
    assert done["failed"] == 0 and done["worst_s"] < GLIBC_WAITS_S and done["median_s"] < 0.5, done
    status = json.loads(lab.client.run([BIN / "hedgerow", "status", "--json", "--socket", adopted.socket]).stdout)
    assert int(status["services"][0]["requests"]) >= done["asked"], "the proxy has served them"
    assert "serves" in adopted.dns("adopt").stdout, "again, as after a change of DHCP"
    adopted.dns("release")
    assert adopted.resolv.read_bytes() == before and not adopted.file.exists()
    assert "hedgerow" not in lab.client.run(["nft", "list", "tables"]).stdout
    assert lab.client.run(["ip", "link", "show", "hr0"], check=False).returncode != 0
    assert who_answers(lab.client, lab.replica("a").ipv4) == "a"
    assert "nothing is adopted" in adopted.dns("release").stdout


def test_servers_that_answer_differently_are_refused_but_for_same_answers(lab, servers, product, host):
    adopted = host()
    b = lab.replica("b")
    servers["b"].kill()
    other = b.popen(["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=53", "--no-resolv", "--no-hosts", "--user=root",
                     "--address=/www.example.test/192.0.2.99", "--pid-file="])
    try:
        wait_until(lambda: ":53 " in b.run(["ss", "-lnu"]).stdout, what="the other server")
        refused = adopted.dns("adopt", "--names", "www.example.test", check=False)
        assert refused.returncode == 1 and not adopted.file.exists()
        assert f"www.example.test: {lab.replica('a').ipv4} says 192.0.2.1; {b.ipv4} says 192.0.2.99" in refused.stderr
        assert len(adopted.plan("--names", "www.example.test", "--same-answers")["differences"]) >= 1
    finally:
        b.stop(other)


def test_a_silent_server_is_named(lab, servers, product, host):
    adopted = host()
    servers["b"].stall()
    refused = adopted.dns("adopt", "--dry-run", check=False)
    servers["b"].resume()
    assert refused.returncode == 1 and f"{lab.replica('b').ipv4} does not answer" in refused.stderr
    assert "not every server answers, though asked twice" in refused.stderr and "split DNS" not in refused.stderr


def test_a_slow_first_answer_is_waited_for(lab, servers, product, host):
    """As of a resolver that has nothing in its cache yet."""
    adopted, b = host(), lab.replica("b")
    with rules(b, "table ip slow {\n chain pre { type nat hook prerouting priority dstnat;\n udp dport 53 redirect to :5300\n }\n}"):
        slow = b.popen(["/usr/bin/python3", "-c", SLOW, b.ipv4])
        try:
            wait_until(lambda: ":5300 " in b.run(["ss", "-lnu"]).stdout, what="the slow server")
            assert adopted.plan()["differences"] == []
        finally:
            b.stop(slow)


def test_a_daemon_that_serves_another_file_is_named_and_stays(lab, servers, product, host):
    adopted = host()
    text = adopted.plan()["config"]
    other = product.folder / "other.yaml"
    other.write_text(text.split("\n", 1)[1], encoding="utf-8")
    lab.client.run([BIN / "hedgerow", "up", "--config", other])
    try:
        refused = adopted.dns("adopt", check=False)
        assert refused.returncode == 1 and f"serves {other}" in refused.stderr and not adopted.file.exists()
        adopted.file.write_text(text, encoding="utf-8")
        refused = adopted.dns("release", check=False)
        assert refused.returncode == 1 and f"serves {other}" in refused.stderr and adopted.file.exists()
        assert lab.client.run([BIN / "hedgerow", "status", "--socket", adopted.socket]).returncode == 0
    finally:
        lab.client.run([BIN / "hedgerow", "down", "--socket", adopted.socket], check=False)
        adopted.file.unlink(missing_ok=True)


def test_a_file_that_cannot_be_read_is_no_missing_one_and_planted_links_are_not_followed(lab, servers, product, host):
    adopted = host()
    adopted.file.mkdir()
    for verb in ("adopt", "release"):
        refused = adopted.dns(verb, check=False)
        assert refused.returncode == 1 and f"{adopted.file} is a directory" in refused.stderr, refused
    adopted.file.rmdir()
    with open_folder() as folder:
        program, closed = folder / "hedgerow", folder / "adopted.yaml"
        shutil.copy2(BIN / "hedgerow", program)
        closed.touch(mode=0o600)
        refused = lab.client.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program, "dns", "release", "--config", closed], check=False)
    assert refused.returncode == 1 and "Permission denied" in refused.stderr, refused
    victim = product.folder / "victim"
    victim.write_text("kept", encoding="ascii")
    adopted.file.with_name("adopted.yaml.next").symlink_to(victim)
    adopted.dns("adopt")
    assert victim.read_text(encoding="ascii") == "kept"
    adopted.dns("release")


@pytest.mark.parametrize("text, left_out", [
    ("# a comment\r\nnameserver {a}\r\nnameserver {b}\r\n", []),
    ("nameserver {a}\nnameserver {a}\nnameserver {b} # twice\n;nameserver 192.0.2.1\n", []),
    ("options rotate\nnameserver\t{a}\nnameserver fe80::1%eth0\nnameserver {own}\nnameserver {b}", ["fe80::1%eth0", "{own}"]),
    ("domain a.test\nsearch b.test c.test\nnameserver {a}\nnameserver 999.1.1.1\nnameserver {b}\n", ["999.1.1.1"]),
    ("nameserver {a}\nnameserver {b}\nnameserver {six}\n", ["{six}"]),
])
def test_resolv_conf_is_read_as_resolvers_read_it(lab, servers, product, host, text, left_out):
    names = {"a": lab.replica("a").ipv4, "b": lab.replica("b").ipv4, "own": lab.client.ipv4, "six": lab.replica("a").ipv6}
    plan = host(text.format(**names)).plan("--same-answers")
    assert plan["servers"][:2] == [names["a"], names["b"]] and f"also_at: ['{names['a']}', '{names['b']}']" in plan["config"]
    assert [each.split()[0] for each in plan["left_out"]] == [each.format(**names) for each in left_out]


@pytest.mark.parametrize("file, stub", [("/run/systemd/resolve/resolv.conf", "127.0.0.53"), ("/run/NetworkManager/no-stub-resolv.conf", "127.0.0.1")])
def test_behind_a_resolver_of_the_host_its_servers_are_found(lab, servers, product, host, file, stub):
    behind = product.folder / "behind"
    behind.write_text("".join(f"nameserver {each.ipv4}\n" for each in lab.replicas), encoding="ascii")
    adopted = host(f"nameserver {stub}\noptions edns0 trust-ad\nsearch .\n")
    plan = adopted.plan(stub=(file, behind))
    assert plan["source"] == file and plan["servers"] == [each.ipv4 for each in lab.replicas]
    alone = adopted.dns("adopt", "--dry-run", check=False, stub=("/run/other", behind))
    assert alone.returncode == 1 and f"{stub} (" in alone.stderr and "--servers A,B" in alone.stderr


def test_one_server_and_a_configuration_of_another_origin_are_refused(lab, servers, product, host):
    one = host(f"nameserver {lab.replica('a').ipv4}\n")
    assert "names no two servers" in one.dns("adopt", check=False).stderr
    assert one.plan("--servers", ",".join(each.ipv4 for each in lab.replicas))["source"] == "--servers"
    two = host()
    two.file.write_text("services: []\n", encoding="ascii")
    for verb in ("adopt", "release"):
        refused = two.dns(verb, check=False)
        assert refused.returncode == 1 and "another origin" in refused.stderr
    assert two.file.read_text(encoding="ascii") == "services: []\n"
    two.file.unlink()
