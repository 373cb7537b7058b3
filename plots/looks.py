# SPDX-License-Identifier: Apache-2.0
"""What each measured system is called and how it is drawn, in the plots and on the page: colours that colour-blind readers can tell apart
(Okabe and Ito), a line style and a marker. A system that has no entry here is drawn all the same, under its own name.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Look(NamedTuple):
    label: str
    colour: str
    line: str = "-"
    marker: str = "o"


class Looks(dict[str, Look]):
    """By system, in the order in which they are drawn."""

    def __init__(self, **looks: tuple):
        super().__init__({name.replace("_", "-"): Look(*look) for name, look in looks.items()})

    def __missing__(self, name: str) -> Look:
        return Look(name, "#444444", "--", "*")

    def of(self, names: Iterable[str]) -> list[str]:
        """Each once: those that have an entry in its order, and then the others."""
        names = list(dict.fromkeys(names))
        return [name for name in self if name in names] + [name for name in names if name not in self]


MODES = Looks(
    baseline=("no hedging", "#D55E00", ":"), app_py=("hedging in the client (Python)", "#CC79A7", "-.", "^"),
    app_cc=("hedging in the client (C++)", "#0072B2", "--", "s"), wheel=("Hedgerow", "#009E73", "-", "D"),
    at_once=("Hedgerow, at once while idle", "#56B4E9", "-.", "v"), qdisc_netem=("clones in netem", "#56B4E9", "-", "v"),
    qdisc_fq=("clones in fq", "#8C6D31", "-.", "P"), qdisc_htb=("clones in htb", "#666666", ":", "X"),
    none=("Hedgerow, never hedging", "#E69F00", "--"))
PARKING = Looks(
    none=("never parked", "#E69F00"), wheel=("every request parked", "#009E73"), copies=("parked, and copies at once", "#56B4E9"),
    qdisc_htb=("every request cloned into htb", "#666666"))
STORES = Looks(  # of chaos and the demo
    noproxy_noretry=("no proxy, no retry", "#D55E00", ":"), noproxy_app=("hedging in the application", "#0072B2", "--"),
    hedgerow=("Hedgerow, client unchanged", "#009E73"), hedgerow_no_announce=("without announcements", "#009E73", ":"),
    hedgerow_no_resign=("without resigning", "#009E73", "--"), hedgerow_no_hedge=("without second copies", "#009E73", "-."), etcd_tuned=("etcd, short timeouts", "#E69F00", "-."),
    etcd_default=("etcd, its defaults", "#666666", "-."))
KV = Looks(
    hedgerow=("Hedgerow's store", "#009E73", "-", "D"), hedgerow_proxy=("the same through the proxy (puts only)", "#0072B2", "-", "s"),
    hedgerow_named=("the same, each request proved", "#56B4E9", "-", "v"), etcd=("etcd, defaults", "#666666"),
    hashicorp_raft=("hashicorp/raft (in memory)", "#D55E00", "-", "^"))
_OF_PUTS = ("heartbeat", "broadcast", "append", "quorum")
OFFLOADS = Looks(
    none=("all offloads off", "#D55E00"), none_blocking=("off, leader never spins", "#E69F00", "--"),
    broadcast=("broadcast alone", "#CC79A7", "-", "v"), append=("append alone", "#56B4E9", "-", "^"),
    quorum=("quorum alone", "#8C6D31", "-", "P"), all=("all offloads on", "#009E73", "-", "D"),
    **{f"no_{name}": (f"all on but {name}", "#444444", ":", marker) for name, marker in zip(_OF_PUTS, "ov^P", strict=True)},
    all_blocking=("on, leader never spins", "#0072B2", "--", "D"), etcd=("etcd", "#666666", "-", "s"),
    hashicorp_raft=("hashicorp/raft", "#000000", "-", "X"))
HEARTBEATS = Looks(
    xdp=("a node's kernel programs", "#009E73"), process=("the same node's process", "#0072B2", "--"),
    echo=("a process that echoes", "#D55E00", ":"))
CAUSES = Looks(kill=("killed", "#009E73"), stall=("stalled", "#E69F00"), cut=("cut off", "#D55E00"))
PHASES = Looks(undisturbed=("left alone", "#0072B2"), changing=("one added, one removed", "#D55E00", "--"))  # of `membership`
LOOKING = Looks(alone=("alone", "#666666"), watched=("metrics and page, once a second", "#0072B2"),
                traced=("trace that matches nothing", "#009E73"), top=("hedgerow top", "#E69F00"))
DELAYS = Looks(adaptive=("adaptive delay, the fastest first", "#009E73"), fastest=("adaptive delay, the fastest first", "#009E73"),
               fixed=("fixed delay", "#D55E00", "--"))
AT_ONCE = Looks(
    direct=("no second copies", "#D55E00", ":"), delay=("Hedgerow, after 10 ms", "#56B4E9", "--", "v"),
    adaptive=("Hedgerow, adaptive delay", "#0072B2", "-.", "s"), at_once=("Hedgerow, at once while idle", "#009E73", "-", "D"),
    c_clone=("client, always two copies (C-Clone)", "#CC79A7", "--", "^"), coordinator=("coordinator (LAEDGE)", "#8C6D31", "-.", "P"),
    app=("client, at once while idle", "#E69F00", ":", "X"))
STEERING = Looks(
    one=("one shared socket", "#666666"), reuseport=("SO_REUSEPORT", "#56B4E9"), steer=("Hedgerow", "#009E73"),
    haproxy=("HAProxy", "#E69F00"), nginx=("nginx (stream)", "#CC79A7"))
PROXIES = Looks(direct=("nothing", "#888888"), hedgerow=("Hedgerow", "#009E73"), nginx=("nginx", "#0072B2"), dnsdist=("dnsdist", "#D55E00"))
