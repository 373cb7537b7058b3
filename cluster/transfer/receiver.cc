// SPDX-License-Identifier: Apache-2.0
#include "cluster/transfer/receiver.h"

#include <atomic>
#include <deque>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cluster/api/transfer.grpc.pb.h"
#include "cluster/transfer/load_state.h"
#include "cluster/transfer/partial.h"
#include "cluster/transfer/peer_listener.h"
#include "cluster/transfer/seal.h"
#include "net/steady_wait.h"

namespace hedgerow::transfer {
namespace {

// A piece and what is around it.
constexpr int kMessageMax_bytes = 256 * 1024;
constexpr int kThreadsMax = 16;
// Callers that have not shown yet that they have the key. One more ends the oldest, so that silent ones keep
// no other out.
constexpr size_t kUnauthenticatedMax = 6;
// A leader that is gone without a word is found out after these two.
constexpr int kKeepalive_ms = 3000;
// A connection without a call, and one that has not begun to speak HTTP/2. A leader calls at once.
constexpr int kIdle_ms = 2000;
constexpr int kHandshake_ms = 5000;
// For a transfer that a newer one ends.
constexpr absl::Duration kMakeWay = absl::Seconds(5);

// What HTTP/2 tells a client that is not served (RFC 9113, sections 6.5 and 6.8): SETTINGS, then GOAWAY with the
// reason.
std::string NoMembersAddress(const net::IpAddress& source) {
  const std::string why =
      absl::StrCat("connections from ", source.ToString(),
                   " are not taken: it is no member's address, and `peer_clients` does not list it");
  std::string frames(
      "\0\0\0\4\0\0\0\0\0"  // no settings
      "\0\0\0\7\0\0\0\0\0"  // GOAWAY, of a length that follows from the reason
      "\0\0\0\0\0\0\0\xc",  // no stream was begun; INADEQUATE_SECURITY
      26);
  frames[11] = static_cast<char>(8 + why.size());
  return frames + why;
}

using Stream = grpc::ServerReaderWriter<v1::Frame, v1::Frame>;

class Service final : public v1::SnapshotTransfer::Service {
 public:
  Service(ReceiverOptions options, storage::SnapshotFolder folder, ReceiverHost& host, PeerListener& listener)
      : options_(std::move(options)), folder_(std::move(folder)), host_(host), listener_(listener) {}

