# SPDX-License-Identifier: Apache-2.0
"""The shipped systemd units, users and folders, judged by systemd's own tools, which need no running systemd."""

import re
import stat
import subprocess

import pytest

from deploy.lab.unit_file import UNITS, UnitFile
from tests.e2e.harness.unit_confinement import allowed_calls

STEER = "hedgerow-steer@"
ADOPT = "hedgerow-steer-adopt@"
SERVICES = pytest.mark.parametrize("name", ["hedgerowd", "hedgerow-node"])
# Root, and daemons of all kinds below it, need more than our own programs.
HIGHEST_EXPOSURE = {"hedgerowd": 3.0, "hedgerow-node": 3.0, STEER: 4.1, ADOPT: 3.5}


@pytest.mark.parametrize("name", HIGHEST_EXPOSURE)
def test_systemd_finds_little_exposed(name):
    done = subprocess.run(["systemd-analyze", "--no-pager", "security", "--offline=true", UNITS / f"{name}.service"],
                          capture_output=True, text=True, check=False, timeout=30)
    exposure = re.search(rf"Overall exposure level for {name}\w*\.service: (\d+\.\d+)", done.stdout)
    assert exposure, done.stdout + done.stderr
    assert float(exposure[1]) <= HIGHEST_EXPOSURE[name], done.stdout


@SERVICES
def test_a_unit_has_a_user_of_its_own_and_no_capability_that_it_is_not_given(name):
    unit = UnitFile(UNITS / f"{name}.service")
    assert unit.words("AmbientCapabilities") and unit.words("AmbientCapabilities") == unit.words("CapabilityBoundingSet")
    users = UNITS / f"sysusers.d/{'hedgerow' if name == 'hedgerowd' else name}.conf"
    made = re.findall(r"^[ug] +(\S+)", users.read_text(encoding="utf-8"), re.MULTILINE)
    assert {unit.last("User"), unit.last("Group"), *unit.words("SupplementaryGroups")} <= set(made) - {"root"}


@pytest.mark.parametrize("name", HIGHEST_EXPOSURE)
def test_a_unit_waits_for_nothing_that_may_never_come_and_starts_again_what_waits(name):
    """Exit code 1 is that of what may come by itself, 2 of what an operator must change. The node waits in its process, and its limit is for what ends again and again."""
    unit = UnitFile(UNITS / f"{name}.service")
    lines = unit.path.read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if re.match("(After|Wants|Requires)=.*network-online", line)]
    assert unit.words("RestartPreventExitStatus") == ["2"] and unit.last("Restart") == "on-failure"
    assert f"StartLimitIntervalSec={60 if name == 'hedgerow-node' else 0}" in lines
    assert {"SIGHUP", "SIGPIPE"} <= set(unit.words("RestartForceExitStatus"))


@pytest.mark.parametrize("unit, package", [("hedgerowd.service", "hedgerow"), ("hedgerow-steer@a.service", "hedgerow"),
                                           ("hedgerow-steer-adopt@a.service", "hedgerow"), ("hedgerow-node.service", "hedgerow-node")])
def test_needrestart_leaves_our_units_alone(unit, package):
    file = (UNITS.parent / f"needrestart/{package}.conf").read_text(encoding="utf-8")
    assert re.match(re.search(r"qr\((.*)\)\}", file)[1], unit)


@pytest.mark.parametrize("name", HIGHEST_EXPOSURE)
def test_a_unit_lets_every_libbpf_load_kernel_programs(name):
    """The packages are built with the distribution's. From 1.4 on (Debian 13) it calls memfd_create, which systemd counts among @ipc."""
    assert {"bpf", "memfd_create"} <= allowed_calls(UnitFile(UNITS / f"{name}.service").all("SystemCallFilter"))


def test_the_users_and_folders_can_be_made_and_are_closed_to_others(tmp_path):
    """In a folder that stands for the root of a file system."""
    (tmp_path / "sys/fs/bpf").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    for command, file in ((["systemd-sysusers"], "sysusers.d"), (["systemd-tmpfiles", "--create"], "tmpfiles.d")):
        done = subprocess.run([*command, f"--root={tmp_path}", *sorted((UNITS / file).iterdir())], capture_output=True, text=True,
                              check=False, timeout=30)
        assert done.returncode == 0 and "onflict" not in done.stderr and "uplicate" not in done.stderr, done.stderr
    groups = {"root": 0} | {line.split(":")[0]: int(line.split(":")[2])
                            for line in (tmp_path / "etc/group").read_text(encoding="utf-8").splitlines()}
    for folder, mode, group in (("sys/fs/bpf", 0o710, "hedgerow-bpf"), ("sys/fs/bpf/hedgerow", 0o1770, "hedgerow-bpf"),
                                ("etc/hedgerow", 0o750, "hedgerow"), ("etc/hedgerow-node", 0o750, "hedgerow-node"),
                                ("etc/hedgerow/steer", 0o755, "root")):
        found = (tmp_path / folder).stat()
        assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (mode, 0, groups[group]), folder


@pytest.mark.parametrize("name", [STEER, ADOPT])
def test_a_groups_unit_is_one_that_systemd_takes(tmp_path, name):
    """As an instance, with a program that is there."""
    shipped = (UNITS / f"{name}.service").read_text(encoding="utf-8")
    unit = tmp_path / f"{name}flows.service"

    def complaints(text: str) -> list[str]:
        unit.write_text(text.replace("/usr/bin/hedgerow-steer", "/bin/true"), encoding="utf-8")
        done = subprocess.run(["systemd-analyze", "--no-pager", "--man=no", "verify", unit], capture_output=True, text=True, check=False, timeout=30)
        return [line for line in done.stderr.splitlines() if unit.name in line]

    assert complaints(shipped) == []
    assert complaints(shipped.replace("Restart=on-failure", "Restart=sometimes")) != []


def test_what_workers_write_to_outlives_their_supervisor():
    assert UnitFile(UNITS / f"{STEER}.service").last("PrivateTmp") == ""


def test_the_pages_example_of_a_group_is_the_shipped_one():
    example = (UNITS.parents[1] / "docs/examples/steer.conf").read_text(encoding="utf-8")
    values = dict(re.findall(r'^(STEER_\w+)="(.*?)"$', example.replace("\\\n", ""), re.MULTILINE))
    used = re.findall(r"\$(\w+)", UnitFile(UNITS / f"{STEER}.service").last("ExecStart"))
    assert used == list(values) == ["STEER_OPTIONS", "STEER_COMMAND"]
    page = (UNITS.parents[1] / "docs/steer.md").read_text(encoding="utf-8")
    assert [" ".join(value.split()) for value in values.values()] == re.findall(r'^STEER_\w+="(.*)"$', page, re.MULTILINE)[:2]
