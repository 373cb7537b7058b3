# SPDX-License-Identifier: Apache-2.0
"""The kernel part lives on without its daemon, and the next daemon takes it over: after a kill, a restart and an upgrade, under
load, and with what somebody took away meanwhile. What cannot be taken over is left at work."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness import machine
from harness.dns import UdpClient, dig, finish_dnsperf, query, start_dnsperf, who_answers
from harness.product import BIN, DNS4, DNS6, VIP4, VIP6, wait_until

pytestmark = pytest.mark.own
HAS_TCX = tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (6, 6)
SAME, NEXT = "hedgerowd", "hedgerowd-next"


def go_on(lab, server) -> None:
    """A server that was stopped runs again, and has answered: what it is sent next comes in time."""
    server.resume()
    wait_until(lambda: dig(lab.client, server.host.ipv4, "www.example.test", timeout_s=1).status, what="the server's return")


def attach_of(mode: str) -> str:
    return "auto" if mode == "tcx" and not HAS_TCX else mode


def end(product, how: signal.Signals) -> None:
    """The daemon ends; its kernel part stays. SIGTERM is polite."""
    pid = product.pid
    os.kill(pid, how)
    wait_until(lambda: gone(pid), timeout_s=10, what="the daemon's end")


def gone(pid: int) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return True


def start(product, program: str = SAME, wrapper: tuple[str, ...] = (), **changes) -> dict:
    """The next daemon; its status when it serves. `wrapper` is a command before it, such as env."""
    config = product.config(**changes) if changes else product._config_up
    daemon = product.lab.client.popen([*wrapper, BIN / program, "--config", product.write(config)], log=product.log)

    def serves() -> bool:
        assert daemon.poll() is None, product.log.read_text()
        done = product.admin("status", check=False)
        return done.returncode == 0 and product.pid == daemon.pid

    wait_until(serves, timeout_s=20, what="the daemon's start")
    product.bpf_objects |= machine.bpf_objects(daemon.pid)
    return product.status()["adoption"]


def pins(product) -> Path:
    return Path("/sys/fs/bpf/hedgerow", product.instance)


def record(product, *words: str) -> None:
    subprocess.run([BIN / "hr-record", pins(product), *words], check=True, capture_output=True, timeout=10)


def attached_programs(product) -> dict[str, int]:
    """By pin, the number of the program on each hook; with TCX only."""
    found = {}
    for link in pins(product).glob("tc-*"):
        shown = subprocess.run(["bpftool", "-j", "link", "show", "pinned", link], check=True, capture_output=True,
                               text=True, timeout=10).stdout
        found[link.name] = int(shown.split('"prog_id":')[1].split(",")[0].split("}")[0])
    return found


# -- without loss ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how, attach", [
    pytest.param(signal.SIGKILL, "tcx", id="killed-tcx"),
    pytest.param(signal.SIGTERM, "clsact", id="stopped-clsact"),
    pytest.param(signal.SIGKILL, "clsact", id="killed-clsact", marks=pytest.mark.long),
    pytest.param(signal.SIGTERM, "tcx", id="stopped-tcx", marks=pytest.mark.long)])
def test_a_daemon_that_went_is_succeeded_by_one_that_takes_over_all_of_it(lab, servers, product, attach, how):
    product.up(attach=attach_of(attach))
    for _ in range(5):
        assert who_answers(lab.client, VIP4) == "a"
    product.admin("leader", "set", DNS4, "b")
    product.admin("bypass", "dns6", "on")
    before, programs = product.status(), machine.bpf_objects(product.pid)
    assert before["adoption"]["how"] == "made" and int(before["adoption"]["adoptions"]) == 0

    end(product, how)
    assert who_answers(lab.client, VIP4) == "b"  # the kernel does it alone
    adoption = start(product)
    assert adoption["how"] == "adopted" and int(adoption["adoptions"]) == 1
    assert adoption["build"] == before["adoption"]["build"]
    assert int(adoption["kernel_uptime_ns"]) > int(product.status()["uptime_ns"])
    # The very same programs and maps: nothing was made anew.
    assert {entry for entry in machine.bpf_objects(product.pid) if entry[0] != "link"} <= programs
    assert product.figure("requests") == 6
    assert product.service_status(DNS4)["leader"] == "b" and product.service_status("dns6")["bypass"] is True
    product.admin("leader", "unset", DNS4)
    servers["a"].stall()
    assert who_answers(lab.client, VIP4) == "b"  # hedged
    go_on(lab, servers["a"])


@pytest.mark.parametrize("attach", ["tcx", pytest.param("clsact", marks=pytest.mark.long)])
def test_kills_restarts_and_upgrades_under_load_lose_no_query(lab, servers, product, attach):
    product.up(attach=attach_of(attach))
    builds = {product.status()["adoption"]["build"]}
    loads = [start_dnsperf(lab.client, vip, seconds=9, rate=800) for vip in (VIP4, VIP6)]
    time.sleep(0.5)
    for how, program, expected in ((signal.SIGKILL, SAME, "adopted"), (signal.SIGTERM, NEXT, "upgraded"),
                                   (signal.SIGKILL, NEXT, "adopted"), (signal.SIGTERM, SAME, "upgraded")):
        end(product, how)
        adoption = start(product, program)
        assert adoption["how"] == expected
        builds.add(adoption["build"])
    assert len(builds) == 2
    reports = [finish_dnsperf(load) for load in loads]
    assert [report.lost for report in reports] == [0, 0], reports[0].text + reports[1].text
    for service, report in zip((DNS4, "dns6"), reports, strict=True):
        assert product.figure("requests", service) == report.sent
    servers["a"].stall()
    assert who_answers(lab.client, VIP4) == "b"
    go_on(lab, servers["a"])


def test_a_request_that_waits_while_the_programs_change_is_hedged_and_its_loser_dropped(lab, servers, product):
    """Parked by the old programs, sent on by the new ones."""
    product.up(services=product.services("dns", delay="4s", deadline="20s", budget="100%"))
    servers["a"].stall()
    with UdpClient(lab.client, VIP4) as client:
        client.send(query(7, "www.example.test"))
        end(product, signal.SIGTERM)
        assert start(product, NEXT)["how"] == "upgraded"
        assert client.receive(timeout_s=8) is not None
        go_on(lab, servers["a"])
        assert client.receive(timeout_s=0.5) is None  # the loser's
    assert product.figure("won_by_hedge") + product.figure("won_by_failover") == 1
    assert product.figure("losers_dropped") == 1


def test_what_is_known_of_answer_times_is_known_to_the_next_daemon(lab, servers, product):
    product.up(services=product.services("dns", suspect_min="100us"))
    for number in range(60):  # of which a window of the tuner's has 20
        assert dig(lab.client, VIP4, f"n{number}.example.test").status

    def status() -> tuple[int, bool]:
        """SUSPECT's threshold; is it one of answers, and not what stands in for them while none are known?"""
        service = product.service_status(DNS4)
        backend = service["backends"][0]
        now = int(backend["suspect_after_ns"])
        return now, now != 3 * int(service["delay_ns"]) and now <= 3 * int(backend["answer_ns"]["max"])

    wait_until(lambda: status()[1], what="a p99 of the answer times")
    known, _ = status()
    end(product, signal.SIGKILL)
    start(product)
    assert status() == (known, True)
    time.sleep(1.5)  # and after it was computed anew, of what the kernel remembers
    assert status()[1]


