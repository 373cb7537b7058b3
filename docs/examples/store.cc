// SPDX-License-Identifier: Apache-2.0
//
// The store from C++: store HOST:PORT. Links cluster_client of this tree; the library is not installed.
#include <iostream>

#include "absl/time/time.h"
#include "cluster/client/hkv_client.h"

int main(int argc, char** argv) {
  const absl::Duration timeout = absl::Seconds(2);
  auto client = hedgerow::client::HkvClient::Connect(argc > 1 ? argv[1] : "127.0.0.1:4801");
  if (!client.ok()) {
    std::cerr << client.status().message() << "\n";
    return 1;
  }
  // The first write opens a session, so that each write is done once, however many copies of it arrive.
  if (const absl::Status put = (*client)->Put("name", "alice", timeout); !put.ok()) {
    std::cerr << put.message() << "\n";  // DeadlineExceeded: it may have been done or not
    return 1;
  }
  std::cout << "name: " << (*client)->Get("name", timeout).value_or("?") << "\n";
  std::cout << "visits: " << (*client)->Increment("visits", 1, timeout).value_or(-1) << "\n";
  std::cout << "cas: " << (*client)->CompareAndSet("name", "alice", "bob", timeout).value_or(false) << "\n";
  return 0;
}
