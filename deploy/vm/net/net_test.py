# SPDX-License-Identifier: Apache-2.0
"""The lane's own parts, without booting anything: which cells there are, what it reads and compares, and that docs/KERNELS.md
is what its records say."""

import contextlib
import dataclasses
import json
import subprocess

import pytest

from deploy.vm import kernels, table
from deploy.vm.kernels import Unavailable
from deploy.vm.net import cells, checks, emulator, hosts, net_lane, pair_run, record
from deploy.vm.net.cells import Cell, Pair
from deploy.vm.net.checks import Failed
from deploy.vm.net.guest_machine import EmulatorFailed, GuestMachine, MachineDied
from deploy.vm.net.models import MODELS

ROW = {"uplink": "vlan", "mtu": 9000, "attach": "tcx", "offloads": ["tso"], "udp": "yes", "auto": "native XDP on eth0.7"}
PAIR = Pair("6.12", "igb", (Cell("vlan", 9000),))


@pytest.fixture
def records(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "FOLDER", tmp_path)
    return tmp_path


def test_the_page_says_what_the_records_say():
    page = table.TARGET.read_text(encoding="utf-8")
    assert page[page.find(record.HEADING):] == record.section(), "./dev vm net test --record writes the page"


def test_the_records_have_cells_of_this_lane_and_none_that_failed():
    for pair in cells.pairs(cells.SERIES, MODELS):
        rows = record.read(pair.series)["cards"].get(pair.model, {}).get("rows", [])
        assert {(row["uplink"], row["mtu"]) for row in rows} <= {(cell.uplink, cell.mtu) for cell in pair.cells}
        assert record.failures(pair, rows) == []


def test_only_the_cells_that_are_asked_for_are_run():
    found = cells.pairs(["6.12"], ["igb", "e1000e"], only=["vlan-9000", "plain-1500-clsact"])
    assert [(pair.name, [cell.name for cell in pair.cells]) for pair in found] == [
        (name, ["plain-1500-clsact", "vlan-9000"]) for name in ("6.12-igb", "6.12-e1000e")]
    assert cells.pairs(["6.1"], ["igb"], only=["plain-1500-clsact"]) == []


@pytest.mark.parametrize("series, only", [("6.8", None), ("6.1", ["plain-1500-clsact"])])
def test_a_choice_without_cells_is_an_error(tmp_path, series, only):
    with pytest.raises(kernels.Broken, match=f"no cell is of kernel {series} with card igb"):
        net_lane.test([series], ["igb"], smoke=False, only=only, keep_record=False, reports=tmp_path, build_dir=tmp_path)


def test_what_the_smoke_runs_is_in_the_records():
    for pair in cells.SMOKE:
        known = record.read(pair.series)["cards"][pair.model]["rows"]
        for cell in pair.cells:
            assert any((row["uplink"], row["mtu"]) == (cell.uplink, cell.mtu) and set(cell.xdp) <= set(row) for row in known)


@pytest.mark.parametrize("change, complaint", [
    ({}, ""), ({"auto": "generic XDP on eth0.7"}, "auto is 'generic XDP on eth0.7'"), ({"udp": "FAILED: lost"}, "udp is"),
    ({"offloads": []}, "offloads is"), ({"mtu": 1500}, "not in the record")])
def test_another_result_than_the_recorded_one_is_named(records, change, complaint):
    record.write(PAIR, "6.12.1", [ROW])
    found = record.differences(PAIR, [ROW | change])
    assert len(found) == bool(complaint) and complaint in "".join(found)


def test_a_new_record_of_a_card_leaves_the_others(records):
    record.write(Pair("6.12", "e1000e", ()), "6.12.1", [ROW])
    record.write(PAIR, "6.12.2", [ROW | {"auto": "no"}])
    record.write(PAIR, "6.12.3", [ROW])
    record.write(PAIR, "6.12.3", [ROW | {"uplink": "plain"}])
    assert [row["uplink"] for row in record.read("6.12")["cards"]["igb"]["rows"]] == ["plain", "vlan"]
    known = json.loads((records / "6.12.json").read_text(encoding="ascii"))["cards"]
    assert {model: card["release"] for model, card in known.items()} == {"e1000e": "6.12.1", "igb": "6.12.3"}
    assert "| 6.12.3 | igb | 2 of 6 | tso | plain 9000, vlan 9000 |" in record.section()
    assert "| 6.12.1 | e1000e | 1 of 6 | tso | vlan 9000 |" in record.section() and "| 6.12 | vmxnet3 | 0 of 6 |  | - |" in record.section()
    record.write(PAIR, "6.12.3", [ROW | {"uplink": "plain", "offloads": ["tso", "lro"], "auto": "generic XDP on eth0 (native XDP: no)"}])
    assert "| 6.12.3 | igb | 2 of 6 | tso, lro (plain) | vlan 9000 |" in record.section()


