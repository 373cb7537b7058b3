// SPDX-License-Identifier: Apache-2.0
//
// For tests: authorities, certificates that they sign, and the three files of tls_files.h in a folder.

#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "absl/strings/str_cat.h"
#include "operate/tls_files.h"

namespace hedgerow::operate {

struct TestCertificate {
  std::string certificate;
  std::string key;
};

// Signs with a key of its own.
class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name)
      : key_(EVP_EC_gen("P-256"), EVP_PKEY_free), own_(X509_new(), X509_free) {
    Fill(own_.get(), name, key_.get(), 1000);
    Extend(own_.get(), NID_basic_constraints, "critical,CA:TRUE");
    X509_sign(own_.get(), key_.get(), EVP_sha256());
  }
  std::string Pem() const { return PemOf(own_.get()); }
  // For one DNS name; ends in so many seconds.
  TestCertificate Sign(const std::string& dns_name, long ends_s = 3600) const {
    return Sign(EVP_EC_gen("P-256"), dns_name, ends_s);
  }
  // With a key that TLS refuses.
  TestCertificate SignShort(const std::string& dns_name) const { return Sign(EVP_RSA_gen(512), dns_name, 3600); }

 private:
  TestCertificate Sign(EVP_PKEY* own, const std::string& dns_name, long ends_s) const {
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(own, EVP_PKEY_free);
    const std::unique_ptr<X509, decltype(&X509_free)> signed_for(X509_new(), X509_free);
    Fill(signed_for.get(), "a node", key.get(), ends_s);
    Extend(signed_for.get(), NID_subject_alt_name, absl::StrCat("DNS:", dns_name));
    X509_sign(signed_for.get(), key_.get(), EVP_sha256());
    const std::unique_ptr<BIO, decltype(&BIO_free)> out(BIO_new(BIO_s_mem()), BIO_free);
    PEM_write_bio_PrivateKey(out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    return {.certificate = PemOf(signed_for.get()), .key = TextOf(out.get())};
  }
  void Fill(X509* certificate, const std::string& name, EVP_PKEY* key, long ends_s) const {
    static long serial = 1;
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial++);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -10);
    X509_gmtime_adj(X509_getm_notAfter(certificate), ends_s);
    X509_set_pubkey(certificate, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509_set_issuer_name(certificate, X509_get_subject_name(own_.get()));
  }
  static void Extend(X509* certificate, int extension, const std::string& value) {
    X509_EXTENSION* const made = X509V3_EXT_conf_nid(nullptr, nullptr, extension, value.c_str());
    X509_add_ext(certificate, made, -1);
    X509_EXTENSION_free(made);
  }
  static std::string TextOf(BIO* bio) {
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(bio, &bytes);
    return std::string(bytes, static_cast<size_t>(size));
  }
  static std::string PemOf(X509* certificate) {
    const std::unique_ptr<BIO, decltype(&BIO_free)> out(BIO_new(BIO_s_mem()), BIO_free);
    PEM_write_bio_X509(out.get(), certificate);
    return TextOf(out.get());
  }

  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key_;
  std::unique_ptr<X509, decltype(&X509_free)> own_;
};

// Puts the file in its place by a rename, as tools do that exchange certificates.
inline void WriteTlsFile(const std::string& path, const std::string& text, mode_t mode = 0600) {
  std::ofstream(path + ".next") << text;
  chmod((path + ".next").c_str(), mode);
  std::filesystem::rename(path + ".next", path);
}

// The paths, with files in them that fit together.
inline TlsPaths WriteTlsFiles(const std::string& folder, const TestCertificate& own, const std::string& authority) {
  std::filesystem::create_directories(folder);
  TlsPaths paths{
      .certificate = folder + "/node.pem", .key = folder + "/node.key", .authority = folder + "/authority.pem"};
  WriteTlsFile(paths.certificate, own.certificate, 0644);
  WriteTlsFile(paths.key, own.key);
  WriteTlsFile(paths.authority, authority, 0644);
  return paths;
}

}  // namespace hedgerow::operate
