# SPDX-License-Identifier: Apache-2.0
"""The page "At a glance": what has been measured, on one page that needs no network."""
