# SPDX-License-Identifier: Apache-2.0
"""What surrounds a daemon and is not its work: signals that mean something to other programs, a log that no process reads, a port
of its metrics that another program has, standard descriptors that are closed. None of it ends the daemon or keeps it from serving. And what
comes late at a boot: addresses, ports, key files, routes. The daemon waits for it, and says so."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from bench.manifest import binary
from harness import machine
from harness.dns import dig, who_answers
from harness.product import METRICS, VIP4, VIP6, wait_until
from harness.time_namespace import in_time_namespace

# A loopback address of this test alone; nothing else listens there.
HOST = "127.91.7.5"
CONFIG = """{more}cluster_id: 93
cluster_key_file: {folder}/cluster.key
node: 1
data_dir: {folder}/data
admin_socket: {folder}/admin.sock
metrics_listen: "{metrics}:4803"
members:
  - {{id: 1, peer: "{host}:4802", serve: "{host}:4801"}}
"""
WITHIN_S = 20.0


def key_file(path, digit):
    path.touch(mode=0o600)
    path.write_text(digit * 32 + "\n", encoding="ascii")


@contextlib.contextmanager
def node(folder, stderr, closed=(), host=HOST, wrapper=(), more=""):
    if not (folder / "late").exists():
        key_file(folder / "cluster.key", "1")
    config = folder / "node.yaml"
    config.write_text(CONFIG.format(folder=folder, host=host, metrics=HOST, more=more), encoding="utf-8")
    config.chmod(0o600)
    with subprocess.Popen([*wrapper, binary("hedgerow-node"), "run", "--config", config], stderr=stderr,
                          preexec_fn=lambda: [os.close(each) for each in closed]) as process:
        try:
            yield process
        finally:
            process.kill()


def command(folder, *words):
    return subprocess.run([binary("hedgerow-node"), *words, "--socket", folder / "admin.sock"], capture_output=True, text=True, check=False, timeout=20)


def status(folder):
    done = command(folder, "status", "--json")
    return json.loads(done.stdout) if done.returncode == 0 else {}


def serves(folder):
    return status(folder).get("ready", False)


def page(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


@contextlib.contextmanager
def taken(address, port):
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((address, port))
        other.listen()
        yield other


def test_signals_end_a_node_only_where_they_are_meant_to(tmp_path):
    log = tmp_path / "log"
    with open(log, "ab") as stderr, node(tmp_path, stderr) as process:
        wait_until(lambda: serves(tmp_path), WITHIN_S, "it serves")
        before = status(tmp_path)
        with open(tmp_path / "cluster.key", "a", encoding="ascii") as keys:
            keys.write("2" * 32 + "\n")  # a second key, which is valid from the reload on
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: "SIGHUP: the key files are read again" in log.read_text(), WITHIN_S, "the reload")
        (tmp_path / "cluster.key").write_text("no key\n", encoding="ascii")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: "SIGHUP: the keys stay as they are: " in log.read_text(), WITHIN_S, "the refusal")
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE):
            process.send_signal(number)
        wait_until(lambda: "SIGUSR2 of process" in log.read_text(), WITHIN_S, "the others")
        now = status(tmp_path)
        assert (now["pid"], now["ready"]) == (before["pid"], True) and now["uptime_ns"] > before["uptime_ns"]
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=WITHIN_S) == 0


def test_a_node_whose_metrics_port_is_taken_serves_without_and_takes_the_port_when_it_is_free(tmp_path):
    with open(tmp_path / "log", "ab") as stderr, taken(HOST, 4803) as other, node(tmp_path, stderr):
        wait_until(lambda: serves(tmp_path), WITHIN_S, "it serves")
        assert any(f"metrics: cannot listen on {HOST}:4803" in each for each in status(tmp_path)["problems"])
        other.close()
        wait_until(lambda: not status(tmp_path)["problems"], WITHIN_S, "the port is taken over")
        assert "hedgerow_node_term" in page(f"http://{HOST}:4803/metrics")
        assert status(tmp_path)["metrics"] == f"{HOST}:4803"


def test_a_node_whose_log_no_process_reads_serves_and_counts_what_is_lost(tmp_path):
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    with node(tmp_path, writing):
        os.close(writing)
        wait_until(lambda: serves(tmp_path), WITHIN_S, "it serves")
        # Each leaves a line of the audit.
        until = time.monotonic() + 60
        while "hedgerow_log_lines_lost_total 0\n" in page(f"http://{HOST}:4803/metrics"):
            assert time.monotonic() < until, "no line was lost"
            for _ in range(20):
                command(tmp_path, "members", "add", "7", f"{HOST}:{'9' * 200}")
        assert serves(tmp_path)
        os.set_blocking(reading, False)
        said = b""

        def has_said():
            nonlocal said
            with contextlib.suppress(BlockingIOError):
                said += os.read(reading, 1 << 20)
            return b" lines of this log were lost" in said

        wait_until(has_said, WITHIN_S, "the log says how many lines were lost")
        os.close(reading)  # and now it has no reader at all
        command(tmp_path, "keys", "reload")
        assert serves(tmp_path)


@pytest.mark.parametrize("closed", [(2,), (0, 1, 2)])
def test_a_node_without_standard_descriptors_keeps_its_log_out_of_its_files(tmp_path, closed):
    with node(tmp_path, subprocess.DEVNULL, closed) as process:
        wait_until(lambda: serves(tmp_path), WITHIN_S, "it serves")
        for each in set(closed) - {0}:  # gRPC takes a free 0 before main()
            assert os.readlink(f"/proc/{process.pid}/fd/{each}") == "/dev/null"


def test_a_taken_metrics_port_keeps_no_daemon_from_taking_over(lab, servers, product):
    config = product.up(metrics=METRICS).config(metrics=METRICS)
    host, port = METRICS["listen"].split(":")
    pid = product.pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), what="its end")
    script = f"import socket\ns = socket.socket(); s.setsockopt(1, 2, 1); s.bind(({host!r}, {port})); s.listen(); print(flush=True); input()"
    other = lab.client.popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    said = other.stdout.readline()
    assert said == b"\n", said + other.stdout.read()
    product.run("up", "--config", product.write(config), check=True)
    assert product.status()["adoption"]["how"] == "adopted"
    wait_until(lambda: any(each.startswith("not_served: metrics: ") and port in each for each in product.status()["problems"]), what="the problem")
    assert product.status()["metrics"] == ""
    assert dig(lab.client, VIP4, "www.example.test").status == "NOERROR"
    other.communicate(b"\n", timeout=5)
    wait_until(lambda: not product.status()["problems"], WITHIN_S, "the port is taken over")
    assert product.metric("hedgerow_config_last_reload_successful") == 1


def test_a_daemon_that_other_signals_reach_stays(lab, servers, product):
    product.up()
    pid = product.pid
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE):
        os.kill(pid, number)
    wait_until(lambda: "SIGUSR2 of process" in product.log.read_text(), what="the signals")
    assert product.status()["pid"] == pid


def test_a_daemon_that_up_starts_keeps_nothing_that_its_caller_had_open(lab, servers, product, tmp_path):
    config = product.up().config()
    pid = product.pid
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), what="its end")
    product.run("up", "--config", product.write(config), check=True, wrapper=("flock", str(tmp_path / "lock")))
    assert product.status()["adoption"]["how"] == "adopted"
    with open(tmp_path / "lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


# -- what comes late -----------------------------------------------------------------------------------------------------


def test_a_node_waits_for_its_address_and_serves_once_it_is_there(tmp_path):
    """In a network namespace of its own; the administration socket is a file."""
    log = tmp_path / "log"
    alone = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    with open(log, "ab") as stderr, node(tmp_path, stderr, host="10.91.7.5", wrapper=alone) as process:
        wait_until(lambda: status(tmp_path).get("role") == "starting", WITHIN_S, "it can be asked")
        problems = status(tmp_path)["problems"]
        assert any("cannot bind to 10.91.7.5:4802" in each and "no interface of this host has the address (yet)" in each for each in problems), problems
        refused = command(tmp_path, "snapshot")
        assert refused.returncode != 0 and "tries again every second" in refused.stderr
        time.sleep(2.5)
        assert process.poll() is None and log.read_text().count("waits, and tries again every second: ") == 1
        subprocess.run(["nsenter", f"--net=/proc/{process.pid}/ns/net", "ip", "address", "add", "10.91.7.5/32", "dev", "lo"], check=True, timeout=10)
        wait_until(lambda: serves(tmp_path), 5, "it serves")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=WITHIN_S) == 0


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_a_node_waits_for_a_port_that_another_program_has(tmp_path, kind):
    with open(tmp_path / "log", "ab") as stderr, socket.socket(socket.AF_INET, kind) as other:
        other.bind((HOST, 4802))
        if kind == socket.SOCK_STREAM:
            other.listen()
        with node(tmp_path, stderr) as process:
            wait_until(lambda: any(f"{HOST}:4802" in each for each in status(tmp_path).get("problems", [])), WITHIN_S, "the problem")
            other.close()
            wait_until(lambda: serves(tmp_path), 5, "it serves")
            assert process.poll() is None and status(tmp_path)["problems"] == []


def test_a_node_that_waits_reads_its_log_again_and_a_stop_ends_that_at_once(tmp_path):
    """A pipe among the log's files holds the second try at it."""
    with open(tmp_path / "log", "ab") as stderr, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        with node(tmp_path, stderr) as process:
            wait_until(lambda: serves(tmp_path), WITHIN_S, "there is a log")
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=WITHIN_S)
        other.bind((HOST, 4802))
        with node(tmp_path, stderr) as process:
            wait_until(lambda: any(f"{HOST}:4802" in each for each in status(tmp_path).get("problems", [])), WITHIN_S, "the problem")
            os.mkfifo(tmp_path / "data" / "segments" / "ffff", 0o600)
            other.close()
            wait_until(lambda: "checks the log" in status(tmp_path).get("starting", ""), WITHIN_S, "it says that it reads its log")
            assert status(tmp_path)["problems"] == []
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=5) in (0, -signal.SIGTERM)


