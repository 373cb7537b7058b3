# SPDX-License-Identifier: Apache-2.0
"""What an operator does on the proxies when a cluster's members change (docs/cluster.md): a proxy follows nobody whom its
configuration does not name; `hedgerow reload` tells it of new ones while clients are served."""

import contextlib
import json
import os

import yaml

from bench import product
from bench.manifest import binary
from chaos.systems import kv_service
from cluster.client import hkv
from deploy.lab import VIP_KV, Lab
from deploy.lab.cluster import hedgerow_cluster, joining_nodes
from deploy.lab.data_dirs import DataDirs
from deploy.lab.members import Operator
from deploy.lab.servers.hedgerow_node import SERVE_PORT, NodeSettings
from test_recovery import run, wait_for

TAG = f"mprx{os.getpid()}"


def settings_of(lab: Lab) -> NodeSettings:
    return NodeSettings(durability="memory", proxies=(("lab", lab.client.ipv4),))


def leader_at(proxy: product.Product) -> dict:
    shown = proxy.host.run([binary("hedgerow"), "leader", "show", "--json", "--socket", proxy.socket])
    return json.loads(shown.stdout)["leaders"][0]


def counted(proxy: product.Product, reason: str) -> int:
    status = proxy.status()
    return sum(product.number(of.get("reasons", {}).get(reason)) for of in (status, status["services"][0]))


def reload(proxy: product.Product, service: dict) -> None:
    proxy.file.write_text(yaml.safe_dump({**proxy.config, "services": [service]}, sort_keys=False), encoding="ascii")
    said = json.loads(proxy.host.run([binary("hedgerow"), "reload", "--json", "--socket", proxy.socket]).stdout)
    assert said["applied"], said


def client_of(lab: Lab) -> hkv.Client:
    return hkv.Client(VIP_KV[0], SERVE_PORT, 5.0, lab.client.socket())


def test_a_new_member_leads_at_a_proxy_once_a_reload_has_named_it():
    with Lab(TAG, replicas=4) as lab, DataDirs(TAG, "memory") as data:
        settings = settings_of(lab)
        cluster = hedgerow_cluster(lab, data.path, settings, joining=1)
        (joins,) = joining_nodes(lab, data.path, settings, 1)
        with cluster:
            cluster.wait_ready()
            operator = Operator(cluster)
            whole = kv_service(lab, cluster, delay="2ms")
            service = {**whole, "backends": [each for each in whole["backends"] if each["name"] != joins.host.name]}
            with product.Product(lab.client, TAG, [service]) as proxy, client_of(lab) as client:
                wait_for("an announcement", lambda: leader_at(proxy).get("source") == "announced")
                client.open()
                assert client.incr(b"n") == 1
                joins.start()
                operator.add(joins)
                operator.wait_until_caught_up(joins)
                operator.change("promote", joins.number)
                leader = operator.leader()
                if leader is not joins:  # on a busy machine it may have been elected by now
                    run("transfer", "--to", joins.number, "--socket", leader.socket)
                wait_for("it leads", lambda: operator.leader() is joins)

                # Of whom the proxy knows nothing: the others hand on what they are asked.
                wait_for("its announcements are counted", lambda: counted(proxy, "announce_endpoint") > 0)
                assert leader_at(proxy)["leader"] != joins.host.name
                assert client.incr(b"n") == 2

                reload(proxy, whole)
                wait_for("the proxy follows it", lambda: leader_at(proxy)["leader"] == joins.host.name)
                assert client.incr(b"n") == 3
                joins.stop()
                assert client.incr(b"n") == 4, "the others go on, and it is announced who leads"
                wait_for("another one leads there", lambda: leader_at(proxy)["leader"] != joins.host.name)


def test_a_cluster_that_was_set_up_anew_under_its_old_id_is_followed():
    """Its terms begin again, so what it announces is older than what the proxy knows."""
    with Lab(TAG, replicas=3) as lab, contextlib.ExitStack() as stack:
        settings = settings_of(lab)
        with DataDirs(TAG, "memory") as data, hedgerow_cluster(lab, data.path, settings) as cluster:
            cluster.wait_ready()
            proxy = stack.enter_context(product.Product(lab.client, TAG, [kv_service(lab, cluster, delay="2ms")]))
            for _ in range(5):
                leader = cluster.wait_ready()
                other = next(node for node in cluster.nodes if node is not leader)
                run("transfer", "--to", other.number, "--socket", leader.socket)
            wait_for("a later term is announced", lambda: int(leader_at(proxy).get("term", 0)) > 5)
            known = int(leader_at(proxy)["term"])
        with DataDirs(TAG, "memory") as data, hedgerow_cluster(lab, data.path, settings) as cluster, client_of(lab) as client:
            assert cluster.wait_ready().state().term < known
            client.open()
            assert client.incr(b"n") == 1, "the other members hand on what the proxy sends them"
            wait_for("the proxy follows it", lambda: 0 < int(leader_at(proxy).get("term", 0)) < known, within_s=60)
            assert leader_at(proxy)["leader"] == cluster.leader().host.name
            assert client.incr(b"n") == 2
