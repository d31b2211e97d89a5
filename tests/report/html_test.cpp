// What a page is made of: one pass over the records, small whatever their number, and text that stays text.
#include "kvdiv/report/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "kvdiv/base/error.h"
#include "kvdiv/io/files.h"
#include "kvdiv/report/result_directory.h"
#include "report/html_data.h"
#include "report/html_flip_text.h"
#include "report/html_page.h"
#include "report/html_records.h"
#include "report/html_sketch.h"
#include "report/record_lines.h"
#include "support/run_report.h"
#include "support/temp_dir.h"

namespace kvdiv::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

StepRecord step_of(const std::string& pair, std::int64_t step, double kl, Clock clock = Clock::both) {
  StepRecord s;
  s.pair_id = pair;
  s.step = step;
  s.clock = clock;
  s.same_prefix = clock != Clock::free;
  s.kl_on_off_nats = kl;
  s.max_abs_dlogit = kl;
  s.margin_on = 1.0;
  s.top1_equal = true;
  return s;
}

PairRecord pair_of(const std::string& id, const std::string& prompt, std::int64_t n_tokens,
                   std::optional<std::int64_t> flip = std::nullopt) {
  PairRecord p;
  p.pair_id = id;
  p.prompt_id = prompt;
  p.condition = "float16/torch/greedy";
  p.tokens_on.assign(static_cast<std::size_t>(n_tokens), 7);
  p.tokens_off = p.tokens_on;
  p.flip_index = flip;
  p.diverged = flip.has_value();
  if (flip) p.tokens_off[static_cast<std::size_t>(*flip)] = 8;
  return p;
}

std::string line_of(std::string_view type, const Json& record) {
  Json line = {{"type", type}};
  line.update(record);
  return line.dump() + "\n";
}

// ---- quantiles -----------------------------------------------------------------------------------------------------

std::vector<double> sketched(const std::vector<double>& values, const std::vector<double>& at) {
  QuantileSketch sketch;
  for (const double v : values) sketch.add(v);
  std::vector<double> out;
  for (const double q : at) out.push_back(sketch.quantile(q));
  return out;
}

TEST(QuantileSketch, IsWithinItsErrorOfTheOrderStatisticsOverThirtyDecades) {
  std::vector<double> values;
  for (int i = 0; i < 5000; ++i) values.push_back(std::pow(10.0, -30.0 + 31.0 * std::fmod(i * 0.6180339887498949, 1.0)));
  const std::vector<double> at{0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0};
  const auto found = sketched(values, at);
  std::sort(values.begin(), values.end());
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double expected = values[static_cast<std::size_t>(std::floor(at[i] * 4999 + 0.5))];
    EXPECT_NEAR(found[i] / expected, 1.0, QuantileSketch::kRelativeError * 1.0001) << at[i];
  }
  EXPECT_EQ(found.front(), values.front());
  EXPECT_EQ(found.back(), values.back());
}

TEST(QuantileSketch, DoesNotDependOnTheOrderOfTheValuesOrOnHowTheyAreMerged) {
  std::vector<double> values{0.0, 3e-7, 1e-12, 0.0, 5.0, 2e-7, 1e300, 1e-300};
  const std::vector<double> at{0.2, 0.4, 0.5, 0.6, 0.8};
  const auto found = sketched(values, at);
  std::reverse(values.begin(), values.end());
  EXPECT_EQ(sketched(values, at), found);
  QuantileSketch a, b;
  for (std::size_t i = 0; i < values.size(); ++i) (i % 3 == 0 ? a : b).add(values[i]);
  a.merge(b);
  for (std::size_t i = 0; i < at.size(); ++i) EXPECT_EQ(a.quantile(at[i]), found[i]);
  EXPECT_EQ(found[0], 0.0) << "two values are 0, and one is so small that it counts as 0";
}

// ---- lines ---------------------------------------------------------------------------------------------------------

