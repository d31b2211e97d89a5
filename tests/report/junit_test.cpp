// JUnit files, read by a small reader of its own that accepts well-formed XML only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

#include "kvdiv/base/text.h"
#include "kvdiv/report/junit.h"
#include "support/run_report.h"

namespace kvdiv {
namespace {

using test::sample_contract;
using test::sample_report;
using testing::HasSubstr;

struct Element {
  std::string name, text;
  std::map<std::string, std::string> attributes;
};

/// Elements in document order; throws for anything that is not well-formed (of the XML that is written here: no comments,
/// no CDATA, no processing instructions but the first).
class XmlReader {
 public:
  explicit XmlReader(const std::string& xml) : xml_(xml) {
    const std::string head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    require(xml.starts_with(head) && is_valid_utf8(xml), "head or encoding");
    for (const char c : xml) require(static_cast<unsigned char>(c) >= 0x20 || c == '\n', "control character");
    require(xml.find("\xEF\xBF\xBE") == std::string::npos && xml.find("\xEF\xBF\xBF") == std::string::npos, "noncharacter");
    at_ = head.size();
    element();
    require(xml_.substr(at_) == "\n", "text after the root");
  }
  std::vector<Element> all;

 private:
  static void require(bool holds, const std::string& what) {
    if (!holds) throw std::runtime_error("not well-formed: " + what);
  }
  bool take(const std::string& token) {
    const bool is_there = xml_.compare(at_, token.size(), token) == 0;
    if (is_there) at_ += token.size();
    return is_there;
  }
  std::string until(const std::string& stops) {
    const std::size_t end = xml_.find_first_of(stops, at_);
    require(end != std::string::npos, "end of file");
    std::string out = xml_.substr(at_, end - at_);
    at_ = end;
    return out;
  }
  std::string unescaped(const std::string& text) const {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      require(text[i] != '<' && text[i] != '>', "bare < or >");
      if (text[i] != '&') {
        out += text[i];
        continue;
      }
      const std::size_t end = text.find(';', i);
      require(end != std::string::npos, "bare &");
      static const std::map<std::string, std::string> names{{"amp", "&"}, {"lt", "<"}, {"gt", ">"}, {"quot", "\""}, {"apos", "'"}, {"#9", "\t"}, {"#10", "\n"}, {"#13", "\r"}};
      const auto found = names.find(text.substr(i + 1, end - i - 1));
      require(found != names.end(), "reference " + text.substr(i, end - i));
      out += found->second;
      i = end;
    }
    return out;
  }
  void element() {
    require(take("<"), "element");
    const std::size_t index = all.size();
    all.push_back({until(" />\n"), "", {}});
    while (take(" ")) {
      const std::string key = until("=");
      require(take("=\""), "attribute");
      require(all[index].attributes.emplace(key, unescaped(until("\""))).second, "attribute twice");
      require(take("\""), "attribute");
    }
    if (take("/>")) return;
    require(take(">"), "tag");
    while (!take("</" + all[index].name + ">")) {
      all[index].text += unescaped(until("<"));
      if (xml_.compare(at_, 2, "</") != 0)
        element();
      else
        require(xml_.compare(at_, all[index].name.size() + 3, "</" + all[index].name + ">") == 0, "end tag");
    }
  }
  const std::string& xml_;
  std::size_t at_ = 0;
};

std::string xml_of(const Json& contract, const Json& report) {
  const Contract c = parse_contract(contract, "c.json");
  const std::vector<JUnitSuite> suites{junit_suite(c, check_contract(c, report, "r.json"))};
  return junit_xml(suites);
}

TEST(JUnit, OneCaseALimitAndCondition) {
  Json report = sample_report(), contract = sample_contract();
  report["conditions"].push_back(test::sample_condition("float16", "invariant"));
  report["conditions"][1]["same_prefix"]["kl_on_off_nats"]["mean"] = 2e-6;
  contract["limits"].push_back({{"dtype", "float64"}, {"clock", "same_prefix"}, {"metric", "flip_rate"}, {"at_most", 0}, {"reason", "never"}});
  const std::string xml = xml_of(contract, report);
  const auto all = XmlReader(xml).all;
  ASSERT_EQ(all.size(), 7u) << xml;
  EXPECT_EQ(all[0].name, "testsuites");
  for (const std::size_t i : {0u, 1u}) {
    EXPECT_EQ(all[i].attributes.at("tests"), "3");
    EXPECT_EQ(all[i].attributes.at("failures"), "1");
    EXPECT_EQ(all[i].attributes.at("errors"), "1");
  }
  EXPECT_EQ(all[1].attributes.at("name"), "a contract");
  EXPECT_EQ(all[2].attributes.at("classname"), "a contract");
  EXPECT_EQ(all[2].attributes.at("name"), "float16 same_prefix kl_on_off_nats mean ≤ 1e-06 [float16/torch/greedy]");
  EXPECT_EQ(all[3].name, "testcase");
  EXPECT_EQ(all[4].name, "failure");
  EXPECT_EQ(all[4].attributes.at("message"), "measured 2e-06, allowed ≤ 1e-06");
  EXPECT_EQ(all[4].text, "the limit's reason: measured so");
  EXPECT_THAT(all[5].attributes.at("name"), HasSubstr("[no condition]"));
  EXPECT_EQ(all[6].name, "error");
  EXPECT_THAT(all[6].attributes.at("message"), HasSubstr("no condition of the report matches"));
}

TEST(JUnit, AnInvalidReportIsAnErrorEverywhere) {
  Json report = sample_report();
  report["complete"] = false;
  report["controls"]["order_independent"] = false;
  const std::string xml = xml_of(sample_contract(), report);
  const auto all = XmlReader(xml).all;
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[3].name, "error");
  EXPECT_EQ(all[3].attributes.at("message"), "the run is not complete; the control order_independent failed");
}

