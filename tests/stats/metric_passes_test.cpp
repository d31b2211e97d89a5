// The passes of compare_logits(), cut into pieces and merged: whatever the cut, the result is that of one piece.
#include "kvdiv/stats/metric_passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kvdiv/stats/metrics.h"
#include "support/step_metrics.h"

namespace kvdiv {
namespace {

using namespace metric_passes;
using Row = std::vector<double>;
using Pieces = std::vector<std::vector<std::size_t>>;

struct Case {
  std::string name;
  Row on, off;
};

Row random_row(std::mt19937_64& random, std::size_t n, double scale) {
  std::normal_distribution<double> normal(0.0, scale);
  Row row(n);
  for (double& x : row) x = normal(random);
  return row;
}

Case noisy(std::mt19937_64& random, std::size_t n, double scale, double shift = 0.0) {
  Case c{"noise of " + std::to_string(scale) + ", shift " + std::to_string(shift), random_row(random, n, 3.0), {}};
  c.off = c.on;
  const Row noise = random_row(random, n, scale);
  for (std::size_t i = 0; i < n; ++i) c.off[i] += noise[i] + shift;
  return c;
}

std::vector<Case> cases() {
  std::mt19937_64 random(5);
  std::vector<Case> out;
  for (const double scale : {1e-14, 1e-8, 1e-3, 0.2, 1.0, 20.0, 200.0, 4000.0})
    for (const double shift : {0.0, -700.0}) out.push_back(noisy(random, 500, scale, shift));
  out.push_back({"whole numbers, ties everywhere", random_row(random, 300, 1.0), random_row(random, 300, 1.0)});
  for (Row* row : {&out.back().on, &out.back().off})
    for (double& x : *row) x = std::round(x);  // −0.0 and +0.0 among them
  out.push_back(noisy(random, 200, 0.01));
  out.back().name = "masked in both";
  for (std::size_t i = 0; i < 200; i += 3) out.back().on[i] = out.back().off[i] = -kInf;
  out.push_back(noisy(random, 200, 0.01));
  out.back().name = "masked in one";
  for (std::size_t i = 0; i < 200; i += 7) (i % 2 ? out.back().on : out.back().off)[i] = -kInf;
  out.push_back({"masked in one, one direction", {0.0, 1.0, 2.0, 0.5}, {0.0, 1.0, -kInf, 0.5}});
  out.push_back({"equal", {1.0, 2.0, 0.5, 2.0}, {1.0, 2.0, 0.5, 2.0}});
  out.push_back({"all masked", Row(9, -kInf), Row(9, -kInf)});
  out.push_back({"one NaN", {1.0, 2.0, kNan, 4.0}, {1.0, 2.0, 3.0, 4.0}});
  out.push_back({"all NaN", Row(5, kNan), Row(5, 1.0)});
  out.push_back({"plus infinity", {1.0, 2.0, 3.0}, {1.0, kInf, 3.0}});
  out.push_back({"too far apart", {1.5e308, 0.0, 1.0}, {-1.5e308, 0.0, 2.0}});
  out.push_back({"one token", {3.0}, {4.0}});
  return out;
}

/// Token i to piece piece_of(i). A piece sees its tokens ascending, as a thread of a kernel does.
Pieces cut(std::size_t n, std::size_t n_pieces, const std::function<std::size_t(std::size_t)>& piece_of) {
  Pieces pieces(n_pieces);
  for (std::size_t i = 0; i < n; ++i) pieces.at(piece_of(i)).push_back(i);
  return pieces;
}

std::vector<std::pair<std::string, Pieces>> cuts(std::size_t n) {
  std::mt19937_64 random(n);
  std::vector<std::pair<std::string, Pieces>> out;
  out.emplace_back("one", cut(n, 1, [](std::size_t) { return 0; }));
  out.emplace_back("halves", cut(n, 2, [&](std::size_t i) { return 2 * i / n; }));
  out.emplace_back("strided", cut(n, 7, [](std::size_t i) { return i % 7; }));
  out.emplace_back("backwards", cut(n, n, [&](std::size_t i) { return n - 1 - i; }));
  out.emplace_back("mostly empty pieces", cut(n, 64, [](std::size_t i) { return i % 3 * 31; }));
  out.emplace_back("at random", cut(n, 33, [&](std::size_t) { return random() % 33; }));
  return out;
}

/// Merges neighbours until one is left, as a tree in shared memory does.
template <class Pass, class Visit>
Pass merged(const Pieces& pieces, const Visit& visit) {
  std::vector<Pass> level(pieces.size());
  for (std::size_t k = 0; k < pieces.size(); ++k)
    for (const std::size_t i : pieces[k]) visit(level[k], i);
  while (level.size() > 1) {
    for (std::size_t k = 0; 2 * k < level.size(); ++k) {
      level[k] = level[2 * k];
      if (2 * k + 1 < level.size()) level[k].merge(level[2 * k + 1]);
    }
    level.resize((level.size() + 1) / 2);
  }
  return level[0];
}

StepMetrics compare_in_pieces(const Row& on, const Row& off, const Pieces& pieces) {
  const auto s = merged<Scan>(pieces, [&](Scan& pass, std::size_t i) {
    pass.visit(static_cast<std::int64_t>(i), on[i], off[i],
               std::bit_cast<std::uint64_t>(on[i]) == std::bit_cast<std::uint64_t>(off[i]));
  });
  StepMetrics m = s.metrics();
  if (!s.has_divergences()) return m;
  const auto softmax = [&](const Row& row, double max) {
    return Softmax::of(max,
                       merged<SumOfExponentials>(pieces, [&](auto& pass, std::size_t i) { pass.visit(row[i], max); }));
  };
  const Softmax p = softmax(on, s.on.first), q = softmax(off, s.off.first);
  const double mean = merged<MeanDifference>(pieces, [&](auto& pass, std::size_t i) {
                        pass.visit(p.p(on[i]), on[i], off[i]);
                      }).sum.value();
  const double k =
      merged<Expectation>(pieces, [&](auto& pass, std::size_t i) { pass.visit(p.p(on[i]), on[i], off[i], mean); }).k();
  merged<Divergences>(pieces, [&](auto& pass, std::size_t i) {
    if (s.is_narrow())
      pass.visit_narrow(p.p(on[i]), on[i], off[i], mean, k);
    else
      pass.visit_wide(p.p(on[i]), q.p(off[i]), on[i], off[i], p, q);
  }).put(m);
  return m;
}

TEST(MetricPasses, AnyCutGivesTheResultOfOnePiece) {
  for (const auto& [name, on, off] : cases()) {
    const StepMetrics expected = compare_logits(on, off);
    for (const auto& [how, pieces] : cuts(on.size())) {
      SCOPED_TRACE(name + ", " + how);
      expect_metrics(compare_in_pieces(on, off, pieces), expected);
    }
  }
}

TEST(MetricPasses, OnePieceInOrderGivesTheBitsOfCompareLogits) {
  for (const auto& [name, on, off] : cases()) {
    const StepMetrics expected = compare_logits(on, off);
    const StepMetrics m = compare_in_pieces(on, off, cuts(on.size()).front().second);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(m.kl_on_off_nats), std::bit_cast<std::uint64_t>(expected.kl_on_off_nats))
        << name;
    EXPECT_EQ(std::bit_cast<std::uint64_t>(m.js_nats), std::bit_cast<std::uint64_t>(expected.js_nats)) << name;
  }
}

TEST(MetricPasses, TheLowestIdOfATieWinsWhicheverPieceComesFirst) {
  Top early, late;
  early.visit(3, 5.0);
  early.visit(4, 4.0);
  late.visit(7, 5.0);
  late.visit(8, 4.5);
  for (const bool early_first : {true, false}) {
    Top top = early_first ? early : late;
    top.merge(early_first ? late : early);
    EXPECT_EQ(top.id, 3);
    EXPECT_TRUE(top.tie);
    EXPECT_EQ(top.second, 4.5);
  }
}

TEST(MetricPasses, TheSecondLargestMayBeOfAnotherPieceOrOfTheSame) {
  for (const double other : {1.0, 8.0, 9.5, 12.0}) {  // against 9 and 7: below both, between, above both
    Top top, more;
    top.visit(0, 9.0);
    top.visit(1, 7.0);
    more.visit(2, other);
    top.merge(more);
    EXPECT_EQ(top.id, other > 9.0 ? 2 : 0);
    EXPECT_EQ(top.margin(), other == 1.0 ? 2.0 : other == 8.0 ? 1.0 : other - 9.0);
    EXPECT_FALSE(top.tie);
  }
}

TEST(MetricPasses, AMergedSumKeepsWhatEachPieceHasLostInRounding) {
  CompensatedSum large, small;
  large.add(1e16);
  large.add(1.0);  // half an ulp: in the error alone
  small.add(3.0);
  large.merge(small);
  large.add(-1e16);
  EXPECT_EQ(large.value(), 4.0);
  CompensatedSum many;
  for (int piece = 0; piece < 1000; ++piece) {
    CompensatedSum part;
    for (int i = 0; i < 100; ++i) part.add(0.1);
    many.merge(part);
  }
  EXPECT_NEAR(many.value(), 100000 * 0.1, 2e-12);  // plainly summed: 1.9e-8 off
}

}  // namespace
}  // namespace kvdiv
