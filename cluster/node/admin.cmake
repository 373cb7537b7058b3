# SPDX-License-Identifier: Apache-2.0
#
# The node's configuration, administration and metrics: everything that talks to an operator. Included by
# CMakeLists.txt, which defines cluster_node_address (net_address.cc).
hedgerow_proto(cluster_node_proto "${CMAKE_SOURCE_DIR}/cluster/api/node.proto" GRPC
               DEPS operate_report_proto)

hedgerow_proto(cluster_node_config_proto "${CMAKE_SOURCE_DIR}/cluster/api/node_config.proto" DEPS config_rules_proto)

hedgerow_cc_library(cluster_node_config
  SRCS config.cc config_check.cc setting_text.cc
  HDRS config.h config_check.h setting_text.h
  DEPS config_schema cluster_node_config_proto cluster_kv cluster_node_address net_ip_address cluster_raft cluster_wire operate_key_file absl::status absl::statusor
       absl::strings absl::str_format)

hedgerow_cc_library(cluster_node_admin
  SRCS admin_client.cc admin_server.cc commands.cc commands_backup.cc commands_members.cc commands_settings.cc metrics.cc metrics_families.cc stall_problem.cc state_problem.cc status_message.cc status_text.cc
  HDRS admin_client.h admin_server.h commands.h deadline.h metrics.h stall_problem.h state_problem.h status.h status_message.h status_text.h
  DEPS cluster_node_config cluster_node_proto cluster_storage cluster_wire operate_admin operate_command_line operate_metrics
       operate_version hedgerow::prometheus absl::status absl::statusor absl::strings absl::str_format absl::time)

hedgerow_cc_test(cluster_node_config_test SRCS config_test.cc config_errors_test.cc setting_text_test.cc
                 DEPS cluster_node_config config_schema_testing)
hedgerow_cc_test(cluster_node_admin_test
  SRCS admin_test.cc commands_test.cc metrics_test.cc stall_problem_test.cc state_problem_test.cc status_test.cc HDRS fake_node_control.h
  DEPS cluster_node_admin operate_scrape_test)
hedgerow_fuzzer(cluster_node_config_fuzz SRCS config_fuzz.cc DEPS cluster_node_config CORPUS testdata/config)
