#include "kvdiv/decode/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "kvdiv/base/error.h"
#include "sampling_support.h"

namespace kvdiv {
namespace {

using namespace kvdiv::test;
using testing::ElementsAre;
using testing::HasSubstr;

// ---- refusals ------------------------------------------------------------------------------------------------------

ErrorKind kind_of(const SamplingParams& params, std::string* text = nullptr) {
  try {
    validate(params);
  } catch (const Error& error) {
    if (text != nullptr) *text = error.what();
    return error.kind();
  }
  return ErrorKind::internal;
}

TEST(SamplingParams, BadNumbersAreUsageErrorsThatNameTheFlag) {
  std::string text;
  for (double t : {-1.0, -1e-300, std::nan(""), kInf, -kInf}) {
    EXPECT_EQ(kind_of({Strategy::top_p, t, 50, 0.95}, &text), ErrorKind::usage) << t;
    EXPECT_THAT(text, HasSubstr("--temperature"));
  }
  for (std::int64_t k : {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    EXPECT_EQ(kind_of(top_k(k), &text), ErrorKind::usage) << k;
    EXPECT_THAT(text, HasSubstr("--top-k"));
  }
  for (double p : {0.0, -0.1, 1.0000001, std::nan(""), kInf, -kInf}) {
    EXPECT_EQ(kind_of(top_p(p), &text), ErrorKind::usage) << p;
    EXPECT_THAT(text, HasSubstr("--top-p"));
  }
}

TEST(SamplingParams, DefaultsAndEdgesAreAccepted) {
  EXPECT_NO_THROW(validate({}));
  EXPECT_NO_THROW(validate({Strategy::top_k, 0.0, 1, 1.0}));
  EXPECT_NO_THROW(validate({Strategy::top_p, 1e-9, std::numeric_limits<std::int64_t>::max(), 5e-324}));
  EXPECT_THROW(Sampler({Strategy::greedy, -1.0, 50, 0.95}), Error);
}

TEST(Sampling, NonFiniteLogitsAreNoToken) {
  for (const auto& params : {SamplingParams{}, top_k(2), top_p(0.9)}) {
    for (const std::vector<double>& logits : {std::vector<double>{0.0, std::nan(""), 1.0},
                                              {kInf, 0.0},
                                              {-kInf, -kInf},
                                              {std::nan("")},
                                              {0.0, -std::nan("")}}) {
      try {
        choose_token(logits, params, 0.5);
        ADD_FAILURE() << "a token was chosen";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::invalid_measurement);
      }
    }
    EXPECT_THROW(choose_token({}, params, 0.5), Error);
  }
}

TEST(Sampling, UniformMustBeInItsInterval) {
  const std::vector<double> logits{0.0, 1.0};
  for (double u : {-0.1, 1.0, std::nan("")}) EXPECT_THROW(choose_token(logits, top_p(0.9), u), Error);
}

// ---- greedy and temperature (B34, B46) -----------------------------------------------------------------------------

TEST(Greedy, TakesTheLowestIdOfTheLargest) {
  EXPECT_EQ(argmax_token(std::vector<double>{1, 3, 3, 2}), 1);
  EXPECT_EQ(argmax_token(std::vector<double>{-kInf, -5, -kInf}), 1);
  EXPECT_EQ(argmax_token(std::vector<double>{-0.0, 0.0}), 0);
  std::vector<double> logits(32000, 0.0);
  logits[7] = logits[30000] = 4.0;
  EXPECT_EQ(choose_token(logits, {}, 0.99), 7);
}

TEST(Temperature, ZeroIsGreedyForEveryStrategy) {
  const std::vector<double> logits{1.0, 2.0, 2.0, 0.0};
  for (double u : {0.0, 0.5, kAlmostOne}) {
    EXPECT_EQ(choose_token(logits, top_k(4, 0.0), u), 1);
    EXPECT_EQ(choose_token(logits, top_p(1.0, 0.0), u), 1);
  }
}

TEST(Temperature, TinyOnesStayFinite) {
  const std::vector<double> logits{1.0, 2.0, 1.9999, -700.0};
  for (double t : {1e-9, 1e-300, 5e-324})
    for (double u : {0.0, 0.5, kAlmostOne}) {
      EXPECT_EQ(choose_token(logits, top_k(4, t), u), 1) << t;
      EXPECT_EQ(choose_token(logits, top_p(1.0, t), u), 1) << t;
    }
}

TEST(Temperature, TinyOnesStillShareAmongEquals) {
  const std::vector<double> logits{2.0, 1.0, 2.0};
  EXPECT_EQ(choose_token(logits, top_p(1.0, 1e-9), 0.49), 0);
  EXPECT_EQ(choose_token(logits, top_p(1.0, 1e-9), 0.51), 2);
}

TEST(Temperature, LargeOnesFlatten) {
  const std::vector<double> logits{-1e308, 1e308, 0.0, 5.0};
  EXPECT_EQ(surviving_tokens(std::vector<double>{0.0, 5.0, -5.0}, 1e308, {}, 1.0), first_ids(3));
  for (double u : {0.0, 0.5, kAlmostOne}) EXPECT_EQ(choose_token(logits, top_p(1.0), u), 1);
}

// ---- top-k ---------------------------------------------------------------------------------------------------------

TEST(TopK, KeepsTheLargest) {
  const std::vector<double> logits{0.0, 3.0, 1.0, 2.0};
  EXPECT_THAT(surviving_tokens(logits, 1.0, 1, {}), ElementsAre(1));
  EXPECT_THAT(surviving_tokens(logits, 1.0, 2, {}), ElementsAre(1, 3));
  EXPECT_THAT(surviving_tokens(logits, 1.0, 3, {}), ElementsAre(1, 2, 3));
  for (std::int64_t k : {std::int64_t{4}, std::int64_t{5}, std::numeric_limits<std::int64_t>::max()})
    EXPECT_EQ(surviving_tokens(logits, 1.0, k, {}), first_ids(4));
}

TEST(TopK, TiesGoToTheLowestIds) {
  EXPECT_THAT(surviving_tokens(std::vector<double>{1, 2, 2, 2, 0}, 1.0, 2, {}), ElementsAre(1, 2));
  EXPECT_EQ(surviving_tokens(std::vector<double>(1000, 0.25), 1.0, 17, {}), first_ids(17));
}

TEST(TopK, DoesNotFillUpWithWeightlessTokens) {
  EXPECT_THAT(surviving_tokens(std::vector<double>{-kInf, 1.0, -kInf, 0.0}, 1.0, 3, {}), ElementsAre(1, 3));
}

TEST(TopK, IgnoresTopP) {
  const std::vector<double> logits = logs({0.5, 0.3, 0.2});
  EXPECT_EQ(choose_token(logits, {Strategy::top_k, 1.0, 3, 0.01}, 0.9), 2);
}

TEST(TopK, AgreesWithASortOnManyTokens) {
  const auto logits = random_logits(5000, 8.0);
  for (std::int64_t k : {1, 2, 49, 50, 4999}) {
    Ids expected = first_ids(5000);
    std::stable_sort(expected.begin(), expected.end(), [&](TokenId a, TokenId b) {
      return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    expected.resize(static_cast<std::size_t>(k));
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(surviving_tokens(logits, 1.0, k, {}), expected) << k;
  }
}

// ---- top-p (B43, B45) ----------------------------------------------------------------------------------------------

TEST(TopP, KeepsTheCrossingTokenAndNoOther) {
  EXPECT_EQ(nucleus({.4, .3, .2, .1}, .8), first_ids(3));
  EXPECT_EQ(nucleus({.5, .3, .15, .05}, .6), first_ids(2));
  EXPECT_EQ(nucleus({.5, .3, .15, .05}, .85), first_ids(3));
}

TEST(TopP, AMassThatReachesPExactlyIsEnough) {
  EXPECT_EQ(nucleus({.5, .25, .125, .125}, .75), first_ids(2));
  EXPECT_EQ(nucleus({.5, .25, .125, .125}, .5), first_ids(1));
  EXPECT_EQ(nucleus({.5, .25, .125, .125}, .875), first_ids(3));
  EXPECT_EQ(nucleus({.4, .3, .2, .1}, .7), first_ids(2));  // .4 + .3 is not .7 in binary; it is within the tolerance
  EXPECT_EQ(nucleus({.4, .3, .2, .1}, .9), first_ids(3));
}

TEST(TopP, TheToleranceIsNoLargerThanStated) {
  EXPECT_EQ(nucleus({.5, .25, .125, .125}, .75 + 1e-11), first_ids(3));
  EXPECT_EQ(nucleus({.5, .25, .125, .125}, .75 - 1e-11), first_ids(2));
}

TEST(TopP, OneKeepsEverythingThatHasWeight) {
  EXPECT_EQ(nucleus({.5, 1e-300, .5, 0.0, 1e-20}, 1.0), (Ids{0, 1, 2, 4}));
}

TEST(TopP, AlwaysKeepsOne) {
  for (double p : {5e-324, 1e-13, 1e-12, 0.1, 0.4}) EXPECT_THAT(nucleus({.1, .5, .4}, p), ElementsAre(1)) << p;
  EXPECT_THAT(nucleus({1.0}, 0.5), ElementsAre(0));
}

TEST(TopP, EqualWeightsAreNotAllNegligible) {
  for (double p : {5e-324, 1e-14, 0.5})
    EXPECT_FALSE(surviving_tokens(std::vector<double>(997, std::log(0.1)), 0.3, {}, p).empty());
  std::vector<double> nearly(997, 0.1);
  nearly[996] = 0.1 + 1e-16;
  EXPECT_THAT(surviving_tokens(nearly, 0.3, {}, 5e-324), ElementsAre(996));
}

TEST(TopP, TiesGoToTheLowestIds) {
  EXPECT_EQ(nucleus(std::vector<double>(8, 0.125), 0.5), first_ids(4));
  EXPECT_THAT(nucleus({.2, .3, .3, .2}, .7), ElementsAre(0, 1, 2));
}

TEST(TopP, IgnoresTopK) { EXPECT_EQ(choose_token(logs({0.5, 0.3, 0.2}), {Strategy::top_p, 1.0, 1, 1.0}, 0.9), 2); }

TEST(TopP, IsAppliedAfterTemperature) {
  const std::vector<double> logits = logs({.5, .3, .2});
  EXPECT_THAT(surviving_tokens(logits, 0.1, {}, .9), ElementsAre(0));
  EXPECT_EQ(surviving_tokens(logits, 10.0, {}, .9), first_ids(3));
}

TEST(TopP, AgreesWithASortOnManyTokens) {
  const auto logits = random_logits(5000, 8.0);
  Ids order = first_ids(5000);
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  double total = 0.0;
  for (double l : logits) total += std::exp(l);
  for (double p : {0.001, 0.3, 0.5, 0.95, 0.9999}) {
    Ids expected;
    double mass = 0.0;
    for (std::size_t i = 0; mass < p - kMassTolerance; ++i) {
      expected.push_back(order[i]);
      mass += std::exp(logits[static_cast<std::size_t>(order[i])]) / total;
    }
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(surviving_tokens(logits, 1.0, {}, p), expected) << p;
  }
}

TEST(TopKThenTopP, RenormalisesInBetween) {
  EXPECT_THAT(surviving_tokens(std::vector<double>(100, 0.0), 0.01, 1, 0.8), ElementsAre(0));  // B43
  // .4 and .3 renormalise to .571 and .429: .5 is reached by the first alone, where .4 would not be enough for it.
  EXPECT_THAT(surviving_tokens(logs({.4, .3, .2, .1}), 1.0, 2, .5), ElementsAre(0));
  EXPECT_THAT(surviving_tokens(logs({.4, .3, .2, .1}), 1.0, 2, .6), ElementsAre(0, 1));
}

}  // namespace
}  // namespace kvdiv