def test_a_node_whose_user_may_not_give_the_default_monitoring_socket_to_its_group_serves_without(tmp_path):
    folder = tmp_path / "node"
    folder.mkdir()
    key_file(folder / "cluster.key", "1")
    (folder / "node.yaml").touch()
    for each in (folder, *folder.iterdir()):
        os.chown(each, 65534, 65534)
    for above in folder.parents[:-2]:
        above.chmod(above.stat().st_mode | 0o011)
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    log = tmp_path / "log"
    with open(log, "ab") as stderr, node(folder, stderr, wrapper=nobody, more="monitor_group: daemon\n") as process:
        wait_until(lambda: serves(folder), WITHIN_S, "it serves")
        assert not any("monitor" in each for each in status(folder)["problems"]), status(folder)["problems"]
        time.sleep(2.5)  # it is not tried again
        assert log.read_text().count("serves without a monitoring socket: give the socket ") == 1
        assert process.poll() is None and not (folder / "monitor.sock").exists()


def test_a_node_waits_for_a_key_file_and_sighup_looks_at_once(tmp_path):
    (tmp_path / "late").touch()
    log = tmp_path / "log"
    with open(log, "ab") as stderr, node(tmp_path, stderr) as process:
        wait_until(lambda: "waits for files" in log.read_text() and "cluster_key_file" in log.read_text(), WITHIN_S, "the wait")
        process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert process.poll() is None
        key_file(tmp_path / "cluster.key", "1")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: serves(tmp_path), WITHIN_S, "it serves")


