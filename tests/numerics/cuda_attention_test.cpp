// The GPU's attention, in the emulator: the orders of kernels.h bit for bit; the same bits for one query or many, for a
// view that starts later, with chunks of keys apart or together.
#include "support/emulated.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "cuda/attention.cuh"
#include "cuda/rows.cuh"

namespace kvdiv::test {
namespace {

using cuda::AttentionShape;
using device::narrow;
using device::widen;

std::size_t size_of(std::int64_t n) { return static_cast<std::size_t>(n); }

/// Keys and values of `n_positions` positions in a cache with some room, and as many queries.
template <class T>
struct Model {
  std::int64_t H, G, D, n_positions, capacity;
  double scale = 0.125, cap = 0.0;
  std::vector<T> q, k, v;  ///< q [position][head][D] as a projection leaves it, k and v [G][capacity][D]

  Model(std::int64_t groups, std::int64_t of_group, std::int64_t head, std::int64_t positions)
      : H(groups * of_group),
        G(groups),
        D(head),
        n_positions(positions),
        capacity(positions + 5),
        q(random_numbers<T>(size_of(H * D * positions), 1)),
        k(random_numbers<T>(size_of(G * D * capacity), 2)),
        v(random_numbers<T>(size_of(G * D * capacity), 3)) {}

