# SPDX-License-Identifier: Apache-2.0
"""What must work in a cell. Each check is short, asks an unmodified client, and raises Failed with what went wrong."""

import contextlib
import json
import time
from collections.abc import Callable

from deploy.vm.net import hosts
from deploy.vm.net.cells import Cell
from deploy.vm.net.hosts import BIG_RECORDS, DNS6_VIP, DNS_VIP, KV_VIP, ORIGIN, SERVE, ZONE_NAMES, Host

# Of the host's time, on which an emulated machine may have a tenth of a processor.
_PATIENCE_S = 150.0
_UPLOAD_BYTES = 2_000_000
_UPLOAD_S = 45  # one that goes through takes 1 to 3


# Received checksums that the client's driver does not leave to the kernel.
NOT_BY_CLIENT = "yes, not by the client"


class Failed(Exception):
    pass


class Trial:
    """The hosts of a cell with the proxy up on the client."""

    def __init__(self, cell: Cell, client: Host, backends: list[Host]):
        self.cell, self.client, self.backends = cell, client, backends
        self.uplink = hosts.uplink_of(cell)

    def dig(self, words: str, *, by: Host | None = None, tries: int = 3, check: bool = True) -> str:
        """What dig printed. An emulated host that is busy may lose a datagram, which dig asks for again."""
        status, text = (by or self.client).run(f"dig +time=5 +tries={tries} {words}", check=False, timeout_s=90)
        if check and status != 0:
            raise Failed(f"dig {words}: {text.strip()[-600:]}\n{self.status_text()}")
        return text

    def service(self, name: str) -> dict:
        status = json.loads(self.client.out("hedgerow status --json"))
        return next(service for service in status["services"] if service["name"] == name)

    def lead(self, service: str, backend: str) -> None:
        self.client.run(f"hedgerow leader set {service} {backend}")

    def status_text(self) -> str:
        return self.client.run("hedgerow status", check=False)[1]

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                raise Failed(f"not within {_PATIENCE_S:.0f} s: {what}\n{self.status_text()}")
            time.sleep(0.1)


def udp(trial: Trial) -> None:
    """Backends lead in turn, and each one's own answer comes back from the VIP, in both families."""
    for service, vip, leaders in (("dns", DNS_VIP, "ba"), ("dns6", DNS6_VIP, "ca")):
        for leader in leaders:
            trial.lead(service, leader)
            # A busy host may take longer than the hedge delay: then a standby's answer is as right.
            answers = (trial.dig(f"@{vip} whoami.{ORIGIN} TXT +short").strip() for _ in range(3))
            answer = next((answer for answer in answers if answer == f'"{leader}"'), "another one")
            if answer != f'"{leader}"':
                raise Failed(f"{leader} leads {service}, and {answer or 'nothing'} answered\n{trial.status_text()}")


def hedge(trial: Trial) -> None:
    """The leader stands still: another one answers. It goes on: its late answers end in the proxy."""
    leader = trial.backends[0]
    won_before = {name: won_by_hedge(trial.service(name)) for name in ("dns", "dns6")}
    hosts.signal_nsd(leader, "STOP")
    try:
        direct = trial.dig(f"@{leader.ipv4} whoami.{ORIGIN} TXT +short +time=1", tries=1, check=False)
        if f'"{leader.name}"' in direct:
            raise Failed("the control failed: a stopped server answered")
        for vip in (DNS_VIP, DNS6_VIP):
            answer = trial.dig(f"@{vip} whoami.{ORIGIN} TXT +short", tries=1).strip()
            if answer not in ('"b"', '"c"'):
                raise Failed(f"a stalled leader was not hedged: {answer or 'no answer'}\n{trial.status_text()}")
    finally:
        hosts.signal_nsd(leader, "CONT")
    for name, before in won_before.items():
        if won_by_hedge(found := trial.service(name)) == before:
            raise Failed(f"{name}: no hedge won: {found}")
        trial.until(lambda name=name: int(trial.service(name)["reasons"].get("loser", 0)) > 0, f"a loser of {name} dropped")


def won_by_hedge(service: dict) -> int:
    return int(service["won_by_hedge"])


def big(trial: Trial) -> None:
    """Answers of 2.7 kB, and questions of 2 kB: in fragments where the MTU makes them."""
    option = "+ednsopt=65001:" + "00" * 1900
    made_before = _counters(trial.backends[0]).get("Ip.FragCreates", 0)
    for vip, extra in ((DNS_VIP, ""), (DNS_VIP, option), (DNS6_VIP, option)):
        text = trial.dig(f"@{vip} big.{ORIGIN} TXT +bufsize=4096 +ignore +short {extra}")
        if (count := text.count("x" * 220)) != BIG_RECORDS:
            raise Failed(f"a big answer from {vip} had {count} of {BIG_RECORDS} records: {text[:300]}\n{trial.status_text()}")
    made = _counters(trial.backends[0]).get("Ip.FragCreates", 0)
    if trial.cell.mtu < 4096 and made == made_before:
        raise Failed("the control failed: no answer was fragmented")