  grpc::Status Give(grpc::ServerContext* context, Stream* stream) override {
    const std::string peer = context->peer();
    if (!listener_.BeginCall(peer)) {
      listener_.EndCall(peer);
      return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                          absl::StrCat("this connection has ", PeerListener::kCallsPerConnection,
                                       " calls already: a member makes one call in each"));
    }
    const auto ends = absl::MakeCleanup([this, &peer] { listener_.EndCall(peer); });
    std::optional<Caller> caller = Meet(*context, *stream);
    if (!caller.has_value()) {
      // One message for all reasons: an unauthenticated caller learns nothing from it.
      return grpc::Status(grpc::StatusCode::PERMISSION_DENIED,
                          "not this node, another cluster, or another cluster key");
    }
    if (absl::Status named = CheckCertificate(*context, caller->id); !named.ok())
      return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, std::string(named.message()));
    listener_.Proved(peer);
    // Before it ends another's transfer: a leader whose term is over may not know that yet, and try for ever.
    absl::Status status = Judge(*caller);
    if (!status.ok() && !absl::IsAlreadyExists(status)) {
      Count(status);
    } else {
      if (!Enter(context)) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "another transfer does not end");
      status = Receive(*stream, *caller);
      Leave(status);
    }
    // A caller that is gone needs no verdict, nor does one that has heard that nothing is needed.
    if (absl::IsCancelled(status) || absl::IsAlreadyExists(status)) return grpc::Status::OK;
    v1::Message verdict;
    verdict.mutable_verdict()->set_accepted(status.ok());
    verdict.mutable_verdict()->set_why_not(std::string(status.message()));
    verdict.mutable_verdict()->set_damaged(absl::IsDataLoss(status));
    (void)stream->Write(caller->seal.Close(verdict));
    return grpc::Status::OK;
  }

  // The server is to end: no new transfer begins, and what waits for bytes stops waiting.
  void Stop() {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    if (active_ != nullptr) active_->TryCancel();
    for (grpc::ServerContext* caller : unauthenticated_) caller->TryCancel();
  }

  ReceiverStatistics statistics() const {
    absl::MutexLock lock(&mutex_);
    return statistics_;
  }
  std::optional<Receiving> under_way() const {
    absl::MutexLock lock(&mutex_);
    return under_way_;
  }

 private:
  struct Caller {
    raft::NodeId id{};
    v1::Offer offer;
    Seal seal;

    raft::Term term() const { return raft::Term(offer.term()); }
    raft::EntryId last() const {
      return {.index = raft::LogIndex(offer.last_index()), .term = raft::Term(offer.last_term())};
    }
  };

  absl::Status Judge(const Caller& caller) {
    return host_.Judge({caller.id, caller.offer.incarnation(), caller.term(), caller.last()});
  }

  // All members have the cluster's key; a certificate is one member's.
  absl::Status CheckCertificate(const grpc::ServerContext& context, raft::NodeId caller) {
    if (options_.tls == nullptr) return absl::OkStatus();
    absl::Status named = options_.tls->CheckCaller(*context.auth_context(), caller);
    if (named.ok()) return named;
    absl::MutexLock lock(&mutex_);
    ++statistics_.certificate;
    return named;
  }

  // Nothing: it has not shown that it has the key.
  std::optional<Caller> Meet(grpc::ServerContext& context, Stream& stream) {
    {
      absl::MutexLock lock(&mutex_);
      unauthenticated_.push_back(&context);
      if (unauthenticated_.size() > kUnauthenticatedMax)
        unauthenticated_[unauthenticated_.size() - 1 - kUnauthenticatedMax]->TryCancel();
    }
    std::optional<Caller> caller = Challenge(stream);
    absl::MutexLock lock(&mutex_);
    std::erase(unauthenticated_, &context);
    if (!caller.has_value()) ++statistics_.unauthenticated;
    return caller;
  }

  std::optional<Caller> Challenge(Stream& stream) {
    v1::Frame frame;
    if (!stream.Read(&frame)) return std::nullopt;
    const absl::StatusOr<v1::Message> hello = ReadOpen(frame);
    if (!hello.ok() || hello->hello().cluster_id() != options_.cluster_id ||
        hello->hello().to() != options_.self.value() || hello->hello().nonce().size() != kNonce_bytes) {
      return std::nullopt;
    }
    const wire::KeyRing keys = options_.keys->Get();
    const wire::KeyRing::Entry* const key = keys.Find(hello->hello().key_id());
    if (key == nullptr) return std::nullopt;
    v1::Message challenge;
    challenge.mutable_challenge()->set_nonce(DrawNonce());
    Seal seal(key->key, hello->hello(), challenge.challenge(), Seal::End::kCalled);
    if (!stream.Write(Open(challenge)) || !stream.Read(&frame)) return std::nullopt;
    const absl::StatusOr<v1::Message> offer = seal.Read(frame);
    if (!offer.ok() || !offer->has_offer()) return std::nullopt;
    return Caller{raft::NodeId(hello->hello().from()), offer->offer(), std::move(seal)};
  }

  // One at a time: partial_ is the active one's.
  bool Enter(grpc::ServerContext* context) {
    absl::MutexLock lock(&mutex_);
    if (active_ != nullptr) active_->TryCancel();
    const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return active_ == nullptr; };
    if (!left_.Await(mutex_, kMakeWay, idle) || stopping_) return false;
    active_ = context;
    ++statistics_.begun;
    return true;
  }
  void Leave(const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      active_ = nullptr;
      left_.SignalAll();
      if (partial_ == nullptr) under_way_.reset();
    }
    Count(status);
  }
  void Count(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (status.ok() || absl::IsAlreadyExists(status)) return;
    if (absl::IsCancelled(status)) {
      ++statistics_.broken_off;
    } else if (absl::IsPermissionDenied(status)) {
      ++statistics_.unauthenticated;
    } else {
      ++statistics_.refused;
    }
  }

  // Cancelled: the connection broke; what has come is kept. AlreadyExists: it is not needed.
  absl::Status Receive(Stream& stream, Caller& caller) {
    v1::Message want;
    const absl::Status judged = Judge(caller);  // what it waited for may have brought all of it
    if (absl::IsAlreadyExists(judged)) {
      partial_.reset();
      want.mutable_want()->set_not_needed(true);
      return stream.Write(caller.seal.Close(want)) ? judged : Broken();
    }
    if (!judged.ok()) return judged;
    if (absl::Status status = Begin(caller); !status.ok()) return status;
    want.mutable_want()->set_offset(partial_->offset());
    if (!stream.Write(caller.seal.Close(want))) return Broken();
    v1::Frame frame;
    while (stream.Read(&frame)) {
      // A wrong tag costs the connection and nothing that came before.
      const absl::StatusOr<v1::Message> piece = caller.seal.Read(frame);
      if (!piece.ok()) return piece.status();
      if (!piece->has_piece()) return absl::InvalidArgumentError("a message that is no piece");
      if (absl::Status status = Append(piece->piece().bytes()); !status.ok()) return status;
    }
    if (partial_->offset() < partial_->size_bytes()) return Broken();
    return Finish(caller.id, caller.term(), caller.last());
  }

  static absl::Status Broken() { return absl::CancelledError("the connection broke"); }

  absl::Status Begin(const Caller& caller) {
    if (partial_ == nullptr || !partial_->IsOf(caller.id, caller.offer)) {
      partial_.reset();  // before the room for the next one is looked for
      absl::StatusOr<std::unique_ptr<Partial>> begun = Partial::Begin(folder_, caller.id, caller.offer);
      if (!begun.ok()) return begun.status();
      partial_ = *std::move(begun);
    }
    Show(0);
    return absl::OkStatus();
  }

  absl::Status Append(const std::string& bytes) {
    if (absl::Status status = partial_->Append(bytes); !status.ok()) {
      partial_.reset();
      return status;
    }
    Show(bytes.size());
    return absl::OkStatus();
  }

  void Show(uint64_t received_bytes) {
    absl::MutexLock lock(&mutex_);
    statistics_.received_bytes += received_bytes;
    under_way_ = {.from = partial_->from(),
                  .index = partial_->last().index,
                  .received_bytes = partial_->offset(),
                  .size_bytes = partial_->size_bytes()};
  }

  // Nothing is left of it unless it is published.
  absl::Status Finish(raft::NodeId from, raft::Term term, const raft::EntryId& last) {
    const std::unique_ptr<Partial> partial = std::move(partial_);
    if (absl::Status status = partial->Finish(); !status.ok()) return status;
    const absl::StatusOr<std::unique_ptr<storage::SnapshotReader>> reader =
        storage::SnapshotReader::Open(partial->path());
    if (!reader.ok()) return reader.status();
    const storage::SnapshotHeader header = (*reader)->header();
    if (header.cluster_id != options_.cluster_id || header.snapshot.last != last) {
      return absl::DataLossError("the file is not of what was offered");
    }
    absl::StatusOr<std::unique_ptr<kv::StateMachine>> state = LoadState(**reader, &stopping_);
    if (!state.ok()) return state.status();
    if (absl::Status status = folder_.Publish(partial->path(), last); !status.ok()) return status;
    partial->Published();
    {
      absl::MutexLock lock(&mutex_);
      ++statistics_.received;
    }
    absl::Status taken = host_.Take({.event = {.leader = from, .term = term, .snapshot = header.snapshot},
                                     .size_bytes = partial->size_bytes(),
                                     .state = *std::move(state)});
    return taken;
  }

  const ReceiverOptions options_;
  const storage::SnapshotFolder folder_;
  ReceiverHost& host_;
  PeerListener& listener_;
  std::unique_ptr<Partial> partial_;  // the active call's, or none's
  std::atomic<bool> stopping_ = false;

  mutable absl::Mutex mutex_;
  net::SteadyCondVar left_;
  std::deque<grpc::ServerContext*> unauthenticated_ ABSL_GUARDED_BY(mutex_);  // the oldest first
  grpc::ServerContext* active_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::optional<Receiving> under_way_ ABSL_GUARDED_BY(mutex_);
  ReceiverStatistics statistics_ ABSL_GUARDED_BY(mutex_);
};

