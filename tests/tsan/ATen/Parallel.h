#pragma once
// For the build under ThreadSanitizer alone, which does not understand the barriers of libgomp: at::parallel_for with the same
// split of the work, in threads that it sees begin and end. It stands before libtorch's own header on the include path.
#pragma GCC system_header  // #include_next is an extension
#include_next <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace at {

template <class F>
void parallel_for_in_threads(std::int64_t begin, std::int64_t end, std::int64_t grain_size, const F& f) {
  if (begin >= end) return;
  std::int64_t n_threads = at::get_num_threads();
  if (grain_size > 0) n_threads = std::min(n_threads, divup(end - begin, grain_size));
  const std::int64_t chunk = divup(end - begin, std::max<std::int64_t>(n_threads, 1));
  std::vector<std::thread> threads;
  for (std::int64_t first = begin; first < end; first += chunk)
    threads.emplace_back([&f, first, last = std::min(end, first + chunk)] { f(first, last); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace at

#define parallel_for parallel_for_in_threads
