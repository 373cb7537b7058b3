# SPDX-License-Identifier: Apache-2.0
"""libcoap's example server: the protocol of the worked example in docs/profile-language.md."""

from deploy.lab.servers.server import Server, round_trip

PORT = 5683
_GET_ROOT = bytes.fromhex("40011234")  # version 1, CON, GET, message id 0x1234


class CoapServer(Server):
    name, default_port = "coap-server", PORT

    def command(self) -> list[str]:
        return ["/usr/bin/coap-server-notls", "-p", str(self.port), "-v", "3"]

    def answers(self, address: str) -> bool:
        answer = round_trip(self.host, address, self.port, _GET_ROOT)
        return answer is not None and answer[2:4] == _GET_ROOT[2:4]
