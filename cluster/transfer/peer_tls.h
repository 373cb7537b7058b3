// SPDX-License-Identifier: Apache-2.0
//
// Mutual TLS between nodes, for the TCP port of their peers: both ends show a certificate that an authority of the
// configuration has signed and that names the member. Each connection is made with what is in use then. Used by both
// ends of a transfer. Any thread.

#pragma once

#include <memory>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "cluster/raft/types.h"
#include "cluster/wire/peer_name.h"
#include "operate/tls_files.h"

namespace hedgerow::transfer {

class PeerTls {
 public:
  // `files` outlive it and all that it makes. `pattern`: of members' names (wire::PeerName).
  PeerTls(operate::TlsFiles& files, std::string pattern) : files_(files), pattern_(std::move(pattern)) {}

  // A server's, for one port: it asks each caller for a certificate. It outlives the server.
  std::shared_ptr<grpc::ServerCredentials> Server() const;
  // A caller's, for one connection. It reads the files first if they have changed.
  std::shared_ptr<grpc::ChannelCredentials> Client() const;
  std::string NameOf(raft::NodeId node) const { return wire::PeerName(pattern_, node); }
  // PermissionDenied: the caller's certificate does not name this member.
  absl::Status CheckCaller(const grpc::AuthContext& caller, raft::NodeId node) const;

 private:
  operate::TlsFiles& files_;
  const std::string pattern_;
};

}  // namespace hedgerow::transfer
