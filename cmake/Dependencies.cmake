# Everything here comes from Debian packages; scripts/lib/setup.sh holds the list of packages.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
set(OPENSSL_USE_STATIC_LIBS ON)                   # one library less to carry along
find_package(OpenSSL REQUIRED COMPONENTS Crypto)  # SHA-256 with the CPU's own instructions: a 13 GB checkpoint is hashed
find_package(HWY 1.0.3 REQUIRED)                 # the invariant kernels, for every vector width at once
find_package(Boost 1.74 REQUIRED)                 # Boost.Math: distributions

find_path(KVDIV_JSON_INCLUDE nlohmann/json.hpp REQUIRED)
find_path(KVDIV_CLI11_INCLUDE CLI/CLI.hpp REQUIRED)
find_path(KVDIV_SENTENCEPIECE_INCLUDE sentencepiece_processor.h REQUIRED)
find_library(KVDIV_SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)

add_library(kvdiv_sentencepiece INTERFACE)
target_include_directories(kvdiv_sentencepiece SYSTEM INTERFACE "${KVDIV_SENTENCEPIECE_INCLUDE}")
target_link_libraries(kvdiv_sentencepiece INTERFACE "${KVDIV_SENTENCEPIECE_LIBRARY}")

# libtorch ships headers of another fmt (12) than Debian's (9). A file that includes ATen and kvdiv/base/error.h must see
# the one that is linked: a folder with nothing but fmt in it, searched before libtorch's.
get_target_property(fmt_include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
find_path(KVDIV_FMT_INCLUDE fmt/format.h HINTS ${fmt_include} NO_CMAKE_PATH REQUIRED)
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/generated/before-libtorch")
file(CREATE_LINK "${KVDIV_FMT_INCLUDE}/fmt" "${CMAKE_BINARY_DIR}/generated/before-libtorch/fmt" SYMBOLIC)
target_include_directories(kvdiv_torch SYSTEM BEFORE INTERFACE "${CMAKE_BINARY_DIR}/generated/before-libtorch")

# SSSE3 and SSE4 have no fused multiply-add, so their sums would be others; SVE's vectors have no size at compile time.
add_library(kvdiv_hwy INTERFACE)
target_link_libraries(kvdiv_hwy INTERFACE hwy::hwy)
target_compile_definitions(kvdiv_hwy INTERFACE
  "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4|HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128|HWY_RVV)")

if(KVDIV_TESTS)
  find_package(GTest REQUIRED)
  find_path(KVDIV_VALIJSON_INCLUDE valijson/validator.hpp REQUIRED)  # results are held against their JSON Schemas
endif()
if(KVDIV_BENCH)
  find_package(benchmark REQUIRED)
endif()
