# SPDX-License-Identifier: Apache-2.0
"""Real drivers: machines with emulated network cards, joined by a software network (`./dev vm net`)."""
