# SPDX-License-Identifier: Apache-2.0
"""Stock Debian kernels under QEMU's software emulation, with everything in memory; see README.md."""