  const T* key(std::int64_t g, std::int64_t s) const { return k.data() + (g * capacity + s) * D; }
  const T* value(std::int64_t g, std::int64_t s) const { return v.data() + (g * capacity + s) * D; }
  const T* query(std::int64_t h, std::int64_t t) const { return q.data() + (t * H + h) * D; }
};

/// Queries [first_query, first_query + T) over keys [first_key, first_key + S).
struct View {
  std::int64_t first_query, T, first_key, S;
  std::int64_t window = 1 << 20;  ///< keys that a query sees, its own position included
  bool visible(std::int64_t t, std::int64_t s) const {
    const std::int64_t query = first_query + t, at = first_key + s;
    return at <= query && at > query - window;
  }
  std::unique_ptr<bool[]> mask() const {
    auto out = std::make_unique<bool[]>(size_of(T * S));
    for (std::int64_t i = 0; i < T * S; ++i) out[size_of(i)] = visible(i / S, i % S);
    return out;
  }
};

template <class T>
struct Result {
  std::vector<T> scores, weights, y;  ///< [H,T,S], [H,T,S], [T,H,D]
};

enum class Split { as_chosen, never };

template <class T>
Result<T> attend(const Model<T>& m, const View& view, bool masked = true, std::uint64_t seed = 1,
                 Split split = Split::as_chosen) {
  const AttentionShape shape{m.H, m.G, view.T, view.S, m.D, view.first_key};
  Result<T> out;
  out.scores.resize(size_of(m.H * view.T * view.S));
  out.weights.resize(out.scores.size());
  out.y.resize(size_of(view.T * m.H * m.D));
  const auto mask = view.mask();
  const Emulated launch{seed};
  device::launch_scores<T>({{m.query(0, view.first_query), m.D, m.H * m.D},
                            {m.key(0, view.first_key), m.capacity * m.D, m.D},
                            out.scores.data(),
                            shape,
                            m.scale,
                            m.cap},
                           Emulated{launch});
  device::launch_softmax<T>({out.scores.data(), out.weights.data(), masked ? mask.get() : nullptr, shape},
                            Emulated{launch});
  std::vector<char> workspace(split == Split::never ? 0 : device::workspace_bytes<T>(shape));
  device::launch_mix<T>({out.weights.data(),
                         {m.value(0, view.first_key), m.capacity * m.D, m.D},
                         out.y.data(),
                         workspace.empty() ? nullptr : workspace.data(),
                         shape},
                        Emulated{launch});
  return out;
}

template <class T>
Wide<T> rounded(Wide<T> x) {
  return widen(narrow<T>(x));
}

template <class T>
T expected_score(const Model<T>& m, const T* q, const T* k) {
  using W = Wide<T>;
  W sum = 0;
  for (std::int64_t d = 0; d < m.D; ++d) sum = std::fma(widen(k[d]), widen(q[d]), sum);
  const W scaled = rounded<T>(rounded<T>(sum) * static_cast<W>(m.scale));
  if (m.cap == 0.0) return narrow<T>(scaled);
  const auto cap = static_cast<W>(m.cap);
  return narrow<T>(rounded<T>(std::tanh(rounded<T>(scaled / cap))) * cap);
}

/// A row of scores to weights, in 128 lanes by position.
template <class T>
std::vector<T> expected_weights(const View& view, std::int64_t t, const T* scores) {
  using W = Wide<T>;
  W largest = -std::numeric_limits<W>::infinity(), sum = 0;
  for (std::int64_t s = 0; s < view.S; ++s)
    if (view.visible(t, s)) largest = std::max(largest, widen(scores[s]));
  W lanes[128] = {};
  for (std::int64_t s = 0; s < view.S; ++s)
    if (view.visible(t, s)) lanes[(view.first_key + s) % 128] += std::exp(widen(scores[s]) - largest);
  for (int warp = 0; warp < 4; ++warp) {
    W* const mine = lanes + 32 * warp;
    for (int apart = 16; apart > 0; apart /= 2)
      for (int i = 0; i < apart; ++i) mine[i] = mine[i] + mine[i + apart];
    sum = warp == 0 ? mine[0] : sum + mine[0];
  }
  std::vector<T> out(size_of(view.S), T{});
  for (std::int64_t s = 0; s < view.S; ++s)
    if (view.visible(t, s)) out[size_of(s)] = narrow<T>(std::exp(widen(scores[s]) - largest) / sum);
  return out;
}

template <class T>
std::vector<T> expected_mix(const Model<T>& m, const View& view, std::int64_t g, const T* weights) {
  using W = Wide<T>;
  std::vector<T> out;
  for (std::int64_t d = 0; d < m.D; ++d) {
    W total = 0, sum = 0;
    for (std::int64_t s = 0; s < view.S; ++s) {
      if (s > 0 && (view.first_key + s) % 256 == 0) total = total + sum, sum = 0;
      sum = std::fma(widen(m.value(g, view.first_key + s)[d]), widen(weights[s]), sum);
    }
    out.push_back(narrow<T>(total + sum));
  }
  return out;
}

template <class T>
void expect_documented(const Model<T>& m, const View& view, const Result<T>& got) {
  for (std::int64_t h = 0; h < m.H; ++h)
    for (std::int64_t t = 0; t < view.T; ++t) {
      const std::int64_t g = h / (m.H / m.G), row = (h * view.T + t) * view.S;
      const T* const scores = got.scores.data() + row;
      const T* const weights = got.weights.data() + row;
      for (std::int64_t s = 0; s < view.S; ++s) {
        const T expected = expected_score(m, m.query(h, view.first_query + t), m.key(g, view.first_key + s));
        ASSERT_TRUE(same_bits(&expected, scores + s, 1)) << h << " " << t << " " << s;
      }
      const auto expected = expected_weights(view, t, scores);
      ASSERT_TRUE(same_bits(expected.data(), weights, expected.size())) << h << " " << t;
      const auto y = expected_mix(m, view, g, weights);
      ASSERT_TRUE(same_bits(y.data(), got.y.data() + (t * m.H + h) * m.D, y.size())) << h << " " << t;
    }
}

/// The same queries of two views.
template <class T>
void expect_same_rows(const Model<T>& m, const View& a, const Result<T>& of_a, const View& b, const Result<T>& of_b) {
  for (std::int64_t t = 0; t < b.T; ++t) {
    const std::int64_t row = b.first_query + t - a.first_query;
    ASSERT_TRUE(same_bits(of_a.y.data() + row * m.H * m.D, of_b.y.data() + t * m.H * m.D, size_of(m.H * m.D)))
        << "query " << b.first_query + t << ", keys " << b.first_key << " + " << b.S;
  }
}

template <class T>
class CudaAttention : public testing::Test {};
using Types = testing::Types<Half, BFloat, float, double>;
TYPED_TEST_SUITE(CudaAttention, Types);

TYPED_TEST(CudaAttention, EveryHeadSizeGivesTheDocumentedBits) {
  for (const std::int64_t D : {8, 16, 24, 64, 128, 256}) {
    const Model<TypeParam> m(2, 2, D, 70);
    const View view{66, 3, 0, 69};
    expect_documented(m, view, attend(m, view));
  }
}

TYPED_TEST(CudaAttention, EveryNumberOfKeysGivesTheDocumentedBits) {
  const Model<TypeParam> m(1, 3, 16, 600);
  for (const std::int64_t S : {1, 2, 15, 16, 17, 64, 65, 255, 256, 257, 300, 513}) {
    const View one{S - 1, 1, 0, S}, some{S - 1, 5, 0, S + 4};
    const auto of_one = attend(m, one), of_some = attend(m, some, true, 2);
    expect_documented(m, one, of_one);
    expect_documented(m, some, of_some);
    expect_same_rows(m, some, of_some, one, of_one);
    EXPECT_TRUE(same_bits(of_one.y, attend(m, one, false).y)) << "no mask is one that hides nothing";
  }
}

TYPED_TEST(CudaAttention, GroupsOfAnySizeShareTheirKeys) {
  for (const std::int64_t R : {1, 2, 3, 4}) {
    const Model<TypeParam> m(2, R, 16, 300);
    const View many{250, 40, 0, 290};
    const auto of_many = attend(m, many);
    expect_documented(m, many, of_many);
    for (const std::int64_t t : {0, 6, 39}) {
      const View one{250 + t, 1, 0, 251 + t};
      expect_same_rows(m, many, of_many, one, attend(m, one, true, 3));
    }
  }
}

/// A sliding cache keeps the last keys only; what lies before is hidden from the whole view's queries.
TYPED_TEST(CudaAttention, AViewThatStartsLaterGivesTheSameBits) {
  const Model<TypeParam> m(2, 2, 16, 700);
  View whole{590, 4, 0, 594};
  whole.window = 280;
  const auto of_whole = attend(m, whole);
  expect_documented(m, whole, of_whole);
  for (const std::int64_t t : {0, 3}) {
    View late{590 + t, 1, 590 + t - 279, 280, 280};
    const auto of_late = attend(m, late, t == 0);
    expect_documented(m, late, of_late);
    expect_same_rows(m, whole, of_whole, late, of_late);
  }
}

/// Terms whose exact sums are 0, in the scores and in the mix: what is left is the rounding of the order, which a
/// 16-bit result would hide otherwise.
TYPED_TEST(CudaAttention, WhereTermsCancelTheOrderShows) {
  using T = TypeParam;
  for (const std::int64_t D : {16, 64, 160}) {
    Model<T> m(2, 2, D, 620);
    View late{610, 1, 311, 300, 300};
    const auto opposite = [](const T& x) { return narrow<T>(-widen(x)); };
    std::mt19937_64 random(4);
    const auto pairs = [&](std::int64_t n) {
      std::vector<std::size_t> order(size_of(n));
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::shuffle(order.begin(), order.end(), random);
      return order;
    };
    const auto of_head = pairs(D), of_keys = pairs(late.S);
    for (std::size_t i = 0; i < of_head.size(); i += 2) {
      const std::size_t a = of_head[i], b = of_head[i + 1];
      for (std::size_t row = 0; row < m.q.size(); row += size_of(D)) m.q[row + a] = m.q[row + b];
      for (std::size_t row = 0; row < m.k.size(); row += size_of(D)) m.k[row + a] = opposite(m.k[row + b]);
    }
    for (std::size_t i = 0; i < of_keys.size(); i += 2)
      for (std::int64_t g = 0; g < 2; ++g)
        for (std::int64_t d = 0; d < D; ++d) {
          const auto at = [&](std::size_t key) -> T& {
            return m.v[size_of((g * m.capacity + late.first_key + static_cast<std::int64_t>(key)) * D + d)];
          };
          at(of_keys[i]) = opposite(at(of_keys[i + 1]));
        }
    const auto of_late = attend(m, late, false);
    expect_documented(m, late, of_late);
    const View whole{610, 3, 0, 613, 300};
    expect_same_rows(m, whole, attend(m, whole), late, of_late);
  }
}

TEST(CudaAttentionCalls, AWrongCallIsNamed) {
  Model<Half> m(1, 2, 8, 4);
  std::vector<Half> scores(64);
  const auto launch = [&](cuda::ScoreCall call) { device::launch_scores<Half>(call, Emulated{}); };
  const cuda::ScoreCall good{{m.q.data(), 8, 16}, {m.k.data(), 8 * m.capacity, 8}, scores.data(), {2, 1, 4, 4, 8, 0}, 1.0};
  EXPECT_NO_THROW(launch(good));
  const auto with = [&](auto change) {
    auto call = good;
    change(call);
    return call;
  };
  EXPECT_THROW(launch(with([](auto& c) { c.shape.G = 3; })), Error);
  EXPECT_THROW(launch(with([](auto& c) { c.shape.S = 0; })), Error);
  EXPECT_THROW(launch(with([](auto& c) { c.shape.D = 7; })), Error);
  EXPECT_THROW(launch(with([](auto& c) { c.q.position_stride = 17; })), Error);
  EXPECT_THROW(launch(with([&](auto& c) { c.k.data = m.k.data() + 1; })), Error);
}

TYPED_TEST(CudaAttention, ChunksApartAndTogetherAreTheSame) {
  const Model<TypeParam> m(2, 2, 72, 600);
  for (const std::int64_t T : {1, 9}) {
    const View view{591, T, 200, 391 + T, 300};
    const AttentionShape shape{m.H, m.G, T, view.S, m.D, view.first_key};
    ASSERT_GT(device::workspace_bytes<TypeParam>(shape), 0u);
    const auto apart = attend(m, view), together = attend(m, view, true, 2, Split::never);
    EXPECT_TRUE(same_bits(apart.y, together.y));
    expect_documented(m, view, apart);
  }
}

TYPED_TEST(CudaAttention, ACapWithinTheScoresIsTheSoftCap) {
  using T = TypeParam;
  Model<T> m(1, 2, 16, 50);
  const View view{40, 3, 0, 43};
  const auto plain = attend(m, view);
  m.cap = 2.0;
  const auto fused = attend(m, view);
  expect_documented(m, view, fused);
  std::vector<T> capped(plain.scores.size());
  device::launch_soft_cap<T>({plain.scores.data(), capped.data(), static_cast<std::int64_t>(capped.size()), 2.0}, Emulated{});
  EXPECT_TRUE(same_bits(capped, fused.scores));
  EXPECT_FALSE(same_bits(plain.scores, fused.scores));
}

TYPED_TEST(CudaAttention, HiddenKeysHaveNoWeight) {
  using T = TypeParam;
  Model<T> m(1, 1, 8, 40);
  const View view{20, 1, 0, 40};
  const auto before = attend(m, view);
  for (std::int64_t s = 21; s < 40; ++s) EXPECT_EQ(widen(before.weights[size_of(s)]), 0);
  for (std::int64_t i = 21 * 8; i < 40 * 8; ++i) m.k[size_of(i)] = m.v[size_of(i)] = narrow<T>(1000);
  EXPECT_TRUE(same_bits(before.y, attend(m, view).y));
}

TYPED_TEST(CudaAttention, TheScheduleDecidesNothing) {
  const Model<TypeParam> m(1, 2, 16, 300);
  const View view{280, 6, 0, 286};
  const auto first = attend(m, view, true, 0);
  for (std::uint64_t seed = 1; seed < 7; ++seed) {
    const auto again = attend(m, view, true, seed, seed % 2 == 0 ? Split::as_chosen : Split::never);
    EXPECT_TRUE(same_bits(first.scores, again.scores));
    EXPECT_TRUE(same_bits(first.weights, again.weights));
    EXPECT_TRUE(same_bits(first.y, again.y));
  }
}

TYPED_TEST(CudaAttention, ItMeetsFp64) {
  using T = TypeParam;
  const Model<T> m(1, 2, 32, 400);
  const View view{399, 1, 0, 400};
  const auto y = doubles(attend(m, view).y);
  double worst = 0.0;
  for (std::int64_t h = 0; h < 2; ++h) {
    std::vector<double> e;
    double sum = 0.0;
    for (std::int64_t s = 0; s < 400; ++s) {
      double score = 0.0;
      for (std::int64_t d = 0; d < 32; ++d)
        score += static_cast<double>(widen(m.query(h, 399)[d])) * static_cast<double>(widen(m.key(0, s)[d]));
      e.push_back(std::exp(score * 0.125));
      sum += e.back();
    }
    for (std::int64_t d = 0; d < 32; ++d) {
      double exact = 0.0;
      for (std::int64_t s = 0; s < 400; ++s) exact += e[size_of(s)] / sum * static_cast<double>(widen(m.value(0, s)[d]));
      worst = std::max(worst, std::abs(y[size_of(h * 32 + d)] - exact));
    }
  }
  // Scores up to 4 are rounded twice, weights once: a few roundings of a mix of values of size 1.
  EXPECT_LT(worst, 8 * unit_roundoff<T>());
  EXPECT_GT(worst, 0.01 * unit_roundoff<T>());
}

}  // namespace
}  // namespace kvdiv::test
