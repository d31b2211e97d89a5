# cmake --install build/release --prefix DIR: a tree that can be moved and needs nothing but a glibc as old as the build
# machine's and its libstdc++.
#   bin/kvdiv         finds lib/ through its RPATH and share/kvdiv relative to itself
#   lib/              libtorch and every other shared library that kvdiv needs
#                     (and libkvdiv_cuda.so, if it was built)
#   share/kvdiv/      configs, schemas, data/models (the toys), data/gsm8k, data/report (the page, with Chart.js)
include(GNUInstallDirs)
set_target_properties(kvdiv PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")

install(TARGETS kvdiv RUNTIME_DEPENDENCY_SET kvdiv_libraries DESTINATION bin)
install(RUNTIME_DEPENDENCY_SET kvdiv_libraries
  PRE_EXCLUDE_REGEXES "^(ld-linux.*|lib(c|m|rt|dl|util|pthread|gcc_s|stdc\\+\\+))\\.so"
  LIBRARY DESTINATION lib)

if(KVDIV_CUDA)
  # What it needs itself is the machine's: of a package torch 2.11.0 with CUDA 13, by way of LD_LIBRARY_PATH.
  set_target_properties(kvdiv_cuda PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS kvdiv_cuda LIBRARY DESTINATION lib)
endif()

install(DIRECTORY "${CMAKE_SOURCE_DIR}/configs" "${CMAKE_SOURCE_DIR}/schemas" DESTINATION share/kvdiv)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/data/models" DESTINATION share/kvdiv/data)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/data/report" DESTINATION share/kvdiv/data)
find_file(KVDIV_CHART_JS chart.min.js PATHS /usr/share/javascript/chart.js NO_DEFAULT_PATH)
if(KVDIV_CHART_JS)  # its license stands in the file
  install(FILES "${KVDIV_CHART_JS}" DESTINATION share/kvdiv/data/report)
endif()
install(DIRECTORY "${CMAKE_SOURCE_DIR}/data/gsm8k" DESTINATION share/kvdiv/data
  FILES_MATCHING PATTERN test.jsonl PATTERN LICENSE PATTERN SOURCE.txt)
install(FILES "${CMAKE_SOURCE_DIR}/LICENSE" DESTINATION share/doc/kvdiv)
install(FILES "${CMAKE_SOURCE_DIR}/README.md" "${CMAKE_SOURCE_DIR}/CHANGELOG.md" DESTINATION share/doc/kvdiv OPTIONAL)
install(DIRECTORY "${KVDIV_LIBTORCH}/licenses" DESTINATION share/doc/kvdiv OPTIONAL)  # of the libraries in lib/
