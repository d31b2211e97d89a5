// The emulator of CUDA kernels, for this binary's tests.
#include "support/cuda_emulator.cpp"
