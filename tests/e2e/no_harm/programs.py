# SPDX-License-Identifier: Apache-2.0
"""Usual programs as clients. Each function runs one and returns its transcript: what it printed, without times, ids and addresses."""

import itertools
import re
import secrets
import socket
import time

from harness import recipes
from harness.dns import UdpClient, parse, query
from harness.servers import frame
from no_harm.servers import RADIUS_SECRET, TSIG, UPDATED, VPN_SERVER, OpenVpn

# What differs between two runs of one client at one server.
_CHANGING = [(r"id: \d+", "id"), (r";; (Query time|WHEN|SERVER):.*", ""), (r"; <<>> DiG.*", ""), (r"; COOKIE: [0-9a-f]+", "; COOKIE")]


def printed(at, *command, timeout: float = 30.0, changing=(), kept: str = "") -> list[str]:
    """The lines that a program prints at the client's host, and its exit code. `kept`: only those that match."""
    done = at.host.run(command, check=False, timeout=timeout)
    text = (done.stdout + done.stderr).replace(at.address, "ADDRESS").replace(at.host.ipv4, "CLIENT")
    for pattern, instead in changing:
        text = re.sub(pattern, instead, text)
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return [line for line in lines if re.search(kept, line)] + [f"exit {done.returncode}"]


# -- DNS -----------------------------------------------------------------------------------------------------------

KINDS = ("www.example.test A", "www.example.test AAAA", "wWw.ExAmPlE.tEsT A", "no.example.test A", "example.test SOA", "www.example.test ANY",
         "www.elsewhere.test A", "big.example.test TXT +bufsize=512", "big.example.test TXT +bufsize=512 +ignore", "big.example.test TXT +bufsize=1232",
         "big.example.test TXT +bufsize=4096", "big.example.test TXT +tcp", "www.example.test A +noedns", "www.example.test A +dnssec +nsid",
         "www.example.test A +subnet=192.0.2.0/24", "www.example.test A +edns=1 +noednsnegotiation", "www.example.test A +header-only",
         "www.example.test A +cookie", "www.example.test A +padding=128", "example.test SOA +opcode=notify", "example.test SOA +opcode=status",
         "example.test AXFR", "example.test IXFR=1")


def dig_kinds(at) -> list[str]:
    # One dig asks all of them, one after the other.
    words = itertools.chain.from_iterable([*kind.split(), "+time=3", "+tries=1"] for kind in KINDS)
    return printed(at, "dig", f"@{at.address}", *words, changing=_CHANGING)


def dig_update(at) -> list[str]:
    """Signed updates, which one server alone may get; what they did is asked of that server."""
    lines = []
    for change in ("add", "delete"):
        steps = f"server {at.address}\nzone {UPDATED}\nupdate {change} new.{UPDATED} 60 A 192.0.2.77\nsend\n"
        done = at.host.run(["nsupdate", "-t", "5", "-r", "0", "-y", TSIG], stdin=steps, check=False)
        lines += [done.stdout + done.stderr, f"{change}: exit {done.returncode}"]
        found = at.host.run(["dig", f"@{at.leader}", f"new.{UPDATED}", "A", "+short"]).stdout
        lines.append(f"the leader says {found!r}")
    return lines


def stub_resolvers(at) -> list[str]:
    """glibc's, by each of its ways: A and AAAA on one socket, one after the other, by TCP, with EDNS."""
    folder, lines = at.host.scratch("resolver"), []
    for options in ("attempts:1", "single-request", "single-request-reopen rotate", "use-vc", "edns0", "trust-ad"):
        path = folder / "resolv.conf"
        path.write_text(f"nameserver {at.address}\noptions {options} timeout:3\n", encoding="ascii")
        lines += printed(at, "unshare", "-m", "sh", "-c", f"mount --bind {path} /etc/resolv.conf; exec getent ahosts www.example.test")
    return lines


def messages(at, numbered: list[tuple[int, str]], *, beside: str | None = None) -> list[str]:
    """All at once on one socket. `beside`: every other one goes to this address instead."""
    lines = []
    with at.host.socket(socket.AF_INET6 if at.six else socket.AF_INET) as sock:
        for place, (number, name) in enumerate(numbered):
            sock.sendto(query(number, name), (beside if beside and place % 2 else at.address, 53))
        sock.settimeout(2)
        while True:
            try:
                payload, source = sock.recvfrom(65535)
            except TimeoutError:
                return sorted(lines)
            answer = parse(payload)
            asked = "the address that was asked" if source[0] == (beside if beside and answer.id % 2 else at.address) else source[0]
            lines.append(f"{answer.id} {answer.question} rcode {answer.rcode} answers {answer.answer_count} from {asked}")
            if len(lines) >= len(numbered):
                sock.settimeout(0.15)


