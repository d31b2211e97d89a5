# libtorch as an imported target, without the wheel's own CMake package (which wants a CUDA toolkit and fails to
# link without cuDNN, NCCL and NVSHMEM). A CPU build needs torch_cpu and c10 only.
#
# KVDIV_LIBTORCH  a directory with include/ and lib/ (a libtorch archive, or torch/ inside an installed wheel);
#                 default: what scripts/setup unpacks under build/.
set(KVDIV_LIBTORCH "$ENV{KVDIV_LIBTORCH}" CACHE PATH "libtorch directory (with include/ and lib/)")
if(NOT KVDIV_LIBTORCH)
  set(KVDIV_LIBTORCH "${CMAKE_SOURCE_DIR}/build/libtorch-2.11.0" CACHE PATH "" FORCE)
endif()
if(NOT EXISTS "${KVDIV_LIBTORCH}/lib/libtorch_cpu.so")
  message(FATAL_ERROR
    "no libtorch at ${KVDIV_LIBTORCH} (expected lib/libtorch_cpu.so): run scripts/kvdiv or scripts/test, "
    "which unpack it, or set KVDIV_LIBTORCH to a libtorch 2.11.0 directory")
endif()

add_library(kvdiv_c10 SHARED IMPORTED)
set_target_properties(kvdiv_c10 PROPERTIES IMPORTED_LOCATION "${KVDIV_LIBTORCH}/lib/libc10.so")

add_library(kvdiv_torch SHARED IMPORTED)
set_target_properties(kvdiv_torch PROPERTIES
  IMPORTED_LOCATION "${KVDIV_LIBTORCH}/lib/libtorch_cpu.so"
  INTERFACE_LINK_LIBRARIES kvdiv_c10
  INTERFACE_INCLUDE_DIRECTORIES "${KVDIV_LIBTORCH}/include;${KVDIV_LIBTORCH}/include/torch/csrc/api/include"
  INTERFACE_SYSTEM_INCLUDE_DIRECTORIES
    "${KVDIV_LIBTORCH}/include;${KVDIV_LIBTORCH}/include/torch/csrc/api/include")
add_library(kvdiv::torch ALIAS kvdiv_torch)

# libtorch_cpu.so names libcupti, libcudart and libgomp even in a CPU build. They are found through the executable's
# RPATH, which must be DT_RPATH (searched for the dependencies of dependencies too), not DT_RUNPATH.
add_link_options(-Wl,--disable-new-dtags "-Wl,-rpath-link,${KVDIV_LIBTORCH}/lib")
set(CMAKE_BUILD_RPATH "${KVDIV_LIBTORCH}/lib")
