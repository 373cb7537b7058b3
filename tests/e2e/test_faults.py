# SPDX-License-Identifier: Apache-2.0
"""Faults around the proxy: what it can mend it mends and counts, what it cannot it says, with an exit code and nothing
left behind."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness import machine
from harness.dns import who_answers
from harness.other_users import open_folder
from harness.product import BIN, DNS4, VIP4, VIP6, wait_until

pytestmark = pytest.mark.own
FAMILIES = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["ipv4", "ipv6"])


def refused(product, config, *words: str, wrapper: tuple[str, ...] = ()) -> str:
    """`up` and the daemon itself both refuse, both say all of `words`, and the machine is as it was."""
    path = product.write(config, "refused.yaml")
    before = machine.take(product.lab.client, product.instance)
    texts = []
    for done in (product.run("up", "--config", path, wrapper=wrapper), product.daemon(config, wrapper=wrapper)):
        text = done.stdout + done.stderr
        assert done.returncode > 0, f"exit {done.returncode}: {text}"
        for word in words:
            assert word in text, f"{word!r} is not in: {text}"
        texts.append(text)
    deadline = time.monotonic() + 5
    while wrong := machine.differences(before, machine.take(product.lab.client, product.instance)):
        assert time.monotonic() < deadline, wrong
        time.sleep(0.05)
    return texts[-1]


def wait_until_ready(product, daemon) -> None:
    """A daemon in the foreground: its socket is there early, it answers when it serves."""
    def serves() -> bool:
        assert daemon.poll() is None, product.log.read_text()
        return product.admin("status", check=False).returncode == 0

    wait_until(serves, timeout_s=15, what="the daemon's start")


# -- while it runs ---------------------------------------------------------------------------------------------


@FAMILIES
def test_a_vip_route_taken_away_is_restored_and_counted(lab, proxy, vip):
    family = "-6" if ":" in vip else "-4"
    lab.client.run(["ip", family, "route", "del", vip, "dev", "hr0"])
    wait_until(lambda: int(proxy.status()["routes_restored"]) >= 1, what="the route's return")
    assert who_answers(lab.client, vip) == "a"


def test_a_proxy_interface_set_down_is_restored_and_counted(lab, proxy):
    lab.client.run(["ip", "link", "set", "hr0", "down"])
    wait_until(lambda: int(proxy.status()["links_restored"]) >= 1, what="the link's return")
    wait_until(lambda: who_answers(lab.client, VIP4) == "a" and who_answers(lab.client, VIP6) == "a")


@pytest.mark.parametrize("change", ["address 02:00:00:00:00:77", "arp on"], ids=["address", "arp"])
def test_a_proxy_interface_that_is_changed_is_made_again_what_it_was(lab, proxy, change):
    """Answers are addressed to the hardware address that it was made with."""
    before = int(proxy.status()["links_restored"])
    lab.client.run(["ip", "link", "set", "hr0", *change.split()])
    wait_until(lambda: int(proxy.status()["links_restored"]) > before, what="the link's return")
    wait_until(lambda: who_answers(lab.client, VIP4) == "a" and who_answers(lab.client, VIP6) == "a")


def test_an_uplink_that_vanishes_is_told_and_down_still_leaves_nothing(lab, servers, product):
    product.up()
    assert who_answers(lab.client, VIP4) == "a"
    lab.unplug("client")
    # Other words may come first: the address goes before the routes do.
    wait_until(lambda: any(problem.startswith("no_route: service dns4") for problem in product.status()["problems"]), what="status to notice")
    assert product.status()["state"] == "degraded"
    product.check_identity()
    product.down()
    assert remains_of_the_proxy(product) == []


@pytest.mark.parametrize("link", ["hr0", "hr0c0"], ids=["proxy", "clock"])
def test_an_own_interface_that_somebody_deletes_is_made_again_and_counted(lab, servers, proxy, link):
    assert who_answers(lab.client, VIP4) == "a"
    pid = proxy.pid
    lab.client.run(["ip", "link", "delete", link])
    wait_until(lambda: int(proxy.status()["links_restored"]) >= 1, timeout_s=10, what="the link's return")
    assert who_answers(lab.client, VIP4) == "a" and who_answers(lab.client, VIP6) == "a"
    assert proxy.pid == pid and proxy.figure("requests") == 2
    servers["a"].stall()
    assert who_answers(lab.client, VIP4) == "b"
    servers["a"].resume()
    proxy.bpf_objects |= machine.bpf_objects(pid)


def remains_of_the_proxy(product) -> list[str]:
    """Without the uplink, much of the machine is not as it was; but of the proxy nothing may be left."""
    return [line for line in machine.differences(product.before, machine.take(product.lab.client, product.instance))
            if not line.startswith("taken away")
            and any(word in line for word in ("hr0", "pin ", "process", "bpf", "run file"))]


def test_the_clock_packet_lost_with_its_qdisc_is_found_and_started_again(lab, servers, proxy):
    """Somebody deletes the clock's qdisc and puts it back by setting the link down and up: the packet is gone."""
    clock = "hr0c0"
    assert lab.client.run(["ip", "link", "show", clock], check=False).returncode == 0
    lab.client.run(["ip", "link", "set", clock, "down"])
    time.sleep(0.1)
    lab.client.run(["ip", "link", "set", clock, "up"])
    servers["a"].stall()
    wait_until(lambda: who_answers(lab.client, VIP4) == "b", timeout_s=8, what="a hedge after the clock was lost")
    servers["a"].resume()


