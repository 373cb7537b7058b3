# SPDX-License-Identifier: Apache-2.0
"""DNS servers as they are, under `hedgerow steer run` with `bind`: while they are reloaded again and again, no question is lost and none refused."""

import re
import signal
import subprocess

import pytest

from deploy.lab.servers import zone
from harness.product import BIN, wait_until
from harness.steer import IPV6, PORT, Group, fixtures
from harness.steer_daemons import ADDRESS, Daemons

_net, _folder, _group = fixtures("steerdns")
BIND = (str(BIN / "hedgerow-steer"), "bind", "--")
HERE = "fd00::1"  # not IPv4: dnsperf binds no address of it


def command_of(daemon: str, daemons: Daemons) -> list[str]:
    if daemon == "unbound":
        return daemons.unbound(1, reuseport=False, more="access-control: ::/0 allow")
    if daemon != "dnsdist":
        return getattr(daemons, daemon)(1, reuseport=False)
    return ["/usr/bin/dnsdist", "--supervised", "--disable-syslog", "-C", daemons.path("dnsdist.conf", f"""
setLocal("[{HERE}]:{PORT}")
setACL("::/0")
addAction(AllRule(), SpoofAction("192.0.2.1"))
""")]


class Asking:
    """dnsperf, from several addresses, each by eight sockets that stay."""

    def __init__(self, group: Group, questions_s: int):
        names = group.folder / "questions"
        names.write_text(f"www.{zone.ORIGIN} A\n", encoding="ascii")
        with group.net.entered():
            self.loads = [subprocess.Popen(["dnsperf", "-s", HERE, "-p", str(PORT), "-a", source, "-d", names, "-c", "8", "-Q", str(questions_s // len(IPV6)),
                                            "-l", "3600"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for source in IPV6]

    def end(self) -> dict[str, int]:
        """Of all of them: questions with an answer and without one, and good answers. Those under way at the end count for nothing."""
        found = {"completed": 0, "lost": 0, "good": 0}
        for load in self.loads:
            load.send_signal(signal.SIGINT)
        for load in self.loads:
            said = load.communicate(timeout=30)[0]
            assert "Queries sent" in said, said
            found["completed"] += int(re.search(r"Queries completed: +(\d+)", said)[1])
            found["lost"] += int(re.search(r"Queries lost: +(\d+)", said)[1])
            found["good"] += int(re.search(r"NOERROR (\d+) ", said)[1])
        return found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("daemon", ["nsd", "knot", "unbound", "dnsdist"])
@pytest.mark.parametrize("reloads,questions_s", [pytest.param(4, 2_000, id="short"), pytest.param(50, 20_000, id="long", marks=pytest.mark.long)])
def test_no_question_is_lost_while_a_dns_server_is_reloaded(net, group: Group, daemon: str, reloads: int, questions_s: int):
    base = group.folder / "base"
    base.mkdir()
    words = command_of(daemon, Daemons(net, base))
    # A folder for each start: two generations share no pid file, no journal and no control socket.
    script = (f'd=$(mktemp -d {group.folder}/start.XXXXXX) && cp -r {base}/. "$d" && sed -i "s|{base}|$d|g; s|{ADDRESS}|{HERE}|g" "$d"/*.conf && '
              + "exec " + " ".join(words).replace(str(base), "$d") + ' >"$d"/log 2>&1')
    group.run(*BIND, "sh", "-c", script, listen=f"[{HERE}]:{PORT}", options=("--receive-buffer", "4MiB"))
    wait_until(lambda: all(asked(group, source) for source in IPV6), 20, f"{daemon} answers")
    first = group.pids()
    asking = Asking(group, questions_s)
    try:
        for _ in range(reloads):
            group.cli("reload", "--name", group.name, within_s=150)
        wait_until(lambda: group.ask("show")["others"] == [], 30, "the end of all former workers")
    finally:
        found = asking.end()
    print(found)  # the figure
    shown = group.ask("show")
    assert [slot["restarts"] for slot in shown["slots"]] == [0, 0] and shown["problems"] == []
    assert all(slot["generation"] == reloads % 16 and slot["udp_dropped"] == 0 for slot in shown["slots"])
    assert not set(first.values()) & set(group.pids().values())
    assert found["lost"] == 0 and found["good"] == found["completed"] > 100 * reloads, found


def asked(group: Group, source: str) -> bool:
    with group.net.entered():
        return subprocess.run(["dig", "+tries=1", "+time=1", "+short", "-b", source, f"@{HERE}", "-p", str(PORT), f"www.{zone.ORIGIN}", "A"],
                              capture_output=True, text=True, check=False).stdout.strip() == "192.0.2.1"
