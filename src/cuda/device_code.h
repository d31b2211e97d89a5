#pragma once
// The few things that the kernels ask of a GPU. This is one implementation, of CUDA's instructions; the other is the
// emulator of the tests (support/cuda_emulator.h), which a test includes before the kernels.
//
// add, mul, divide, fma … are single IEEE operations, each rounded to nearest: the compiler never fuses or approximates
// them, whatever its flags.
#include "device_types.h"

#ifdef __CUDACC__

#define KVDIV_DEVICE __device__ __forceinline__
#define KVDIV_HOST_DEVICE __host__ __device__
#define KVDIV_KERNEL __global__
#define KVDIV_LAUNCH_BOUNDS(threads, blocks_per_sm) __launch_bounds__(threads, blocks_per_sm)
#define KVDIV_UNROLL _Pragma("unroll")
#define KVDIV_UNROLL_4 _Pragma("unroll 4")

namespace kvdiv::device {

KVDIV_DEVICE int thread_x() { return static_cast<int>(threadIdx.x); }
KVDIV_DEVICE int block_x() { return static_cast<int>(blockIdx.x); }
KVDIV_DEVICE int block_y() { return static_cast<int>(blockIdx.y); }
KVDIV_DEVICE int block_z() { return static_cast<int>(blockIdx.z); }
KVDIV_DEVICE int block_threads() { return static_cast<int>(blockDim.x); }
KVDIV_DEVICE int grid_x() { return static_cast<int>(gridDim.x); }

/// The block's dynamic shared memory, aligned to 128 bytes.
KVDIV_DEVICE char* shared_memory() {
  extern __shared__ __align__(128) char kvdiv_shared[];
  return kvdiv_shared;
}

KVDIV_DEVICE void block_barrier() { __syncthreads(); }
KVDIV_DEVICE void warp_barrier() { __syncwarp(); }
template <class W>
KVDIV_DEVICE W shuffle_xor(W v, int mask) {
  return __shfl_xor_sync(0xffffffffu, v, mask);
}

KVDIV_DEVICE std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

/// Four 8×8 matrices of 16-bit numbers from shared memory: lane l points at row l mod 8 of matrix l / 8. Lane l gets
/// elements 2(l mod 4) and the next one of row l / 4 of each (transposed: of column l / 4).
KVDIV_DEVICE void load_matrices(std::uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row))
               : "memory");
}
KVDIV_DEVICE void load_matrices_transposed(std::uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row))
               : "memory");
}

/// `n_bytes` (0 or 16) from global to shared memory, the rest of the 16 zeros. Both 16-byte aligned. There after a
/// wait, and for other threads after a barrier behind it.
KVDIV_DEVICE void copy_async(void* shared, const void* global, int n_bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(n_bytes)
               : "memory");
}
/// Ends a group of copies.
KVDIV_DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Until all of this thread's groups but the newest kLeft are there.
template <int kLeft>
KVDIV_DEVICE void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

/// c[16×8] += a[16×16]·b[16×8] in FP32, with the fragments of mma.m16n8k16.
template <class T>
KVDIV_DEVICE void multiply_add_tile(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);
template <>
KVDIV_DEVICE void multiply_add_tile<Half>(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                          std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
KVDIV_DEVICE void multiply_add_tile<BFloat>(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                            std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

KVDIV_DEVICE float widen(Half x) {
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(x.bits));
  return out;
}
KVDIV_DEVICE float widen(BFloat x) { return __uint_as_float(static_cast<std::uint32_t>(x.bits) << 16); }
KVDIV_DEVICE float widen(float x) { return x; }
KVDIV_DEVICE double widen(double x) { return x; }

/// To nearest, ties to even.
template <class T>
KVDIV_DEVICE T narrow(Wide<T> x) {
  return x;
}
template <>
KVDIV_DEVICE Half narrow<Half>(float x) {
  Half out;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(x));
  return out;
}
template <>
KVDIV_DEVICE BFloat narrow<BFloat>(float x) {
  BFloat out;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(x));
  return out;
}

KVDIV_DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
KVDIV_DEVICE float mul(float a, float b) { return __fmul_rn(a, b); }
KVDIV_DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }
KVDIV_DEVICE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
KVDIV_DEVICE float square_root(float x) { return __fsqrt_rn(x); }
KVDIV_DEVICE float larger(float a, float b) { return fmaxf(a, b); }
KVDIV_DEVICE float exponential(float x) { return expf(x); }
KVDIV_DEVICE float logarithm(float x) { return logf(x); }
KVDIV_DEVICE float hyperbolic_tangent(float x) { return tanhf(x); }

KVDIV_DEVICE double add(double a, double b) { return __dadd_rn(a, b); }
KVDIV_DEVICE double mul(double a, double b) { return __dmul_rn(a, b); }
KVDIV_DEVICE double divide(double a, double b) { return __ddiv_rn(a, b); }
KVDIV_DEVICE double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
KVDIV_DEVICE double square_root(double x) { return __dsqrt_rn(x); }
KVDIV_DEVICE double larger(double a, double b) { return fmax(a, b); }
KVDIV_DEVICE double exponential(double x) { return exp(x); }
KVDIV_DEVICE double logarithm(double x) { return log(x); }
KVDIV_DEVICE double hyperbolic_tangent(double x) { return tanh(x); }

/// A number whose bits are all zeros, in any storage type.
template <class T>
KVDIV_DEVICE T zero() {
  return T{};
}
KVDIV_DEVICE float minus_infinity(float) { return __int_as_float(0xff800000); }
KVDIV_DEVICE double minus_infinity(double) { return __longlong_as_double(0xfff0000000000000ll); }

}  // namespace kvdiv::device

#elif !defined(KVDIV_CUDA_EMULATED)
#error "Without CUDA the kernels need the emulator: include support/cuda_emulator.h first."
#endif