TEST(StepLines, AreReadAsTheParserReadsThem) {
  StepRecord s = step_of("float16/torch/greedy/p/s0", 17, 1.2345678901234567e-19, Clock::forced);
  s.token_on = 31999;
  s.token_off = 0;
  s.margin_on = -0.0;
  s.margin_off = 1e308;
  s.tie_off = true;
  s.n_nonfinite = 3;
  for (const double kl : {0.0, 5e-324, kInf}) {
    s.kl_on_off_nats = kl;
    std::string line = line_of("step", to_json_value(s));
    line.pop_back();
    StepRecord found;
    ASSERT_TRUE(scan_step(line, found)) << line;
    EXPECT_EQ(line_of("step", to_json_value(found)), line + "\n");
  }
}

TEST(StepLines, ThatAreWrittenOtherwiseAreLeftToTheParser) {
  const TempDir dir;
  std::string line = line_of("step", to_json_value(step_of("p", 3, 0.5)));
  line.pop_back();
  StepRecord ignored;
  for (const auto& [part, other] : std::vector<std::pair<std::string, std::string>>{
           {"\"step\":3", "\"step\": 3"}, {"\"pair_id\":\"p\"", "\"pair_id\":\"p\\u0041\""}, {"0.5", "nan"}, {"0.5", "inf"},
           {"\"clock\":\"both\"", "\"clock\":\"none\""}, {"\"tie_on\":false", "\"tie_on\":0"}, {"\"n_nonfinite\":0}", "\"n_nonfinite\":0,\"new\":1}"}}) {
    std::string changed = line;
    changed.replace(changed.find(part), part.size(), other);
    EXPECT_FALSE(scan_step(changed, ignored)) << changed;
  }
  EXPECT_FALSE(scan_step(line + " ", ignored));
  EXPECT_FALSE(scan_step(line.substr(0, line.size() / 2), ignored));
}

class Lines : public testing::Test {
 protected:
  Lines() { dir_.holds_broken_results(); }
  std::vector<std::string> read(const std::string& text) const {
    write_text_file_atomically(file_, text);
    std::vector<std::string> out;
    for_each_line(file_, {[&](const StepRecord& s) { out.push_back("step " + s.pair_id); },
                          [&](const PairRecord& p) { out.push_back("pair " + p.pair_id); },
                          [&](std::string_view type, std::string_view) { out.emplace_back(type); }});
    return out;
  }
  TempDir dir_;
  const std::filesystem::path file_ = dir_.path() / kRecordsFile;
};

TEST_F(Lines, AreGivenInOrderAndATornOneIsDropped) {
  const std::string step = line_of("step", to_json_value(step_of("a", 0, 0.0))), pair = line_of("pair", to_json_value(pair_of("a", "p", 1)));
  std::string spaced = step;
  spaced.insert(1, " ");
  EXPECT_THAT(read(step + spaced + "{\"type\":\"layer\"}\n" + pair + step.substr(0, 20)), ElementsAre("step a", "step a", "layer", "pair a"));
  EXPECT_THAT(read(""), ElementsAre());
  std::string long_id = pair;
  long_id.replace(long_id.find("\"a\""), 3, '"' + std::string(std::size_t{3} << 20, 'x') + '"');
  EXPECT_EQ(read(step + long_id + step).size(), 3u) << "a line may be longer than a block";
}

TEST_F(Lines, ThatAreNoRecordsAreNamed) {
  const std::string step = line_of("step", to_json_value(step_of("a", 0, 0.0)));
  for (const char* bad : {"nonsense\n", "[1]\n", "{\"type\":3}\n", "{\"type\":\"step\",\"step\":\"x\"}\n", "{\"type\":\"pair\",\n"})
    try {
      read(step + bad + step);
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unreadable);
      EXPECT_THAT(error.what(), HasSubstr("line 2")) << bad;
    }
}

// ---- aggregates ----------------------------------------------------------------------------------------------------

