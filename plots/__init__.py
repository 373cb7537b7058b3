# SPDX-License-Identifier: Apache-2.0
"""Plots of the experiments. They read results/NAME/ only, so that a figure can be drawn again without measuring."""
