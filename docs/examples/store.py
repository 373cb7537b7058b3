#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The store from Python (package hkv): store.py [HOST [PORT]]. HOST is a node or, better, the VIP."""

import sys

import hkv

host, port = (sys.argv[1:] + ["127.0.0.1", "4801"][len(sys.argv) - 1:])[:2]
with hkv.Client(host, int(port), timeout_s=2.0) as client:
    client.put(b"name", b"alice")
    print("name:", client.get(b"name").decode())
    print("visits:", client.incr(b"visits", 1))
    # Only if it has not changed meanwhile; None as the expected value: only if it does not exist.
    print("cas:", client.cas(b"name", b"alice", b"bob"))
    # Several operations of one write: all of them are done, or none.
    client.write([hkv.put_operation(b"last", b"bob"), hkv.delete_operation(b"name")])
    print("name:", client.get(b"name"))
    try:
        client.incr(b"last")
    except hkv.NoAnswer:
        print("no answer in time: the write may have been done or not")
    except hkv.HkvError as error:
        print("refused:", error)
