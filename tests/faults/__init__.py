# SPDX-License-Identifier: Apache-2.0
"""Every system call that can fail does fail, once and from then on, in every place of every program's life: `./dev faults`."""
