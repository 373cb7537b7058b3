# SPDX-License-Identifier: Apache-2.0
"""What a client gets through the VIP of two healthy servers is what it gets from one of them: the rows, their judge, their servers."""