def tcp(trial: Trial) -> None:
    """A zone of 150 kB comes back and 2 MB go out, through the VIP's TCP."""
    for vip in (DNS_VIP, DNS6_VIP):
        text = trial.dig(f"@{vip} {ORIGIN} AXFR +tcp")
        if (count := text.count("y" * 60)) != ZONE_NAMES:
            raise Failed(f"a zone transfer from {vip} had {count} of {ZONE_NAMES} names: {text[-300:]}")
    sink = trial.backends[0]
    trial.lead("kv", sink.name)
    trial.client.run(f"head -c {_UPLOAD_BYTES} /dev/urandom >/run/upload")
    try:
        try:
            _upload(trial, sink, sink.ipv4)
        except Failed as why:
            raise Failed(f"the control failed, without the proxy: {why}") from None
        _upload(trial, sink, KV_VIP)
    finally:
        trial.client.run("hedgerow leader unset kv")


def _upload(trial: Trial, sink: Host, to: str) -> None:
    sink.run(f"rm -f /run/sum; (sleep {_UPLOAD_S + 15} | nc -l -p {SERVE} | md5sum >/run/sum) >/dev/null 2>&1 &\n"
             f"for i in $(seq 200); do netstat -ltn | grep -q :{SERVE} && exit 0; sleep 0.05; done; exit 1")
    refused_before = _refused_frames(sink)
    try:
        status, text = trial.client.run(f"timeout {_UPLOAD_S} nc {to} {SERVE} </run/upload", check=False, timeout_s=_UPLOAD_S + 30)
        if status != 0:
            raise Failed(f"{_UPLOAD_BYTES} bytes of TCP to {to}: no end within {_UPLOAD_S} s (status {status}) {text.strip()}; "
                         f"{sink.name}'s card refused {_refused_frames(sink) - refused_before} frames meanwhile")
        sent = trial.client.out("md5sum </run/upload").split()
        got = sink.out("for i in $(seq 200); do [ -s /run/sum ] && break; sleep 0.05; done; cat /run/sum").split()
        if sent[0] != (got or [""])[0]:
            raise Failed(f"{_UPLOAD_BYTES} bytes of TCP to {to} arrived changed: {sent[0]} sent, {(got or ['none'])[0]} received")
    finally:
        sink.run("killall nc", check=False)  # one that is left would keep the port


def _refused_frames(host: Host) -> int:
    """That the card gave to its driver as damaged, as QEMU's vmxnet3 does with frames that it has no room for."""
    return int(host.out("cat /sys/class/net/eth0/statistics/rx_errors"))


def client_checksums(trial: Trial) -> str | None:
    """Without the card's verdict the client's kernel verifies what the proxy gives it. A card whose driver does not let it go keeps it."""
    cards = [f"eth{number}" for number in range(len(trial.client.cards))]
    try:
        states = {_receive_checksums(trial.client, card, "off") for card in cards}
        for vip in (DNS_VIP, DNS6_VIP):
            trial.dig(f"@{vip} whoami.{ORIGIN} TXT")
        trial.dig(f"@{DNS_VIP} {ORIGIN} AXFR +tcp")
    finally:
        for card in cards:
            trial.client.run(f"ethtool -K {card} rx on", check=False)
    return None if states == {"off"} else NOT_BY_CLIENT


def _receive_checksums(host: Host, card: str, wanted: str) -> str:
    """Asks for it, and returns what it is now: `wanted`, or the other one where the driver has it fixed."""
    host.run(f"ethtool -K {card} rx {wanted}", check=False)
    text = host.out(f"ethtool -k {card}")
    state, fixed = rx_checksumming(text)
    if state != wanted and not fixed:
        raise Failed(f"{host.name}: rx-checksumming of {card} is {state} after `ethtool -K {card} rx {wanted}`")
    return state


def rx_checksumming(text: str) -> tuple[str, bool]:
    """Of `ethtool -k`: on or off, and whether the driver has it fixed."""
    words = next((line.split()[1:] for line in text.splitlines() if line.startswith("rx-checksumming:")), [])
    if not words:
        raise Failed(f"`ethtool -k` names no rx-checksumming: {text[:200]}")
    return words[0], "[fixed]" in words


def no_wrong_checksum(trial: Trial) -> None:
    """At the end of a cell, on every host."""
    for host in (trial.client, *trial.backends):
        wrong = {name: count for name, count in _counters(host).items() if name.endswith("InCsumErrors") and count}
        if wrong:
            raise Failed(f"{host.name} received wrong checksums: {wrong}")


def receivers_verify(trial: Trial) -> None:
    """The control of the former, once for a pair: a byte that changes at a receiver's card is noticed there. Without GRO, which
    verifies before the place where the byte is changed."""
    for host in trial.backends[1:]:
        host.run("ethtool -K eth0 gro off; tc qdisc add dev eth0 clsact 2>/dev/null; tc filter add dev eth0 ingress protocol all matchall action pedit "
                 "munge offset 44 u8 set 0xff")
        before = _counters(host).get("Udp.InCsumErrors", 0)
        trial.dig(f"@{host.ipv4} whoami.{ORIGIN} TXT +time=1", tries=1, check=False)
        after = _counters(host).get("Udp.InCsumErrors", 0)
        host.run("tc qdisc del dev eth0 clsact && ethtool -K eth0 gro on")
        if after == before:
            raise Failed(f"{host.name} does not verify the checksums that it receives")