TEST(KlBySteps, KeepsTheMeanOfTheStepsAndTheBandOfThePrompts) {
  RunAggregates aggregates;
  const auto add = [&](const std::string& id, const std::string& prompt, std::vector<double> kl) {
    for (std::size_t i = 0; i < kl.size(); ++i) aggregates.add(step_of(id, static_cast<std::int64_t>(i), kl[i]));
    aggregates.add(pair_of(id, prompt, std::ssize(kl)));
  };
  add("a0", "a", {0.0, 1.0});
  add("a1", "a", {0.0, 3.0});  // the prompt's mean at step 1 is 2
  add("b0", "b", {0.0, 8.0});
  add("c0", "c", {0.0, kNan});
  const Json kl = aggregates.finish()[0]["kl"]["same_prefix"];
  EXPECT_EQ(kl["step"], Json({0, 1}));
  EXPECT_EQ(kl["n"], Json({4, 3}));
  EXPECT_EQ(kl["n_zero"], Json({4, 0}));
  EXPECT_EQ(kl["n_nonfinite"], Json({0, 1}));
  EXPECT_EQ(kl["mean"], Json({0.0, 4.0}));
  EXPECT_EQ(kl["p5"], Json({0.0, 2.0}));
  EXPECT_EQ(kl["p95"][1], 8.0) << "the larger of two prompts: the band is of both";
}

TEST(KlBySteps, StaysSmallHoweverLongTheTextsAre) {
  KlBySteps kl;
  double sum = 0.0;
  for (std::int64_t step = 0; step < 5000; ++step) {
    kl.add(step, static_cast<double>(step));
    sum += static_cast<double>(step);
  }
  kl.end_prompt();
  const Json j = kl.to_json();
  EXPECT_EQ(j["width"], 32);
  EXPECT_LE(j["step"].size(), KlBySteps::kMaxBins);
  double total = 0.0;
  for (std::size_t i = 0; i < j["n"].size(); ++i) total += j["n"][i].get<double>() * j["mean"][i].get<double>();
  EXPECT_DOUBLE_EQ(total, sum);
  std::int64_t n_zero = 0;
  for (const Json& n : j["n_zero"]) n_zero += n.get<std::int64_t>();
  EXPECT_EQ(n_zero, 1) << "step 0";
  kl.add(std::numeric_limits<std::int64_t>::max(), 1.0);
  EXPECT_LE(kl.to_json()["step"].size(), KlBySteps::kMaxBins);
  EXPECT_EQ(kl.n(), 5001);
}

TEST(KlBySteps, HalvesAtTheFirstStepThatHasNoBin) {
  KlBySteps kl;
  for (std::int64_t step = 0; step < 256; ++step) kl.add(step, 0.0);
  EXPECT_EQ(kl.to_json()["width"], 1);
  kl.add(256, 0.0);
  const Json j = kl.to_json();
  EXPECT_EQ(j["width"], 2);
  ASSERT_EQ(j["step"].size(), 129u);
  EXPECT_EQ(j["n_zero"][0], 2) << "of both bins that were put together";
  EXPECT_EQ(j["n_zero"][128], 1);
}

TEST(RunAggregates, KeepWhatBothArmsHadAtTheFlip) {
  RunAggregates aggregates;
  aggregates.add(step_of("a", 0, 1.0));
  StepRecord at_flip = step_of("a", 1, 2.0);
  at_flip.margin_off = 0.5;
  at_flip.tie_off = true;
  aggregates.add(at_flip);
  aggregates.add(step_of("a", 2, 3.0, Clock::forced));
  aggregates.add(pair_of("a", "p", 3, 1));
  const Json example = aggregates.finish()[0]["examples"][0];
  EXPECT_EQ(example["step"], (Json{{"kl_on_off_nats", 2.0}, {"max_abs_dlogit", 2.0}, {"margin_on", 1.0}, {"margin_off", 0.5}, {"tie", true}}));
}