def test_a_restart_with_another_configuration_that_runs_as_it_is_begins_anew(lab, servers, product):
    product.up()
    end(product, signal.SIGTERM)
    assert start(product, limits={"requests": 4096})["how"] == "made"
    assert product.status()["maps"]["requests"]["size"] == 4096
    assert "configuration" in product.log.read_text()
    assert who_answers(lab.client, VIP4) == "a"


def test_a_restart_with_other_keys_of_the_daemon_alone_takes_the_kernel_part_over(lab, servers, product):
    product.up()
    assert who_answers(lab.client, VIP4) == "a"
    end(product, signal.SIGTERM)
    product.socket = product.folder / "other.sock"
    assert start(product, metrics={"listen": "127.0.0.1:0"}, page={"serve": "off"})["how"] == "adopted"
    assert product.figure("requests") == 1 and product.status()["metrics"].startswith("127.0.0.1:")
    end(product, signal.SIGKILL)
    assert start(product, metrics={"listen": ""})["how"] == "adopted", "and again, from the record"


# -- what somebody took away -------------------------------------------------------------------------------------


def test_a_filter_taken_away_while_no_daemon_lives_is_put_back_and_counted(lab, servers, product):
    product.up(attach="clsact")
    end(product, signal.SIGKILL)
    lab.client.run(["tc", "filter", "del", "dev", "eth0", "ingress"])
    adoption = start(product)
    assert adoption["how"] == "adopted" and int(adoption["attachments_restored"]) == 1
    assert who_answers(lab.client, VIP4) == "a" and who_answers(lab.client, VIP6) == "a"


