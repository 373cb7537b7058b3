# SPDX-License-Identifier: Apache-2.0
"""The surroundings that a host may have, a row each: how a program is set up in them, and what must hold. `SERVES`, or what it says when it
refuses, which names what an operator must change. The rows that have tests of their own, with where those are, are in ELSEWHERE."""

import contextlib
import dataclasses
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from deploy.lab import Lab
from deploy.lab.cluster import hedgerow_cluster
from deploy.lab.data_dirs import DataDirs
from deploy.lab.own_clock import OwnClock
from deploy.lab.programs import binary
from deploy.lab.servers.hedgerow_node import HedgerowNode, NodeSettings
from harness.dns import UdpClient
from harness.product import BIN, VIP4, wait_until
from harness.steer import Group, made_folder, made_netns
from harness.time_namespace import in_time_namespace

PROJECT = Path(__file__).resolve().parents[2]
SERVES = ""
PROXY, NODE, STEER = "hedgerowd", "hedgerow-node", "hedgerow-steer"
BOTH, ALL = (PROXY, NODE), (PROXY, NODE, STEER)


@dataclasses.dataclass(frozen=True)
class Row:
    """`within`: words before the program; `sh`: a script before it, in mounts of its own. `prepared`, `restored`: commands in the host."""

    name: str
    sh: str = ""
    within: tuple[str, ...] = ()
    programs: tuple[str, ...] = BOTH
    holds: str = SERVES
    prepared: str = ""
    restored: str = ""
    ahead_s: float = 0.0  # the wall clock
    jumps: bool = False  # it is put right once the program serves
    preload: str = ""
    start_s: float = 20.0


def tmpfs(folder: str, options: str) -> str:
    """A tree that is below the folder is there as before."""
    tree = shlex.quote(str(PROJECT))
    if not PROJECT.is_relative_to(folder):
        return f"mount -t tmpfs -o {options} none {folder}"
    return (f"exec 9<{tree}; mount -t tmpfs none {folder}; mkdir -p {tree}; mount --no-canonicalize --bind /proc/self/fd/9 {tree}; exec 9<&-; "
            f"mount -o remount,{options} {folder}")


def full(folder: str) -> str:
    return f"{tmpfs(folder, 'size=16k')}; head -c 100k /dev/zero >{folder}/filler 2>/dev/null || true"


