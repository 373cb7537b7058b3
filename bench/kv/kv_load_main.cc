// SPDX-License-Identifier: Apache-2.0
//
// hr-kv-load: closed-loop clients of our store, each with a socket and a session of its own. Started by
// bench/kv.py.
#include "bench/kv/closed_loop.h"
#include "bench/kv/load_main.h"

int main(int argc, char** argv) {
  return hedgerow::bench::LoadMain("hr-kv-load", argc, argv, hedgerow::bench::RunClosedLoop);
}
