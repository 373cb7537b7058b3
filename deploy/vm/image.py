# SPDX-License-Identifier: Apache-2.0
"""What a lane's machine runs from: an uncompressed cpio archive, unpacked into memory by the kernel.

Three archives, one after the other. The base holds what this host's distribution gives (a shell, iproute2, Python,
DNS servers...) and the kernel's modules; it is kept in the cache until one of those changes. Then the project's
programs and tests, and the script to run. Names are sorted and times and owners fixed, so that the same
files give the same image, and with one seed the same run.
"""

import hashlib
import lzma
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from deploy.dev import temporary
from deploy.vm.kernels import Broken, Kernel, cache_folder

PROJECT = Path(__file__).resolve().parents[2]
PARTS = Path(__file__).parent / "parts"
# Where the project is in the machine.
GUEST_PROJECT = Path("/hedgerow")

# Programs of the base; those marked False may be missing on the host, and what needs them then fails in the guest.
_PROGRAMS = {
    "busybox": True, "dash": True, "ip": True, "tc": True, "bpftool": True, "ethtool": True, "kmod": True,
    "ping": True, "nft": True, "iptables": True, "ip6tables": True, "nsenter": True, "unshare": True, "setpriv": True,
    "prlimit": True, "nstat": True, "ss": True, "env": True,
    "python3": True, "dig": True, "dnsperf": True, "nsd": True, "knotd": True, "unbound": True, "dnsmasq": True,
    "tcpdump": False}
_SEARCH = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
_KMOD_NAMES = ("modprobe", "insmod", "rmmod", "lsmod", "depmod", "modinfo")
_PYTHON_PACKAGES = ("pyroute2", "pytest", "_pytest", "pytest_timeout.py", "pluggy", "iniconfig", "packaging", "attr",
                    "attrs", "py", "yaml", "pkg_resources", "exceptiongroup", "tomli")
# Of Python: what no program in a machine runs, what C is compiled with, and modules of this host's that bring large libraries with them.
_LEFT_OUT = {"test", "idlelib", "tkinter", "lib2to3", "ensurepip", "turtledemo", "pydoc_data", "__pycache__", "numpy"}
_LEFT_OUT_PREFIXES = ("config-3.", "_tkinter.")
# Everything that the project, its lab and its tests may ask the kernel for; what a kernel has built in is no module.
_MODULES = (
    "veth", "dummy", "ifb", "bridge", "br_netfilter", "netkit", "af_packet", "unix", "ipv6",
    "sch_netem", "sch_fq", "sch_htb", "sch_tbf", "sch_prio", "sch_ingress", "cls_bpf", "cls_matchall", "cls_u32",
    "act_bpf", "act_mirred", "nf_conntrack", "nf_nat", "nf_tables", "nft_masq", "nft_chain_nat", "nft_compat",
    "xt_MASQUERADE", "ip_tables", "iptable_nat", "ip6_tables", "ip6table_nat", "libcrc32c", "crc32c_generic",
    "xfrm_user")
_PROJECT_SUFFIXES = (".py", ".yaml", ".toml", ".txt", ".sh", "")
# 2026-01-01, as the machine's own clock begins: any fixed time does.
_TIME = 1767225600


def build(kernel: Kernel, script: Path | None, arguments: Iterable[str], build_dir: Path, into: Path,
          project: Path | None = None) -> Path:
    """The whole image for one script (None: a shell), in the folder `into`. `project` is project_archive()'s, for those
    who build several images at a time."""
    _need("cpio", "ldd", "busybox", "depmod")
    base = _base_archive(kernel, _base_sources())
    project = project or project_archive(build_dir, into)
    image = into / "image.cpio"
    with image.open("wb") as out:
        for part in (base, project):
            with part.open("rb") as source:
                shutil.copyfileobj(source, out, 1 << 20)
        _add_script(script, arguments, out)
    return image


