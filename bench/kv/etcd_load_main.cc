// SPDX-License-Identifier: Apache-2.0
//
// hr-etcd-load: the same closed-loop clients on etcd. Started by bench/kv.py.
#include "absl/flags/flag.h"
#include "bench/kv/etcd_loop.h"
#include "bench/kv/load_main.h"

ABSL_FLAG(uint32_t, connections, 1,
          "of all clients together, which take turns on them; 0: one for each client");

int main(int argc, char** argv) {
  return hedgerow::bench::LoadMain(
      "hr-etcd-load", argc, argv,
      [](const hedgerow::bench::ClosedLoopOptions& options, void (*on_phase)(const char*)) {
        return hedgerow::bench::RunEtcdClosedLoop(options, absl::GetFlag(FLAGS_connections), on_phase);
      });
}