@pytest.mark.parametrize("device", ["eth0", "hr0"])
def test_a_clsact_qdisc_taken_away_while_the_daemon_lives_is_put_back_with_its_filter(lab, servers, product, device):
    product.up(attach="clsact")
    lab.client.run(["tc", "qdisc", "del", "dev", device, "clsact"])
    filters = 2 if device == "eth0" else 1  # the uplink's: of both directions
    wait_until(lambda: int(product.status()["adoption"]["attachments_restored"]) == filters, what="the filters' return")
    assert who_answers(lab.client, VIP4) == "a" and who_answers(lab.client, VIP6) == "a"


@pytest.mark.skipif(not HAS_TCX, reason="this kernel has no TCX (it came with 6.6)")
def test_a_link_whose_pin_was_removed_is_attached_again_and_counted(lab, servers, product):
    product.up(attach="tcx")
    end(product, signal.SIGKILL)
    next(path for path in pins(product).glob("tc-hr_reply-*") if not path.name.endswith("-1")).unlink()  # lo is number 1
    # The kernel detaches a link without a holder from a work queue.
    wait_until(lambda: dig(lab.client, VIP4, "www.example.test", timeout_s=1).status is None, what="the program's end")
    assert int(start(product)["attachments_restored"]) == 1
    assert who_answers(lab.client, VIP4) in ("a", "b")  # a was silent for a while


@pytest.mark.parametrize("attach", ["tcx", "clsact"])
def test_pins_removed_while_the_daemon_lives_are_put_back_and_the_next_daemon_takes_over(lab, servers, product, attach):
    product.up(attach=attach_of(attach))

    def pinned() -> set[Path]:
        return set(pins(product).rglob("*"))

    all_of_them = pinned()
    for removed in (pins(product) / "record", pins(product)):
        shutil.rmtree(removed) if removed.is_dir() else removed.unlink()
        assert pinned() != all_of_them
        wait_until(lambda: pinned() == all_of_them, what="the pins' return")
    wait_until(lambda: product.log.read_text(encoding="utf-8").count("which were removed from outside") == 2, what="two lines in the log")
    assert not product.status()["problems"]
    end(product, signal.SIGKILL)
    assert who_answers(lab.client, VIP4) == "a" and who_answers(lab.client, VIP6) == "a"
    assert start(product)["how"] == "adopted"
    assert who_answers(lab.client, VIP4) == "a"


