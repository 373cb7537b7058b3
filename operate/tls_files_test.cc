// SPDX-License-Identifier: Apache-2.0
#include "operate/tls_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operate/tls_testing.h"

namespace hedgerow::operate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TlsFilesTest : public ::testing::Test {
 protected:
  TlsFilesTest() : folder_(::testing::TempDir() + "tls-" + std::to_string(getpid())) {}
  ~TlsFilesTest() override { std::filesystem::remove_all(folder_); }

  std::string Error(Reader reader = Reader::kServes) {
    return std::string(ReadTlsMaterial(paths_, reader).status().message());
  }

  const std::string folder_;
  const TestAuthority authority_{"the cluster's authority"};
  const TlsPaths paths_ = WriteTlsFiles(folder_, authority_.Sign("Node-1.Hedgerow"), authority_.Pem());
};

TEST_F(TlsFilesTest, WhatFitsTogetherIsRead) {
  const absl::StatusOr<TlsMaterial> material = ReadTlsMaterial(paths_, Reader::kServes);
  ASSERT_TRUE(material.ok()) << material.status();
  EXPECT_THAT(material->names, ElementsAre("node-1.hedgerow"));
  EXPECT_TRUE(material->IsFor("NODE-1.hedgerow"));
  EXPECT_FALSE(material->IsFor("node-2.hedgerow"));
  EXPECT_NEAR(static_cast<double>(material->not_after_s - time(nullptr)), 3600, 60);
}

TEST_F(TlsFilesTest, AWeekBeforeItsEndACertificateSaysSo) {
  constexpr int64_t kDay_s = 86'400;
  EXPECT_EQ(CertificateEndText(8 * kDay_s, 0), "");
  EXPECT_EQ(CertificateEndText(10 * kDay_s, 7 * kDay_s), "ends in 3 days");
  EXPECT_EQ(CertificateEndText(10 * kDay_s, 11 * kDay_s), "has ended");
}

TEST_F(TlsFilesTest, AnErrorNamesTheFileAndWhatToDo) {
  WriteTlsFile(paths_.key, authority_.Sign("node-1.hedgerow").key);
  EXPECT_THAT(Error(), HasSubstr(paths_.key + " is not the key of the certificate in " + paths_.certificate));
  WriteTlsFile(paths_.key, "no key");
  EXPECT_THAT(Error(), HasSubstr(paths_.key + " holds no private key that can be used, expected PEM"));
  chmod(paths_.key.c_str(), 0644);
  EXPECT_THAT(Error(), HasSubstr("run `chmod g-w,o-rwx " + paths_.key));
  WriteTlsFile(paths_.authority, "");
  chmod(paths_.key.c_str(), 0600);
  EXPECT_THAT(Error(), HasSubstr(paths_.authority + " holds no certificate of an authority"));
  WriteTlsFile(paths_.certificate, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  EXPECT_THAT(Error(), HasSubstr(paths_.certificate + " holds no certificate"));
  std::filesystem::remove(paths_.certificate);
  EXPECT_THAT(Error(), HasSubstr(paths_.certificate + " cannot be opened: No such file"));
  ASSERT_EQ(mkfifo(paths_.certificate.c_str(), 0600), 0);
  EXPECT_THAT(Error(), HasSubstr("is no regular file"));
}

TEST_F(TlsFilesTest, ChangedFilesAreReadAndBadOnesLeaveTheFormerInUse) {
  TlsFiles files(paths_, *ReadTlsMaterial(paths_, Reader::kServes));
  const std::shared_ptr<const TlsMaterial> first = files.Get();
  EXPECT_EQ(files.Get(), first);
  EXPECT_EQ(files.reloads(), 0u);
  const TestCertificate next = authority_.Sign("node-1.hedgerow");
  WriteTlsFile(paths_.certificate, next.certificate, 0644);
  EXPECT_EQ(files.Get(), first) << "half of the exchange is done";
  EXPECT_THAT(std::string(files.status().message()), HasSubstr("is not the key of the certificate"));
  WriteTlsFile(paths_.key, next.key);
  EXPECT_EQ(files.Get()->certificate, next.certificate);
  EXPECT_TRUE(files.status().ok()) << files.status();
  EXPECT_EQ(files.reloads(), 1u);
  EXPECT_EQ(files.current(), files.Get());
}

}  // namespace
}  // namespace hedgerow::operate