class Server final : public Receiver {
 public:
  Server(ReceiverOptions options, storage::SnapshotFolder folder, ReceiverHost& host,
         std::unique_ptr<PeerListener> listener)
      : host_(host),
        tls_(options.tls != nullptr),
        credentials_(options.tls != nullptr ? options.tls->Server() : grpc::InsecureServerCredentials()),
        listener_(std::move(listener)),
        service_(std::move(options), std::move(folder), host, *listener_) {}
  ~Server() override {
    listener_->Stop();
    service_.Stop();
    if (server_ != nullptr)
      server_->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(1, GPR_TIMESPAN)));
  }

  absl::Status Start() {
    grpc::ServerBuilder builder;
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials_);
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(kMessageMax_bytes);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepalive_ms);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepalive_ms);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdle_ms);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshake_ms);
    // A client that keeps to it makes its further calls wait. One that does not is refused by its count (PeerListener).
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, PeerListener::kCallsPerConnection);
    // The callers' keepalives are as frequent.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kKeepalive_ms / 2);
    builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
    grpc::ResourceQuota quota("transfer");
    quota.SetMaxThreads(kThreadsMax);
    builder.SetResourceQuota(quota);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::InternalError("gRPC cannot start the server of snapshots");
    listener_->Accept([this](const net::IpAddress& source) { return host_.MayCall(source); },
                      [this](int connection) {
                        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters handed;
                        handed.fd = connection;
                        acceptor_->HandleNewConnection(&handed);
                      },
                      tls_ ? PeerListener::Refusal() : NoMembersAddress);
    return absl::OkStatus();
  }

  ReceiverStatistics statistics() const override {
    ReceiverStatistics all = service_.statistics();
    all.connections = listener_->statistics();
    return all;
  }
  std::optional<Receiving> under_way() const override { return service_.under_way(); }

 private:
  ReceiverHost& host_;
  const bool tls_;
  const std::shared_ptr<grpc::ServerCredentials> credentials_;
  const std::unique_ptr<PeerListener> listener_;
  Service service_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Receiver>> Receiver::Listen(ReceiverOptions options, storage::SnapshotFolder folder,
                                                           ReceiverHost& host) {
  absl::StatusOr<std::unique_ptr<PeerListener>> listener = PeerListener::Listen(options.address);
  if (!listener.ok()) return listener.status();
  auto server = std::make_unique<Server>(std::move(options), std::move(folder), host, *std::move(listener));
  if (absl::Status status = server->Start(); !status.ok()) return status;
  return server;
}

}  // namespace hedgerow::transfer