FULL_RUN = "mkdir -p /run/hedgerow; " + full("/run/hedgerow")
ROWS = [
    Row("IPv6 is off", prepared="sysctl -qw net.ipv6.conf.all.disable_ipv6=1", restored="sysctl -qw net.ipv6.conf.all.disable_ipv6=0", programs=(NODE,)),
    Row("no bpffs is mounted", programs=ALL, sh="while umount -l /sys/fs/bpf 2>/dev/null; do :; done"),
    Row("bpffs is noexec", programs=ALL, sh="mount -t bpf -o noexec,nosuid,nodev bpf /sys/fs/bpf"),
    Row("bpffs is private", programs=ALL, sh="mount -t bpf bpf /sys/fs/bpf"),
    Row("bpffs is read-only", sh="mount -t bpf -o ro bpf /sys/fs/bpf", programs=(PROXY,), holds=r"/sys/fs/bpf.*[Rr]ead-only file system"),
    Row("no BTF", sh="mount --bind /dev/null /sys/kernel/btf/vmlinux"),
    Row("no BTF", sh="mount --bind /dev/null /sys/kernel/btf/vmlinux", programs=(STEER,), holds="no /sys/kernel/btf/vmlinux: the kernel was built without"),
    Row("/tmp is full", sh=full("/tmp")), Row("/tmp is read-only", sh=tmpfs("/tmp", "ro")), Row("/tmp is noexec", sh=tmpfs("/tmp", "noexec")),
    Row("/var is read-only", sh="mount --bind /var /var; mount -o remount,bind,ro /var"), Row("/var is full", programs=ALL, sh=full("/var")),
    Row("/run is noexec", sh="mount --bind /run /run; mount -o remount,bind,noexec /run"),
    Row("/run is read-only for 3 s", sh="mount --bind /run /run; mount -o remount,bind,ro /run; (sleep 3; mount -o remount,bind,rw /run) &", programs=(PROXY,)),
    Row("/run is full for 3 s", sh=FULL_RUN + "; (sleep 3; rm /run/hedgerow/filler) &", programs=(PROXY,)),
    Row("IPv6 was off at boot", programs=ALL, preload="hr-no_ipv6.so"),
    Row("no DNS server answers", sh="echo nameserver 192.0.2.53 >/tmp/surroundings.resolv; mount --bind /tmp/surroundings.resolv /etc/resolv.conf; "
        "rm /tmp/surroundings.resolv"),
    Row("standard descriptors are closed", sh="exec <&- >&- 2>&-"), Row("stdout and stderr are full", sh="exec >/dev/full 2>/dev/full"),
    Row("stacks of 256 KiB", within=("prlimit", "--stack=262144:262144"), programs=ALL), Row("stacks without a limit", within=("prlimit", "--stack=unlimited"), programs=ALL),
    Row("as many descriptors as may be", within=("sh", "-c", 'ulimit -n $(ulimit -Hn) && exec "$@"', "sh"), programs=ALL),
    Row("/proc hides other users' processes", sh="mount -t proc -o hidepid=2 proc /proc", programs=ALL),
    Row("lo is down", prepared="ip link set lo down", restored="ip link set lo up", programs=(PROXY,)),
    Row("one processor", within=("taskset", "1"), programs=ALL),
    Row("64 descriptors", within=("prlimit", "--nofile=64:64"), programs=(NODE,)),
    Row("64 descriptors, of a daemon that needs more", within=("prlimit", "--nofile=64:64"), programs=(PROXY,), holds="only 64 files may be open .*LimitNOFILE="),
    Row("no locked memory", programs=ALL, within=("prlimit", "--memlock=0:0")),
    Row("LANG=C", programs=ALL, within=("env", "-i", "LANG=C")), Row("LANG=tr_TR", programs=ALL, within=("env", "LANG=tr_TR.UTF-8", "LC_ALL=tr_TR.UTF-8")),
    Row("the clock is in 1970", programs=ALL, ahead_s=-time.time() + 3600), Row("the clock is in 2106", programs=ALL, ahead_s=4294967300 - time.time()),
    Row("the clock leaves 1970", programs=ALL, ahead_s=-time.time() + 3600, jumps=True), Row("the clock comes back from 2106", programs=ALL, ahead_s=4294967300 - time.time(), jumps=True),
    Row("a time namespace", within=in_time_namespace(-time.monotonic() / 2), programs=(NODE,)),
    Row("10,000 routes", prepared="ip link add many type veth peer name many0; ip link set many up; ip link set many0 up; "
        "seq 0 9999 | awk '{print \"route add 172.\" 16+int($1/65536)%16 \".\" int($1/256)%256 \".\" $1%256 \"/32 dev many\"}' | ip -batch -",
        restored="ip link del many", programs=(PROXY,)),
    Row("5,000 nft rules", prepared="(echo add table inet many; echo 'add chain inet many c { type filter hook input priority 0; }'; "
        "seq 5000 | awk '{print \"add rule inet many c udp dport \" $1+20000 \" counter\"}') | nft -f -", restored="nft delete table inet many", programs=(PROXY,)),
    Row("1,000 veths", prepared="seq 500 | awk '{print \"link add many\" $1 \"a type veth peer name many\" $1 \"b\"}' | ip -batch -",
        restored="seq 500 | awk '{print \"link del many\" $1 \"a\"}' | ip -batch -", programs=(PROXY,), start_s=60.0),
    Row("200 namespaces", prepared="seq 200 | awk '{print \"netns add surround\" $1}' | ip -batch -",
        restored="seq 200 | awk '{print \"netns del surround\" $1}' | ip -batch -", programs=(PROXY,)),
]
LONG = {"1,000 veths", "200 namespaces"}
# Where another test has the row.
ELSEWHERE = {
    "IPv6 off at run time, of a proxy": "test_follow_network.py", "IPv6 off at boot, every command": "test_surroundings.py",
    "a time namespace, of a proxy": "test_surroundings.py", "every signal": "test_surroundings.py", "a port that is taken, and freed": "test_surroundings.py",
    "a log that no process reads": "test_surroundings.py", "the node's disk is full": "test_full_disk_start.py",
    "`KillUserProcesses`, of a daemon of `up`": "test_adoption.py", "a session that ends, of a group and its workers": "test_steer_run.py",
    "descriptors that are closed, and a log that no process reads, of `hedgerow-endpoints`": "deploy/kubernetes/endpoints_test.py", "a small limit of descriptors": "proxy/daemon/start_faults_test.cc",
}


def command(row: Row, clock: OwnClock, program: list[str]) -> list[str]:
    words = [*row.within, *program]
    if row.ahead_s:
        clock.jump(row.ahead_s)
        words = ["env", f"LD_PRELOAD={binary('hr-clock.so')}", f"HEDGEROW_LAB_CLOCK={clock.file}", *words]
    if row.preload:
        words = ["env", f"LD_PRELOAD={binary(row.preload)}", *words]
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", f'{row.sh}\nexec "$@"', "sh", *words] if row.sh else words


@contextlib.contextmanager
def prepared(row: Row, host):
    try:
        if row.prepared:
            host.run(["sh", "-ec", row.prepared], timeout=60)
        yield
    finally:
        if row.restored:
            host.run(["sh", "-c", row.restored], timeout=60)