def test_the_driver_may_refuse_and_a_check_may_not_fail():
    assert record.failures(PAIR, [ROW | {"native": "no: native XDP: Operation not supported"}]) == []
    assert record.failures(PAIR, [ROW | {"tcp": "FAILED: 3 bytes"}]) == ["6.12-igb, vlan-9000-tcx: tcp FAILED: 3 bytes"]


def test_counters_of_both_families_are_read():
    text = ("Ip: Forwarding InReceives\nIp: 2 5\nUdp: InDatagrams InCsumErrors\nUdp: 7 1\n"
            "Ip6InReceives                   \t4\nUdp6InCsumErrors                \t0\n")
    assert checks.parse_counters(text) == {"Ip.Forwarding": 2, "Ip.InReceives": 5, "Udp.InDatagrams": 7,
                                           "Udp.InCsumErrors": 1, "Ip6InReceives": 4, "Udp6InCsumErrors": 0}


@pytest.mark.parametrize("counted, fails", [({"Udp.InCsumErrors": 0, "Ip.InReceives": 4}, False),
                                            ({"Udp6InCsumErrors": 1}, True), ({"Tcp.InCsumErrors": 2}, True)])
def test_a_wrong_checksum_anywhere_fails_the_cell(monkeypatch, counted, fails):
    monkeypatch.setattr(checks, "_counters", lambda host: counted)
    trial = checks.Trial(Cell(), type("Host", (), {"name": "client"}), [])
    if fails:
        with pytest.raises(Failed, match="client received wrong checksums"):
            checks.no_wrong_checksum(trial)
    else:
        checks.no_wrong_checksum(trial)


