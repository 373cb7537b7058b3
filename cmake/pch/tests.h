// SPDX-License-Identifier: Apache-2.0
//
// What tests include beside the libraries' headers; see libraries.h. The two are read one after the other.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
