# SPDX-License-Identifier: Apache-2.0
"""What ./dev is made of. The shell files are sourced by it; the Python ones are called by them."""