TEST(RunAggregates, TellTheClocksApart) {
  RunAggregates aggregates;
  aggregates.add(step_of("a", 0, 1.0));
  aggregates.add(step_of("a", 1, 2.0, Clock::forced));
  aggregates.add(step_of("a", 1, 50.0, Clock::free));
  aggregates.add(pair_of("a", "p", 2, 0));
  const Json c = aggregates.finish()[0];
  EXPECT_EQ(c["kl"]["same_prefix"]["mean"], Json({1.0, 2.0}));
  EXPECT_EQ(c["kl"]["free_running"]["mean"], Json({1.0, 50.0}));
  EXPECT_EQ(c["n_steps"], 3);
  EXPECT_EQ(c["margins"]["n_steps"], 2) << "margins are of the same prefix";
}

TEST(RunAggregates, RefuseRecordsThatAreOutOfOrder) {
  RunAggregates a, b, c;
  a.add(step_of("a", 0, 1.0));
  EXPECT_THROW(a.add(step_of("b", 0, 1.0)), Error);
  b.add(step_of("a", 0, 1.0));
  EXPECT_THROW(b.add(pair_of("b", "p", 1)), Error);
  EXPECT_THROW(c.add(step_of("a", -1, 1.0)), Error);
}

TEST(RunAggregates, OfAnyNumberOfPairsHaveOneSize) {
  const auto size_of_run = [](int n_pairs) {
    RunAggregates aggregates;
    for (int p = 0; p < n_pairs; ++p) {
      const std::string id = std::to_string(p);
      for (std::int64_t s = 0; s < 8; ++s) aggregates.add(step_of(id, s, s == 0 ? 0.0 : 1e-7 * static_cast<double>(1 + (p * 7 + s) % 5)));
      aggregates.add(pair_of(id, id, 8, p % 2 == 0 ? std::optional<std::int64_t>(p % 8) : std::nullopt));
    }
    return aggregates.finish().dump().size();
  };
  EXPECT_LT(size_of_run(4000), size_of_run(400) * 1.1);
}

TEST(MarginMap, CountsWhatCanChangeAndWhatDid) {
  MarginMap map;
  const auto add = [&](double margin, double dlogit, bool changed) {
    StepRecord s;
    s.margin_on = margin;
    s.max_abs_dlogit = dlogit;
    s.top1_equal = !changed;
    map.add(s);
  };
  add(1.0, 0.0, false);     // equal
  add(0.0, 0.1, true);      // tied
  add(0.2, 0.1, true);      // on the line
  add(0.21, 0.1, false);    // beyond it
  add(kNan, 0.1, true);     // not finite
  add(0.15, 0.1, false);
  const Json j = map.to_json();
  EXPECT_EQ(j["n_steps"], 6);
  EXPECT_EQ(j["n_equal"], 1);
  EXPECT_EQ(j["n_tied"], 1);
  EXPECT_EQ(j["n_nonfinite"], 1);
  EXPECT_EQ(j["n_can_change"], 3);
  EXPECT_EQ(j["n_changed"], 2);
  std::int64_t n = 0;
  for (const Json& cell : j["cells"]) {
    n += cell[2].get<std::int64_t>();
    EXPECT_EQ(cell[3], cell[0] == static_cast<int>(std::floor(8 * std::log10(0.2))) ? 1 : 0) << "the step on the line changed: " << cell;
    EXPECT_EQ(cell[1], static_cast<int>(std::floor(8 * std::log10(0.1))));
  }
  EXPECT_EQ(n, 3);
}

TEST(PrefixSurvival, IsTheProductLimitEstimate) {
  PrefixSurvival prefix;
  prefix.add(pair_of("a", "p", 10, 2));
  prefix.add(pair_of("b", "p", 10, 2));
  prefix.add(pair_of("c", "p", 3));      // its last step is 2: it was at risk there, and is not at 3
  prefix.add(pair_of("d", "p", 10, 5));
  prefix.add(pair_of("e", "p", 10));
  const Json j = prefix.to_json();
  EXPECT_EQ(j["n_pairs"], 5);
  EXPECT_EQ(j["n_flipped"], 3);
  ASSERT_EQ(j["survival"].size(), 2u);
  EXPECT_EQ(j["survival"][0], Json({2, 0.6, 5, 2}));
  EXPECT_EQ(j["survival"][1], Json({5, 0.3, 2, 1}));
  EXPECT_EQ(j["bars"], (Json{{"width", 1}, {"n", {0, 0, 2, 0, 0, 1}}}));
  EXPECT_EQ(j["last_step"], 10);
}