/// Markup, quotes, line ends and what XML cannot hold, wherever a text of a file comes in.
TEST(JUnit, HostileTextsAreText) {
  const std::string hostile = "]]>\"'&amp;<b>\t\n\r\x01\x1b\x7f\xEF\xBF\xBF\xF0\x9F\x98\x80é--><!--";
  const std::string kept = "]]>\"'&amp;<b>\t\n\r\xEF\xBF\xBD\xEF\xBF\xBD\x7f\xEF\xBF\xBD\xF0\x9F\x98\x80é--><!--";
  Json report = sample_report(), contract = sample_contract();
  contract["title"] = hostile;
  Json& limit = contract["limits"][0];
  limit["reason"] = hostile;
  limit["backend"] = hostile;
  limit["at_most"] = 0;
  report["conditions"][0]["backend"] = hostile;
  const std::string xml = xml_of(contract, report);
  const auto all = XmlReader(xml).all;
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[1].attributes.at("name"), kept);
  EXPECT_EQ(all[2].attributes.at("classname"), kept);
  EXPECT_THAT(all[2].attributes.at("name"), HasSubstr("[float16/" + kept + "/greedy]"));
  EXPECT_EQ(all[3].text, "the limit's reason: " + kept);
}

TEST(JUnit, AnyBytesAreValidText) {
  EXPECT_EQ(xml_escaped("a\xff" "b"), "a\xEF\xBF\xBD" "b");
  EXPECT_EQ(xml_escaped("\xC3"), "\xEF\xBF\xBD");
  EXPECT_EQ(xml_escaped(std::string_view("\0x", 2)), "\xEF\xBF\xBDx");
  EXPECT_EQ(xml_escaped("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD") << "a lone surrogate";
  EXPECT_EQ(xml_escaped("é‖"), "é‖");
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  const std::vector<JUnitSuite> suites{{bytes, {{bytes, LimitStatus::violated, bytes, bytes}, {"b", LimitStatus::ok, ""}}}};
  EXPECT_EQ(XmlReader(junit_xml(suites)).all.size(), 5u);
}

TEST(JUnit, TheReaderSeesWhatIsNotWellFormed) {
  const std::string head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  EXPECT_NO_THROW(XmlReader(head + "<a b=\"1\">x<c/></a>\n"));
  for (const char* bad : {"<a>\n", "<a></b>\n", "<a b=\"<\"/>\n", "<a>&</a>\n", "<a>\x01</a>\n", "<a b=\"1\" b=\"2\"/>\n", "<a/><a/>\n"})
    EXPECT_THROW(XmlReader(head + bad), std::runtime_error) << bad;
}

}  // namespace
}  // namespace kvdiv