def test_a_card_of_a_newer_emulator_is_looked_for_in_the_fetched_one(tmp_path, monkeypatch):
    monkeypatch.setattr(emulator.shutil, "which", lambda name: name)
    monkeypatch.setattr(emulator.kernels, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(emulator, "_has", lambda device, words: device == "e1000e" or str(tmp_path) in words[0])
    fetched = []
    monkeypatch.setattr(emulator.kernels, "first_suite_that_has", lambda suites, what, fetch: fetched.append(what))
    assert emulator.command("e1000e") == [emulator.machine.QEMU] and not fetched
    assert emulator.command("igb")[0].startswith(str(tmp_path)) and fetched == ["a QEMU with igb"]
    monkeypatch.setattr(emulator, "_has", lambda device, words: False)
    with pytest.raises(Unavailable, match="igb"):
        emulator.command("igb")


@pytest.mark.parametrize("error, tag", [(kernels.Unavailable("no tap"), "skipped"), (kernels.Broken("no qemu"), "failure"),
                                        (Failed("lost"), "failure")])
def test_a_pair_that_cannot_be_had_is_a_skip_and_a_broken_one_a_failure(tmp_path, monkeypatch, error, tag):
    def refuse(*_):
        raise error

    monkeypatch.setattr(net_lane, "PairOfMachines", refuse)
    assert net_lane.test(["6.12"], ["igb"], smoke=False, only=None, keep_record=False, reports=tmp_path, build_dir=tmp_path) == 0
    reports = list((tmp_path / "vm-net-6.12-igb").glob("*.xml"))
    assert len(reports) == 1 and f"<{tag}" in reports[0].read_text(encoding="utf-8")


class _Client:
    """Two cards, of which `ethtool -k` says this once `ethtool -K` was asked to turn it off."""

    name, cards = "client", (1, 2)

    def __init__(self, after: str = "off", down: int = 0):
        self.after, self.down = after, down
        self.asked: list[str] = []

    def run(self, command: str, *, check: bool = True) -> tuple[int, str]:
        self.asked.append(command)
        return (self.down, "no daemon") if command == "hedgerow down" else (0, "")

    def out(self, command: str) -> str:
        assert command.startswith("ethtool -k eth")
        return f"Features:\nrx-checksumming: {self.after}\ntx-checksumming: on\n"


class _Answering(checks.Trial):
    """Every question is answered, by a standby, and a hedge wins when the test says so."""

    def __init__(self, client: _Client, won: tuple[str, ...] = ()):
        super().__init__(Cell(), client, [type("Host", (), {"name": "a", "ipv4": "10.77.0.11"})])
        self.won, self.asked = list(won), 0

    def dig(self, words: str, **_) -> str:
        self.asked += 1
        return '"b"'

    def service(self, name: str) -> dict:
        return {"name": name, "won_by_hedge": self.won.pop(0), "reasons": {"loser": "1"}}


@pytest.mark.parametrize("after, result", [("off", None), ("on [fixed]", checks.NOT_BY_CLIENT)])
def test_a_card_that_keeps_received_checksums_is_named(after, result):
    client = _Client(after)
    trial = _Answering(client)
    assert checks.client_checksums(trial) == result and trial.asked == 3
    assert client.asked[-2:] == ["ethtool -K eth0 rx on", "ethtool -K eth1 rx on"]


def test_a_card_that_did_not_do_what_it_was_told_fails():
    with pytest.raises(Failed, match="rx-checksumming of eth0 is on after"):
        checks.client_checksums(_Answering(_Client("on")))


@pytest.mark.parametrize("won, fails", [(("5", "5", "6", "6"), None), (("0", "0", "1", "0"), "dns6: no hedge won"),
                                        (("5", "5", "5", "6"), "dns: no hedge won")])
def test_hedges_that_won_before_the_leader_stood_still_count_for_nothing(monkeypatch, won, fails):
    monkeypatch.setattr(checks.hosts, "signal_nsd", lambda host, signal: None)
    trial = _Answering(_Client(), (*won[:3], "9", won[3], "9"))
    if fails:
        with pytest.raises(Failed, match=fails):
            checks.hedge(trial)
    else:
        checks.hedge(trial)


@pytest.mark.parametrize("status, result", [(0, "yes"), (1, "FAILED: `hedgerow down` ended with 1: no daemon")])
def test_a_proxy_that_does_not_go_down_fails_its_cell(monkeypatch, tmp_path, status, result):
    flushed = []
    monkeypatch.setattr(pair_run.hosts, "down", lambda host, cell: flushed.append(host))
    machines = pair_run.PairOfMachines(PAIR, tmp_path, tmp_path)
    machines.client, machines.backends = _Client(down=status), ["a"]
    assert machines.down(Cell()) == result and len(flushed) == 2
    assert bool(record.failures(PAIR, [ROW | {"down": result}])) == bool(status)


def test_a_row_says_of_which_commit_it_is_and_is_compared_all_the_same(records):
    record.write(PAIR, "6.12.1", [ROW | {"commit": "12345678"}])
    assert record.differences(PAIR, [ROW | {"commit": "9abcdef0+"}]) == []
    assert "1 of 50 cells are recorded" in record.section()


@pytest.mark.parametrize("ends, state, runs", [
    ((EmulatorFailed("int3"), None), "passed", 2), ((EmulatorFailed("int3"), EmulatorFailed("int3")), "failed", 2),
    ((MachineDied("panic"), None), "failed", 1)])
def test_a_pair_of_which_the_emulator_failed_is_started_once_more(records, monkeypatch, tmp_path, ends, state, runs):
    left, started = list(ends), []

    class Machines(contextlib.nullcontext):
        release = "6.12.1"

        def __init__(self, *_):
            super().__init__(self)
            started.append(1)

    def run_cell(*_, **__):
        if (end := left.pop(0)) is not None:
            raise end
        return ROW

    monkeypatch.setattr(net_lane, "PairOfMachines", Machines)
    monkeypatch.setattr(net_lane, "run_cell", run_cell)
    assert net_lane._run(dataclasses.replace(PAIR, cells=PAIR.cells[:1]), tmp_path, tmp_path, keep_record=True)[0] == state
    assert len(started) == runs


@pytest.mark.parametrize("console, kind", [("Oops: int3: 0000", EmulatorFailed), ("Kernel panic", MachineDied)])
def test_a_stale_int3_is_the_emulators_fault(tmp_path, console, kind):
    guest = object.__new__(GuestMachine)
    guest.name, guest._console_file = "client", tmp_path / "console"
    guest._console_file.write_text(console, encoding="utf-8")
    guest._process = subprocess.Popen(["true"], stdout=subprocess.PIPE, text=True)
    guest._process.wait()
    with pytest.raises(MachineDied) as died:
        guest._complain_if_dead()
    guest._process.communicate()
    assert died.type is kind


class _Recording:
    """A machine that keeps the commands it is given."""

    def __init__(self):
        self.commands: list[str] = []

    def run(self, command: str, **_) -> tuple[int, str]:
        self.commands.append(command)
        return 0, ""


def _position(commands: list[str], part: str) -> int:
    return next(index for index, line in enumerate("\n".join(commands).splitlines()) if part in line)


@pytest.mark.parametrize("uplink, after", [("vlan", "link add link eth0 name eth0.7"), ("bridge", "link set eth0 master br0")])
def test_a_card_has_its_receive_offloads_and_its_mtu_before_its_uplink_turns_them_off(uplink, after):
    machine = _Recording()
    hosts.up(hosts.Host("client", 1, hosts.CLIENT_CARDS, machine), Cell(uplink, 9000))
    assert (_position(machine.commands, "for offload in $(cat /run/client-eth0-came-with); do ethtool -K eth0 $offload off")
            < _position(machine.commands, "link set eth0 mtu 9000 up") < _position(machine.commands, after))


@pytest.mark.parametrize("refused, status", [("off", 0), ("on", 1)])
def test_the_receive_offloads_that_were_on_before_the_first_cell_are_turned_on_again(tmp_path, monkeypatch, refused, status):
    (tmp_path / "ethtool").write_text("#!/bin/sh\necho \"$@\" >>$0.log\nif [ $1 = -K ]; then test $4 != $REFUSED; exit; fi\n"
                                      "printf 'large-receive-offload: on\\nrx-gro-hw: off [fixed]\\n'\n", encoding="ascii")
    (tmp_path / "ethtool").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("REFUSED", refused)
    monkeypatch.setattr(hosts, "_noted", lambda host, card: str(tmp_path / card))
    machine = _Recording()
    host = hosts.Host("client", 1, hosts.CLIENT_CARDS, machine)
    hosts._note_receive_offloads(host)
    hosts.up(host, Cell())
    assert [subprocess.run(command, shell=True, check=False).returncode for command in machine.commands[:3]] == [0, 0, status]
    assert (tmp_path / "ethtool.log").read_text(encoding="ascii").splitlines() == [
        "-k eth0", "-k eth1", "-K eth0 rx-lro off", "-K eth0 rx-lro on"]


class _Uploading:
    """The client or the sink: uploads to these addresses have no end, and each one costs the sink's card 3 frames."""

    name, ipv4 = "a", "10.77.0.11"
    stuck: tuple[str, ...] = ()
    frames = 0

    def run(self, command: str, **_) -> tuple[int, str]:
        to = command.split()[3] if command.startswith("timeout") else ""
        _Uploading.frames += 3 if to in self.stuck else 0
        return (143 if to in self.stuck else 0), ""

    def out(self, command: str, **_) -> str:
        return str(_Uploading.frames) if "rx_errors" in command else "0123 -"


@pytest.mark.parametrize("stuck, message", [
    ((), None), (("10.77.0.11", hosts.KV_VIP), "the control failed, without the proxy: .* to 10.77.0.11: no end .* refused 3 frames"),
    ((hosts.KV_VIP,), f"^2000000 bytes of TCP to {hosts.KV_VIP}: no end")])
def test_an_upload_without_end_is_a_failed_check_that_says_whether_the_proxy_was_in_its_way(monkeypatch, stuck, message):
    monkeypatch.setattr(_Uploading, "stuck", stuck)
    trial = checks.Trial(Cell(), _Uploading(), [_Uploading()])
    monkeypatch.setattr(trial, "dig", lambda words, **_: "y" * 60 * hosts.ZONE_NAMES)
    if message:
        with pytest.raises(Failed, match=message):
            checks.tcp(trial)
    else:
        checks.tcp(trial)
