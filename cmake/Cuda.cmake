# What the CUDA module needs beside the CPU build: nvcc 13, and libtorch's CUDA half. The program itself stays as it is, and loads the
# module when a GPU is asked for.
#
# libtorch_cuda.so needs cuDNN, NCCL, NVSHMEM and more to start, and nothing of them to be linked against: their symbols stay
# unresolved here. Where a GPU is, they come with the torch package that KVDIV_LIBTORCH names.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(KVDIV_NVCC nvcc HINTS /usr/local/cuda/bin REQUIRED)
  set(CMAKE_CUDA_COMPILER "${KVDIV_NVCC}")
endif()
set(CMAKE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "GPUs that machine code is made for; PTX of the last for newer ones")
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc 13 has C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # libtorch's own: one runtime in the process
find_package(CUDAToolkit 13.0 REQUIRED)

foreach(name torch_cuda c10_cuda)
  if(NOT EXISTS "${KVDIV_LIBTORCH}/lib/lib${name}.so")
    message(FATAL_ERROR "no lib${name}.so in ${KVDIV_LIBTORCH}/lib: the preset cuda needs libtorch with CUDA; "
                        "scripts/test --preset cuda unpacks it, or set KVDIV_LIBTORCH to torch/ of the package torch 2.11.0")
  endif()
  add_library(kvdiv_${name} SHARED IMPORTED)
  set_target_properties(kvdiv_${name} PROPERTIES IMPORTED_LOCATION "${KVDIV_LIBTORCH}/lib/lib${name}.so")
endforeach()
