#pragma once
// `kvdiv check`: a report held against a contract, and against an older report.
#include <optional>
#include <string>

#include "command.h"

namespace kvdiv {

struct CheckParams {
  std::optional<std::string> contract, junit, against;
  bool json = false;
};

template <class V>
void describe_fields(V& v, CheckParams& p) {
  v.field("contract", p.contract, "the limits: a JSON file, see configs/contracts and schemas/contract.schema.json");
  v.field("junit", p.junit, "write the results as JUnit XML to this file");
  v.field("against", p.against, "an older result on the same prompts: whatever is worse than there is a regression");
  v.field("json", p.json, "print JSON, with the tightest contract that would have held");
}

/// 0: the contract holds; 1: it is violated, or something regressed; 4: that cannot be said.
int check_command(const Invocation& invocation);

}  // namespace kvdiv