TEST(PrefixSurvival, PutsLateFlipsIntoFewBars) {
  PrefixSurvival prefix;
  for (std::int64_t i = 0; i < 1000; ++i) prefix.add(pair_of("a", "p", 1001, i));
  const Json j = prefix.to_json();
  EXPECT_EQ(j["bars"]["width"], 16);
  EXPECT_LE(j["bars"]["n"].size(), 64u);
  EXPECT_EQ(j["bars"]["n"][0], 16);
  EXPECT_LE(j["survival"].size(), PrefixSurvival::kMaxPoints + 1);
  EXPECT_NEAR(j["survival"].back()[1].get<double>(), 0.0, 1e-12);
}

// ---- texts ---------------------------------------------------------------------------------------------------------

TEST(FlipText, IsMarkedWhereTheTokensBegin) {
  const auto [on, off] = mark_flip("I saw them go", "I saw then", " them", " then");
  EXPECT_EQ(on.before, "I saw");
  EXPECT_EQ(on.token, " them") << "the texts part at the last letter, the tokens at the space";
  EXPECT_EQ(on.after, " go");
  EXPECT_EQ(off.token, " then");
  EXPECT_EQ(off.after, "");
}

TEST(FlipText, IsMarkedAtTheFirstCharacterThatDiffersWhereTokensHaveNoText) {
  const auto [on, off] = mark_flip("caf\xC3\xA9!", "caf\xC3\xA8?", std::nullopt, std::nullopt);
  EXPECT_EQ(on.before, "caf");
  EXPECT_EQ(on.token, "\xC3\xA9") << "whole characters";
  EXPECT_EQ(off.token, "\xC3\xA8");
  const auto [longer, ended] = mark_flip("go on", "go", " on", std::nullopt);
  EXPECT_EQ(longer.before, "go");
  EXPECT_EQ(longer.token, " ");
  EXPECT_EQ(ended.token, "");
  const auto [same, too] = mark_flip("same", "same", "x", "y");
  EXPECT_EQ(same.before, "same");
  EXPECT_EQ(same.token + too.token, "");
}

TEST(FlipText, OfAnyLengthIsCutAroundTheFlip) {
  std::string many;
  for (int i = 0; i < 4000; ++i) many += "\xE2\x82\xAC";  // three bytes each
  const auto [on, off] = mark_flip(many + "a" + many, many + "b" + many, "a", "b");
  EXPECT_EQ(on.token, "a");
  EXPECT_TRUE(on.is_cut_before && on.is_cut_after);
  EXPECT_LT(on.before.size() + on.after.size(), 2000u);
  EXPECT_TRUE(is_valid_utf8(on.before) && is_valid_utf8(on.after));
}

TEST(FlipText, TakesTokensThatAreNotAmongTheTopFromTheText) {
  PairRecord p = pair_of("a", "p", 4, 2);
  p.text_on = "a b c";
  p.text_off = "a b d";
  p.flip_top = FlipTop{{{7, " c", 1.0}}, {{9, " e", 1.0}}};
  const Json j = flip_example(p, nullptr);
  EXPECT_EQ(j["text"]["on"]["token"], "c");
  EXPECT_EQ(j["token_on"], 7);
  EXPECT_EQ(j["token_off"], 8);
  EXPECT_TRUE(j["step"].is_null());
  p.text_off = std::nullopt;
  EXPECT_TRUE(flip_example(p, nullptr)["text"].is_null()) << "one text says nothing of the other";
  EXPECT_EQ(j["ids_off"], Json({7, 7, 8, 7}));
}

// ---- the page ------------------------------------------------------------------------------------------------------