def project_archive(build_dir: Path, into: Path, programs: Iterable[str] = ()) -> Path:
    """Everything of the project that a machine may need; of its programs those that are named, if any are."""
    with temporary.folder("vm") as scratch:
        _put_project(Path(scratch), build_dir, _base_sources(), programs)
        with (into / "project.cpio").open("wb") as out:
            archive_of(Path(scratch), out)
    return into / "project.cpio"


def _add_script(script: Path | None, arguments: Iterable[str], out: BinaryIO) -> None:
    with temporary.folder("vm") as scratch:
        payload = Path(scratch) / "payload"
        payload.mkdir()
        if script is None:
            (payload / "shell").touch()
        else:
            shutil.copyfile(script, payload / "script")
            (payload / "script").chmod(0o755)
            (payload / "arguments").write_text(" ".join(arguments), encoding="utf-8")
        archive_of(Path(scratch), out)


def _base_archive(kernel: Kernel, sources: set[Path]) -> Path:
    """From the cache, made again when a file that goes into it has changed on this host."""
    key = hashlib.sha256(Path(__file__).read_bytes() + (Path(__file__).parent / "guest" / "init").read_bytes())
    key.update(kernel.release.encode())
    for source in sorted(sources):
        stat = source.stat()
        key.update(f"{source} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    folder = cache_folder() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"base-{kernel.release}-{key.hexdigest()[:16]}.cpio"
    if not (folder / name).exists():
        for old in folder.glob(f"base-{kernel.release}-*.cpio"):
            old.unlink(missing_ok=True)
        _make_base(kernel, sources, folder / name)
    return folder / name


def _base_sources() -> set[Path]:
    """Files of this host, by the names under which the machine shall have them."""
    programs = set()
    for name, needed in _PROGRAMS.items():
        if needed or _found(name):
            programs.add(host_program(name))
    python = _python_files()
    libraries = libraries_of(programs | {path for path in python if path.suffix == ".so"})
    return programs | python | libraries | _data_files()


def host_program(name: str) -> Path:
    if found := _found(name):
        return found
    raise Broken(f"the image needs {name}, which is not installed (sudo ./dev deps)")


def _found(name: str) -> Path | None:
    return next((Path(folder) / name for folder in _SEARCH if (Path(folder) / name).exists()), None)


def _python_files() -> set[Path]:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = set(_files_below(Path("/usr/lib") / version))
    packages = Path("/usr/lib/python3/dist-packages")
    for name in _PYTHON_PACKAGES:
        path = packages / name
        found.update([path] if path.is_file() else _files_below(path))
    # pytest finds its plugins, and pyroute2 its own parts, by their metadata.
    for pattern in ("pytest*-info", "pluggy*-info", "iniconfig*-info", "pyroute2*-info"):
        for folder in packages.glob(pattern):
            found.update([folder] if folder.is_file() else _files_below(folder))
    return found


def _files_below(folder: Path) -> list[Path]:
    found = []
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _LEFT_OUT and not name.startswith(_LEFT_OUT_PREFIXES)]
        found += [Path(here) / name for name in names if not name.startswith(_LEFT_OUT_PREFIXES)]
    return found


def _data_files() -> set[Path]:
    """What programs open by name: tables of iproute2, extensions of iptables, protocol names."""
    found = {Path(name) for name in ("/etc/protocols", "/etc/services", "/etc/nsswitch.conf") if Path(name).exists()}
    for folder in ("/etc/iproute2", "/usr/share/iproute2"):
        found.update(_files_below(Path(folder)))
    for extensions in Path("/usr/lib").glob("*/xtables"):
        found.update(path for path in _files_below(extensions)
                     if re.match(r"lib(xt|ipt|ip6t)_(MASQUERADE|standard|udp|tcp|comment|conntrack)", path.name))
    return found


