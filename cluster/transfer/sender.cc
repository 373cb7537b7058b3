// SPDX-License-Identifier: Apache-2.0
#include "cluster/transfer/sender.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "cluster/api/transfer.grpc.pb.h"
#include "net/unique_fd.h"
#include "cluster/transfer/seal.h"
#include "net/steady_wait.h"

namespace hedgerow::transfer {
namespace {

constexpr size_t kPiece_bytes = 64 * 1024;
constexpr size_t kRead_bytes = 1024 * 1024;
// A peer that is gone without a word is found out after these two, and one that does not exist after the third.
constexpr int kKeepalive_ms = 3000;
constexpr int kConnect_ms = 5000;
// A follower that has taken nothing for so long is not waited for.
constexpr absl::Duration kTimeout = absl::Seconds(5);

absl::Status FromErrno(const std::string& path, const char* doing) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", doing, " ", path));
}

absl::StatusOr<std::string> ReadAt(int file, const std::string& path, uint64_t offset, size_t bytes) {
  std::string read(bytes, '\0');
  const ssize_t got = pread(file, read.data(), bytes, static_cast<off_t>(offset));
  if (got < 0) return FromErrno(path, "read");
  if (static_cast<size_t>(got) != bytes) return absl::DataLossError(absl::StrCat(path, " is cut short"));
  return read;
}

std::shared_ptr<grpc::Channel> OpenChannel(const SnapshotOffer& offer, const PeerTls* tls) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepalive_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepalive_ms);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnect_ms);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (tls == nullptr) return grpc::CreateCustomChannel(offer.address, grpc::InsecureChannelCredentials(), arguments);
  // The follower's certificate must have its name, wherever it is reached.
  arguments.SetSslTargetNameOverride(tls->NameOf(offer.to));
  return grpc::CreateCustomChannel(offer.address, tls->Client(), arguments);
}

}  // namespace

struct Sender::Transfer {
  SnapshotOffer offer;
  net::UniqueFd file;
  uint64_t size = 0;
  uint32_t checksum = 0;
  uint64_t reached = 0;  // how far the follower has ever been, by its own report

  mutable absl::Mutex mutex;
  net::SteadyCondVar stopped;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  bool done ABSL_GUARDED_BY(mutex) = false;
  grpc::ClientContext* context ABSL_GUARDED_BY(mutex) = nullptr;
  Sending shown ABSL_GUARDED_BY(mutex);
  std::thread thread;

  void Stop() {
    absl::MutexLock lock(&mutex);
    stopping = true;
    stopped.SignalAll();
    if (context != nullptr) context->TryCancel();
  }
  bool Stopping() const {
    absl::MutexLock lock(&mutex);
    return stopping;
  }
  // False: it is to stop.
  bool Wait(absl::Duration duration) {
    absl::MutexLock lock(&mutex);
    return !stopped.Await(mutex, duration, [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex) { return stopping; });
  }
  bool Done() const {
    absl::MutexLock lock(&mutex);
    return done;
  }
  void Show(uint64_t sent_bytes) {
    absl::MutexLock lock(&mutex);
    shown.sent_bytes = sent_bytes;
    shown.size_bytes = size;
    shown.moved = std::chrono::steady_clock::now();
    shown.trouble.clear();
  }
  void Failed(const absl::Status& why) {
    absl::MutexLock lock(&mutex);
    shown.trouble = std::string(why.message());
  }
  void Moved() {
    absl::MutexLock lock(&mutex);
    shown.moved = std::chrono::steady_clock::now();
  }
  void AwaitsVerdict() {
    absl::MutexLock lock(&mutex);
    shown.all_sent = true;
  }
  absl::Status Open();
};

