# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: the product's commands, clients, a packet capture and the checks at rest."""
