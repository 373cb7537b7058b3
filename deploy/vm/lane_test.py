# SPDX-License-Identifier: Apache-2.0
"""The lane's own parts, without booting anything: what it reads, what it compares, and that its images repeat."""

import io
import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from deploy.vm import image, kernels, lane, machine, table


def test_the_newest_signed_cloud_kernel_of_the_series_is_taken():
    names = ("linux-image-6.1.0-9-cloud-amd64 linux-image-6.1.0-40-cloud-amd64 linux-image-6.1.0-41-amd64 "
             "linux-image-6.1.0-41-cloud-amd64-dbg linux-image-6.1.0-41-cloud-amd64-unsigned "
             "linux-image-6.12-cloud-amd64 linux-image-6.1.0-39-rt-amd64")
    assert kernels._newest_package(names, "6.1") == "linux-image-6.1.0-40-cloud-amd64"


def test_a_series_is_not_mistaken_for_another_with_the_same_beginning():
    names = "linux-image-6.12.43+deb12-cloud-amd64 linux-image-6.12.9+bpo-cloud-amd64"
    assert kernels._newest_package(names, "6.1") == ""
    assert kernels._newest_package(names, "6.12") == "linux-image-6.12.43+deb12-cloud-amd64"


def test_ubuntus_generic_kernel_is_no_unsigned_or_hardware_enablement_one():
    names = ("linux-image-6.8.0-31-generic\nlinux-image-6.8.0-151-generic\nlinux-image-6.8.0-201-lowlatency\n"
             "linux-image-unsigned-6.8.0-201-generic\nlinux-image-6.11.0-17-generic\nlinux-image-generic")
    assert kernels._newest_package(names, "6.8", "generic") == "linux-image-6.8.0-151-generic"


def test_ubuntus_suites_come_from_ubuntus_archive_and_with_their_modules(tmp_path, monkeypatch):
    fetched = []
    monkeypatch.setattr(kernels, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(kernels, "_mirror", lambda distribution: f"http://{distribution}.test")
    monkeypatch.setattr(kernels, "_apt", lambda *_: "linux-image-6.8.0-31-generic")
    monkeypatch.setattr(kernels, "unpack", lambda suite, packages, folder, finish: fetched.append((suite, packages, folder.name)))
    assert kernels.get("6.8", "full").folder.name == "6.8-generic"
    assert fetched == [("noble-updates", ["linux-image-6.8.0-31-generic", "linux-modules-6.8.0-31-generic"], "6.8-generic")]
    assert "http://Ubuntu.test noble-updates main" in (tmp_path / "apt/noble-updates/sources.list").read_text(encoding="ascii")


def test_a_full_kernel_is_no_cloud_or_realtime_one():
    names = ("linux-image-6.1.0-50-cloud-amd64 linux-image-6.1.0-40-amd64 linux-image-6.1.0-51-rt-amd64 "
             "linux-image-6.1.0-52-amd64-unsigned linux-image-6.12.43+deb12.1-amd64")
    assert kernels._newest_package(names, "6.1", "full") == "linux-image-6.1.0-40-amd64"
    assert kernels._newest_package(names, "6.12", "full") == "linux-image-6.12.43+deb12.1-amd64"


def test_only_what_the_script_printed_is_its_output():
    console = "[    1.0] kernel\nhedgerow-vm: begin\none\ntwo\nhedgerow-vm: exit 3\n[    9.9] reboot: Power down\n"
    outcome = machine._outcome(console, 1.0, False)
    assert (outcome.status, outcome.output) == (3, "one\ntwo\n")


def test_an_end_on_an_unended_line_counts():
    outcome = machine._outcome("hedgerow-vm: begin\nno line feedhedgerow-vm: exit 0\n", 1.0, False)
    assert (outcome.status, outcome.output) == (0, "no line feed")


def test_a_machine_that_dies_has_no_status_and_says_its_last_lines():
    outcome = machine._outcome("hedgerow-vm: begin\nKernel panic\n", 7.0, True)
    assert outcome.status == machine.NO_END
    assert "time-out" in outcome.why_not() and "Kernel panic" in outcome.why_not()


def _tree(folder: Path, order: tuple[str, ...]) -> Path:
    for name in order:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name, encoding="ascii")
        os.utime(folder / name, (len(name), len(name)))
    return folder