// Opened here and not by the loop, which waits for no disk. What is open can be read to its end, though a newer
// snapshot takes its place meanwhile.
absl::Status Sender::Transfer::Open() {
  file = net::UniqueFd(open(offer.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return FromErrno(offer.path, "open");
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return FromErrno(offer.path, "look at");
  size = static_cast<uint64_t>(info.st_size);
  for (uint64_t offset = 0; offset < size && !Stopping(); offset += kRead_bytes) {
    const absl::StatusOr<std::string> read =
        ReadAt(file.get(), offer.path, offset, static_cast<size_t>(std::min<uint64_t>(kRead_bytes, size - offset)));
    if (!read.ok()) return read.status();
    Moved();
    checksum = static_cast<uint32_t>(
        crc32(checksum, reinterpret_cast<const Bytef*>(read->data()), static_cast<uInt>(read->size())));
  }
  return absl::OkStatus();
}

// One connection to a follower, from Hello to the verdict.
class Sender::Call {
 public:
  Call(Sender& sender, Transfer& transfer)
      : sender_(sender),
        transfer_(transfer),
        stub_(v1::SnapshotTransfer::NewStub(OpenChannel(transfer.offer, sender.options_.tls))) {
    absl::MutexLock lock(&transfer_.mutex);
    transfer_.context = &context_;
    if (transfer_.stopping) context_.TryCancel();
  }
  ~Call() {
    absl::MutexLock lock(&transfer_.mutex);
    transfer_.context = nullptr;
    transfer_.shown.all_sent = false;
  }

  // OK: delivered, or not needed. `moved` is set when more than before has arrived.
  absl::Status Make(bool& moved) {
    stream_ = stub_->Give(&context_);
    absl::Status status = Greet();
    if (status.ok()) status = Offer(moved);
    // A stream that broke has ended, and how is the other end's to say.
    if (!status.ok() && !absl::IsUnavailable(status)) context_.TryCancel();
    // The end of a call comes after all messages of it.
    for (v1::Frame more; stream_->Read(&more);) continue;
    const grpc::Status finished = stream_->Finish();
    // What this end has cancelled is no answer.
    if (!absl::IsUnavailable(status) || finished.ok() || finished.error_code() == grpc::StatusCode::CANCELLED)
      return status;
    if (finished.error_message().empty()) return status;
    // What a GOAWAY says (receiver.cc) stands in gRPC's account of the error alone.
    const std::string account = context_.debug_error_string();
    const size_t said = account.find("connections from ");
    const std::string why =
        said == std::string::npos ? finished.error_message() : account.substr(said, account.find('"', said) - said);
    return absl::UnavailableError(absl::StrCat(std::string(status.message()), ": ", why));
  }

 private:
  static absl::Status Broken() { return absl::UnavailableError("the connection broke"); }

  absl::Status Greet() {
    v1::Message hello;
    hello.mutable_hello()->set_cluster_id(sender_.options_.cluster_id);
    hello.mutable_hello()->set_from(sender_.options_.self.value());
    hello.mutable_hello()->set_to(transfer_.offer.to.value());
    hello.mutable_hello()->set_nonce(DrawNonce());
    const wire::KeyRing keys = sender_.options_.keys->Get();
    hello.mutable_hello()->set_key_id(keys.seals().id);
    v1::Frame frame;
    if (!stream_->Write(Open(hello)) || !stream_->Read(&frame)) return Broken();
    const absl::StatusOr<v1::Message> challenge = ReadOpen(frame);
    if (!challenge.ok()) return challenge.status();
    seal_.emplace(keys.seals().key, hello.hello(), challenge->challenge(), Seal::End::kCaller);
    return absl::OkStatus();
  }

  absl::StatusOr<v1::Message> Answer() {
    v1::Frame frame;
    if (!stream_->Read(&frame)) return Broken();
    absl::StatusOr<v1::Message> answer = seal_->Read(frame);
    if (!answer.ok() || !answer->has_verdict() || answer->verdict().accepted()) return answer;
    const std::string why = absl::StrCat("node ", transfer_.offer.to.value(), ": ", answer->verdict().why_not());
    return answer->verdict().damaged() ? absl::DataLossError(why) : absl::UnavailableError(why);
  }

  absl::Status Offer(bool& moved) {
    const SnapshotOffer& offer = transfer_.offer;
    v1::Message offered;
    offered.mutable_offer()->set_term(offer.term.value());
    offered.mutable_offer()->set_last_index(offer.last.index.value());
    offered.mutable_offer()->set_last_term(offer.last.term.value());
    offered.mutable_offer()->set_size_bytes(transfer_.size);
    offered.mutable_offer()->set_checksum(transfer_.checksum);
    offered.mutable_offer()->set_incarnation(sender_.options_.incarnation);
    if (!stream_->Write(seal_->Close(offered))) return Broken();
    const absl::StatusOr<v1::Message> want = Answer();
    if (!want.ok()) return want.status();
    if (!want->has_want() || want->want().offset() > transfer_.size) {
      return absl::InvalidArgumentError("an odd answer");
    }
    if (want->want().not_needed()) return absl::OkStatus();
    const uint64_t offset = want->want().offset();
    moved = offset > transfer_.reached;
    transfer_.reached = std::max(transfer_.reached, offset);
    if (offset > 0) sender_.Count(&SenderStatistics::resumed);
    if (absl::Status status = SendFrom(offset); !status.ok()) return status;
    const absl::StatusOr<v1::Message> verdict = Answer();
    if (!verdict.ok()) return verdict.status();
    return verdict->has_verdict() ? absl::OkStatus() : absl::InvalidArgumentError("an odd answer");
  }

  absl::Status SendFrom(const uint64_t from) {
    const uint64_t rate = sender_.options_.bytes_per_second;
    const auto begun = std::chrono::steady_clock::now();
    for (uint64_t offset = from; offset < transfer_.size;) {
      const size_t bytes = static_cast<size_t>(std::min<uint64_t>(kPiece_bytes, transfer_.size - offset));
      absl::StatusOr<std::string> read = ReadAt(transfer_.file.get(), transfer_.offer.path, offset, bytes);
      if (!read.ok()) return read.status();
      v1::Message piece;
      piece.mutable_piece()->set_bytes(*std::move(read));
      // Waits while the follower does not read: gRPC's flow control holds back more than a window of it.
      if (!stream_->Write(seal_->Close(piece))) return WhyBroken();
      offset += bytes;
      sender_.Count(&SenderStatistics::sent_bytes, bytes);
      transfer_.Show(offset);
      if (rate == 0) continue;
      const double due_s = static_cast<double>(offset - from) / static_cast<double>(rate);
      const absl::Duration early = absl::Seconds(due_s) - absl::FromChrono(std::chrono::steady_clock::now() - begun);
      if (early > absl::Milliseconds(1) && !transfer_.Wait(early)) return absl::CancelledError("broken off");
    }
    if (!stream_->WritesDone()) return WhyBroken();
    transfer_.AwaitsVerdict();
    return absl::OkStatus();
  }

  // The follower may have sent the reason before it hung up.
  absl::Status WhyBroken() {
    const absl::StatusOr<v1::Message> reason = Answer();
    return reason.ok() ? Broken() : reason.status();
  }

  Sender& sender_;
  Transfer& transfer_;
  std::unique_ptr<v1::SnapshotTransfer::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::Frame, v1::Frame>> stream_;
  std::optional<Seal> seal_;
};

bool MakesProgress(const Sending& sending, std::chrono::steady_clock::time_point now) {
  return sending.all_sent || absl::FromChrono(now - sending.moved) < kTimeout;
}

Sender::Sender(SenderOptions options, Ended ended) : options_(std::move(options)), ended_(std::move(ended)) {}

Sender::~Sender() {
  StopAll();
  for (const auto& transfer : stopping_) {
    if (transfer->thread.joinable()) transfer->thread.join();
  }
}

void Sender::Send(SnapshotOffer offer) {
  Reap();
  const raft::NodeId to = offer.to;
  StopSendingTo(to);
  auto transfer = std::make_unique<Transfer>();
  {
    absl::MutexLock lock(&transfer->mutex);
    transfer->shown = {.to = to, .index = offer.last.index, .moved = std::chrono::steady_clock::now()};
  }
  transfer->offer = std::move(offer);
  Transfer& started = *transfer;
  Count(&SenderStatistics::begun);
  try {
    started.thread = std::thread([this, &started] { Run(started); });
  } catch (const std::system_error& error) {  // a bound on threads is reached
    Count(&SenderStatistics::failed);
    ended_(to, started.offer.last.index, absl::ResourceExhaustedError(error.what()));
    return;
  }
  transfers_[to] = std::move(transfer);
}

void Sender::Stop(std::unique_ptr<Transfer> transfer) {
  transfer->Stop();
  stopping_.push_back(std::move(transfer));
}

void Sender::StopSendingTo(raft::NodeId to) {
  const auto found = transfers_.find(to);
  if (found == transfers_.end()) return;
  Stop(std::move(found->second));
  transfers_.erase(found);
}

void Sender::StopAll() {
  for (auto& [to, transfer] : transfers_) Stop(std::move(transfer));
  transfers_.clear();
}

std::vector<Sending> Sender::UnderWay() const {
  std::vector<Sending> under_way;
  for (const auto& [to, transfer] : transfers_) {
    absl::MutexLock lock(&transfer->mutex);
    if (!transfer->done) under_way.push_back(transfer->shown);
  }
  return under_way;
}

// Their threads are at their last line, so that joining them takes no time.
void Sender::Reap() {
  const auto reap = [](Transfer& transfer) {
    if (!transfer.Done()) return false;
    transfer.thread.join();
    return true;
  };
  std::erase_if(transfers_, [&reap](const auto& entry) { return reap(*entry.second); });
  std::erase_if(stopping_, [&reap](const auto& transfer) { return reap(*transfer); });
}

SenderStatistics Sender::statistics() const {
  absl::MutexLock lock(&mutex_);
  return statistics_;
}

void Sender::Count(uint64_t SenderStatistics::*what, uint64_t more) {
  absl::MutexLock lock(&mutex_);
  statistics_.*what += more;
}

absl::Status Sender::SendPatiently(Transfer& transfer) {
  if (absl::Status status = transfer.Open(); !status.ok()) {
    transfer.Failed(status);
    transfer.Wait(options_.retry);
    return status;
  }
  absl::Duration pause = options_.retry;
  for (int tries = 1;; ++tries) {
    bool moved = false;
    absl::Status status = Call(*this, transfer).Make(moved);
    if (!status.ok()) transfer.Failed(status);
    if (status.ok() || !transfer.Wait(pause)) return status;
    if (absl::IsDataLoss(status)) return status;
    if (moved) {
      tries = 0;
      pause = options_.retry;
    } else if (tries >= options_.tries_max) {
      return status;
    } else {
      pause *= 2;
    }
  }
}

void Sender::Run(Transfer& transfer) {
  const absl::Status status = SendPatiently(transfer);
  const bool stopped = transfer.Stopping();
  if (status.ok()) {
    Count(&SenderStatistics::delivered);
  } else if (!stopped) {
    Count(&SenderStatistics::failed);
  }
  if (!stopped) ended_(transfer.offer.to, transfer.offer.last.index, status);
  absl::MutexLock lock(&transfer.mutex);
  transfer.done = true;
}

}  // namespace hedgerow::transfer
