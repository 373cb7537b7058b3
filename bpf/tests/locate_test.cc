// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Correlation bytes without a fixed place, compared with a reference on messages made at random; packets through the
// programs are in located_profiles_test.cc.
#include <gtest/gtest.h>

#include <random>

#include "bpf/tests/locate_reference.h"

namespace hedgerow::packets {
namespace {

hr_token Token(std::string_view name, char short_name = 0, std::string_view parameter = "") {
  hr_token token{};
  token.name_bytes = static_cast<uint8_t>(name.size());
  std::memcpy(token.name, name.data(), name.size());
  token.parameter_bytes = static_cast<uint8_t>(parameter.size());
  std::memcpy(&token.parameter, parameter.data(), parameter.size());
  token.short_name = static_cast<uint8_t>(short_name);
  return token;
}

hr_path Path(std::initializer_list<hr_step_kind> kinds, uint8_t mark = 0) {
  hr_path path{};
  for (const hr_step_kind kind : kinds) path.steps[path.count++].kind = static_cast<uint8_t>(kind);
  path.mark = mark;
  return path;
}

std::string Ber(char tag, const std::string &content, int length_bytes = 0) {
  std::string element(1, tag);
  if (length_bytes > 0) element += static_cast<char>(0x80 | length_bytes);
  for (int i = std::max(length_bytes, 1) - 1; i >= 0; --i) element += static_cast<char>(content.size() >> (8 * i));
  return element + content;
}

constexpr auto kEnter = HR_STEP_BER_ENTER, kSkip = HR_STEP_BER_SKIP, kValue = HR_STEP_BER_VALUE;

std::string SnmpGet(const std::string &community, const std::string &id, int length_bytes = 0) {
  const std::string pdu = Ber('\xa0', Ber('\x02', id) + Ber('\x02', std::string(1, '\0')), length_bytes);
  return Ber('\x30', Ber('\x02', "\x01") + Ber('\x04', community, length_bytes) + pdu, length_bytes);
}

TEST(LocatePath, ABerIntegerIsANumberWhereverItStandsAndHoweverLongItIs) {
  const hr_path path = Path({kEnter, kSkip, kSkip, kEnter, kValue}, 3);
  const hr_field none{};
  for (const int length_bytes : {0, 1, 2, 4})
    for (const std::string &community : {std::string(), std::string("public"), std::string(100, 'c')}) {
      const auto located = NativePath(SnmpGet(community, std::string("\x01\x02", 2), length_bytes), path, none, 0xaa);
      ASSERT_TRUE(located.has_value());
      EXPECT_EQ(located->correlation[0], 0x0102u);
      EXPECT_EQ(NativePath(SnmpGet(community, std::string("\0\0\x01\x02", 4)), path, none, 0)->correlation,
                located->correlation);
    }
  EXPECT_EQ(NativePath(SnmpGet("c", "\xff"), path, none, 0)->correlation[0], ~0ull) << "minus one";
}

TEST(LocatePath, WhatIsCutOrNonsenseIsNotFound) {
  const hr_path path = Path({kEnter, kSkip, kSkip, kEnter, kValue}, 3);
  const std::string whole = SnmpGet("public", "\x07");
  for (size_t bytes = 0; bytes + 3 < whole.size(); ++bytes)
    EXPECT_FALSE(NativePath(whole.substr(0, bytes), path, hr_field{}, 0x02).has_value()) << bytes;
  EXPECT_FALSE(NativePath(Ber('\x30', std::string("\x02\x80\x01", 3)), path, hr_field{}, 0).has_value())
      << "indefinite";
  EXPECT_FALSE(NativePath(std::string("\x3f\x81\x01\x00", 4), Path({kValue}), hr_field{}, 0).has_value())
      << "a long tag";
}

// 200,000 messages, most of them almost right, of every length; what stands behind a payload counts for nothing.
TEST(LocatePath, AgreesWithTheReference) {
  std::mt19937 random(20240501);
  const auto below = [&random](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
  int found = 0;
  for (int round = 0; round < 200'000; ++round) {
    hr_path path{};
    path.count = static_cast<uint8_t>(below(HR_PATH_STEPS + 1));
    path.mark = static_cast<uint8_t>(below(HR_PATH_STEPS + 1));
    std::string payload;
    for (int i = 0; i < path.count; ++i) {
      hr_step &step = path.steps[i];
      step.kind = static_cast<uint8_t>(below(i + 1 == path.count ? 5 : 4));
      step.little_endian = static_cast<uint8_t>(below(2));
      if (step.kind == HR_STEP_SKIP) step.bytes = static_cast<uint8_t>(below(6));
      if (step.kind == HR_STEP_LENGTH) {
        step.bytes = static_cast<uint8_t>(1u << below(3));
        step.add = static_cast<int16_t>(below(5)) - 2;
      }
      const std::string content(below(20), static_cast<char>(random()));
      if (step.kind == HR_STEP_SKIP) payload.append(step.bytes, 's');
      if (step.kind == HR_STEP_LENGTH) {
        std::string length;
        for (int byte = 0; byte < step.bytes; ++byte)
          length += static_cast<char>((content.size() - static_cast<size_t>(step.add)) >> (8 * byte));
        payload += (step.little_endian ? length : std::string(length.rbegin(), length.rend())) + content;
      }
      const char tag = below(2) ? '\x02' : static_cast<char>(random());
      if (step.kind == HR_STEP_BER_ENTER)
        payload += Ber(tag, std::string(below(9), 'e'), static_cast<int>(below(5))).substr(0, 2 + below(2));
      if (step.kind == HR_STEP_BER_SKIP || step.kind == HR_STEP_BER_VALUE)
        payload += Ber(tag, content, static_cast<int>(below(5)));
    }
    payload.append(below(24), 'x');
    if (below(4) == 0 && !payload.empty())
      payload[below(static_cast<uint32_t>(payload.size()))] = static_cast<char>(random());
    if (below(4) == 0) payload.resize(below(static_cast<uint32_t>(payload.size()) + 1));
    if (below(16) == 0) payload.append(1300 + below(172), 'p');
    payload.resize(std::min<size_t>(payload.size(), 1472));
    hr_field field{};
    field.offset = static_cast<uint16_t>(below(8));
    field.length = static_cast<uint16_t>(1 + below(HR_CORRELATION_BYTES));
    std::memset(field.mask, 0xff, field.length);
    const auto wanted = FollowedPath(payload, path, field);
    ASSERT_EQ(NativePath(payload, path, field, 0) == wanted, true) << round;
    ASSERT_EQ(NativePath(payload, path, field, 0x02) == wanted, true)
        << round << ": what is behind the payload looks like an element";
    found += wanted.has_value();
  }
  EXPECT_GT(found, 20'000) << "or nothing was compared";
}

constexpr char kSip[] =
    "OPTIONS sip:b@example.org SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.1:5060;rport;branch=z9hG4bK776\r\nMax-Forwards: 70\r\n"
    "Call-ID: a84b4c76e66710\r\nCSeq: 63104 OPTIONS\r\nContent-Length: 0\r\n\r\n";

TEST(LocateTokens, HeadersAreFoundWhateverTheirCaseNameAndPlace) {
  const hr_token tokens[] = {Token("call-id", 'i'), Token("cseq")};
  const auto located = NativeTokens(kSip, tokens, 2);
  ASSERT_TRUE(located.has_value());
  for (const char *other :
       {"i:a84b4c76e66710\r\ncseq:63104   OPTIONS\r\n\r\n", "CSEQ : 63104 OPTIONS\nCALL-ID\t: a84b4c76e66710\n",
        "X: y\r\n continued: i: 7\r\nI: a84b4c76e66710\r\nCSeq: 63104 OPTIONS\r\n"})
    EXPECT_EQ(NativeTokens(other, tokens, 2), located) << other;
  for (const char *other : {"i: other\r\ncseq: 63104 OPTIONS\r\n", "i: a84b4c76e66710\r\ncseq: 63105 OPTIONS\r\n"})
    EXPECT_NE(NativeTokens(other, tokens, 2), located) << other;
  for (const char *none : {"", "i: a84b4c76e66710\r\n", "i: a84b4c76e66710\r\ncseq: 63104 OPT",
                           "\r\ni: a\r\ncseq: 1\r\n", "i:\r\ncseq: 1\r\n", "call-id-of: a\r\ncseq: 1\r\n"})
    EXPECT_FALSE(NativeTokens(none, tokens, 2).has_value()) << none;
}

TEST(LocateTokens, AParameterIsOfTheFirstValue) {
  const hr_token via = Token("via", 'v', "branch");
  const auto located = NativeTokens(kSip, &via, 1);
  ASSERT_TRUE(located.has_value());
  EXPECT_EQ(NativeTokens("v: SIP/2.0/UDP h;BRANCH = z9hG4bK776 ;x\r\n", &via, 1), located);
  EXPECT_EQ(NativeTokens("via: a;branch=z9hG4bK776, b;branch=other\r\nVia: c;branch=third\r\n", &via, 1), located);
  EXPECT_FALSE(NativeTokens("via: a, b;branch=z9hG4bK776\r\n", &via, 1).has_value());
  EXPECT_FALSE(NativeTokens("via: a;branches=z9hG4bK776;branch\r\n", &via, 1).has_value());
}

TEST(LocateTokens, NoMoreThanAThousandBytesAreRead) {
  const hr_token token = Token("x");
  const auto behind = [](size_t bytes) { return "y: " + std::string(bytes - 4, 'y') + "\nx: 1\n"; };
  EXPECT_TRUE(NativeTokens(behind(HR_SCAN_BYTES - 5), &token, 1).has_value());
  EXPECT_FALSE(NativeTokens(behind(HR_SCAN_BYTES - 4), &token, 1).has_value());
}

TEST(LocateTokens, AgreesWithTheReference) {
  std::mt19937 random(20240502);
  const auto below = [&random](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
  const std::vector<std::string> pieces = {"call-id",
                                           "Call-ID",
                                           "i",
                                           "I",
                                           "via",
                                           "v",
                                           "Via",
                                           "cseq",
                                           "x",
                                           ":",
                                           ":",
                                           " :",
                                           ": ",
                                           ";",
                                           ";branch=",
                                           "; BRANCH =",
                                           "branch",
                                           "=",
                                           ",",
                                           " ",
                                           "\t",
                                           "\r",
                                           "\n",
                                           "\r\n",
                                           "\r\n",
                                           "\n\n",
                                           "a",
                                           "1 INVITE",
                                           "z9hG4bK",
                                           "a-name-of-17-byte",
                                           "i: q\r\n",
                                           "via: a;branch=q\r\n",
                                           "cseq: 1 X\r\n",
                                           "x: ;branch=r ;\r\n",
                                           std::string(1, '\0'),
                                           "\xff"};
  int found = 0;
  for (int round = 0; round < 200'000; ++round) {
    const hr_token tokens[] = {below(2) ? Token("call-id", 'i') : Token("via", 'v', "branch"),
                               below(2) ? Token("cseq") : Token("x", 0, "branch")};
    std::string payload;
    if (below(20) == 0) payload.append(HR_SCAN_BYTES - below(60), 'f').append("\n");
    for (uint32_t i = below(24); i > 0; --i) payload += pieces[below(static_cast<uint32_t>(pieces.size()))];
    for (const int count : {1, 2}) {
      const auto wanted = FoundTokens(payload, tokens, count);
      ASSERT_EQ(NativeTokens(payload, tokens, count) == wanted, true) << round << "\n" << payload;
      found += wanted.has_value();
    }
  }
  EXPECT_GT(found, 2'000) << "or nothing was compared";
}

}  // namespace
}  // namespace hedgerow::packets
