# SPDX-License-Identifier: Apache-2.0
"""The demos behind `./dev demo`: kv.py (leaders of a cluster killed) and dns.py (a DNS server that stops); and pictures.py, which
keeps what they show for the README (`./dev pictures`)."""