def one_id_many_questions(at) -> list[str]:
    return messages(at, [(0, f"n{number}.example.test") for number in range(40)])


def a_server_asked_beside(at) -> list[str]:
    """One socket asks the VIP and the server itself by turns, with ids of their own."""
    return messages(at, [(number, f"n{number}.example.test") for number in range(40)], beside=at.leader)


def many_ids(at) -> list[str]:
    """Ids that are used again and again on one socket."""
    lines = []
    with UdpClient(at.host, at.address) as client:
        for number in range(300):
            answer = client.ask(number % 50, f"n{number % 97}.example.test")
            lines.append(str(answer))
        return lines + [str(more) for more in client.receive_all(0.1)]


# -- One request, one answer ---------------------------------------------------------------------------------------


def _snmp(at, access: list[str]) -> list[str]:
    lines = []
    for command in (["snmpwalk"], ["snmpbulkwalk", "-Cr40"], ["snmpget"]):
        at_what = [".1.3.6.1.2.1.1.1.0"] if command == ["snmpget"] else [".1.3.6.1.2.1.1.9"]
        lines += printed(at, "env", "MIBS=", *command, *access, "-r", "0", "-t", "3", "-On", f"{at.address}:{at.port}", *at_what,
                         changing=[(r"Timeticks: .*", "Timeticks")])
    return lines


def snmp_v2c(at) -> list[str]:
    return _snmp(at, ["-v2c", "-c", "public"])


def snmp_v3(at) -> list[str]:
    return _snmp(at, ["-v3", "-l", "authNoPriv", "-u", "reader", "-a", "SHA", "-A", "password-of-reader"])


def radius_pap(at) -> list[str]:
    lines = []
    with UdpClient(at.host, at.address, 1812) as client:
        for number, password in enumerate((b"secret", b"wrong") * 5):
            request = recipes.access_request(number, password)
            client.send(request)
            response = client.receive()
            lines.append(f"{number}: code {response and response[0]}, genuine {bool(response) and recipes.is_genuine(response, request)}")
        return lines + [f"more: {more!r}" for more in client.receive_all(0.1)]


def sip_options(at) -> list[str]:
    lines = []
    with UdpClient(at.host, at.address, 5060) as client:
        for number in range(5):
            for method in (b"OPTIONS", b"REGISTER"):
                client.send(recipes.options(f"call{number}@host", 7).replace(b"OPTIONS", method))
                answer = client.receive()
                lines.append(re.sub("Server: [ab]", "Server", (answer or b"nothing").decode()))
        return lines + [f"more: {more!r}" for more in client.receive_all(0.1)]


def stun(at) -> list[str]:
    lines = []
    for _ in range(3):
        lines += printed(at, "turnutils_stunclient", "-p", "3478", at.address, kept="UDP reflexive",
                         changing=[(r"^.*UDP reflexive addr: ", "UDP reflexive addr: "), (r":\d+\n", ":port\n")])
    return lines


def turn(at) -> list[str]:
    """An allocation, permissions, and data both ways."""
    return printed(at, "turnutils_uclient", "-y", "-c", "-n", "20", "-m", "2", "-u", "user", "-w", "word", "-p", "3479", "-X", at.address,
                   timeout=60, kept="^tot_send_msgs|^Total lost packets",
                   changing=[(r"\d+: : tot", "tot"), (r"\d+: : Total", "Total")])


def memcached(at) -> list[str]:
    lines = []
    with UdpClient(at.host, at.address, 11211) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, 33, 4 << 20)  # SO_RCVBUFFORCE
        for number in range(40):
            client.send(frame(number, b"get same\r\n"))
            lines.append(str(client.receive()))
        client.send(frame(100, b"get large\r\n"))
        lines += sorted(part.hex()[:400] for part in client.receive_all(0.2))
        client.send(frame(101, b"delete count\r\n"))
        client.receive()
        for number, command in enumerate((b"add count 0 0 1\r\n0\r\n", *(b"incr count 1\r\n",) * 20)):
            client.send(frame(200 + number, command))
            lines.append(str(client.receive()))
        return lines + [str(more) for more in client.receive_all(0.1)]


