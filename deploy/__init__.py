# SPDX-License-Identifier: Apache-2.0
"""What puts Hedgerow on machines. `deploy.lab` is the network on one machine that tests and benchmarks use."""
