# SPDX-License-Identifier: Apache-2.0
"""The stock kernels of the lanes: Debian's own kernel packages, unpacked into a cache and never installed. The cloud kernel
is small; the full one has the drivers of real network cards, for deploy/vm/net, which has one of Ubuntu's as well.

The mirror is the one that this machine's apt uses for that distribution; only the suite differs. Lists, downloads and the unpacked
kernels live in the user's cache folder, so that a second run needs no network.
"""

import dataclasses
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

# Where each kernel series comes from, best first: the suite whose own kernel it is, then backports to an older one.
SUITES = {"6.1": ("bookworm",), "6.12": ("trixie", "bookworm-backports")}
# Those of Ubuntu, with the drivers of real cards: for deploy/vm/net only.
UBUNTU_SUITES = {"6.8": ("noble-updates", "noble")}
ARCHITECTURE = "amd64"
# What ends a package's name, by flavour.
FLAVOURS = {"cloud": f"cloud-{ARCHITECTURE}", "full": ARCHITECTURE, "generic": "generic"}
# Without its file apt trusts the keys that this machine has for all archives.
_KEYRINGS = {"Debian": Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
             "Ubuntu": Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")}


class Unavailable(Exception):
    """No such kernel can be had here: the lane is skipped, loudly."""


class Broken(Exception):
    """The lane could run and does not: a program or a library is missing, nothing is built."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    series: str   # "6.1"
    folder: Path  # of the unpacked package

    @property
    def image(self) -> Path:
        return next((self.folder / "boot").glob("vmlinuz-*"))

    @property
    def release(self) -> str:
        """As `uname -r` says it."""
        return self.image.name.removeprefix("vmlinuz-")

    @property
    def modules(self) -> Path:
        return self.folder / "lib" / "modules" / self.release


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hedgerow" / "vm"


def get(series: str, flavour: str = "cloud") -> Kernel:
    """The kernel from the cache, fetched first when it is not there. Ubuntu's full one is called generic."""
    flavour = "generic" if series in UBUNTU_SUITES else flavour
    folder = cache_folder() / "kernels" / (series if flavour == "cloud" else f"{series}-{flavour}")
    if not (folder / "complete").exists():
        suites = UBUNTU_SUITES.get(series) or SUITES[series]
        first_suite_that_has(suites, f"kernel {series}", lambda suite: _fetch_from(suite, series, flavour, folder))
    return Kernel(series, folder)


def first_suite_that_has(suites: Iterable[str], what: str, fetch: Callable[[str], None]) -> None:
    if os.uname().machine != "x86_64":
        raise Unavailable(f"the machines of the lane are x86_64, this one is {os.uname().machine}")
    reasons = []
    for suite in suites:
        try:
            fetch(suite)
            return
        except Unavailable as why:
            reasons.append(f"{suite}: {why}")
    raise Unavailable(f"{what} cannot be had: " + "; ".join(reasons))


def _fetch_from(suite: str, series: str, flavour: str, folder: Path) -> None:
    apt = _apt_with_lists(suite)
    package = _newest_package(_apt(apt, "apt-cache", "pkgnames", f"linux-image-{series}"), series, flavour)
    if not package:
        raise Unavailable(f"no {flavour} kernel {series} among its packages")
    modules = [package.replace("-image-", "-modules-")] if flavour == "generic" else []  # Debian's are in the same package
    unpack(suite, [package, *modules], folder, _find_modules)


def _find_modules(fresh: Path) -> None:
    # Debian 13 has its modules below /usr, and no /lib of its own in the package.
    if not (fresh / "lib").exists():
        (fresh / "lib").symlink_to("usr/lib")
    subprocess.run(["depmod", "-b", fresh, next((fresh / "lib/modules").iterdir()).name], check=True)


def unpack(suite: str, packages: list[str], folder: Path, finish: Callable[[Path], None] = lambda fresh: None) -> None:
    """Downloads packages of a suite and unpacks them into a folder, which is complete or not there."""
    apt = _apt_with_lists(suite)
    print(f"fetching {' '.join(packages)} from {suite} (30 to 110 MB)", flush=True)
    for old in apt.glob("*.deb"):
        old.unlink()
    _apt(apt, "apt-get", "download", *packages)
    fresh = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for deb in apt.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", deb, fresh], check=True)
        deb.unlink()
    finish(fresh)
    (fresh / "complete").write_text("\n".join(packages) + "\n", encoding="ascii")
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def _newest_package(names: str, series: str, flavour: str = "cloud") -> str:
    """Of package names, the newest signed kernel of a flavour: point releases and ABI numbers compared as numbers."""
    wanted = re.compile(rf"linux-image-{re.escape(series)}(\.\d+|-\d+)([^ -]|-\d)*-{FLAVOURS[flavour]}")
    found = [name for name in names.split() if wanted.fullmatch(name)]
    return max(found, key=lambda name: [int(number) for number in re.findall(r"\d+", name)], default="")


def _apt_with_lists(suite: str) -> Path:
    apt = _private_apt(suite)
    if not (apt / "lists-complete").exists():
        _apt(apt, "apt-get", "update")
        (apt / "lists-complete").touch()
    return apt


def _private_apt(suite: str) -> Path:
    """A folder with an apt configuration of its own for one suite of this machine's mirror of that distribution."""
    distribution = "Ubuntu" if any(suite in suites for suites in UBUNTU_SUITES.values()) else "Debian"
    folder = cache_folder() / "apt" / suite
    (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (folder / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    keyring = _KEYRINGS[distribution]
    signed = f" signed-by={keyring}" if keyring.exists() else ""
    source = f"deb [arch={ARCHITECTURE}{signed}] {_mirror(distribution)} {suite} main\n"
    sources = folder / "sources.list"
    if not sources.exists() or sources.read_text(encoding="ascii") != source:
        sources.write_text(source, encoding="ascii")
        (folder / "lists-complete").unlink(missing_ok=True)
    (folder / "status").touch()
    return folder


def _mirror(distribution: str) -> str:
    """Where this machine's apt finds a distribution's main archive; security and updates may be elsewhere."""
    try:
        done = subprocess.run(
            ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)",
             "Created-By: Packages"], check=True, capture_output=True, text=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"apt does not answer here ({error})") from error
    for line in done.stdout.splitlines():
        uri, release, component, *origin = line.split()
        if component == "main" and origin == [distribution] and re.fullmatch(r"[a-z]+", release):
            return uri
    raise Unavailable(f"no {distribution} archive is among this machine's apt sources")


def _apt(folder: Path, program: str, *words: str) -> str:
    options = {"Dir::Etc::sourcelist": folder / "sources.list", "Dir::Etc::sourceparts": "/dev/null",
               "Dir::Etc::preferences": "/dev/null", "Dir::Etc::preferencesparts": "/dev/null",
               "Dir::State::lists": folder / "lists", "Dir::State::status": folder / "status",
               "Dir::Cache": folder, "Dir::Cache::archives": folder / "archives",
               "Acquire::Languages": "none", "APT::Sandbox::User": "root", "APT::Architecture": ARCHITECTURE}
    settings = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    done = subprocess.run([program, "--quiet=2", *settings, *words], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}, check=False)
    # `apt-get update` ends well even where it reached nothing; what it warns of is then the reason.
    if done.returncode != 0 or (words[0] == "update" and "Failed to fetch" in done.stderr):
        raise Unavailable(f"{program} {words[0]}: {' '.join(done.stderr.split())[:300]}")
    return done.stdout