def test_route_link_and_clock_taken_away_while_no_daemon_lives_are_put_back(lab, servers, product):
    product.up()
    end(product, signal.SIGKILL)
    lab.client.run(["tc", "qdisc", "del", "dev", "hr0c0", "root"])
    lab.client.run(["ip", "link", "set", "hr0", "down"])
    assert start(product)["how"] == "adopted"
    wait_until(lambda: int(product.status()["links_restored"]) >= 1, what="the link's return")
    assert who_answers(lab.client, VIP4) == "a" and who_answers(lab.client, VIP6) == "a"
    servers["a"].stall()
    with UdpClient(lab.client, VIP4) as client:
        assert any(client.ask(number, "n1.example.test", timeout_s=0.5) for number in range(10))
    go_on(lab, servers["a"])


def test_a_hardware_address_changed_while_no_daemon_lives_is_put_back(lab, servers, product):
    product.up()
    end(product, signal.SIGKILL)
    lab.client.run(["ip", "link", "set", "hr0", "address", "02:00:00:00:00:77"])
    assert dig(lab.client, VIP4, "www.example.test", timeout_s=1).status is None  # the kernel takes answers for another host's
    assert start(product)["how"] == "adopted"
    assert int(product.status()["links_restored"]) == 1
    assert who_answers(lab.client, VIP4) in ("a", "b") and who_answers(lab.client, VIP6) in ("a", "b")


@pytest.mark.parametrize("link", ["hr0", "hr0c0"])
def test_an_own_interface_deleted_while_no_daemon_lives_is_made_again(lab, servers, product, link):
    product.up()
    assert who_answers(lab.client, VIP4) == "a"
    end(product, signal.SIGKILL)
    lab.client.run(["ip", "link", "delete", link])
    assert int(start(product)["adoptions"]) == 1
    assert int(product.status()["links_restored"]) == 1
    for vip, service in ((VIP4, DNS4), (VIP6, DNS6)):
        winner = who_answers(lab.client, vip)  # the leader, but for a hedge on a busy machine
        hedged = product.figure("won_by_hedge", service) + product.figure("won_by_failover", service)
        assert winner == ("b" if hedged else "a")
    assert product.figure("requests") == 2  # the books go on
    servers["a"].stall()
    assert who_answers(lab.client, VIP4) == "b"
    go_on(lab, servers["a"])


def test_a_start_that_died_half_way_is_cleared_away(lab, servers, product):
    product.up()
    end(product, signal.SIGKILL)
    lab.client.run(["ip", "route", "flush", "dev", "hr0"])
    record(product, "complete=false")
    assert start(product)["how"] == "made"
    assert who_answers(lab.client, VIP4) == "a"


# -- what cannot be taken over works on ---------------------------------------------------------------------------


def another_map(path: Path) -> None:
    """Somebody else's map under our pin's name."""
    path.unlink()
    subprocess.run(["bpftool", "map", "create", path, "type", "array", "key", "4", "value", "8", "entries", "4", "name",
                    "somebodys"], check=True, capture_output=True, timeout=10)


