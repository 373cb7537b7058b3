# SPDX-License-Identifier: Apache-2.0
"""What becomes of clients when a leader dies: faults, loads that write down what they saw, and judgement. README.md."""
