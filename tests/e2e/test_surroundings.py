# SPDX-License-Identifier: Apache-2.0
"""What surrounds a daemon and is not its work: signals that mean something to other programs, a log that no process reads, a port
of its metrics that another program has, standard descriptors that are closed. None of it ends the daemon or keeps it from serving."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from bench.manifest import binary
from harness.dns import dig
from harness.product import METRICS, VIP4, wait_until

# A loopback address of this test alone; nothing else listens there.
HOST = "127.91.7.5"
CONFIG = """cluster_id: 93
cluster_key_file: {folder}/cluster.key
node: 1
data_dir: {folder}/data
admin_socket: {folder}/admin.sock
metrics_listen: "{host}:4803"
members:
  - {{id: 1, peer: "{host}:4802", serve: "{host}:4801"}}
"""
WITHIN_S = 20.0


def key_file(path, digit):
    path.touch(mode=0o600)
    path.write_text(digit * 32 + "\n", encoding="ascii")


@contextlib.contextmanager
def node(folder, stderr, closed=()):
    key_file(folder / "cluster.key", "1")
    config = folder / "node.yaml"
    config.write_text(CONFIG.format(folder=folder, host=HOST), encoding="utf-8")
    config.chmod(0o600)
    with subprocess.Popen([binary("hedgerow-node"), "run", "--config", config], stderr=stderr,
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
