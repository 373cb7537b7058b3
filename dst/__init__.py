# SPDX-License-Identifier: Apache-2.0
"""Whole systems in virtual time: one seed, one history (README.md)."""