def libraries_of(programs: Iterable[Path]) -> set[Path]:
    """The shared libraries that programs load, by ldd."""
    done = subprocess.run(["ldd", *sorted(map(str, programs))], capture_output=True, text=True, check=False)
    found = {_real(Path(path)) for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", done.stdout, re.MULTILINE)}
    missing = sorted(set(re.findall(r"^\s+(\S+) => not found", done.stdout, re.MULTILINE)))
    if missing:
        raise Broken("libraries are missing on this host: " + ", ".join(missing))
    return found


def _real(path: Path) -> Path:
    """Under the real name of its folder (/lib is a link to /usr/lib), and its own name."""
    return path.parent.resolve() / path.name


def _make_base(kernel: Kernel, sources: set[Path], archive: Path) -> None:
    print(f"making the image's base for {kernel.release}", flush=True)
    with temporary.folder("vm") as scratch:
        root = Path(scratch)
        make_folders(root)
        copy_files(sources, root)
        put_modules(kernel, root, _MODULES)
        finish_system(root)
        _compile_python(root / "usr" / "lib")
        # Complete or not there, also where two make it at once.
        part = archive.with_suffix(f".{os.getpid()}.part")
        with part.open("wb") as out:
            archive_of(root, out)
        part.replace(archive)


def make_folders(root: Path) -> None:
    """Those of a distribution, empty."""
    for name in ("proc", "sys", "dev", "tmp", "run", "root", "etc", "var/log", "var/lib", "usr/bin", "usr/sbin",
                 "usr/lib", "usr/lib64"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    (root / "var/run").symlink_to("/run")


def copy_files(sources: Iterable[Path], root: Path) -> None:
    """Each file under its own name, links followed."""
    for source in sources:
        target = root / _real(source).relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(source.stat().st_mode & 0o777)


def put_modules(kernel: Kernel, root: Path, names: Iterable[str]) -> None:
    """The modules and what they depend on, uncompressed, since this machine unpacks them faster than an emulated one;
    then modprobe's tables."""
    package = kernel.modules
    target = root / "usr" / "lib" / "modules" / kernel.release
    target.mkdir(parents=True)
    needs = {}
    for line in (package / "modules.dep").read_text(encoding="ascii").splitlines():
        path, _, rest = line.partition(":")
        needs[_module_name(path)] = [path, *rest.split()]
    for path in sorted({path for name in names for path in needs.get(name, [])}):
        content = (package / path).read_bytes()
        unpacked = target / path.removesuffix(".xz")
        unpacked.parent.mkdir(parents=True, exist_ok=True)
        unpacked.write_bytes(lzma.decompress(content) if path.endswith(".xz") else content)
    for table in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        if (package / table).exists():
            shutil.copyfile(package / table, target / table)
    subprocess.run(["depmod", "-b", root, kernel.release], check=True)


def _module_name(path: str) -> str:
    return re.sub(r"\.ko(\.\w+)?$", "", path.rpartition("/")[2])


def finish_system(root: Path) -> None:
    """Links for busybox and kmod where no program of that name came along, accounts, and the first process."""
    applets = subprocess.run(["busybox", "--list"], check=True, capture_output=True, text=True).stdout.split()
    busybox = "/" + str(next(path for path in root.glob("usr/*bin/busybox")).relative_to(root))
    kmod = "/" + str(next(path for path in root.glob("usr/*bin/kmod")).relative_to(root))
    # busybox's shell takes its own `ip` and others before the real ones.
    (root / "usr/bin/sh").symlink_to("dash")
    for name in _KMOD_NAMES:
        (root / "usr/sbin" / name).symlink_to(kmod)
    for name in applets:
        if not any((root / folder / name).is_symlink() or (root / folder / name).exists()
                   for folder in ("usr/bin", "usr/sbin")):
            (root / "usr/bin" / name).symlink_to(busybox)
    accounts = ("root:0", "nobody:65534", "nsd:101", "knot:102", "unbound:103", "dnsmasq:104")
    (root / "etc/passwd").write_text("".join(f"{name}:x:{number}:{number}::/root:/bin/sh\n" for name, number in
                                             (account.split(":") for account in accounts)), encoding="ascii")
    (root / "etc/group").write_text("".join(f"{name}:x:{number}:\n" for name, number in
                                            (account.split(":") for account in accounts)), encoding="ascii")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n", encoding="ascii")
    shutil.copyfile(Path(__file__).parent / "guest" / "init", root / "init")
    (root / "init").chmod(0o755)


def _put_project(root: Path, build_dir: Path, base: set[Path], names: Iterable[str]) -> None:
    """The project's programs with the libraries that the base lacks, its kernel objects, and everything in Python."""
    project = root / GUEST_PROJECT.relative_to("/")
    programs = [path for path in (build_dir / "bin").glob("*") if path.is_file() and os.access(path, os.X_OK)]
    if not programs:
        raise Broken(f"{build_dir}/bin holds no programs: run ./dev build first")
    if missing := set(names) - {path.name for path in programs}:
        raise Broken(f"{', '.join(sorted(missing))}: not built (./dev build)")
    programs = [path for path in programs if not names or path.name in names]
    copy_files(libraries_of(programs) - base, root)
    target = project / "build" / "release"
    for program in programs:
        (target / "bin").mkdir(parents=True, exist_ok=True)
        subprocess.run(["strip", "--strip-debug", "-o", target / "bin" / program.name, program], check=True)
    for source in (build_dir / "bpf").glob("*.bpf.o"):
        (target / "bpf").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target / "bpf" / source.name)
    for folder in ("bench", "deploy", "plots", "tests"):
        for path in _files_below(PROJECT / folder):
            if path.suffix in _PROJECT_SUFFIXES:
                copy = project / path.relative_to(PROJECT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copy)
    shutil.copy(PROJECT / "pytest.ini", project)
    # Tests in C++ know where they were built: init makes that a link to here.
    (project / ".built_at").write_text(f"{PROJECT}\n", encoding="utf-8")
    _compile_python(project)


def _compile_python(folder: Path) -> None:
    """To byte code that is never compared with its source's time, which the archive sets."""
    subprocess.run([sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", folder,
                    folder], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make_small_system(kernel: Kernel, programs: dict[str, Path], tool_names: Iterable[str], modules: Iterable[str], root: Path) -> None:
    """A system of ours alone, without Python and the project: these programs of the build, stripped, under their names; tools of this
    host; modules."""
    if missing := [path.name for path in programs.values() if not path.exists()]:
        raise Broken(f"{', '.join(missing)}: not built (./dev build)")
    tools = {host_program(name) for name in tool_names}
    make_folders(root)
    copy_files(tools | libraries_of(tools | set(programs.values())), root)
    put_modules(kernel, root, modules)
    finish_system(root)
    for name, program in programs.items():
        subprocess.run(["strip", "-o", root / "usr/bin" / name, program], check=True)
    # The first process (guest/init) wants to know where the project is; here is none.
    (root / "hedgerow").mkdir()
    (root / "hedgerow/.built_at").write_text("/hedgerow\n", encoding="ascii")


def archive_of(root: Path, out: BinaryIO) -> None:
    """Appends everything below root to `out`, in the kernel's format. cpio pads it to 512 bytes, so that another
    archive may follow."""
    names = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    for name in names:
        os.utime(root / name, (_TIME, _TIME), follow_symlinks=False)
    done = subprocess.run(["cpio", "--quiet", "--create", "--null", "--format=newc", "--owner=0:0", "--reproducible"],
                          cwd=root, input=b"".join(name.encode() + b"\0" for name in names), stdout=subprocess.PIPE,
                          check=True)
    out.write(done.stdout)


def _need(*programs: str) -> None:
    missing = [name for name in programs if not shutil.which(name)]
    if missing:
        raise Broken(f"{', '.join(missing)}: not installed (sudo ./dev deps)")
