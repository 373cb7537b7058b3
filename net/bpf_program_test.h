// SPDX-License-Identifier: Apache-2.0
//
// Tiny TC programs for the folder's tests, written as instructions so that these tests need no compiler for BPF:
// a program that counts packets and passes them, and a program that sends the clock's packet round and notes
// when. Test code only.
#pragma once

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "net/unique_fd.h"

namespace hedgerow::net {

inline bpf_insn Insn(int code, int dst, int src, int off, int imm) {
  bpf_insn insn{};
  insn.code = static_cast<uint8_t>(code);
  insn.dst_reg = static_cast<uint8_t>(dst) & 0xf;
  insn.src_reg = static_cast<uint8_t>(src) & 0xf;
  insn.off = static_cast<int16_t>(off);
  insn.imm = imm;
  return insn;
}
inline bpf_insn MovImm(int dst, int imm) { return Insn(BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, imm); }
inline bpf_insn MovReg(int dst, int src) { return Insn(BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0); }
inline bpf_insn AddImm(int dst, int imm) { return Insn(BPF_ALU64 | BPF_ADD | BPF_K, dst, 0, 0, imm); }
inline bpf_insn Call(int helper) { return Insn(BPF_JMP | BPF_CALL, 0, 0, 0, helper); }
inline bpf_insn JumpIfZero(int dst, int skip) { return Insn(BPF_JMP | BPF_JEQ | BPF_K, dst, 0, skip, 0); }
inline bpf_insn Exit() { return Insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0); }
inline bpf_insn Store32(int dst, int src, int off) { return Insn(BPF_STX | BPF_MEM | BPF_W, dst, src, off, 0); }
inline bpf_insn Store64(int dst, int src, int off) { return Insn(BPF_STX | BPF_MEM | BPF_DW, dst, src, off, 0); }
inline bpf_insn Load64(int dst, int src, int off) { return Insn(BPF_LDX | BPF_MEM | BPF_DW, dst, src, off, 0); }
inline void LoadMap(std::vector<bpf_insn>& code, int dst, int map_fd) {
  code.push_back(Insn(BPF_LD | BPF_DW | BPF_IMM, dst, BPF_PSEUDO_MAP_FD, 0, map_fd));
  code.push_back(Insn(0, 0, 0, 0, 0));
}
// r0 = address of element r2 (a number, clobbered) of the map, or 0. The key travels over the stack at -4.
inline void LookUp(std::vector<bpf_insn>& code, int map_fd, int index_register) {
  code.push_back(Store32(BPF_REG_10, index_register, -4));
  LoadMap(code, BPF_REG_1, map_fd);
  code.push_back(MovReg(BPF_REG_2, BPF_REG_10));
  code.push_back(AddImm(BPF_REG_2, -4));
  code.push_back(Call(BPF_FUNC_map_lookup_elem));
}

inline UniqueFd LoadTc(const char* name, const std::vector<bpf_insn>& code) {
  std::string log(16384, '\0');
  LIBBPF_OPTS(bpf_prog_load_opts, options, .log_level = 1, .log_size = static_cast<__u32>(log.size()),
              .log_buf = log.data());
  UniqueFd fd(bpf_prog_load(BPF_PROG_TYPE_SCHED_CLS, name, "GPL", code.data(), code.size(), &options));
  EXPECT_TRUE(fd.valid()) << name << ": " << log.c_str();
  return fd;
}

inline UniqueFd MakeArray(const char* name, uint32_t entries) {
  UniqueFd fd(bpf_map_create(BPF_MAP_TYPE_ARRAY, name, sizeof(uint32_t), sizeof(uint64_t), entries, nullptr));
  EXPECT_TRUE(fd.valid()) << "map " << name;
  return fd;
}

inline uint64_t Element(const UniqueFd& map, uint32_t index) {
  uint64_t value = 0;
  EXPECT_EQ(bpf_map_lookup_elem(map.get(), &index, &value), 0);
  return value;
}

// Counts every packet and returns `verdict` (TC_ACT_UNSPEC: not mine, go on).
class CountingProgram {
 public:
  explicit CountingProgram(const char* name, int verdict = TC_ACT_UNSPEC) : count_(MakeArray("count", 1)) {
    std::vector<bpf_insn> code = {MovImm(BPF_REG_2, 0)};
    LookUp(code, count_.get(), BPF_REG_2);
    code.push_back(JumpIfZero(BPF_REG_0, 2));
    code.push_back(MovImm(BPF_REG_1, 1));
    code.push_back(Insn(BPF_STX | BPF_ATOMIC | BPF_DW, BPF_REG_0, BPF_REG_1, 0, BPF_ADD));
    code.push_back(MovImm(BPF_REG_0, verdict));
    code.push_back(Exit());
    program_ = LoadTc(name, code);
  }
  int fd() const { return program_.get(); }
  uint64_t count() const { return Element(count_, 0); }

 private:
  UniqueFd count_;
  UniqueFd program_;
};

}  // namespace hedgerow::net
