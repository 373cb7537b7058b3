// SPDX-License-Identifier: Apache-2.0
#include "steer/admin.h"

#include <functional>
#include <utility>
#include <vector>

#include "operate/audit.h"
#include "operate/log.h"

namespace hedgerow::steer {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(10);
constexpr int kThreadsMax = 8;
constexpr int kRequestMax_bytes = 64 * 1024;

class Administration final : public v1::Steer::Service {
 public:
  Administration(EventLoop& loop, Control& control) : loop_(loop), control_(control) {}

  grpc::Status Show(grpc::ServerContext*, const v1::ShowRequest* request, v1::Group* reply) override {
    return OnLoop(reply, [&] { return control_.Show(request->buckets()); });
  }
  grpc::Status Resize(grpc::ServerContext* context, const v1::ResizeRequest* request, v1::Change* reply) override {
    return Change(*context, *request, reply, [&] { return control_.Resize(request->workers()); });
  }
  grpc::Status SetWeights(grpc::ServerContext* context, const v1::SetWeightsRequest* request, v1::Change* reply) override {
    const std::vector<double> weights(request->weights().begin(), request->weights().end());
    return Change(*context, *request, reply, [&] { return control_.SetWeights(weights); });
  }
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request, v1::Change* reply) override {
    return Change(*context, *request, reply, [&] { return control_.Drain(request->slot(), request->drain()); });
  }
  grpc::Status RestartWorker(grpc::ServerContext* context, const v1::RestartWorkerRequest* request, v1::Slot* reply) override {
    return Change(*context, *request, reply, [&] { return control_.RestartWorker(request->slot()); });
  }
  grpc::Status Reattach(grpc::ServerContext* context, const v1::ReattachRequest* request, v1::Group* reply) override {
    return Change(*context, *request, reply, [&] { return control_.Reattach(); });
  }
  grpc::Status Stop(grpc::ServerContext* context, const v1::StopRequest* request, v1::StopReply* reply) override {
    return Change(*context, *request, reply, [&] { return control_.Stop(); });
  }

 private:
  template <typename T>
  grpc::Status OnLoop(T* reply, std::type_identity_t<std::function<absl::StatusOr<T>()>> body) {
    absl::StatusOr<T> result = loop_.Call<T>(kCallTimeout, std::move(body));
    if (!result.ok()) return operate::ToGrpc(result.status());
    *reply = *std::move(result);
    return grpc::Status::OK;
  }
  template <typename T>
  grpc::Status Change(const grpc::ServerContext& context, const google::protobuf::Message& request, T* reply,
                      std::type_identity_t<std::function<absl::StatusOr<T>()>> body) {
    return operate::Audited([](const std::string& line) { LogInfo(line); }, context, request, OnLoop(reply, std::move(body)));
  }

  EventLoop& loop_;
  Control& control_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<operate::AdminSocket>> ServeAdmin(const Places& places, EventLoop& loop, Control& control) {
  return operate::AdminSocket::Listen(places.admin(), std::make_unique<Administration>(loop, control),
                                      {.threads_max = kThreadsMax,
                                       .request_max_bytes = kRequestMax_bytes,
                                       .hint = "give this group its own --name or --run-dir",
                                       .log = [](const std::string& line) { LogWarning(line); }});
}

absl::StatusOr<AdminClient> AdminClient::Connect(const Places& places) {
  const auto channel = operate::OpenAdminChannel(places.admin(), {.program = "hedgerow-steer",
                                                                  .who_may = "the supervisor's own user and root may",
                                                                  .hint = "Start it with `hedgerow steer run`, or name another group with --name"});
  if (!channel.ok()) return channel.status();
  return AdminClient(v1::Steer::NewStub(*channel));
}

}  // namespace hedgerow::steer