def test_equal_files_give_equal_archives_whatever_their_order_and_times(tmp_path):
    archives = []
    for number, order in enumerate((("b", "sub/a", "c"), ("sub/a", "c", "b"))):
        out = io.BytesIO()
        image.archive_of(_tree(tmp_path / str(number), order), out)
        archives.append(out.getvalue())
        assert len(archives[-1]) % 512 == 0, "another archive could not follow"
    assert archives[0] == archives[1]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run whose machine prints what the test wants, and whose records are the test's own."""
    monkeypatch.setattr(lane, "VERIFIED", tmp_path)
    monkeypatch.setattr(lane, "_compiler", lambda: "clang 14")
    (tmp_path / "6.1.tsv").write_text("# clang 14\nhr_clock\t1000\n", encoding="ascii")
    return lane.Run(kernels.Kernel("6.1", tmp_path), tmp_path, True, False, tmp_path, tmp_path)


def _machine_that_finds(run: lane.Run, tmp_path: Path, monkeypatch, counts: str) -> str:
    (tmp_path / "verified.tsv").write_text(counts, encoding="ascii")
    ended = machine.Outcome(0, "", "", 1.0, False)
    monkeypatch.setattr(lane.Run, "boot", lambda self, part, archive, seed=1, name="": (ended, tmp_path))
    return lane._objects(run, lane.PARTS[0], Path("image"))


@pytest.mark.parametrize("counts, complaint", [
    ("hr_clock\t1100\n", ""),
    ("hr_clock\t1101\n", "hr_clock: 1101 verified instructions, 1000 recorded"),
    ("hr_clock\t10\nhr_new\t10\n", "hr_new is not in 6.1.tsv"),
    ("", "hr_clock does not exist any more")])
def test_a_program_that_grew_by_more_than_a_tenth_fails(run, tmp_path, monkeypatch, counts, complaint):
    trouble = _machine_that_finds(run, tmp_path, monkeypatch, counts)
    assert complaint in trouble and bool(complaint) == bool(trouble)


def test_the_page_has_the_recorded_instructions():
    assert table.TARGET.read_text(encoding="utf-8").endswith(table.recorded()), "/usr/bin/python3 -m deploy.vm.table writes them"


def test_counts_of_another_compiler_are_not_compared(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lane, "_compiler", lambda: "clang 19")
    assert _machine_that_finds(run, tmp_path, monkeypatch, "hr_clock\t5000\n") == ""
    assert "not compared" in capsys.readouterr().out


@pytest.mark.parametrize("outputs, complaint", [
    (("stopped at 1 us\n", "stopped at 1 us\n", "stopped at 2 us\n"), ""),
    (("stopped at 1 us\n", "stopped at 3 us\n", "stopped at 2 us\n"), "two runs of seed 1 differ"),
    (("stopped at 1 us\n", "stopped at 1 us\n", "stopped at 1 us\n"), "only 1 different fault timings")])
def test_replay_must_repeat_and_seeds_must_differ(run, monkeypatch, outputs, complaint):
    ended = {name: machine.Outcome(0, output, output, 1.0, False)
             for name, output in zip(("stalls-1-again", "stalls-1", "stalls-2"), outputs, strict=True)}
    monkeypatch.setattr(lane.Run, "boot", lambda self, part, archive, seed=1, name="": (ended[name], Path()))
    monkeypatch.setattr(lane, "_REPLAY_SEEDS", 2)
    trouble = lane._stalls(run, lane._STALLS, Path("image"))
    assert complaint in trouble and bool(complaint) == bool(trouble)


