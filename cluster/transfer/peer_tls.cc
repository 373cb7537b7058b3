// SPDX-License-Identifier: Apache-2.0
#include "cluster/transfer/peer_tls.h"

#include <algorithm>
#include <vector>

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hedgerow::transfer {
namespace {

// What a port's connections are made with.
struct Fetched {
  const operate::TlsFiles& files;
  std::shared_ptr<const operate::TlsMaterial> last{};
};

// gRPC calls it for each connection, one at a time and under a lock of the port: no file is read here.
grpc_ssl_certificate_config_reload_status Fetch(void* port, grpc_ssl_server_certificate_config** config) {
  Fetched& fetched = *static_cast<Fetched*>(port);
  std::shared_ptr<const operate::TlsMaterial> material = fetched.files.current();
  if (material == fetched.last) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const grpc_ssl_pem_key_cert_pair pair = {.private_key = material->key.c_str(),
                                           .cert_chain = material->certificate.c_str()};
  *config = grpc_ssl_server_certificate_config_create(material->authority.c_str(), &pair, 1);
  if (*config == nullptr) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
  fetched.last = std::move(material);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

// gRPC's C++ has no way to give a server other certificates while it runs; its C, and its Python, have. Since 1.51
// until the oldest gRPC that is supported has one (TlsServerCredentials with a provider keeps no former certificate if
// a new one is bad).
class ReloadedServerCredentials final : public grpc::ServerCredentials {
 public:
  explicit ReloadedServerCredentials(const operate::TlsFiles& files)
      : fetched_{.files = files},
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, Fetch, &fetched_))) {}
  ~ReloadedServerCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  Fetched fetched_;
  grpc_server_credentials* const credentials_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> PeerTls::Server() const {
  return std::make_shared<ReloadedServerCredentials>(files_);
}

std::shared_ptr<grpc::ChannelCredentials> PeerTls::Client() const {
  const std::shared_ptr<const operate::TlsMaterial> material = files_.Get();
  return grpc::SslCredentials({.pem_root_certs = material->authority,
                               .pem_private_key = material->key,
                               .pem_cert_chain = material->certificate});
}

absl::Status PeerTls::CheckCaller(const grpc::AuthContext& caller, raft::NodeId node) const {
  std::vector<std::string> names;
  for (const grpc::string_ref& name : caller.FindPropertyValues(GRPC_PEER_DNS_PROPERTY_NAME))
    names.emplace_back(name.data(), name.size());
  const std::string expected = NameOf(node);
  const auto is_expected = [&expected](const std::string& name) { return absl::EqualsIgnoreCase(name, expected); };
  if (std::any_of(names.begin(), names.end(), is_expected)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "the certificate of node ", node.value(), " is for ", names.empty() ? "no DNS name" : absl::StrJoin(names, ", "),
      ", expected ", expected, ": give that node a certificate with this subjectAltName (`peer_tls.name`)"));
}

}  // namespace hedgerow::transfer