def test_traffic_flows_on_while_the_daemon_is_stopped(lab, servers, proxy):
    """The kernel does the work: a daemon that hangs costs nobody an answer."""
    pid = proxy.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        assert who_answers(lab.client, VIP4) == "a"
        servers["a"].stall()
        assert who_answers(lab.client, VIP4) == "b"
        servers["a"].resume()
    finally:
        os.kill(pid, signal.SIGCONT)


# -- at the start ----------------------------------------------------------------------------------------------


def test_a_second_daemon_of_the_same_instance_is_refused_and_the_first_serves_on(lab, servers, proxy):
    text = refused(proxy, proxy.config(unattended_timeout="61s"), proxy.instance)
    assert str(proxy.pid) in text or "running" in text
    assert who_answers(lab.client, VIP4) == "a"


def test_a_second_instance_on_the_same_interface_is_refused_and_the_first_serves_on(lab, servers, proxy):
    config = proxy.config(instance=f"{proxy.instance}x", admin={"socket": str(proxy.folder / "other.sock")},
                          metrics={"listen": ""})
    refused(proxy, config, "hr0")
    assert who_answers(lab.client, VIP4) == "a"


def test_an_interface_name_taken_by_somebody_else_is_refused_and_left_alone(lab, servers, product):
    lab.client.run(["ip", "link", "add", "hr0", "type", "bridge"])
    refused(product, product.config(), "hr0")
    assert "bridge" in lab.client.run(["ip", "-d", "link", "show", "hr0"]).stdout


def test_a_vip_that_is_routed_by_somebody_else_is_refused_or_left_as_it_was(lab, servers, product):
    """An exclusive conflict: two owners of one address's route."""
    lab.client.run(["ip", "route", "add", f"{VIP4}/32", "dev", "eth0"])
    refused(product, product.config(), VIP4)
    assert "dev eth0" in lab.client.run(["ip", "route", "show", f"{VIP4}/32"]).stdout


def test_a_vip_that_is_an_address_of_this_host_is_refused(lab, servers, product):
    lab.client.run(["ip", "address", "add", f"{VIP4}/32", "dev", "lo"])
    refused(product, product.config(), VIP4)


def test_an_ingress_qdisc_of_somebody_else_is_shared_or_refused_by_name(lab, servers, product):
    """The old `ingress` qdisc sits where clsact would: an exclusive conflict for clsact, none for TCX."""
    lab.client.run(["tc", "qdisc", "add", "dev", "eth0", "ingress"])
    lab.client.run(["tc", "filter", "add", "dev", "eth0", "ingress", "bpf", "bytecode", "1,6 0 0 0,", "flowid", "1:1"])
    config = product.config(attach="clsact")
    done = product.run("up", "--config", product.write(config))
    if done.returncode == 0:
        product.is_up = True
        product.before = None
        assert who_answers(lab.client, VIP4) == "a"
        product.check_identity()
        product.down()
    else:
        assert "eth0" in done.stdout + done.stderr
    assert "ingress" in lab.client.run(["tc", "qdisc", "show", "dev", "eth0"]).stdout
    assert "bpf" in lab.client.run(["tc", "filter", "show", "dev", "eth0", "ingress"]).stdout


