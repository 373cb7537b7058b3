// SPDX-License-Identifier: Apache-2.0
#include "operate/tls_files.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "operate/file_opener.h"

namespace hedgerow::operate {
namespace {

// A chain of a few certificates takes some kilobytes.
constexpr size_t kFileMax_bytes = 1 << 20;

template <auto Free>
struct Freer {
  template <typename Object>
  void operator()(Object* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freer<BIO_free>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Context = std::unique_ptr<SSL_CTX, Freer<SSL_CTX_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Freer<GENERAL_NAMES_free>>;
using Time = std::unique_ptr<ASN1_TIME, Freer<ASN1_TIME_free>>;

absl::Status Refused(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("the file ", path, " ", why));
}

absl::StatusOr<std::string> ReadPem(const std::string& path, bool secret, Reader reader) {
  absl::StatusOr<FileText> read = ReadText(path, kFileMax_bytes);
  if (!read.ok()) return Refused(path, read.status().message());
  if (const std::string why = secret ? WhyNotSecret(read->info, path) : ""; !why.empty()) return Refused(path, why);
  if (const std::string why = WhyNotFollowed(read->info, path, geteuid()); reader == Reader::kServes && !why.empty())
    return Refused(path, why);
  if (read->text.size() > kFileMax_bytes) return Refused(path, "is larger than 1 MiB, expected PEM");
  return std::move(read->text);
}

// Each one in the file, in this order. `of`: "" or " of an authority", for an error.
absl::StatusOr<std::vector<Certificate>> CertificatesIn(const std::string& path, const std::string& text,
                                                        absl::string_view of) {
  std::vector<Certificate> all;
  const Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  while (Certificate next{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)}) all.push_back(std::move(next));
  ERR_clear_error();
  if (all.empty())
    return Refused(path, absl::StrCat("holds no certificate", of, ", expected PEM: -----BEGIN CERTIFICATE-----"));
  // Of each certificate its first and its last line end alike.
  const std::vector<absl::string_view> parts = absl::StrSplit(text, "CERTIFICATE-----");
  if (parts.size() == 2 * all.size() + 1) return all;
  return Refused(path, absl::StrCat("holds a certificate that cannot be read, after ", all.size(),
                                    " that can: mend it, or remove what is left of it"));
}

// A pass phrase would be asked for on the terminal.
PrivateKey KeyIn(const std::string& text) {
  const auto no_pass_phrase = [](char*, int, int, void*) { return -1; };
  const Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  PrivateKey key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_pass_phrase, nullptr));
  ERR_clear_error();
  return key;
}

// What OpenSSL has against serving with them, such as a key that is too short; empty: nothing.
std::string WhyNotServed(const std::vector<Certificate>& chain, EVP_PKEY* key) {
  const Context context(SSL_CTX_new(TLS_method()));
  bool takes = context != nullptr && SSL_CTX_use_certificate(context.get(), chain[0].get()) == 1;
  for (size_t i = 1; i < chain.size(); ++i)
    takes = takes && SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) == 1;
  takes = takes && SSL_CTX_use_PrivateKey(context.get(), key) == 1;
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  if (takes) return "";
  return reason != nullptr ? reason : "for an unknown reason";
}

std::vector<std::string> NamesOf(X509* certificate) {
  std::vector<std::string> names;
  const Names all(static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(all.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(all.get(), i);
    if (name->type != GEN_DNS) continue;
    const auto* const bytes = reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName));
    names.push_back(
        absl::AsciiStrToLower(std::string(bytes, static_cast<size_t>(ASN1_STRING_length(name->d.dNSName)))));
  }
  return names;
}

int64_t UnixTime(const ASN1_TIME* time) {
  const Time epoch(ASN1_TIME_set(nullptr, 0));
  int days = 0, seconds = 0;
  if (ASN1_TIME_diff(&days, &seconds, epoch.get(), time) != 1) return 0;
  return int64_t{days} * 86'400 + seconds;
}

}  // namespace

bool TlsMaterial::IsFor(absl::string_view name) const {
  return std::find(names.begin(), names.end(), absl::AsciiStrToLower(name)) != names.end();
}

std::string TlsMaterial::NamesText() const { return names.empty() ? "no DNS name" : absl::StrJoin(names, ", "); }

std::string CertificateEndText(int64_t not_after_s, int64_t now_s) {
  constexpr int64_t kDay_s = 86'400;
  constexpr int64_t kWarning_s = 7 * kDay_s;
  const int64_t left_s = not_after_s - now_s;
  if (left_s >= kWarning_s) return "";
  if (left_s <= 0) return "has ended";
  if (left_s < kDay_s) return "ends in less than a day";
  return absl::StrCat("ends in ", left_s / kDay_s, left_s < 2 * kDay_s ? " day" : " days");
}