FAULTS = {
    "layout version": (lambda product: record(product, "abi_version=1"), "layout 1"),
    "map layout": (lambda product: record(product, "layout=requests"), "requests has another layout"),
    "missing pin": (lambda product: (pins(product) / "map-flows").unlink(), "map-flows"),
    "foreign map": (lambda product: another_map(pins(product) / "map-leaders"), "map-leaders is another map"),
    "no record": (lambda product: (pins(product) / "record").unlink(), "record"),
    "foreign record": (lambda product: another_map(pins(product) / "record"), "is not the map hr_record"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=[name.replace(" ", "-") for name in FAULTS])
def test_what_cannot_be_taken_over_is_refused_with_the_reason_and_works_on(lab, servers, product, fault):
    product.up()
    end(product, signal.SIGKILL)
    plant, said = FAULTS[fault]
    plant(product)
    before = machine.take(lab.client, product.instance)
    done = product.daemon(product._config_up)
    assert done.returncode == 1 and said in done.stderr and "hedgerow clean" in done.stderr, done.stderr
    changed = machine.differences(before, machine.take(lab.client, product.instance))
    assert [line for line in changed if "run file" not in line] == []  # the dead daemon's lock
    servers["a"].stall()
    assert who_answers(lab.client, VIP4) == "b"  # hedged, by a kernel part without a daemon
    go_on(lab, servers["a"])
    product.clean()
    product.is_up = False
    product.check_nothing_left()


@pytest.mark.skipif(not HAS_TCX, reason="this kernel has no TCX (it came with 6.6)")
def test_an_upgrade_that_fails_half_way_is_taken_back(lab, servers, product):
    """The splitter is the last to be replaced. Its link's pin is somebody's map: the replies' program is new by then."""
    product.up(attach="tcx")
    end(product, signal.SIGTERM)
    splitter = next(pins(product).glob("tc-hr_splitter-*"))
    kept = splitter.with_name("kept")
    splitter.rename(kept)
    subprocess.run(["bpftool", "map", "create", splitter, "type", "array", "key", "4", "value", "8", "entries", "4",
                    "name", "somebodys"], check=True, capture_output=True, timeout=10)
    before = attached_programs_but(product, splitter.name)
    done = product.lab.client.run([BIN / NEXT, "--config", product.write(product._config_up)], check=False)
    assert done.returncode == 1 and splitter.name in done.stderr, done.stderr
    assert attached_programs_but(product, splitter.name) == before
    assert [path.name for path in pins(product).glob("programs-*")] == ["programs-1"]
    assert who_answers(lab.client, VIP4) == "a"
    splitter.unlink()
    kept.rename(splitter)
    assert start(product)["how"] == "adopted"


def attached_programs_but(product, name: str) -> dict[str, int]:
    hidden = pins(product) / name
    aside = hidden.with_name("aside")
    hidden.rename(aside)
    try:
        return attached_programs(product)
    finally:
        aside.rename(hidden)


# -- no daemon for too long ---------------------------------------------------------------------------------------


def test_hedging_stops_when_no_daemon_lives_for_long_and_traffic_flows_on(lab, servers, product):
    product.up(unattended_timeout="1s")
    end(product, signal.SIGKILL)
    assert who_answers(lab.client, VIP4) == "a"
    time.sleep(2.2)
    assert who_answers(lab.client, VIP4) == "a"
    servers["a"].stall()
    with UdpClient(lab.client, VIP4) as client:
        client.send(query(3, "www.example.test"))
        assert client.receive(timeout_s=0.4) is None  # nobody hedged
        go_on(lab, servers["a"])
        assert client.receive(timeout_s=2) is not None  # forwarded all the same
    adoption = start(product)
    assert adoption["how"] == "adopted" and int(adoption["unattended_stops"]) == 1
    assert int(adoption["hedging_stopped_ns"]) > 1_000_000_000
    assert int(adoption["unattended_ns"]) > int(adoption["hedging_stopped_ns"])
    counted = int(product.service_status(DNS4)["reasons"]["no_daemon"])
    assert counted in (2, 3)  # 3: a busy machine sent the first question later than 1 s after the end
    assert "hedging was stopped for" in product.log.read_text()
    servers["a"].stall()
    assert who_answers(lab.client, VIP4) == "b"  # lifted
    go_on(lab, servers["a"])
    time.sleep(1.5)  # and a daemon that lives keeps it so
    assert int(product.service_status(DNS4)["reasons"]["no_daemon"]) == counted


def test_a_short_absence_stops_nothing(lab, servers, product):
    product.up(unattended_timeout="30s")
    end(product, signal.SIGKILL)
    servers["a"].stall()
    assert who_answers(lab.client, VIP4) == "b"
    go_on(lab, servers["a"])
    adoption = start(product)
    assert int(adoption["unattended_stops"]) == 0 and int(adoption["hedging_stopped_ns"]) == 0
