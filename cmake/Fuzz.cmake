# libFuzzer targets: one binary a target, fuzz_NAME, all made by `ninja fuzz`. Needs clang and its runtime libraries
# (libclang-rt-14-dev); scripts/fuzz builds and runs them. Only what reads files is compiled, instrumented: no libtorch.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "KVDIV_FUZZ needs clang++ (libFuzzer), found ${CMAKE_CXX_COMPILER}: use the preset fuzz")
endif()

# The instrumentation for coverage, but not libFuzzer's main(), which only the binaries themselves link.
set(KVDIV_FUZZ_FLAGS -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
                     -O1 -g1)
file(GLOB KVDIV_FUZZED CONFIGURE_DEPENDS
  src/base/*.cpp src/io/*.cpp src/model/config*.cpp src/model/memory_need.cpp src/model/weights_check.cpp
  src/report/contract.cpp src/report/records_reader.cpp tests/fuzz/targets_support.cpp)
add_library(kvdiv_fuzzed STATIC EXCLUDE_FROM_ALL ${KVDIV_FUZZED})
target_include_directories(kvdiv_fuzzed PUBLIC include src tests)
target_include_directories(kvdiv_fuzzed SYSTEM PUBLIC "${KVDIV_JSON_INCLUDE}")
target_compile_options(kvdiv_fuzzed PUBLIC ${KVDIV_FUZZ_FLAGS})
target_link_libraries(kvdiv_fuzzed PUBLIC fmt::fmt OpenSSL::Crypto Threads::Threads kvdiv_sentencepiece)

add_custom_target(fuzz)
foreach(name safetensors config index prompts records contract checkpoint tokenizer)
  add_executable(fuzz_${name} EXCLUDE_FROM_ALL tests/fuzz/libfuzzer_main.cpp)
  target_compile_definitions(fuzz_${name} PRIVATE KVDIV_FUZZ_TARGET=fuzz_${name})
  target_link_libraries(fuzz_${name} PRIVATE kvdiv_fuzzed)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer,address,undefined)
  add_dependencies(fuzz fuzz_${name})
endforeach()
