// SPDX-License-Identifier: Apache-2.0
#include "steer/admin.h"

#include <grp.h>

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "operate/audit.h"
#include "operate/log.h"
#include "operate/reply_from_loop.h"
#include "steer/api/steer.grpc.pb.h"

namespace hedgerow::steer {
namespace {

constexpr int kThreadsMax = 8;
constexpr int kRequestMax_bytes = 64 * 1024;

// The call that changes nothing; gRPC answers the others with UNIMPLEMENTED.
class Monitor : public v1::Steer::Service {
 public:
  Monitor(EventLoop& loop, Control& control) : loop_(loop), control_(control) {}

  grpc::Status Show(grpc::ServerContext*, const v1::ShowRequest*, v1::Group* reply) override {
    return OnLoop(reply, [&] { return control_.Show(); });
  }

 protected:
  template <typename T>
  grpc::Status OnLoop(T* reply, std::type_identity_t<std::function<absl::StatusOr<T>()>> body) {
    return operate::ReplyFromLoop<T>(loop_, reply, std::move(body));
  }

  EventLoop& loop_;
  Control& control_;
};

class Administration final : public Monitor {
 public:
  using Monitor::Monitor;

  grpc::Status Resize(grpc::ServerContext* context, const v1::ResizeRequest* request, v1::Change* reply) override {
    return Change(*context, *request, reply, [&] { return control_.Resize(request->workers()); });
  }
  grpc::Status SetWeights(grpc::ServerContext* context, const v1::SetWeightsRequest* request,
                          v1::Change* reply) override {
    const std::vector<double> weights(request->weights().begin(), request->weights().end());
    return Change(*context, *request, reply, [&] { return control_.SetWeights(weights); });
  }
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request, v1::Change* reply) override {
    return Change(*context, *request, reply, [&] { return control_.Drain(request->slot(), request->drain()); });
  }
  grpc::Status RestartWorker(grpc::ServerContext* context, const v1::RestartWorkerRequest* request,
                             v1::Slot* reply) override {
    return Change(*context, *request, reply, [&] { return control_.RestartWorker(request->slot()); });
  }
  grpc::Status Reload(grpc::ServerContext* context, const v1::ReloadRequest* request, v1::Group* reply) override {
    return Change(*context, *request, reply,
                  [&] { return control_.Reload(request->has_slot() ? std::optional(request->slot()) : std::nullopt); });
  }
  grpc::Status Stop(grpc::ServerContext* context, const v1::StopRequest* request, v1::StopReply* reply) override {
    return Change(*context, *request, reply, [&] { return control_.Stop(); });
  }

 private:
  template <typename T>
  grpc::Status Change(const grpc::ServerContext& context, const google::protobuf::Message& request, T* reply,
                      std::type_identity_t<std::function<absl::StatusOr<T>()>> body) {
    return operate::Audited([](const std::string& line) { LogInfo(line); }, context, request,
                            OnLoop(reply, std::move(body)));
  }
};

operate::AdminSocket::Options OptionsFor(const std::string& group) {
  return {.threads_max = kThreadsMax,
          .request_max_bytes = kRequestMax_bytes,
          .hint = "give this group its own --name or --run-dir",
          .group = group,
          .log = [](const std::string& line) { LogWarning(line); }};
}

}  // namespace

absl::StatusOr<std::unique_ptr<operate::AdminSocket>> ServeAdmin(const Places& places, EventLoop& loop,
                                                                 Control& control) {
  return operate::AdminSocket::Listen(places.admin(), std::make_unique<Administration>(loop, control), OptionsFor(""));
}

absl::StatusOr<std::unique_ptr<operate::AdminSocket>> ServeMonitor(const Places& places, EventLoop& loop,
                                                                   Control& control, const std::string& group) {
  if (getgrnam(group.c_str()) == nullptr) return nullptr;
  return operate::AdminSocket::Listen(places.monitor(), std::make_unique<Monitor>(loop, control), OptionsFor(group));
}

}  // namespace hedgerow::steer
