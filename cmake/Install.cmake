# cmake --install build/release --prefix DIR: a tree that can be moved and needs nothing but a glibc as old as the build
# machine's and its libstdc++.
#   bin/kvdiv         finds lib/ through its RPATH and share/kvdiv relative to itself
#   lib/              libtorch and every other shared library that kvdiv needs
#   share/kvdiv/      configs, data/models (the toys), data/gsm8k
include(GNUInstallDirs)
set_target_properties(kvdiv PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")

install(TARGETS kvdiv RUNTIME_DEPENDENCY_SET kvdiv_libraries DESTINATION bin)
install(RUNTIME_DEPENDENCY_SET kvdiv_libraries
  PRE_EXCLUDE_REGEXES "^(ld-linux.*|lib(c|m|rt|dl|util|pthread|gcc_s|stdc\\+\\+))\\.so"
  LIBRARY DESTINATION lib)

install(DIRECTORY "${CMAKE_SOURCE_DIR}/configs" "${CMAKE_SOURCE_DIR}/schemas" DESTINATION share/kvdiv)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/data/models" DESTINATION share/kvdiv/data)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/data/gsm8k" DESTINATION share/kvdiv/data
  FILES_MATCHING PATTERN test.jsonl PATTERN LICENSE PATTERN SOURCE.txt)
install(FILES "${CMAKE_SOURCE_DIR}/LICENSE" DESTINATION share/doc/kvdiv)
install(FILES "${CMAKE_SOURCE_DIR}/README.md" "${CMAKE_SOURCE_DIR}/CHANGELOG.md" DESTINATION share/doc/kvdiv OPTIONAL)
install(DIRECTORY "${KVDIV_LIBTORCH}/licenses" DESTINATION share/doc/kvdiv OPTIONAL)  # of the libraries in lib/
