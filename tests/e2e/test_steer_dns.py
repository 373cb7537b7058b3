# SPDX-License-Identifier: Apache-2.0
"""DNS servers as they are, under `hedgerow steer run` with `bind`: while they are reloaded again and again, no question is lost and none refused."""

import re
import signal
import subprocess

import pytest

from deploy.lab.servers import zone
from harness.product import BIN, wait_until
from harness.steer import IPV4, PORT, Group, fixtures
from harness.steer_daemons import ADDRESS, Daemons

_net, _folder, _group = fixtures("steerdns")
BIND = (str(BIN / "hedgerow-steer"), "bind", "--")
SOURCES = IPV4[:8]


def command_of(daemon: str, daemons: Daemons) -> list[str]:
    if daemon != "dnsdist":
        return getattr(daemons, daemon)(1, reuseport=False)
    return ["/usr/bin/dnsdist", "--supervised", "--disable-syslog", "-C", daemons.path("dnsdist.conf", f"""
setLocal("{ADDRESS}:{PORT}")
setACL("127.0.0.0/8")
addAction(AllRule(), SpoofAction("192.0.2.1"))
""")]


class Asking:
    """dnsperf, from several addresses, each by eight sockets that stay."""

    def __init__(self, group: Group, questions_s: int):
        names = group.folder / "questions"
        names.write_text(f"www.{zone.ORIGIN} A\n", encoding="ascii")
        with group.net.entered():
            self.loads = [subprocess.Popen(["dnsperf", "-s", ADDRESS, "-p", str(PORT), "-a", source, "-d", names, "-c", "8", "-Q", str(questions_s // len(SOURCES)),
                                            "-l", "3600"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for source in SOURCES]

    def end(self) -> dict[str, int]:
        """Of all of them: questions that were sent, and that were lost or had another answer."""
        found = {"sent": 0, "lost": 0, "answered": 0}
        for load in self.loads:
            load.send_signal(signal.SIGINT)
        for load in self.loads:
            said = load.communicate(timeout=30)[0]
            assert "Queries sent" in said, said
            found["sent"] += int(re.search(r"Queries sent: +(\d+)", said)[1])
            found["lost"] += int(re.search(r"Queries lost: +(\d+)", said)[1])
            found["answered"] += int(re.search(r"NOERROR (\d+) ", said)[1])
        return found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("daemon", ["nsd", "knot", "unbound", "dnsdist"])
@pytest.mark.parametrize("reloads,questions_s", [pytest.param(2, 2_000, id="short"), pytest.param(50, 20_000, id="long", marks=pytest.mark.long)])
def test_no_question_is_lost_while_a_dns_server_is_reloaded(net, group: Group, daemon: str, reloads: int, questions_s: int):
    base = group.folder / "base"
    base.mkdir()
    words = command_of(daemon, Daemons(net, base))
    # A folder for each start: two generations share no pid file, no journal and no control socket.
    script = (f'd=$(mktemp -d {group.folder}/start.XXXXXX) && cp -r {base}/. "$d" && sed -i "s|{base}|$d|g" "$d"/*.conf && '
              + "exec " + " ".join(words).replace(str(base), "$d"))
    group.run(*BIND, "sh", "-c", script, options=("--receive-buffer", "4MiB"))
    wait_until(lambda: all(asked(group, source) for source in SOURCES), 20, f"{daemon} answers")
    first = group.pids()
    asking = Asking(group, questions_s)
    try:
        for _ in range(reloads):
            group.cli("reload", "--name", group.name, within_s=150)
        wait_until(lambda: group.ask("show")["others"] == [], 30, "the end of all former workers")
    finally:
        found = asking.end()
    shown = group.ask("show")
    assert [slot["restarts"] for slot in shown["slots"]] == [0, 0] and shown["problems"] == []
    assert all(slot["generation"] == reloads % 16 and slot["udp_dropped"] == 0 for slot in shown["slots"])
    assert not set(first.values()) & set(group.pids().values())
    assert found["lost"] == 0 and found["answered"] == found["sent"] > reloads * questions_s, found


def asked(group: Group, source: str) -> bool:
    with group.net.entered():
        return subprocess.run(["dig", "+tries=1", "+time=1", "+short", "-b", source, f"@{ADDRESS}", "-p", str(PORT), f"www.{zone.ORIGIN}", "A"],
                              capture_output=True, text=True, check=False).stdout.strip() == "192.0.2.1"
