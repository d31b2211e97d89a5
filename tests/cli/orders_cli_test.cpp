// Named orders of summation and `shapes` as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvdiv/report/result_directory.h"
#include "process.h"

namespace kvdiv::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Orders, ABackendIsAFlag) {
  const TempDir dir;
  const auto result = kvdiv_run({"run", "--limit", "1", "--max-new-tokens", "4", "--strategy", "greedy", "--backend", "order:blocked:16", "--backend",
                                 "order:prefill=blocked:16@float16,decode=pairwise@float16", "--output", (dir.path() / "a").string(), "--quiet"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json conditions = read_report(dir.path() / "a")["conditions"];
  ASSERT_EQ(conditions.size(), 2u);
  EXPECT_EQ(conditions[0]["backend"], "order:blocked:16");
  EXPECT_EQ(conditions[0]["same_prefix"]["bit_equal_rate"], 1.0);
  EXPECT_LT(conditions[1]["same_prefix"]["bit_equal_rate"].get<double>(), 1.0);
}

TEST(Orders, AMistakeIsNamed) {
  EXPECT_THAT(kvdiv_run({"run", "--help"}).out, HasSubstr("order:SPEC"));
  const auto result = kvdiv_run({"run", "--backend", "order:prefill=sequental,decode=kahan"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("--backend"), HasSubstr("did you mean 'sequential'")));
  const auto list = kvdiv_run({"run", "--backend", "invariant,order:prefill=kahan,decode=pairwise"});
  EXPECT_EQ(list.code, 2);
  EXPECT_THAT(list.err, HasSubstr("--backend invariant --backend order:prefill=kahan,decode=pairwise")) << "lists of other flags take commas";
  EXPECT_EQ(kvdiv_run({"run", "--backend", "order:kahan", "--attention", "sdpa"}).code, 2);
}

TEST(Orders, FalsifyHasTheirTable) {
  const TempDir dir;
  const auto result = kvdiv_run({"falsify", "--part", "orders", "--limit", "1", "--max-new-tokens", "2", "--output", (dir.path() / "a").string()});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("order of the sums"), HasSubstr("order:prefill=blocked:32,decode=split-k:8"), HasSubstr("controls: all 2 hold"),
                                HasSubstr("are bit-equal, in every dtype")));
}

TEST(Shapes, PrintsWhereBitsChange) {
  const TempDir dir;
  const auto result = kvdiv_run({"shapes", "--limit", "1", "--max-rows", "9", "--operation", "linear,attention", "--backend", "order:prefill=pairwise,decode=kahan", "--backend",
                                 "order:kahan", "--dtype", "float32", "--output", (dir.path() / "a").string()});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("changes from"), HasSubstr("lm_head"), HasSubstr("controls: all 1 hold"), HasSubstr("from 2 rows on"),
                                HasSubstr("float32/order:kahan: the same bits at every shape tried")));
  const Json report = read_report(dir.path() / "a");
  EXPECT_EQ(report["verdict"]["kind"], "shape_dependent");
  EXPECT_EQ(report["conditions"][0]["shapes"][0]["onset"], 2);
  EXPECT_EQ(kvdiv_run({"report", (dir.path() / "a").string()}).out, result.out);
  EXPECT_EQ(kvdiv_run({"shapes", "--max-rows", "1"}).code, 2);
}

}  // namespace
}  // namespace kvdiv::test