def nodes(trial: Trial, xdp: str) -> str:
    """A cluster on the backends with its XDP programs in this mode: it elects, announces, stores, and survives its leader.
    Returns where they run, or "no: " and what the kernel says where the driver cannot run them so."""
    started = []
    try:
        for number, host in enumerate(trial.backends, 1):
            host.machine.write(f"/run/node-{host.name}/config.yaml",
                               hosts.node_config(number, trial.backends, trial.client, xdp))
            host.run(f"mkdir -p /run/node-{host.name}/log; setsid hedgerow-node run --config /run/node-{host.name}/config.yaml "
                     f">/run/node-{host.name}/out 2>&1 & echo $! >/run/node-{host.name}/pid")
            started.append(host)
        hook: dict = {}

        def is_known() -> bool:  # some cards are reset for a native program, which takes seconds
            hook.update(_hook(started[-1]))
            return bool(hook.get("on") or hook.get("detail"))

        trial.until(is_known, "a node that says where its programs run")
        if not hook["on"]:
            return f"no: {hook['detail']}"
        leader = _await_leader(trial, trial.backends)
        _store(trial, "first", leader)
        follower = next(host for host in trial.backends if host is not leader)
        trial.until(lambda: _kernel_counter(follower, "heartbeat_answered") > 0, f"a heartbeat answered by {follower.name}'s kernel")
        trial.until(lambda: _kernel_counter(leader, "heartbeat_counted") > 0, "an answer that reached the leader's kernel")
        _kill(leader)
        started.remove(leader)
        rest = [host for host in trial.backends if host is not leader]
        _store(trial, "second", _await_leader(trial, rest))
        return hook["detail"]
    finally:
        for host in started:
            _kill(host)
        trial.client.run("hedgerow leader unset kv", check=False)
        for host in trial.backends:
            host.run(f"rm -rf /run/node-{host.name}/log", check=False)


def _hook(host: Host) -> dict:
    """Whether and where the node's XDP program runs; empty until it is known."""
    return next((each for each in _node_status(host).get("offloads", []) if each["name"] == "heartbeat"), {})


def _await_leader(trial: Trial, among: list[Host]) -> Host:
    """Of these hosts, the one that leads, once the proxy has its announcement."""
    found: list[Host] = []

    def there() -> bool:
        found[:] = [host for host in among if _node_status(host).get("role") == "leader"]
        return bool(found) and trial.service("kv")["leader"] == found[0].name

    try:
        trial.until(there, "a leader that the proxy knows")
    except Failed as why:
        logs = "\n".join(f"{host.name}: {host.run(f'tail -n 5 /run/node-{host.name}/out', check=False)[1]}" for host in among)
        raise Failed(f"{why}\n{logs}") from None
    return found[0]


def _store(trial: Trial, value: str, leader: Host) -> None:
    server = f"hkv --server {KV_VIP}:{SERVE} --timeout 10s"
    for words, wanted in ((f"put key {value}", ""), ("get key", value)):
        status, text = trial.client.run(f"{server} {words}", check=False)
        if status != 0 or wanted not in text:
            raise Failed(f"hkv {words} with {leader.name} as the leader: {text.strip()}\n{trial.status_text()}")


def _node_status(host: Host) -> dict:
    status, text = host.run(f"hedgerow-node status --json --socket /run/node-{host.name}/admin.sock", check=False)
    with contextlib.suppress(ValueError):  # a line of the kernel's on the console in between
        return json.loads(text) if status == 0 else {}
    return {}


def _kernel_counter(host: Host, name: str) -> int:
    return int(_node_status(host).get("counters", {}).get(f"kernel.{name}", 0))


def _kill(host: Host) -> None:
    host.run(f"kill -9 $(cat /run/node-{host.name}/pid); for i in $(seq 200); do "
             f"kill -0 $(cat /run/node-{host.name}/pid) 2>/dev/null || exit 0; sleep 0.05; done; exit 1", check=False)


def _counters(host: Host) -> dict[str, int]:
    return parse_counters(host.out("cat /proc/net/snmp /proc/net/snmp6"))


def parse_counters(text: str) -> dict[str, int]:
    """Of /proc/net/snmp, which has a line of names above one of values, as "Udp.InCsumErrors"; of /proc/net/snmp6, which has
    both in one line, as they stand there."""
    found = {}
    names: list[str] = []
    for words in map(str.split, text.splitlines()):
        if len(words) == 2 and not words[0].endswith(":"):
            found[words[0]] = int(words[1])
        elif names and words[0] == names[0]:
            found |= {f"{words[0][:-1]}.{name}": int(value) for name, value in zip(names[1:], words[1:], strict=True)}
            names = []
        else:
            names = words
    return found
