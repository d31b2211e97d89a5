#pragma once
// Marks the few functions that the host and CUDA kernels share, so that each formula is written once.

#ifdef __CUDACC__
#define KVDIV_HOST_DEVICE __host__ __device__
#else
#define KVDIV_HOST_DEVICE
#endif