absl::StatusOr<TlsMaterial> ReadTlsMaterial(const TlsPaths& paths, absl::string_view name, Reader reader) {
  absl::StatusOr<std::string> certificate = ReadPem(paths.certificate, false, reader);
  if (!certificate.ok()) return certificate.status();
  absl::StatusOr<std::string> key = ReadPem(paths.key, true, reader);
  if (!key.ok()) return key.status();
  absl::StatusOr<std::string> authority = paths.authority.empty() ? "" : ReadPem(paths.authority, false, reader);
  if (!authority.ok()) return authority.status();
  const absl::StatusOr<std::vector<Certificate>> chain = CertificatesIn(paths.certificate, *certificate, "");
  if (!chain.ok()) return chain.status();
  if (!paths.authority.empty()) {
    const absl::StatusOr<std::vector<Certificate>> authorities =
        CertificatesIn(paths.authority, *authority, " of an authority");
    if (!authorities.ok()) return authorities.status();
  }
  X509* const own = chain->front().get();
  const PrivateKey secret = KeyIn(*key);
  if (secret == nullptr) {
    return Refused(
        paths.key,
        "holds no private key that can be used, expected PEM without a pass phrase: -----BEGIN PRIVATE KEY-----");
  }
  const bool fits = X509_check_private_key(own, secret.get()) == 1;
  ERR_clear_error();
  if (!fits) {
    return Refused(paths.key, absl::StrCat("is not the key of the certificate in ", paths.certificate,
                                           ": put both files of one certificate there"));
  }
  if (const std::string why = WhyNotServed(*chain, secret.get()); !why.empty())
    return Refused(paths.certificate, absl::StrCat("cannot be used for TLS: ", why));
  TlsMaterial material{.certificate = *std::move(certificate),
                       .key = *std::move(key),
                       .authority = *std::move(authority),
                       .names = NamesOf(own),
                       .not_after_s = UnixTime(X509_get0_notAfter(own))};
  if (name.empty() || material.IsFor(name)) return material;
  return Refused(
      paths.certificate,
      absl::StrCat("is for another name: got a certificate for ", material.NamesText(), ", expected one for ", name,
                   ": have it signed with this subjectAltName (DNS), or say in `peer_tls.name` how members are named"));
}

TlsFiles::TlsFiles(TlsPaths paths, std::string name, TlsMaterial first, absl::Duration period)
    : paths_(std::move(paths)),
      name_(std::move(name)),
      current_(std::make_shared<const TlsMaterial>(std::move(first))),
      reader_([this, period] {
        while (!stopped_.WaitFor(period)) Get();
      }) {}

TlsFiles::~TlsFiles() {
  stopped_.Notify();
  reader_.join();
}

TlsFiles::Versions TlsFiles::Look() const {
  const auto look = [](const std::string& path) {
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) return Version();
    return Version{.inode = info.st_ino,
                   .changed_ns = info.st_ctim.tv_sec * 1'000'000'000 + info.st_ctim.tv_nsec,
                   .bytes = info.st_size};
  };
  return {look(paths_.certificate), look(paths_.key), look(paths_.authority)};
}

std::shared_ptr<const TlsMaterial> TlsFiles::Get() {
  absl::MutexLock reading(&reading_);
  // What changes while they are read is another version, and read the next time.
  const Versions there = Look();
  if (there == in_use_) return current();
  absl::StatusOr<TlsMaterial> read = ReadTlsMaterial(paths_, name_, Reader::kServes);
  absl::MutexLock lock(&mutex_);
  const bool same = read.ok() && read->certificate == current_->certificate && read->key == current_->key &&
                    read->authority == current_->authority;
  if (read.ok() && !same && read->not_after_s <= time(nullptr))
    read = Refused(paths_.certificate,
                   "holds a certificate that has ended: put the next one and its key into their files");
  status_ = read.status();
  // Also what is refused is read the next time: a disk may have failed for a moment.
  in_use_ = read.ok() ? std::optional(there) : std::nullopt;
  if (read.ok() && !same) {
    current_ = std::make_shared<const TlsMaterial>(*std::move(read));
    ++reloads_;
  }
  return current_;
}

std::shared_ptr<const TlsMaterial> TlsFiles::current() const {
  absl::MutexLock lock(&mutex_);
  return current_;
}

absl::Status TlsFiles::status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

std::string TlsFiles::Problem(int64_t now_s) const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> problems;
  if (!status_.ok())
    problems.push_back(absl::StrCat("the former certificates are in use, because ", status_.message()));
  if (const std::string end = CertificateEndText(current_->not_after_s, now_s); !end.empty()) {
    problems.push_back(absl::StrCat("the certificate that is in use ", end, ": put the next one and its key into ",
                                    paths_.certificate, " and ", paths_.key, ", or others will refuse it"));
  }
  return absl::StrJoin(problems, "; ");
}

uint64_t TlsFiles::reloads() const {
  absl::MutexLock lock(&mutex_);
  return reloads_;
}

}  // namespace hedgerow::operate