def coap(at) -> list[str]:
    lines = []
    for words in (["-m", "get"], ["-m", "get", "-N"], ["-m", "get", "-b", "64"], ["-m", "put", "-e", "value"]):
        path = "example_data" if "put" in words else ""
        lines += printed(at, "coap-client-notls", *words, "-B", "3", f"coap://{at.bracketed}/{path}")
    return lines


def coap_observe(at) -> list[str]:
    """Notifications of the server's clock: how many come in 4.5 s."""
    lines = printed(at, "coap-client-notls", "-m", "get", "-s", "4", "-B", "6", f"coap://{at.bracketed}:{at.port}/time", kept="..")
    return [f"{sum(line.count(':') // 2 for line in lines[:-1]) >= 3}", lines[-1]]


def syslog(at) -> list[str]:
    """logger's lines, as they stand at the server."""
    name = f"run{secrets.token_hex(4)}"
    for number in range(10):
        at.host.run(["logger", "--udp", "--rfc3164", "-n", at.address, "-P", "514", "-t", name, f"line {number}"])
    time.sleep(0.1)
    return [re.sub(rf"^.*{name}", "", line) for line in at.leader_server.text().splitlines() if name in line]


# -- Conversations -------------------------------------------------------------------------------------------------


def dtls(at) -> list[str]:
    """openssl, both sides: a handshake, and ten lines that the server prints."""
    name = f"run{secrets.token_hex(4)}"
    text = "".join(f"echo {name} {number}; sleep 0.1; " for number in range(10))
    done = at.host.run(["sh", "-c", f"(sleep 1; {text}) | openssl s_client -dtls1_2 -connect {at.address}:4433 -quiet -no_ign_eof"], check=False, timeout=20)
    return [line.replace(name, "line") for line in at.leader_server.text().splitlines() if name in line] + [f"exit {done.returncode}"]


def openvpn(at) -> list[str]:
    """A tunnel that is set up, pinged through, and then used one way for 10 s."""
    with OpenVpn.tunnel(at) as told:
        lines = printed(at, "ping", "-c", "5", "-i", "0.2", "-W", "2", VPN_SERVER, kept="received", changing=[(r", time.*", "")])
        for number in range(20):
            told.send(f"{number}")
            time.sleep(0.5)
        return lines + told.received()


def rpcinfo(at) -> list[str]:
    """Asks the port mapper at the address, and then calls the program where it said: at the server's own."""
    lines = []
    for _ in range(3):
        lines += printed(at, "rpcinfo", "-T", "udp", at.address, "100000", "4", timeout=20)
    return lines


def radius_eap(at) -> list[str]:
    """PEAP with MSCHAPv2: eight round trips with a State that one server made."""
    folder = at.host.scratch("eap")
    path = folder / "peap.conf"
    path.write_text('network={\nssid="x"\nkey_mgmt=WPA-EAP\neap=PEAP\nidentity="alice"\npassword="secret"\nphase2="auth=MSCHAPV2"\n}\n', encoding="ascii")
    lines = []
    for _ in range(3):
        lines += printed(at, "eapol_test", "-c", path, "-a", at.address, "-p", str(at.port), "-s", RADIUS_SECRET, "-t", "10", kept="^(SUCCESS|FAILURE)|^exit")
    return lines


def radius_users(at) -> list[str]:
    """radclient at FreeRADIUS, with PAP and with Status-Server."""
    lines = []
    for password in ("secret", "wrong"):
        lines += printed(at, "sh", "-c", f"echo 'User-Name=alice,User-Password={password}' | "
                         f"radclient -r 1 -t 5 {at.address}:{at.port} auth {RADIUS_SECRET}",
                         kept="Received|Expected|exit", changing=[(r"Id \d+ from.*", "Id")])
    return lines


def sip_calls(at) -> list[str]:
    """sipp: five calls with INVITE, ringing, ACK and BYE."""
    folder = at.host.scratch("sipp")
    done = at.host.run(["sh", "-c", f"cd {folder} && exec sipp -sn uac {at.address}:5070 -i {at.host.ipv4} -m 5 -r 5 -d 500 -nostdin -trace_stat -stf stat.csv"],
                       check=False, timeout=40)
    rows = [line.split(";") for line in (folder / "stat.csv").read_text(encoding="ascii").splitlines()]
    (folder / "stat.csv").unlink()
    last = dict(zip(rows[0], rows[-1], strict=False))
    return [f"{key}: {last[key]}" for key in ("SuccessfulCall(C)", "FailedCall(C)", "Retransmissions(C)")] + [f"exit {done.returncode}"]

