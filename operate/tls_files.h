// SPDX-License-Identifier: Apache-2.0
//
// A program's TLS identity as files: its certificate with what it was signed by, its private key, and the authorities
// whose certificates it takes. Files that have changed are read again, so certificates are exchanged without a stop;
// what cannot be used leaves the former in use, and the reason is kept. Used by nodes for their peers' TCP port
// (cluster/transfer), and for the metrics page (http_server).

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "net/steady_wait.h"
#include "operate/file_rights.h"

namespace hedgerow::operate {

struct TlsPaths {
  std::string certificate{};  // PEM, the program's own first
  std::string key{};          // PEM, without a pass phrase; a secret
  std::string authority{};    // PEM, one or several; empty: the other side proves nothing by a certificate

  bool operator==(const TlsPaths&) const = default;
};

// What the files hold, which fits together.
struct TlsMaterial {
  std::string certificate{};
  std::string key{};
  std::string authority{};
  std::vector<std::string> names{};  // the DNS names that the certificate is for, in lower case
  int64_t not_after_s = 0;           // in Unix time: when the certificate ends

  bool IsFor(absl::string_view name) const;
  // "node-1.hedgerow, db1.example.com", or "no DNS name".
  std::string NamesText() const;
};

// Of a certificate that ends then, both in Unix time: "ends in 3 days", "has ended". Empty: it is good for a week and
// more.
std::string CertificateEndText(int64_t not_after_s, int64_t now_s);

// `name`: a DNS name that the certificate must be for; empty: any. InvalidArgument names the file, what is wrong with
// it and what to do; it repeats nothing of the key. The key's file must be one that no other user can read, and for a
// reader that serves all three must be its user's or root's. A certificate that has ended is read.
absl::StatusOr<TlsMaterial> ReadTlsMaterial(const TlsPaths& paths, absl::string_view name, Reader reader);

class TlsFiles {
 public:
  // Three calls of stat(2), and what an operator has replaced is soon in use.
  static constexpr absl::Duration kPeriod = absl::Seconds(10);

  // `first` was read from them, for this name. A thread of its own calls Get() once in a period.
  TlsFiles(TlsPaths paths, std::string name, TlsMaterial first, absl::Duration period = kPeriod);
  ~TlsFiles();

  // Reads files that have changed since the last time. Another certificate that has ended already is refused. Any
  // thread; it may wait for the disk.
  std::shared_ptr<const TlsMaterial> Get();
  // Any thread; none of them waits.
  std::shared_ptr<const TlsMaterial> current() const;
  // Why the files that are there are not used; OK: they are.
  absl::Status status() const;
  // What an operator has to do, at this Unix time; empty: nothing.
  std::string Problem(int64_t now_s) const;
  uint64_t reloads() const;

 private:
  // What tells one version of a file from the next.
  struct Version {
    ino_t inode = 0;
    int64_t changed_ns = 0;
    int64_t bytes = 0;

    bool operator==(const Version&) const = default;
  };
  using Versions = std::array<Version, 3>;

  Versions Look() const;

  const TlsPaths paths_;
  const std::string name_;
  absl::Mutex reading_;                                       // held while a disk is waited for
  std::optional<Versions> in_use_ ABSL_GUARDED_BY(reading_);  // not set: to be read, whatever has changed
  mutable absl::Mutex mutex_;
  std::shared_ptr<const TlsMaterial> current_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  uint64_t reloads_ ABSL_GUARDED_BY(mutex_) = 0;
  net::SteadyNotification stopped_;
  std::thread reader_;  // last: it uses what stands above
};

}  // namespace hedgerow::operate
