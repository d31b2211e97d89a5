// The emulator's instructions, for this binary's tests.
#include "support/cuda_instructions.cpp"
