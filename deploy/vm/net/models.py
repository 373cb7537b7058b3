# SPDX-License-Identifier: Apache-2.0
"""The network cards that QEMU emulates, and the drivers of an unmodified kernel that go with them."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Model:
    """`queues`: pairs that QEMU's tap needs. The other cards spread one tap over their own queues."""

    name: str  # in the tables
    device: str  # QEMU's name
    modules: tuple[str, ...]  # the driver, last
    queues: int = 1
    options: str = ""
    own_port: bool = False  # behind a root port each, since the places of its virtual functions would collide
    # What makes the card leave received checksums to the kernel, for a receiver that verifies each one. Cards without it do
    # so by `ethtool -K rx off`.
    plain_receiver: str = ""


# Of virtio-net two queues carry traffic (one a processor) and two are native XDP's.
MODELS = {model.name: model for model in (
    Model("virtio-net", "virtio-net-pci", ("virtio_pci", "virtio_net"), queues=4, options="mq=on,vectors=10",
          plain_receiver="guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off"),
    Model("e1000e", "e1000e", ("e1000e",)),
    Model("igb", "igb", ("igb",), own_port=True),
    Model("vmxnet3", "vmxnet3", ("vmxnet3",)))}
