# SPDX-License-Identifier: Apache-2.0
#
# What `cmake --install` puts where (GNUInstallDirs), in four components: hedgerow (the proxy, and hedgerow-steer), hedgerow-node (a node of the store),
# hkv (the store's clients) and hedgerow-doc. debian/rules makes one package of each and adds the units its own way; without
# packages, `cmake --install build/release` puts everything below the prefix.
include(GNUInstallDirs)

# The programs write their manual pages and completions themselves (operate/manual.h).
# hedgerow_manual(PROGRAM SECTION WORDS...): the two files of PROGRAM, which prints them for WORDS with --man and --completion.
function(hedgerow_manual program section)
  set(folder "${CMAKE_BINARY_DIR}/manual")
  file(MAKE_DIRECTORY "${folder}")
  add_custom_command(
    OUTPUT "${folder}/${program}.${section}" "${folder}/${program}.bash"
    COMMAND ${program} ${ARGN} --man > "${folder}/${program}.${section}"
    COMMAND ${program} ${ARGN} --completion > "${folder}/${program}.bash"
    DEPENDS ${program}
    COMMENT "manual of ${program}"
    VERBATIM)
  add_custom_target(${program}_manual DEPENDS "${folder}/${program}.${section}" "${folder}/${program}.bash")
  add_dependencies(programs ${program}_manual)
endfunction()
hedgerow_manual(hedgerow 8 help)
hedgerow_manual(hedgerow-node 8 help)
hedgerow_manual(hedgerow-steer 8 help)
hedgerow_manual(hedgerowd 8)
hedgerow_manual(hkv 1)

# hedgerow_config_manual(PAGE PACKAGE DOCUMENT...): the page PAGE(5), of the tables of keys in docs/DOCUMENT. The schema's tests hold those
# to the schema.
function(hedgerow_config_manual page package)
  set(script "${CMAKE_SOURCE_DIR}/cmake/config_manual.py")
  list(TRANSFORM ARGN PREPEND "${CMAKE_SOURCE_DIR}/docs/" OUTPUT_VARIABLE documents)
  add_custom_command(
    OUTPUT "${CMAKE_BINARY_DIR}/manual/${page}.5"
    COMMAND /usr/bin/python3 "${script}" ${page} ${package} ${PROJECT_VERSION} ${documents}
            > "${CMAKE_BINARY_DIR}/manual/${page}.5"
    DEPENDS "${script}" ${documents}
    COMMENT "manual of ${page}"
    VERBATIM)
  add_custom_target(${page}_manual ALL DEPENDS "${CMAKE_BINARY_DIR}/manual/${page}.5")
  add_dependencies(programs ${page}_manual)
endfunction()
hedgerow_config_manual(hedgerow.yaml hedgerow config.md profile-language.md)
hedgerow_config_manual(node.yaml hedgerow-node node-config.md)

# hedgerow_install(COMPONENT PROGRAM SECTION)
function(hedgerow_install component program section)
  set(folder "${CMAKE_BINARY_DIR}/manual")
  install(TARGETS ${program} RUNTIME COMPONENT ${component})
  install(FILES "${folder}/${program}.${section}" DESTINATION "${CMAKE_INSTALL_MANDIR}/man${section}" COMPONENT ${component})
  install(FILES "${folder}/${program}.bash" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions"
          RENAME ${program} COMPONENT ${component})
endfunction()
hedgerow_install(hedgerow hedgerow 8)
hedgerow_install(hedgerow hedgerow-steer 8)
hedgerow_install(hedgerow hedgerowd 8)
hedgerow_install(hedgerow-node hedgerow-node 8)
hedgerow_install(hkv hkv 1)

# hedgerow_install_units(COMPONENT UNIT...): units, and the users and folders that they need. systemd looks in lib, never in lib64.
function(hedgerow_install_units component)
  set(folder "${CMAKE_SOURCE_DIR}/deploy/systemd")
  foreach(unit IN LISTS ARGN)
    install(FILES "${folder}/${unit}" DESTINATION lib/systemd/system COMPONENT ${component}-units)
  endforeach()
  install(FILES "${folder}/sysusers.d/${component}.conf" DESTINATION lib/sysusers.d COMPONENT ${component}-units)
  install(FILES "${folder}/tmpfiles.d/${component}.conf" DESTINATION lib/tmpfiles.d COMPONENT ${component}-units)
endfunction()
hedgerow_install_units(hedgerow hedgerowd.service hedgerow-steer@.service hedgerow-steer-adopt@.service)
hedgerow_install_units(hedgerow-node hedgerow-node.service)

# To be copied to /etc, or to be run: an example of each use, tried by tests/test_examples.py; and pages of the manual.
function(hedgerow_install_examples component)
  foreach(pattern IN LISTS ARGN)
    file(GLOB examples CONFIGURE_DEPENDS "docs/examples/${pattern}")
    install(FILES ${examples} DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/${component}/examples" COMPONENT ${component})
  endforeach()
endfunction()
hedgerow_install_examples(hedgerow hedgerow*.yaml steer.conf)
hedgerow_install_examples(hedgerow-node node*.yaml)
hedgerow_install_examples(hkv store*.py)
install(FILES "${CMAKE_BINARY_DIR}/manual/hedgerow.yaml.5" DESTINATION "${CMAKE_INSTALL_MANDIR}/man5" COMPONENT hedgerow)
install(FILES "${CMAKE_BINARY_DIR}/manual/node.yaml.5" DESTINATION "${CMAKE_INSTALL_MANDIR}/man5" COMPONENT hedgerow-node)

# What else manages links keeps its hands off the proxy's own.
install(FILES deploy/systemd/network/10-hedgerow.network DESTINATION lib/systemd/network COMPONENT hedgerow)
install(FILES deploy/systemd/network/hedgerow.conf DESTINATION lib/NetworkManager/conf.d COMPONENT hedgerow)
# needrestart, which unattended-upgrades calls, restarts what uses a library that was upgraded, on all hosts at one time.
foreach(component IN ITEMS hedgerow hedgerow-node)
  install(FILES "deploy/needrestart/${component}.conf" DESTINATION /etc/needrestart/conf.d COMPONENT ${component})
endforeach()

install(FILES deploy/kubernetes/endpoints.py DESTINATION "${CMAKE_INSTALL_DATADIR}/hedgerow" COMPONENT hedgerow)
install(FILES "${CMAKE_SOURCE_DIR}/cluster/client/hkv.py" DESTINATION lib/python3/dist-packages COMPONENT hkv)

# For the monitoring of both programs (Prometheus, Grafana), and every page of the documentation.
install(FILES deploy/prometheus/hedgerow.rules.yml deploy/prometheus/prometheus.yml
              deploy/grafana/hedgerow-nodes.json deploy/grafana/hedgerow-proxies.json deploy/grafana/hedgerow-steer.json
        DESTINATION "${CMAKE_INSTALL_DATADIR}/hedgerow" COMPONENT hedgerow-doc)
install(FILES README.md DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/hedgerow" COMPONENT hedgerow-doc)
install(DIRECTORY docs DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/hedgerow" COMPONENT hedgerow-doc
        PATTERN STATUS.md EXCLUDE)
