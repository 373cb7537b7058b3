// SPDX-License-Identifier: Apache-2.0
//
// A server for tests of clients: the real state machine behind one UDP socket on the loopback, alone, in a
// thread, and as unreliable as a test wants it. No part of what ships.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "cluster/kv/state_machine.h"
#include "cluster/wire/hkv.h"

namespace hedgerow::client {

// The state of a store that several fake servers share, as replicas would.
class FakeStore {
 public:
  wire::HkvAnswer Serve(const wire::HkvRequest& request);
  size_t sessions();

 private:
  std::mutex mutex_;
  kv::StateMachine state_;
  uint64_t index_ = 0;
  std::mt19937_64 random_{1};
};

class FakeServer {
 public:
  // What to do with a request: serve it, and send the answer `answers` times; or send `instead`.
  struct Treatment {
    int answers = 1;  // 0: done, and not answered
    bool lost = false;
    std::chrono::milliseconds delay{};  // of the answers
    std::optional<wire::HkvAnswer> instead{};
  };
  using Faults = std::function<Treatment(const wire::HkvRequest&)>;

  // On a free port of 127.0.0.1. `faults` is called in the server's thread.
  static absl::StatusOr<std::unique_ptr<FakeServer>> Start(std::shared_ptr<FakeStore> store, Faults faults = {});
  ~FakeServer();

  const std::string& address() const { return address_; }
  uint64_t requests() const { return requests_; }
  // The latest request's.
  uint16_t client_port() const { return client_port_; }

 private:
  FakeServer(int fd, std::string address, std::shared_ptr<FakeStore> store, Faults faults);
  void Run();

  int fd_;
  std::string address_;
  std::shared_ptr<FakeStore> store_;
  Faults faults_;
  std::atomic<bool> stopped_ = false;
  std::atomic<uint64_t> requests_ = 0;
  std::atomic<uint16_t> client_port_ = 0;
  std::thread thread_;
};

}  // namespace hedgerow::client