const PageAssets kAssets{"<title>{{title}}</title><style>{{style}}</style><script>{{data}}</script>{{chart_js}}|{{script}}", "css", "js", "chart"};

TEST(Page, KeepsHostileTextInsideItsJson) {
  const std::string hostile = "</script><script>alert(1)</script><!--{{script}} & \xE2\x80\xA8 \xE2\x80\xAE \"'\\ ";
  const Json data = {{"text", hostile + std::string(1, '\0') + "\xFF"}};
  const std::string page = build_page(data, hostile, kAssets);
  EXPECT_THAT(page, HasSubstr("|js")) << "marks in data are data";
  std::size_t n = 0;
  for (std::size_t at = page.find("</script"); at != std::string::npos; at = page.find("</script", at + 1)) ++n;
  EXPECT_EQ(n, 1u) << page;
  const std::string embedded = embed_json(data);
  EXPECT_TRUE(std::all_of(embedded.begin(), embedded.end(), [](char c) { return c >= ' ' && c <= '~'; }));
  EXPECT_EQ(embedded.find_first_of("<>&"), std::string::npos);
  const Json back = Json::parse(embedded);
  EXPECT_EQ(back["text"], hostile + std::string(1, '\0') + "\xEF\xBF\xBD");
}

TEST(Page, EscapesScriptsThatNameTheirOwnEnd) {
  PageAssets assets = kAssets;
  assets.script = "const a = '</script>';";
  EXPECT_THAT(build_page(Json::object(), "", assets), HasSubstr("'<\\/script>'"));
}

TEST(Page, SaysWhichMarkItsTemplateLacks) {
  PageAssets assets = kAssets;
  assets.page = "{{data}} {{title}}";
  EXPECT_THROW(build_page(Json::object(), "", assets), Error);
}

Json result_with_tables() {
  Json report = sample_report();
  report["experiment"] = {{"name", "drift"}, {"params", Json::object()}};
  report["conditions"] = Json::array();
  Json rows = Json::array(), other = Json::array();
  for (int layer = 0; layer < 3; ++layer)
    rows.push_back({{"layer", layer}, {"l2", sample_stat(layer)}, {"differing_rate", 0.5}});
  for (int i = 0; i < 5000; ++i) other.push_back({{"x", i}});
  report["conditions"].push_back({{"dtype", "float16"}, {"backend", "torch"}, {"by_layer", rows}, {"undrawn", other}});
  return report;
}

TEST(PageData, LeavesOutWhatNothingDraws) {
  const Json slim = slim_report(result_with_tables());
  const Json& c = slim["conditions"][0];
  EXPECT_FALSE(c.contains("undrawn"));
  ASSERT_EQ(c["by_layer"].size(), 3u);
  const Json& stat = c["by_layer"][1]["l2"];
  EXPECT_FALSE(stat.contains("ci_method") || stat.contains("std"));
  const Json whole = sample_stat(1);
  for (const char* key : {"n", "mean", "median", "p5", "p95", "max", "ci_low", "ci_high"}) EXPECT_EQ(stat[key], whole[key]) << key;
}

TEST(PageData, LeavesOutLongListsOfPrompts) {
  Json report = sample_report();
  EXPECT_TRUE(slim_report(report)["data"].contains("indices"));
  report["data"]["indices"] = std::vector<int>(700, 1);
  EXPECT_FALSE(slim_report(report)["data"].contains("indices"));
  EXPECT_EQ(slim_report(report)["data"]["n_prompts"], 4);
}

TEST(PageData, HasTheLargestRowsOfALongTableAndCountsTheRest) {
  Json report = sample_report(), heads = Json::array();
  for (int head = 0; head < 32; ++head) heads.push_back({{"layer", 1}, {"head", head}, {"kl_on_off_nats", sample_stat(head)}});
  report["experiment"]["name"] = "drift";
  report["conditions"] = Json::array({{{"dtype", "float16"}, {"by_head", heads}}});
  const Json tables = page_tables(report);
  ASSERT_EQ(tables[0]["tables"].size(), 1u);
  const Json& table = tables[0]["tables"][0];
  EXPECT_EQ(table["rows"][0][1], 31);
  EXPECT_EQ(table["rows"].size() + table["n_left_out"].get<std::size_t>(), 32u);
  EXPECT_GT(table["n_left_out"], 0);
}