def test_a_node_reads_the_keys_of_a_folder_that_was_exchanged(tmp_path):
    """As the kubelet exchanges a Secret's."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    (tmp_path / "..data").symlink_to("first")
    (tmp_path / "cluster.key").symlink_to("..data/cluster.key")
    log = tmp_path / "log"
    with open(log, "ab") as stderr, node(tmp_path, stderr) as process:
        wait_until(lambda: serves(tmp_path), WITHIN_S, "it serves")
        before = command(tmp_path, "keys").stdout
        key_file(tmp_path / "second" / "cluster.key", "1")
        with open(tmp_path / "second" / "cluster.key", "a", encoding="ascii") as keys:
            keys.write("2" * 32 + "\n")
        (tmp_path / "next").symlink_to("second")
        os.rename(tmp_path / "next", tmp_path / "..data")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: "SIGHUP: the key files are read again" in log.read_text(), WITHIN_S, "the reload")
        assert command(tmp_path, "keys").stdout != before != ""


def test_a_node_that_waits_ends_by_sigterm(tmp_path):
    (tmp_path / "late").touch()
    with open(tmp_path / "log", "ab") as stderr, node(tmp_path, stderr) as process:
        wait_until(lambda: "waits for files" in (tmp_path / "log").read_text(), WITHIN_S, "the wait")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=WITHIN_S) == 0


@pytest.mark.own
@pytest.mark.parametrize("what", ["link", "address", "one backend"])
def test_a_proxy_that_starts_without_a_network_follows_it_when_it_comes(lab, servers, product, what):
    assert not product.is_up
    whole = machine.take(lab.client, product.instance)
    if what == "link":
        lab.client.run(["ip", "link", "set", "eth0", "down"])
    elif what == "address":
        lab.client.run(["ip", "address", "flush", "dev", "eth0", "scope", "global"])
    else:
        lab.client.run(["ip", "route", "add", "unreachable", f"{lab.replica('a').ipv4}/32"])
    product.up()
    product.before = whole
    codes = {each.split(":")[0] for each in product.status()["problems"]}
    assert codes and codes <= {"no_route", "no_source", "uplink_down"}
    if what == "one backend":
        assert dig(lab.client, VIP4, "www.example.test").status == "NOERROR", "the other one answers"
        lab.client.run(["ip", "route", "del", "unreachable", f"{lab.replica('a').ipv4}/32"])
    else:
        lab.client.run(["ip", "link", "set", "eth0", "up"])
        lab.client.run(["ip", "address", "replace", f"{lab.client.ipv4}/24", "dev", "eth0"])
        lab.client.run(["ip", "-6", "address", "replace", f"{lab.client.ipv6}/64", "dev", "eth0", "nodad"])
    wait_until(lambda: product.status()["problems"] == [], WITHIN_S, "the network is followed")
    for vip in (VIP4, VIP6):
        assert dig(lab.client, vip, "www.example.test").status == "NOERROR"


@contextlib.contextmanager
def confined_daemon(product, file):
    """hedgerowd with the rights of its unit in as much as Landlock needs: it may not mount."""
    wrapper = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    product.before = machine.take(product.lab.client, product.instance)
    daemon = product.lab.client.popen([*wrapper, binary("hedgerowd"), "--config", file], log=product.log)
    try:
        yield daemon
    finally:
        product.admin("down", check=False)
        daemon.wait(15)
    product.check_nothing_left()


@pytest.mark.own
def test_a_proxy_waits_for_a_key_file(lab, servers, product):
    key = product.folder / "announce.key"
    services = product.services("dns")
    services[0]["cluster"] = {"id": 93, "key_file": str(key)}
    file = product.write(product.config(services=services))
    with confined_daemon(product, file) as daemon:
        wait_until(lambda: "waits for files" in product.log.read_text(), WITHIN_S, "the wait")
        assert daemon.poll() is None and product.admin("status", check=False).returncode == 3
        key_file(key, "3")
        wait_until(lambda: product.admin("status", check=False).returncode == 0, WITHIN_S, "it serves")
        assert dig(lab.client, VIP4, "www.example.test").status == "NOERROR"


@pytest.mark.own
@pytest.mark.parametrize("how", ["link", "rename", "swap"])
def test_a_reload_reads_a_configuration_whose_folder_was_exchanged(lab, servers, product, tmp_path, how):
    """A link to a release, a folder that is renamed into place (rsync, configuration management), the double link of a ConfigMap. Not in
    the folder of the socket, which the daemon may read and write."""
    def release(name, delay):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(product.write(product.config(services=product.services("dns", delay=delay))), folder)
        return folder

    def swap(link, to):
        (tmp_path / "next").symlink_to(to)
        os.rename(tmp_path / "next", link)

    current = tmp_path / "current"
    if how == "rename":
        release("current", "7ms")
    elif how == "link":
        current.symlink_to(release("first", "7ms"))
    else:
        current.mkdir()
        (current / "..data").symlink_to(release("first", "7ms"))
        (current / "hedgerow.yaml").symlink_to("..data/hedgerow.yaml")
    with confined_daemon(product, current / "hedgerow.yaml") as daemon:
        wait_until(lambda: product.admin("status", check=False).returncode == 0, WITHIN_S, "it serves")
        assert "files are confined" in product.log.read_text()
        for number, (delay, reload) in enumerate((("9ms", "command"), ("11ms", "signal"), ("13ms", "command"))):
            next_one = release(f"release{number}", delay)
            if how == "rename":
                os.rename(current, tmp_path / f"former{number}")
                os.rename(next_one, current)
            else:
                swap(current if how == "link" else current / "..data", next_one)
            if reload == "command":
                product.admin("reload")
            else:
                daemon.send_signal(signal.SIGHUP)
            wait_until(lambda want=int(delay[:-2]): int(product.service_status()["delay_ns"]) == want * 1_000_000, what=f"{delay} are in force")


@pytest.mark.own
def test_a_kernel_without_ipv6_serves_ipv4(lab, servers, product):
    """Booted with ipv6.disable=1. The services of IPv6 are problems, and nothing is left by any command."""
    wrapper = ("env", f"LD_PRELOAD={binary('hr-no_ipv6.so')}")
    product.before = machine.take(lab.client, product.instance)
    file = product.write(product.config())
    assert product.run("up", "--config", file, wrapper=wrapper).returncode == 0
    try:
        assert dig(lab.client, VIP4, "www.example.test").status == "NOERROR"
        problems = product.status()["problems"]
        assert problems and all("dns6" in each or VIP6 in each for each in problems), problems
        assert product.run("reload", "--socket", product.socket, wrapper=wrapper).returncode == 0
    finally:
        product.admin("down", check=False)
    cleaned = product.run("clean", "--instance", product.instance, wrapper=wrapper)
    assert cleaned.returncode == 0, cleaned.stderr
    product.check_nothing_left()


@pytest.mark.parametrize("ahead", [-0.5, 20.0], ids=["behind", "ahead"])
def test_a_proxy_in_a_time_namespace_hedges_until_it_has_been_gone_for_long(lab, servers, product, ahead):
    """Its monotonic clock is not the one that the kernel programs go by."""
    product.up(unattended_timeout="1s")
    up = ("up", "--config", str(product.folder / "hedgerow.yaml"))
    os.kill(product.pid, signal.SIGKILL)
    assert product.run(*up, wrapper=in_time_namespace(ahead * time.monotonic())).returncode == 0
    servers["a"].stall()
    assert who_answers(lab.client, VIP4) == "b"
    os.kill(product.pid, signal.SIGKILL)
    wait_until(lambda: who_answers(lab.client, VIP4) is None, 10, "the end of hedging")
    servers["a"].resume()
    assert product.run(*up).returncode == 0