@pytest.fixture
def short_run(run, tmp_path, monkeypatch):
    """A run of the short part on the kernel that replays; `texts` is what its machines print, in the order of their start."""
    (tmp_path / "6.12.tsv").write_text("# clang 14\nhr_clock\t1000\n", encoding="ascii")
    (tmp_path / "verified.tsv").write_text("hr_clock\t1000\n", encoding="ascii")
    run.kernel = kernels.Kernel("6.12", run.folder)
    run.texts = {"short": "drawn: 2\n", "stalls-1-again": "drawn: 1\n", "stalls-1": "drawn: 1\n"}
    run.booted = []

    def boot(_self, part, _archive, seed=1, name=""):
        run.booted.append((name or part.name, seed))
        text = run.texts[name or part.name]
        return machine.Outcome(0, text, text, 1.0, False), tmp_path

    monkeypatch.setattr(lane.Run, "boot", boot)
    monkeypatch.setattr(lane.Run, "image_of", lambda _self, _part: Path("image"))
    return run


@pytest.mark.parametrize("series, boots", [("6.1", ["short"]), ("6.12", ["short", "stalls-1", "stalls-1-again"])])
def test_of_the_short_part_one_kernel_repeats_a_seed(short_run, series, boots):
    short_run.kernel = kernels.Kernel(series, short_run.folder)
    assert lane._short(short_run, lane.short_part(series), Path("image")) == ""
    assert sorted(name for name, _ in short_run.booted) == boots
    assert lane.short_part(series).arguments == (("--plan",) if len(boots) > 1 else ()), "a machine beside which none runs the system"


@pytest.mark.parametrize("changed, complaint", [
    ({"stalls-1": "drawn: 1\nlate\n"}, "two runs of seed 1 differ"),
    ({"short": "drawn: 1\n"}, "seeds 1 and 2 draw the same faults"),
    ({"short": ""}, "or none")])
def test_in_the_short_part_too_replay_must_repeat_and_seeds_must_differ(short_run, changed, complaint):
    short_run.texts.update(changed)
    assert complaint in lane._short(short_run, lane.short_part("6.12"), Path("image"))


def test_the_short_part_compares_the_verified_instructions(short_run, tmp_path):
    (tmp_path / "verified.tsv").write_text("hr_clock\t1101\n", encoding="ascii")
    assert "hr_clock: 1101 verified instructions, 1000 recorded" in lane._short(short_run, lane.short_part("6.12"), Path("image"))


@pytest.mark.parametrize("consoles, boots, status", [
    (("Oops: int3: 0000", "fine"), 2, 0), (("Oops: int3: 0000", "Oops: int3: 0000"), 2, 255),
    (("Kernel panic", "fine"), 1, 255)])
def test_a_machine_that_the_emulator_failed_is_started_once_more(run, monkeypatch, consoles, boots, status):
    ended = iter([machine.Outcome(0 if console == "fine" else 255, "", console, 1.0, False) for console in consoles])
    booted = []

    def boot(kernel, archive, settings, files):
        files.mkdir(exist_ok=True)
        booted.append(archive)
        return next(ended)

    monkeypatch.setattr(lane.machine, "run", boot)
    outcome, _ = run.boot(lane.PARTS[0], Path("image"))
    assert (len(booted), outcome.status) == (boots, status)


def test_a_kernel_that_cannot_be_had_is_a_skip_and_a_broken_lane_a_failure(tmp_path, monkeypatch):
    for error, tag in ((kernels.Unavailable("no archive"), "skipped"), (kernels.Broken("no cpio"), "failure")):
        def refuse(series, error=error):
            raise error

        monkeypatch.setattr(lane.kernels, "get", refuse)
        lane.test(["6.1"], smoke=True, record=False, only=None, reports=tmp_path, build_dir=tmp_path)
        assert ElementTree.parse(tmp_path / "vm-6.1" / "lane.xml").getroot().find(f"testcase/{tag}") is not None


def test_a_console_full_of_control_characters_makes_a_readable_report(tmp_path):
    lane.report(tmp_path / "report.xml", "packets", "failed", "\x1b[31mred\x00 \ufffe")
    assert ElementTree.parse(tmp_path / "report.xml").getroot().find("testcase/failure").text
