# SPDX-License-Identifier: Apache-2.0
"""A container image without an engine: its file system unpacked, and its program run in it as a container of a manifest says.

What a container's runtime does is done by util-linux: a root of its own, mounts, user, capabilities, no new privileges. Namespaces
are the caller's: hostNetwork is the network namespace of a lab's host.
"""

import json
import shlex
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CAPABILITIES = {"NET_ADMIN": 12, "NET_RAW": 13, "PERFMON": 38, "BPF": 39}  # linux/capability.h
BASE_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


def make_images(build: Path, folder: Path) -> dict[str, Path]:
    """As `./dev image` makes them, of packages of this build."""
    script = (f'HEDGEROW_ROOT={ROOT}; for part in say package image; do . deploy/dev/$part.sh; done; '
              f'make_packages "{build}" "{folder}/debs"; make_images "{folder}/debs" "{folder}/images"')
    subprocess.run(["bash", "-euc", script], cwd=ROOT, check=True, timeout=560)
    return {path.name.removesuffix(".oci.tar"): path for path in (folder / "images").glob("*.oci.tar")}


class Image:
    """`config` is the image's own: User, Entrypoint, Cmd, Labels."""

    def __init__(self, archive: Path, folder: Path):
        blobs = folder / "archive"
        with tarfile.open(archive) as tar:
            tar.extractall(blobs)
        described = self._json(blobs / "index.json")["manifests"][0]
        self.digest, self.name = described["digest"], described["annotations"]["org.opencontainers.image.ref.name"]
        manifest = self._json(self._blob(blobs, self.digest))
        self.config = self._json(self._blob(blobs, manifest["config"]["digest"]))["config"]
        self.size = sum(layer["size"] for layer in manifest["layers"])
        self.root = folder / "root"
        self.root.mkdir()
        for layer in manifest["layers"]:
            subprocess.run(["tar", "-C", self.root, "-xzpf", self._blob(blobs, layer["digest"])], check=True, timeout=60)

    @staticmethod
    def _json(path: Path) -> dict:
        return json.loads(path.read_text(encoding="utf-8"))

    @staticmethod
    def _blob(folder: Path, digest: str) -> Path:
        return folder / "blobs" / digest.replace(":", "/")

    def command(self, container: dict, mounts: dict[str, Path], *, pod: dict | None = None,
                words: list[str] | None = None, env: list[str] | None = None) -> list[str]:
        """Runs the image's program, or `words`, with the rights of a manifest's container. `mounts` are folders by where they appear."""
        context = {**((pod or {}).get("securityContext") or {}), **container["securityContext"]}
        default_user = int((self.config.get("User") or "0").split(":")[0])
        user = context.get("runAsUser", default_user)
        group = context.get("runAsGroup", user)
        assert context["capabilities"]["drop"] == ["ALL"]
        if words is None:
            words = [*container.get("command", self.config["Entrypoint"]), *container.get("args", self.config.get("Cmd") or [])]
        at = shlex.quote(str(self.root))
        script = [f"mount --rbind {at} {at}", "mount --make-rprivate /", f"mount -t proc proc {at}/proc", f"mount --rbind /sys {at}/sys",
                  f"mount -t tmpfs tmpfs {at}/dev", f"mknod -m 666 {at}/dev/null c 1 3", f"mknod -m 666 {at}/dev/urandom c 1 9"]
        for where, folder in mounts.items():
            script += [f"mkdir -p {at}{where}", f"mount --bind {shlex.quote(str(folder))} {at}{where}"]
        if context.get("readOnlyRootFilesystem"):
            script.append(f"mount -o remount,bind,ro {at}")
        environment = [*(f"{key}={value}" for key, value in BASE_ENV.items()), *(self.config.get("Env") or []), *(env or [])]
        script.append(shlex.join(["exec", "/usr/bin/python3", "-c", _ENTER, json.dumps({
            "root": str(self.root), "uid": user, "gid": group, "groups": [context.get("fsGroup", group), *context.get("supplementalGroups", [])],
            "keep": [CAPABILITIES[name] for name in context["capabilities"].get("add", [])],
            "env": dict(each.split("=", 1) for each in environment), "words": words})]))
        return ["unshare", "--mount", "--propagation", "private", "sh", "-euc", "\n".join(script)]


# A process that has changed its root gives its rights away itself: the image has no program for that. Root's exec takes what the
# bounding set has, as in a container.
_ENTER = """
import ctypes, json, os, sys
how = json.loads(sys.argv[1])
prctl = ctypes.CDLL(None, use_errno=True).prctl
os.chroot(how["root"])
os.chdir("/")
last = int(open("/proc/sys/kernel/cap_last_cap").read())
for capability in set(range(last + 1)) - set(how["keep"]):
    assert prctl(24, capability, 0, 0, 0) == 0  # PR_CAPBSET_DROP
os.setgroups(how["groups"])
os.setgid(how["gid"])
os.setuid(how["uid"])
assert prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
os.execve(how["words"][0], how["words"], how["env"])
"""