@pytest.mark.parametrize("dropped", ["net_admin", "bpf", "perfmon"])
def test_without_a_capability_the_message_names_it(lab, servers, product, dropped):
    # CAP_SYS_ADMIN stands in for many others, so it goes as well.
    gone = ",".join(f"-{name}" for name in sorted({dropped, "sys_admin"}))
    wrapper = ("setpriv", f"--bounding-set={gone}", f"--inh-caps={gone}")
    before = machine.take(lab.client, product.instance)
    for command in (["hedgerowd", "--config", product.write(product.config())],
                    ["hedgerow", "up", "--config", product.write(product.config())]):
        done = lab.client.run([*wrapper, BIN / command[0], *command[1:]], check=False)
        assert done.returncode > 0
        assert f"CAP_{dropped.upper()}" in done.stdout + done.stderr
    assert machine.differences(before, machine.take(lab.client, product.instance)) == []


def test_a_user_without_any_privilege_is_told_what_is_missing(lab, servers, product):
    """As nobody, from copies that every user may read: the build's folder may be closed to others."""
    with open_folder() as folder:
        program = folder / "hedgerowd"
        shutil.copy2(BIN / "hedgerowd", program)
        config = folder / "hedgerow.yaml"
        config.write_text(product.write(product.config()).read_text(), encoding="utf-8")
        done = lab.client.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program, "--config", config],
                              check=False)
    text = done.stdout + done.stderr
    assert done.returncode > 0 and "CAP_NET_ADMIN" in text and "CAP_BPF" in text


def test_a_socket_path_that_cannot_be_made_is_named(lab, servers, product):
    refused(product, product.config(admin={"socket": "/proc/no/admin.sock"}), "/proc/no/admin.sock")


def test_a_clock_that_is_too_far_off_is_refused_with_both_figures(lab, servers, product):
    """The smallest tolerance there is: what an htb clock really gives is measured at the start and is further off."""
    done = product.run("up", "--config", product.write(product.config(clock={"tolerance": "100us"})))
    if done.returncode == 0:  # a machine whose clock is that good
        product.is_up, product.before = True, None
        clock = product.status()["clock"]
        assert abs(int(clock["measured_error_ns"])) <= 100_000
        product.down()
    else:
        assert "100us" in done.stdout + done.stderr


@pytest.fixture
def bpffs(product):
    """A mounted BPF file system, as systemd provides one: mounting it is the only thing that takes CAP_SYS_ADMIN.
    A folder of ours keeps another instance on this machine, which may have mounted it, from taking it away."""
    mount = Path("/sys/fs/bpf")
    mounted = mount.is_mount()
    if not mounted:
        subprocess.run(["mount", "-t", "bpf", "bpf", mount], check=True, timeout=10)
    ours = mount / f"kept-{product.instance}"
    ours.mkdir()
    yield
    ours.rmdir()
    if not mounted and not any(path for path in mount.iterdir() if not path.name.endswith(".debug")):
        subprocess.run(["umount", mount], check=False, timeout=10, capture_output=True)


def test_the_capabilities_it_names_are_enough(bpffs, lab, servers, product):
    caps = "-all,+bpf,+net_admin,+net_raw,+perfmon"
    wrapper = ["setpriv", f"--bounding-set={caps}", "--inh-caps=-all"]
    config = product.write(product.config())
    product.before = machine.take(lab.client, product.instance)
    daemon = lab.client.popen([*wrapper, BIN / "hedgerowd", "--config", config], log=product.log)
    wait_until_ready(product, daemon)
    assert who_answers(lab.client, VIP4) == "a"
    servers["a"].stall()
    assert who_answers(lab.client, VIP6) == "b"
    servers["a"].resume()
    product.admin("down")
    assert daemon.wait(10) == 0
    product.check_nothing_left()
