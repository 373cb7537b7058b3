# SPDX-License-Identifier: Apache-2.0
"""What a cluster is made of, in the user's cache folder: Kubernetes and CoreDNS, built from their Go modules, and containerd, runc, the
network plugins and etcd from Debian's packages, unpacked and never installed. Made once: 9 minutes, 5 GB, of which 4.5 GB in `go` may be deleted.
"""

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from deploy.dev import temporary

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl")
PACKAGES = ("containerd", "runc", "containernetworking-plugins", "etcd-server")
COREDNS, PAUSE, NGINX = "hedgerow.test/coredns:1", "hedgerow.test/pause:1", "docker.io/nginxinc/nginx-unprivileged:stable"
_GO = (1, 25)  # what CoreDNS wants


class Unavailable(Exception):
    """Something cannot be had here; the message says what to do."""


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hedgerow" / "kube"


def path_variable() -> str:
    """PATH, with the cluster's programs before the machine's."""
    cache = cache_folder()
    return ":".join([str(cache / "bin"), *(str(cache / "debian" / folder) for folder in ("usr/bin", "usr/sbin")), os.environ["PATH"]])


def build() -> list[Path]:
    """Makes what is missing. The archives of all images but the product's."""
    for name in ("kubernetes", "coredns"):
        _go_program(name)
    for name in PROGRAMS:
        link = cache_folder() / "bin" / name
        link.unlink(missing_ok=True)
        link.symlink_to("kubernetes")
    _debian()
    return _images()


def _go() -> str:
    for go in filter(None, (shutil.which("go"), "/usr/local/go/bin/go")):
        if os.access(go, os.X_OK):
            version = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout
            if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) >= _GO:
                return go
    raise Unavailable(f"no Go {'.'.join(map(str, _GO))} or later, which Kubernetes and CoreDNS need: unpack one (https://go.dev/dl) into /usr/local/go, or put it first in PATH")


def sources(name: str) -> list[Path]:
    return [HERE / name / file for file in ("go.mod", "main.go")]


def go(name: str, *words: str) -> str:
    """Runs Go on a copy of the module in the cache, whose go.mod the build completes."""
    cache = cache_folder()
    env = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=mod -modcacherw -trimpath -buildvcs=false", "GOPATH": f"{cache}/go",
           "GOMODCACHE": f"{cache}/go/mod", "GOCACHE": f"{cache}/go/cache"}
    done = subprocess.run(["nice", "-n", "10", _go(), *words], cwd=cache / "src" / name, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"{name} cannot be built: see above (is there a network, or a GOPROXY?)")
    return done.stdout


def _go_program(name: str) -> None:
    """Built again only where its sources have changed. The build list follows from the version that its go.mod names."""
    cache, flags = cache_folder(), "-s -w"
    mark, stamp = hashlib.sha256(b"".join(each.read_bytes() for each in sources(name))).hexdigest(), cache / f"{name}.built"
    if (cache / "bin" / name).exists() and stamp.exists() and stamp.read_text(encoding="ascii") == mark:
        return
    print(f"building {name}: {'some 9 minutes' if name == 'kubernetes' else 'some 3 minutes'} the first time, into {cache}", flush=True)
    (cache / "src" / name).mkdir(parents=True, exist_ok=True)
    (cache / "bin").mkdir(exist_ok=True)
    for each in sources(name):
        shutil.copy(each, cache / "src" / name)
    if name == "kubernetes":  # its go.mod replaces its staging modules by folders, which hold for itself alone
        version = re.search(r"k8s.io/kubernetes (v\d+(\.\d+\.\d+))", sources(name)[0].read_text(encoding="utf-8"))
        theirs = json.loads(go(name, "mod", "download", "-json", f"k8s.io/kubernetes@{version[1]}"))["GoMod"]
        for module in re.findall(r"(\S+) => \./staging/", Path(theirs).read_text(encoding="utf-8")):
            go(name, "mod", "edit", f"-replace={module}={module}@v0{version[2]}")
        flags += f" -X k8s.io/component-base/version.gitVersion={version[1]}"
    go(name, "build", "-ldflags", flags, "-o", str(cache / "bin" / name), ".")
    stamp.write_text(mark, encoding="ascii")


def _debian() -> None:
    root = cache_folder() / "debian"
    if root.exists():
        return
    with temporary.folder("kube") as scratch:
        os.chmod(scratch, 0o755)  # apt's own user downloads
        done = subprocess.run(["apt-get", "--quiet=2", "download", *PACKAGES], cwd=scratch, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"apt-get download {' '.join(PACKAGES)}: {done.stderr.strip()} (`apt-get update` first?)")
        fresh = root.with_name("debian.part")
        shutil.rmtree(fresh, ignore_errors=True)
        for package in Path(scratch).glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", package, fresh], check=True)
    fresh.rename(root)


def _images() -> list[Path]:
    """Of programs of this machine, with their libraries: nothing of a registry."""
    folder = cache_folder() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for file, name, program, user in (("coredns", COREDNS, str(cache_folder() / "bin/coredns"), "0"), ("nginx", NGINX, shutil.which("nginx"), "101")):
        with temporary.folder("kube") as root:
            for path in [program, *re.findall(r"/\S+", subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout)]:
                if Path(path).exists():
                    place = Path(f"{root}{path}") if path != program else Path(root, "usr/bin", file)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, place)
            _archive(Path(root), name, [f"/usr/bin/{file}"], user, folder / f"{file}.tar")
    with temporary.folder("kube") as root:
        subprocess.run(["cc", "-static", "-O1", "-x", "c", "-", "-o", f"{root}/pause"], text=True, check=True, input=(
            "#include <signal.h>\n#include <unistd.h>\nstatic void end(int n) { _exit(0 * n); }\n"
            "int main(void) { signal(SIGTERM, end); signal(SIGCHLD, SIG_IGN); for (;;) pause(); }\n"))
        _archive(Path(root), PAUSE, ["/pause"], "0", folder / "pause.tar")
    return sorted(folder.glob("*.tar"))


def _archive(root: Path, name: str, entrypoint: list[str], user: str, out: Path) -> None:
    """An OCI archive of one layer."""
    def described(kind: str, data: bytes) -> dict:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        blobs[f"blobs/sha256/{digest[7:]}"] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest, "size": len(data)}

    for each in ("tmp", "etc", "proc", "sys", "dev", "var/run"):
        (root / each).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for file, text in (("passwd", "root:x:0:0::/:\nnginx:x:101:101::/:\n"), ("group", "root:x:0:\nnginx:x:101:\n")):
        (root / "etc" / file).write_text(text, encoding="ascii")
    layer, blobs = io.BytesIO(), {}
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(root, arcname=".")
    config = {"architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine], "os": "linux", "config": {"User": user, "Entrypoint": entrypoint},
              "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"]}}
    manifest = {"schemaVersion": 2, "config": described("config.v1+json", json.dumps(config).encode()),
                "layers": [described("layer.v1.tar+gzip", gzip.compress(layer.getvalue(), 1))]}
    index = {"schemaVersion": 2, "manifests": [described("manifest.v1+json", json.dumps(manifest).encode())
                                               | {"annotations": {"io.containerd.image.name": name}}]}
    with tarfile.open(out, "w") as tar:
        for path, data in {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode(), **blobs}.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
