// SPDX-License-Identifier: Apache-2.0
//
// For tests: hands bytes on between its client and a server, and does harm on the way there. Each
// fault is done to a connection once it has handed on so many bytes; a corruption to the first such connection
// only.

#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace hedgerow::transfer {

class TcpRelay {
 public:
  struct Faults {
    uint64_t corrupt_after_bytes = 0;  // 0: never
    uint64_t break_after_bytes = 0;
  };

  // "127.0.0.1:4802"
  TcpRelay(const std::string& server, Faults faults);
  ~TcpRelay();

  const std::string& address() const { return address_; }
  uint64_t corrupted() const { return corrupted_; }

 private:
  void Accept();
  void Relay(int client);

  const uint16_t server_port_;
  const Faults faults_;
  std::string address_;
  int listener_ = -1;
  std::atomic<bool> stopping_ = false;
  std::atomic<uint64_t> corrupted_ = 0;
  std::vector<std::thread> relays_;  // of the acceptor
  std::thread acceptor_;
};

}  // namespace hedgerow::transfer
