// SPDX-License-Identifier: Apache-2.0
//
// The CLI's side of the administration socket: one short-lived connection per
// command.

#ifndef HEDGEROW_PROXY_ADMIN_CLIENT_H_
#define HEDGEROW_PROXY_ADMIN_CLIENT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proxy/api/admin.pb.h"

namespace hedgerow {

// A trace under way.
class TraceCall {
 public:
  virtual ~TraceCall() = default;
  // Waits for the next reply; false at the end.
  virtual bool Next(v1::TraceReply& reply) = 0;
  // From any thread: Next() returns false soon.
  virtual void Cancel() = 0;
  // Once, after Next() said false: how it ended; OK when we cancelled it.
  virtual absl::Status Finish() = 0;
};

class AdminClient {
 public:
  // Unavailable, saying so in words, when no daemon answers on the socket; PermissionDenied when this user may
  // not open it.
  static absl::StatusOr<std::unique_ptr<AdminClient>> Connect(const std::string& socket_path);
  virtual ~AdminClient() = default;

  virtual absl::StatusOr<v1::Status> GetStatus() = 0;
  virtual absl::StatusOr<v1::LeaderList> LeaderShow(const std::string& service) = 0;
  virtual absl::StatusOr<v1::Leader> LeaderSet(const std::string& service, const std::string& backend) = 0;
  virtual absl::StatusOr<v1::Leader> LeaderUnset(const std::string& service) = 0;
  virtual absl::StatusOr<v1::BypassReply> Bypass(const std::string& service, bool on) = 0;
  virtual absl::StatusOr<v1::DownReply> Down() = 0;
  virtual absl::StatusOr<v1::ReloadReply> Reload(bool dry_run, const std::string& file) = 0;
  virtual absl::StatusOr<v1::DryRunReply> DryRun(const std::string& service, bool on) = 0;
  virtual absl::StatusOr<v1::DrainReply> Drain(const std::string& backend, const std::string& service,
                                               bool on) = 0;
  virtual absl::StatusOr<v1::Counts> GetCounts() = 0;
  // The call must not outlive the client.
  virtual std::unique_ptr<TraceCall> Trace(const v1::TraceRequest& request) = 0;
};

}  // namespace hedgerow

#endif  // HEDGEROW_PROXY_ADMIN_CLIENT_H_