TEST(PageData, HasTheTablesOfTheTextWithTheirValues) {
  const Json tables = page_tables(result_with_tables());
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0]["label"], "float16/torch");
  const Json& table = tables[0]["tables"][0];
  ASSERT_EQ(table["rows"].size(), 3u);
  EXPECT_EQ(table["columns"][0]["header"], "layer");
  EXPECT_EQ(table["columns"][2]["cell"], "interval");
  EXPECT_EQ(table["rows"][2][0], 2);
  EXPECT_EQ(table["rows"][2][2], Json({2.0, 1.0, 3.0}));
  EXPECT_EQ(table["n_left_out"], 0);
}

TEST(Differences, AreOfSettingsAndOfIntervalsThatDoNotOverlap) {
  Json a = sample_report(), b = a;
  b["experiment"]["params"]["limit"] = 3;
  EXPECT_EQ(page_differences(a, a)["settings"].size(), 0u);
  EXPECT_EQ(page_differences(a, a)["n_different"], 0);
  EXPECT_GT(page_differences(a, a)["n_compared"], 5);
  b["conditions"][0]["same_prefix"]["kl_on_off_nats"] = sample_stat(1e-4);
  const Json d = page_differences(a, b);
  ASSERT_EQ(d["settings"].size(), 1u);
  EXPECT_EQ(d["settings"][0]["key"], "experiment.params.limit");
  EXPECT_EQ(d["settings"][0]["b"], "3");
  ASSERT_EQ(d["quantities"].size(), 1u) << d;
  EXPECT_EQ(d["quantities"][0]["quantity"], "same_prefix.kl_on_off_nats");
  EXPECT_EQ(d["quantities"][0]["b"], Json({1e-4, 1e-4 * 0.5, 1e-4 * 1.5}));
  EXPECT_EQ(page_differences(b, a)["quantities"].size(), 1u) << "in either direction";
  b["conditions"][0]["same_prefix"]["kl_on_off_nats"] = sample_stat(1.6e-6);
  EXPECT_EQ(page_differences(a, b)["n_different"], 0) << "another mean, but the intervals overlap";
  b["conditions"][0]["dtype"] = "float64";
  const Json other = page_differences(a, b);
  EXPECT_EQ(other["only_in_a"].size(), 1u);
  EXPECT_EQ(other["only_in_b"].size(), 1u);
}

Json report_of_rows(const Json& rows) {
  Json report = sample_report();
  report["conditions"] = Json::array({{{"condition", "one"}, {"rows", rows}}});
  return report;
}

Json row_of(int layer, double value, const Json& low, const Json& high) {
  return {{"layer", layer}, {"margin_from", value}, {"k", {{"value", value}, {"low", low}, {"high", high}}}};
}

TEST(Differences, OfPointsAndOfIntervalsThatTouchAreTold) {
  const Json a = report_of_rows({row_of(0, 1.0, 1.0, 1.0), row_of(1, 2.0, 1.0, 3.0), row_of(2, 5.0, 4.0, 6.0)});
  const Json b = report_of_rows({row_of(2, 7.5, 6.5, 8.5), row_of(1, 4.0, 3.0, 5.0), row_of(0, 1.5, 1.5, 1.5)});
  const Json d = page_differences(a, b);
  EXPECT_EQ(d["n_compared"], 3);
  ASSERT_EQ(d["quantities"].size(), 2u) << "layer 1's intervals touch at 3";
  EXPECT_EQ(d["quantities"][0]["quantity"], "rows [layer 0].k") << "two points are infinitely many widths apart";
  EXPECT_EQ(d["quantities"][1]["quantity"], "rows [layer 2].k");
  EXPECT_EQ(d["quantities"][1]["a"], Json({5.0, 4.0, 6.0}));
}