def judge(row: Row, process: subprocess.Popen, log: Path, clock: OwnClock, serves) -> None:
    try:
        if row.holds == SERVES:
            wait_until(lambda: process.poll() is not None or serves(), row.start_s, f"{row.name}: serves")
            if row.jumps:
                clock.jump(0)
                wait_until(serves, row.start_s, f"{row.name}: serves on")
            assert process.poll() is None, f"{row.name}: ended with {process.returncode}: {log.read_text(errors='replace')}"
        else:
            assert process.wait(row.start_s) in (1, 2, 4)
            assert re.search(row.holds, log.read_text(errors="replace")), log.read_text(errors="replace")
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT if PROXY in shlex.join(process.args) else signal.SIGTERM)
        try:
            process.wait(15)
        finally:
            process.kill()
    if row.holds == SERVES:
        assert process.returncode == 0, log.read_text(errors="replace")


def cases(program: str) -> list:
    return [pytest.param(row, id=row.name.replace(" ", "-"), marks=[pytest.mark.long] if row.name in LONG else []) for row in ROWS if program in row.programs]


@pytest.mark.parametrize("row", cases(PROXY))
def test_a_proxy(lab, servers, product, row):
    log, clock = product.folder / "surroundings.log", OwnClock(product.folder / "surroundings.clock")
    log.write_text("")

    def serves() -> bool:
        with contextlib.suppress(OSError), UdpClient(lab.client, VIP4) as client:
            return client.ask(7, "www.example.test", timeout_s=0.3) is not None
        return False

    with prepared(row, lab.client):
        file = product.write(product.config(unattended_timeout="30s"))
        process = lab.client.popen(command(row, clock, [str(BIN / PROXY), "--config", str(file)]), log=log)
        judge(row, process, log, clock, serves)


@pytest.mark.parametrize("row", cases(STEER))
def test_a_group(tmp_path, row):
    with made_netns("hr-surrsteer") as net, made_folder() as folder:
        group, log, clock = Group(net, folder, "surround"), folder / "log", OwnClock(folder / "clock")

        def serves() -> bool:
            with contextlib.suppress(OSError):
                return bool(net.udp("127.0.0.7") and net.tcp("127.0.0.8"))
            return False

        with net.entered(), log.open("wb") as output:
            process = subprocess.Popen(command(row, clock, [str(BIN / STEER), *group.command()]), stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            judge(row, process, log, clock, serves)
            assert group.left() == []
        finally:
            net.kill_all()
            group.cli("clean", "--name", group.name, ok=False)


@pytest.fixture(scope="module")
def small():
    with Lab("surround", replicas=1) as lab:
        yield lab


@pytest.fixture
def replica(small):
    return small.replicas[0]


@pytest.mark.parametrize("row", cases(NODE))
def test_a_node(replica, row):
    log = replica.scratch("surroundings") / "log"
    clock = OwnClock(log.parent / "clock")
    with DataDirs("surround", "memory") as data, prepared(row, replica):
        log.write_text("")
        node = HedgerowNode(replica, 1, [replica], data.path / "a")
        node.data_dir.mkdir(exist_ok=True)
        words = node.command()
        at = words.index(str(binary(NODE)))
        process = replica.popen([*words[:at], *command(row, clock, words[at:])], log=log)
        hkv = [binary("hkv"), "--server", node.endpoint, "--timeout", "1s", "put", "a", row.name]
        try:
            judge(row, process, log, clock, lambda: replica.run(hkv, check=False).returncode == 0)
        finally:
            node.lose_memory()


@pytest.fixture(scope="module")
def hkv(small):
    with DataDirs("surround", "memory") as data, hedgerow_cluster(small, data.path, NodeSettings(durability="memory")) as cluster:
        cluster.wait_ready()
        words = [str(binary("hkv")), "--server", cluster.nodes[0].endpoint, "--timeout", "3s"]
        small.client.run([*words, "put", "ISTANBUL", "ı"])
        yield words


@pytest.mark.parametrize("sh, code", [("exec <&-", 0), ("exec 2>&-", 0), ("exec 2>/dev/full", 0), ("exec >&-", 1), ("exec <&- >&- 2>&-", 1), ("exec >/dev/full", 1),
                                      ("export LANG=tr_TR.UTF-8 LC_ALL=tr_TR.UTF-8", 0), ("ulimit -s 256", 0),
                                      ("mount -t proc -o hidepid=2 proc /proc", 0)])
def test_hkv(small, hkv, sh, code):
    """An answer that could not be written is an error, and goes nowhere else: not to the server, whose socket would have its number."""
    done = small.client.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", f'{sh}\nexec "$@"', "sh", *hkv, "get", "ISTANBUL"], check=False)
    assert (done.returncode, done.stdout) == (code, "" if code else "ı\n"), done.stderr
