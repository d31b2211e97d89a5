// The rotary base, in the order of the reference (transformers 5.24): rope_scaling, if it holds anything, stands for
// rope_parameters; a theta in there wins over the top-level rope_theta; without either it is 10000.
#include <set>

#include "config_reader.h"

namespace kvdiv {
namespace {

constexpr double kDefaultTheta = 10000.0;

double read_theta(const ConfigReader& reader, const std::string& key, const Json& value) {
  if (!ConfigReader::is_positive(value)) reader.refuse(key.c_str(), value, "a number above 0");
  return value.get<double>();
}

/// One {rope_type, rope_theta} object; other members would scale or cut the rotation.
void read_flat(const ConfigReader& reader, const std::string& where, const Json& members, std::set<double>& thetas) {
  for (const auto& [key, value] : members.items()) {
    const std::string path = where + "." + short_name(key);
    if (value.is_null() || value.is_object()) continue;
    if (key == "rope_theta") {
      thetas.insert(read_theta(reader, path, value));
    } else if (key == "rope_type" || key == "type") {
      if (value != "default") reader.refuse(path.c_str(), value, "\"default\": no other rotary scaling is supported");
    } else if (key == "partial_rotary_factor" || key == "factor") {
      if (!value.is_number() || value != 1) reader.refuse(path.c_str(), value, "1: it changes the rotation otherwise");
    } else if (key != "original_max_position_embeddings") {
      reader.refuse(path.c_str(), value, "no such key: only rope_type \"default\" is supported");
    }
  }
}

/// The thetas that the object gives, whether flat, or nested per layer type, or both.
std::set<double> read_object(const ConfigReader& reader, const std::string& key, const Json& members) {
  std::set<double> thetas;
  read_flat(reader, key, members, thetas);
  for (const auto& [layer_type, nested] : members.items()) {
    if (!nested.is_object()) continue;
    const std::string where = key + "." + short_name(layer_type);
    if (layer_type != "full_attention" && layer_type != "sliding_attention")
      reader.refuse(where.c_str(), nested, "only full_attention and sliding_attention to be nested");
    for (const auto& [inner, value] : nested.items())
      if (value.is_structured()) reader.refuse((where + "." + short_name(inner)).c_str(), value, "a plain value");
    const std::size_t before = thetas.size();
    read_flat(reader, where, nested, thetas);
    if (thetas.size() > 1 && thetas.size() != before)
      reader.refuse(key.c_str(), members, "one rope_theta for all layer types: different ones are not supported");
  }
  return thetas;
}

/// rope_scaling or rope_parameters; null and {} say nothing.
const Json* find_members(const ConfigReader& reader, const char* key) {
  const Json* value = reader.find_set(key);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) reader.refuse(key, *value, "an object, or null");
  return value->empty() ? nullptr : value;
}

}  // namespace

double read_rope_theta(const ConfigReader& reader, Warnings& warnings) {
  const Json* scaling = find_members(reader, "rope_scaling");
  const Json* parameters = find_members(reader, "rope_parameters");
  std::set<double> nested;
  if (parameters != nullptr) nested = read_object(reader, "rope_parameters", *parameters);
  if (scaling != nullptr) {
    const std::set<double> scaled = read_object(reader, "rope_scaling", *scaling);
    if (parameters != nullptr && scaled != nested)
      reader.refuse("rope_scaling", *scaling, "the same as rope_parameters, or only one of the two");
    nested = scaled;
  }
  const Json* top = reader.find("rope_theta");
  if (nested.empty()) return top == nullptr ? kDefaultTheta : read_theta(reader, "rope_theta", *top);
  const double theta = *nested.begin();
  if (top != nullptr && !top->is_null() && read_theta(reader, "rope_theta", *top) != theta)
    warnings.add(
        WarningCode::rope_theta_conflict,
        fmt::format("{}: rope_theta is {} at the top and {} in {}; the latter is used, as the reference does",
                    reader.file(), short_dump(*top), theta, scaling != nullptr ? "rope_scaling" : "rope_parameters"));
  return theta;
}

}  // namespace kvdiv