TEST(Differences, CountWhatCannotBeCompared) {
  const Json a = report_of_rows({row_of(0, 1.0, nullptr, nullptr), row_of(0, 2.0, 1.0, 3.0), row_of(3, 1.0, 0.0, 2.0)});
  const Json b = report_of_rows({row_of(0, 9.0, 8.0, 10.0), row_of(0, 9.0, 8.0, 10.0)});
  const Json d = page_differences(a, b);
  EXPECT_EQ(d["n_without_interval"], 1);
  EXPECT_EQ(d["n_in_one"], 1) << "layer 3";
  EXPECT_EQ(d["n_compared"], 1) << "the second of two rows of one name";
  EXPECT_EQ(d["n_different"], 1);
  EXPECT_EQ(d["quantities"][0]["quantity"], "rows [layer 0 #2].k");
}

TEST(Differences, AreFoundInThePartsOfAPaper) {
  Json a = sample_report();
  a["experiments"]["drift"]["conditions"] = Json::array({{{"dtype", "float16"}, {"backend", "torch"}, {"k", sample_stat(1.0)}}});
  Json b = a;
  EXPECT_EQ(page_differences(a, b)["n_different"], 0);
  b["experiments"]["drift"]["conditions"][0]["k"] = sample_stat(100.0);
  const Json d = page_differences(a, b);
  ASSERT_EQ(d["quantities"].size(), 1u);
  EXPECT_EQ(d["quantities"][0]["condition"], "drift float16/torch");
  b.erase("experiments");
  EXPECT_EQ(page_differences(a, b)["only_in_a"], Json({"drift float16/torch"}));
}

class Written : public testing::Test {
 protected:
  Written() {
    dir_.holds_broken_results();
    std::filesystem::create_directories(result_);
    write_text_file_atomically(result_ / kReportFile, sample_report().dump());
    write_text_file_atomically(result_ / kRecordsFile, line_of("step", to_json_value(step_of("a", 0, 0.25))) +
                                                           line_of("pair", to_json_value(pair_of("a", "p", 1))));
  }
  std::string page(const std::vector<std::filesystem::path>& results) const {
    const bool has_charts = write_html(results, dir_.path() / "page.html");
    EXPECT_EQ(has_charts, read_text_file(dir_.path() / "page.html").size() > 150000) << "Chart.js has 200 kB";
    return read_text_file(dir_.path() / "page.html");
  }
  TempDir dir_;
  const std::filesystem::path result_ = dir_.path() / "result";
};

TEST_F(Written, PagesAreTheSameEachTimeAndHoldTheirRecords) {
  const std::string first = page({result_});
  EXPECT_EQ(page({result_}), first);
  EXPECT_THAT(first, HasSubstr("\"mean\":[0.25]"));
  EXPECT_THAT(first, Not(HasSubstr("{{"))) << "no mark is left";
  EXPECT_THAT(first, HasSubstr("Content-Security-Policy"));
  EXPECT_THAT(first, Not(HasSubstr(" src=\"http")));
}

TEST_F(Written, PagesOfAReportAloneSayWhatIsMissing) {
  EXPECT_THAT(page({result_ / kReportFile}), HasSubstr("report.json alone"));
  std::filesystem::remove(result_ / kRecordsFile);
  EXPECT_THAT(page({result_}), HasSubstr("no records.jsonl"));
}

TEST_F(Written, PagesAreOfOneResultOrTwo) {
  EXPECT_THAT(page({result_, result_}), HasSubstr("\"n_different\":0"));
  EXPECT_THROW(page({}), Error);
  EXPECT_THROW(page({result_, result_, result_}), Error);
  EXPECT_THROW(page({dir_.path() / "nothing"}), Error);
  EXPECT_THROW(write_html({result_}, dir_.path() / "no" / "such" / "folder.html"), Error);
}

}  // namespace
}  // namespace kvdiv::test
