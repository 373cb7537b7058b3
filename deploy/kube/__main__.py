# SPDX-License-Identifier: Apache-2.0
"""The command line of the lane, behind `./dev kube`: a real two-node Kubernetes on this machine, and what its DNS loses."""

import argparse
import os
import sys
import time
from pathlib import Path

from deploy.kube import events, programs
from deploy.kube.cluster import TAG, Cluster, down_pods
from deploy.lab import Lab, LabInUse


def _images() -> list[Path]:
    """All that a node needs; those of the product as `./dev image` has made them."""
    folder = Path(os.environ["HEDGEROW_IMAGES"])
    return [*programs.build(), *(folder / f"{name}.oci.tar" for name in ("hedgerow", "hedgerow-endpoints"))]


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev kube", description=__doc__)
    parser.add_argument("command", choices=["build", "up", "down", "test"], help="build: fills the cache alone; up: stays, with KUBECONFIG printed")
    parser.add_argument("--cni", choices=["bridge", "ptp"], help="the network plugin of both nodes (default: bridge on a, ptp on b)")
    parser.add_argument("--proxy", choices=["iptables", "nftables"], default="iptables", help="kube-proxy's mode (default: iptables)")
    arguments = parser.parse_args(words)
    try:
        if arguments.command == "down":
            Lab(TAG).registry.kill_all()
            down_pods()
            print("the cluster is down" if Lab.clean(TAG) else "no cluster is up")
            return 0
        archives = _images()
        if arguments.command == "build":
            return 0
        cluster = Cluster((arguments.cni,) * 2 if arguments.cni else ("bridge", "ptp"), arguments.proxy)
        started = time.monotonic()
        if arguments.command == "up":
            cluster.up(archives)
            cluster.keep()
            print(f"up in {time.monotonic() - started:.0f} s; logs and kubeconfig: {cluster.folder}\n"
                  f"ip netns exec {cluster.lab.client.netns} {programs.cache_folder()}/bin/kubectl --kubeconfig {cluster.folder}/admin.conf get pods -A")
            return 0
        with cluster.running(archives):
            print(f"up in {time.monotonic() - started:.0f} s", flush=True)
            return events.run(cluster)
    except (LabInUse, programs.Unavailable) as error:
        print(f"kube: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
