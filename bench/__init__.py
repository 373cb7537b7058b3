# SPDX-License-Identifier: Apache-2.0
"""Side-by-side measurements: what each experiment runs, records and must show. docs/benchmarks.md explains them."""
